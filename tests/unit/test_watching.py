"""The view of `top`: on a terminal it is drawn again and again, elsewhere once."""

from __future__ import annotations

import io

import pytest

from outrider import Frontier
from outrider.cli import main as cli
from outrider.crawl.questions.watching import MOMENTS, bars, watch


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_bars_are_as_high_as_rates():
    assert " ▁▄█" == bars([0.0, 0.1, 2.0, 4.0])
    assert "  " == bars([0.0, 0.0])
    assert not bars([])


@pytest.fixture
def frames(monkeypatch):
    """What a terminal gets from looks at a crawl, a second apart; it ends with the last one."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def drawn(looks, stream):
        times, left = iter(range(len(looks))), iter(looks)

        def sleep(seconds):
            assert 1.0 == seconds
            if left.__length_hint__() == 0:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            watch(lambda: next(left), stream, title="top", every=1.0, clock=lambda: next(times), sleep=sleep)
        return stream.getvalue().split("\x1b[H")[1:]

    return drawn


def test_a_terminal_gets_the_rate_of_the_last_moment_and_its_bar(frames):
    first, second, third = frames([(5, ["state a"]), (15, ["state b"]), (20, ["state c"])], Terminal())
    assert ("state a" in first, "pages/s" in first) == (True, False)
    assert "10.0 now  |█|  10.0 at most" in second
    assert "5.0 now  |█▄|  10.0 at most" in third


def test_the_view_has_a_bounded_number_of_bars_and_no_text_can_move_the_cursor(frames):
    looks = [(number, ["host \x1b[2Jevil"]) for number in range(MOMENTS + 20)]
    last = frames(looks, Terminal())[-1]
    assert MOMENTS == last.count("█")
    assert "\x1b[2J" not in last


def test_a_restarted_crawl_has_no_negative_rate(frames):
    assert "0.0 now" in frames([(9, []), (2, [])], Terminal())[-1]


def test_another_output_gets_it_once(tmp_path, capsys):
    with Frontier.open(tmp_path / "store") as frontier:
        frontier.discover(["http://a.test/"])
    assert 0 == cli.run(["top", str(tmp_path / "store")])
    printed = capsys.readouterr().out
    assert printed.startswith("outrider top ")
    assert ("accepted    1 URL" in printed, "\x1b" in printed) == (True, False)


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [(["top", "missing"], 2, "missing"), (["top", "missing", "--every", "0"], 2, "--every")],
)
def test_wrong_words_are_named(words, code, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert code == cli.run(words)
    assert named in capsys.readouterr().err
