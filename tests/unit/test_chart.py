"""Charts: scales, time axes, lines with labels, and text from the web."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from outrider.chart import LABEL_HEIGHT, ChartLine, Drawing, Scale, log_log, tick_text, time_ticks

SVG = "{http://www.w3.org/2000/svg}"


def test_a_scale_maps_its_first_and_last_value_to_its_ends():
    assert [40.0, 50.0, 60.0] == [Scale(0, 10, 40, 60)(value) for value in (0, 5, 10)]
    assert [200.0, 100.0, 0.0] == pytest.approx([Scale(1, 100, 200, 0, log=True)(value) for value in (1, 10, 100)])


@pytest.mark.parametrize("span", [0.4, 7, 45, 119, 200, 1_000, 7_199, 8_000, 100_000, 300_000, 400_000, 40_000_000])
def test_labels_of_a_time_axis_are_whole_numbers(span):
    ticks = list(time_ticks(span))
    assert 3 <= len(ticks) <= 11
    if span > 10:
        numbers = [tick_text(tick, span).split()[0] for tick in ticks]
        assert [number for number in numbers if not number.isdigit()] == []
    assert len({tick_text(tick, span).split()[1] for tick in ticks}) == 1


def test_all_lines_are_drawn_and_their_labels_do_not_overlap():
    lines = [ChartLine("ours & theirs", ((100, 5e5), (1e6, 4e5)), ours=True)]
    lines += [ChartLine(f"peer {row}", ((100, 6e4), (1e5, 26 + row)), ending="fails") for row in range(6)]
    root = ElementTree.fromstring(log_log(lines, title="<out>", x_title="hosts", y_title="URLs"))
    assert len(root.findall(f"{SVG}polyline")) == len(lines)
    places = sorted(float(text.get("y", 0)) for text in root.findall(f"{SVG}text") if "style" in text.attrib)
    assert len(places) == len(lines)
    assert min(after - before for before, after in pairwise(places)) >= LABEL_HEIGHT - 0.2


def test_an_empty_chart_says_so():
    with pytest.raises(ValueError, match="no line"):
        log_log([], title="", x_title="", y_title="")


@pytest.mark.parametrize("alone", [True, False])
def test_text_stays_inside_its_element(alone):
    hostile = '</text><script>alert("1")</script>\'&'
    drawn = str(Drawing(10, 10, hostile, alone=alone).text(1, 2, hostile))
    root = ElementTree.fromstring(drawn)
    assert [] == [element.tag for element in root.iter() if "script" in element.tag]
    assert hostile in [element.text for element in root.iter()]


def test_many_bars_are_one_path_and_no_bars_draw_nothing():
    drawing = Drawing(10, 10, "bars", alone=True)
    assert str(drawing) == str(drawing.boxes("mark", []))
    assert 1 == str(drawing.boxes("mark", [(0, 0, 1, 1), (2, 0, 1, 1)])).count("<path")
