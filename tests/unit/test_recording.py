"""docs/pictures/crawl.svg, which scripts/recording.py makes: a crawl that is killed and resumed."""

from __future__ import annotations

import runpy
from xml.etree import ElementTree

import pytest


@pytest.fixture(scope="module")
def drawn(project):
    return runpy.run_path(str(project / "scripts" / "recording.py"))["drawn"]


def test_the_kept_recording_is_small_and_has_no_path_of_a_machine(project):
    text = (project / "docs" / "pictures" / "crawl.svg").read_text("utf-8")
    lines = ["".join(one.itertext()) for one in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    assert (True, False) == (len(text) < 150_000, any(word in text for word in ("/tmp", "/home", "/root", "<script")))
    assert ("$ kill -9 %1" in lines, "$ outrider resume demo" in lines, lines[-1]) == (True, True, "0")


def test_each_line_appears_after_the_one_before_it_and_is_escaped(drawn):
    root = ElementTree.fromstring(drawn([("command", "$ one"), ("", "<two> & three"), ("", "x" * 500)]))
    texts = list(root.iter("{http://www.w3.org/2000/svg}text"))
    assert ["$ one", "<two> & three"] == [one.text for one in texts[:2]]
    begins = [float(one[0].attrib["keyTimes"].split(";")[1]) for one in texts]
    assert begins == sorted(set(begins))
    assert texts[2].text is not None
    assert len(texts[2].text) < 120
