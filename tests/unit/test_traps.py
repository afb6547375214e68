"""Traps: which URLs the rules name, and how they are parked when drawn, explained, counted and returned."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from model.inside import inspect
from outrider import Frontier, Link
from outrider.clock import instant
from outrider.errors import SettingsError
from outrider.frontier.policy.returns import LEVELS, Returns, class_of_shape, is_parked, shape_of, sizes_of
from outrider.frontier.state.returns_table import ReturnsTable
from outrider.journey import Kind, Outcome, RobotsAnswer, Verdict
from outrider.limits import (
    HOST_FETCHES_COMPARED,
    HOST_QUANTILE_TIMES,
    HOST_TRIALS_MAX,
    HOSTS_COMPARED_MIN,
    RETURNS_COPIES_MAX,
    RETURNS_FETCHES_MIN,
    RETURNS_FETCHES_MIN_OF_HOST,
    RETURNS_FETCHES_OF_TRIALS,
    RETURNS_HOSTS_MIN,
    RETURNS_PROBE_FIRST,
    RETURNS_WINDOW,
    RETURNS_WINDOW_OF_HOST,
)
from outrider.url import UrlBatch, host_of
from outrider.url.traps import RULES, Traps, may_be_endless

NOW = instant(1_767_225_600.0)  # the first of January 2026
TRAPS = Traps(url_bytes_max=200, path_depth_max=8, path_repeats_max=3, date_years_max=2.0)
LOOP = "http://a.test/a/b/a/b/a/b/a/x.html"


def rule(url: str, traps: Traps = TRAPS) -> str | None:
    canonical = UrlBatch.of([url])[0]
    number = traps.rule_of(canonical, NOW)
    named = RULES[number - 1] if number else None
    assert (named is None) == (traps.explained(canonical, NOW) is None)
    return named


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("x" * 190, "trap_url_bytes"),
        ("1/2/3/4/5/6/7/8/9", "trap_path_depth"),
        ("1/2/3/4/5/6/7/8", None),
        ("a/b/a/b/a", None),
        ("a/b/a/b/a/b/a/", "trap_path_repeats"),
        ("?a/a/a/a/a/a", None),
        ("calendar/2028/03/", "trap_date"),
        ("calendar/2027/12/", None),
        ("archive/1999/12/", None),
        ("events?date=2035-07-01", "trap_date"),
        ("events?year=2031&month=2", "trap_date"),
        ("events?date=20310501", "trap_date"),
        ("item/20310501", None),
        ("product-4711/9000x2000", None),
        ("v/2.0/2500/13", None),
        ("calendar/2126/01/", "trap_date"),
        ("libraries/xhtml-3000.2.2.1/index.html", None),
        ("charsets/iso-8859-1.html", None),
        ("draft-ietf-httpbis-rfc7230-12", None),
        ("topic/4523/2", None),
        ("topic/4523/2?from=203105", "trap_date"),
        ("?q=" + "x" * 190, None),
        ("?q=" + "x" * 800, "trap_url_bytes"),
        ("?" + "&".join(f"a{n}=1" for n in range(50)), "trap_url_bytes"),
        ("login?return=/login?return=" + "/x" * 90, "trap_url_bytes"),
        ("login?Return=%2Flogin%253FReturn%253D" + "x" * 190, "trap_url_bytes"),
        ("me/me/blob/main/me/me/x.py", None),
        ("job/me/job/other/job/third/job/last", None),
        ("1/2/3/4/a/b/a/b/a/b/a", "trap_path_depth"),
        ("a/b/b/c/a/c/b/b", "trap_path_repeats"),
        ("w/x/y/a/a/a/a", "trap_path_repeats"),
        ("category/2050", None),
        ("?city=2100&p=2", None),
    ],
)
def test_the_rules_name_endless_urls_of_sites(path: str, expected: str | None) -> None:
    assert expected == rule("http://a.test/" + path)


def test_a_rule_that_is_left_out_names_no_url() -> None:
    assert [None] * 3 == [rule(url, Traps()) for url in (LOOP, "http://a.test/2099/12/", "http://a.test/" + "x" * 900)]


def test_an_explanation_has_the_numbers() -> None:
    assert "'a' stands 4 times in its path, more than 3 (max_path_repeats)" == TRAPS.explained(LOOP, NOW)
    assert "it names 2040-05, more than 2 years ahead (date_horizon)" == TRAPS.explained("http://a.test/2040/5/", NOW)


@pytest.mark.parametrize(("name", "value"), [("path_depth_max", -1), ("host_quantile", -0.1), ("host_quantile", 1.0)])
def test_a_limit_without_effect_is_refused(name: str, value: float) -> None:
    with pytest.raises(SettingsError, match=name):
        Traps(**{name: value})


@given(st.text(max_size=60))
def test_any_url_can_be_judged(text: str) -> None:
    urls = UrlBatch.of(["http://a.test/" + text])
    if urls.valid[0]:
        rule(urls[0])
        may_be_endless(urls[0], text)
        assert len(shape_of(urls[0][13:])) <= 210


@pytest.fixture
def settings() -> dict[str, object]:
    return {"traps": TRAPS, "delay": 0, "delay_factor": 0}


def test_a_trap_is_parked_when_it_is_drawn_explained_counted_and_returned(tmp_path, settings) -> None:
    with Frontier.open(tmp_path / "store", settings=settings, robots="caller") as frontier:
        codes = frontier.discover([Link(LOOP, depth=1), Link("http://a.test/b", depth=1)])
        assert ["new", "new"] == [str(code) for code in codes]
        assert "queued" == str(frontier.status(LOOP).state)
        assert ["http://a.test/b"] == [lease.url for lease in frontier.lease(9)]
        known = frontier.status(LOOP)
        assert ("parked", "trap", "trap_path_repeats") == (str(known.state), known.reason, known.error)
        text = frontier.explain(LOOP).reason_text
        assert all(part in text for part in ("trap_path_repeats", "'a' stands 4 times", "more than 3"))
        assert {"trap_path_repeats": 1} == frontier.statistics()["traps"]
    with Frontier.open(tmp_path / "store", settings=settings, robots="caller") as frontier:
        assert ("parked", "trap") == (str(frontier.status(LOOP).state), frontier.status(LOOP).reason)
        assert frontier.verify().ok
        assert 0 == frontier.retry()
        assert 1 == frontier.retry(error="trap")
    with Frontier.open(tmp_path / "store", settings=settings, robots="caller") as frontier:
        leased = frontier.lease(9, per_queue=2)
        assert LOOP in [lease.url for lease in leased]
        frontier.report([lease.done(seconds=0.1) for lease in leased])
        assert "done" == str(frontier.status(LOOP).state)
        assert frontier.verify().ok


def test_a_changed_rule_applies_to_urls_that_are_already_queued(tmp_path, settings) -> None:
    with Frontier.open(tmp_path / "store", settings={"delay": 0, "delay_factor": 0}, robots="caller") as frontier:
        frontier.discover([Link(LOOP, depth=1)])
    with Frontier.open(tmp_path / "store", settings=settings, robots="caller") as frontier:
        assert [] == list(frontier.lease(9))
        assert "trap_path_repeats" == frontier.status(LOOP).error


def test_traps_return_by_the_class_of_their_rule(tmp_path, settings) -> None:
    with Frontier.open(tmp_path / "store", settings=settings, robots="caller") as frontier:
        frontier.discover([Link(LOOP, depth=1), Link("http://a.test/2099/12/", depth=1)])
        assert [] == list(frontier.lease(9))
        assert [0, 1, 0] == [frontier.retry(error=name) for name in ("trap_url_bytes", "trap_date", "trap_date")]
        assert ["http://a.test/2099/12/"] == [lease.url for lease in frontier.lease(9)]


def test_a_seed_is_never_a_trap(tmp_path, settings) -> None:
    with Frontier.open(tmp_path / "store", settings=settings, robots="caller") as frontier:
        assert ["new"] == [str(code) for code in frontier.discover([LOOP])]
        assert [LOOP] == [lease.url for lease in frontier.lease(9)]


def test_a_growing_budget_releases_no_trap(tmp_path, settings) -> None:
    with Frontier.open(tmp_path / "store", settings={**settings, "max_pages_per_host": 1}, robots="caller") as frontier:
        frontier.discover([Link(LOOP, depth=1)])
        assert [] == list(frontier.lease(9))
    with Frontier.open(tmp_path / "store", settings=settings, robots="caller") as frontier:
        assert "parked" == str(frontier.status(LOOP).state)


# -- new URLs in a window ----------------------------------------------------------------------------------------------


def test_a_domain_with_more_new_urls_in_a_day_than_its_limit_has_the_rest_parked(tmp_path) -> None:
    now = [NOW]
    rules = {"traps": Traps(new_urls_max=5), "delay": 0, "delay_factor": 0}
    with Frontier.open(tmp_path / "store", settings=rules, clock=lambda: now[0], robots="caller") as frontier:
        told = [Link(f"http://{number}.a.example/{number}", depth=1) for number in range(8)]
        assert ["new"] * 5 + ["parked"] * 3 == list(map(str, frontier.discover(told)))
        assert ["new"] == [str(code) for code in frontier.discover([Link("http://b.example/", depth=1)])]
        assert ["parked"] == [str(code) for code in frontier.discover([Link("http://a.example/more", depth=1)])]
        assert ["new"] == [str(code) for code in frontier.discover(["http://a.example/seed"])]
        assert "trap_new_urls" == frontier.status("http://7.a.example/7").error
    with Frontier.open(tmp_path / "store", settings=rules, clock=lambda: now[0], robots="caller") as frontier:
        assert ["parked"] == [str(code) for code in frontier.discover([Link("http://a.example/again", depth=1)])]
        now[0] += instant(86_401)
        assert ["new"] == [str(code) for code in frontier.discover([Link("http://a.example/tomorrow", depth=1)])]
        assert frontier.verify().ok


# -- diminishing returns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rest", "shape"),
    [
        ("/", "/"),
        ("/about", "/a"),
        ("/shop/item-12.html", "/shop/a#.html"),
        ("/calendar/2026/05/17.html", "/calendar/#/#/#.html"),
        ("/blog2/some-title/", "/blog#/a/"),
        ("/list?page=3&sort=up&page=4", "/a?page&sort"),
        ("/x/y;jsessionid=12", "/x/a# session"),
    ],
)
def test_pages_of_one_kind_have_one_shape(rest: str, shape: str) -> None:
    assert shape == shape_of(rest)


def test_the_class_of_a_shape_falls_before_it_is_parked() -> None:
    shape, host, told = Returns(), Returns(), []
    for number in range(2 * RETURNS_FETCHES_MIN):
        shape.count(fresh=number < 8, window=16)
        told.append((class_of_shape(8, shape), is_parked(shape, host, 0.03) is not None))
    assert [(8, False), (4, False), (0, False), (0, True)] == list(dict.fromkeys(told))


@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_a_shape_with_new_content_in_one_of_five_pages_is_not_parked(every: int) -> None:
    shape = Returns()
    for number in range(10_000):
        shape.count(fresh=number % every == 0, window=16)
        assert is_parked(shape, Returns(), 0.03) is None


@pytest.mark.parametrize(
    ("window", "last", "within"),
    [
        *((RETURNS_WINDOW, last, 55) for last in (0, 47, 48, 10_000)),
        *((RETURNS_WINDOW_OF_HOST, last, 223) for last in (0, 127, 10_000)),
    ],
)
def test_the_budget_of_a_trap_ends_within_a_fixed_number_of_fetches_after_its_last_new_page(
    window: int, last: int, within: int
) -> None:
    """The slowest history is the one in which all pages were new until then: the figures of docs/traps.md."""
    least = RETURNS_FETCHES_MIN if window == RETURNS_WINDOW else RETURNS_FETCHES_MIN_OF_HOST
    returns, fetches = Returns(), 0
    while not returns.is_poor(0.03, least):
        returns.count(fresh=fetches < last, window=window)
        fetches += 1
    assert fetches <= max(least, last + within)
    assert last < 10_000 or fetches == last + within


def calendar(frontier: Frontier, path: str, *, fresh: bool, pages: int) -> int:
    """Fetches pages until the queue is empty. Each links to the next ten. Returns how many were fetched."""
    fetched = 0
    frontier.discover([Link(f"http://a.test/{path}/0", depth=1)])
    while (leases := frontier.lease(20, per_queue=20)) and fetched < pages:
        outcomes: list[Outcome] = []
        for lease in leases:
            number = int(lease.url.rpartition("/")[2])
            links = [f"http://a.test/{path}/{number + more}" for more in range(1, 11) if number + more < pages]
            outcomes.append(Outcome(lease.token, Verdict.DONE, seconds=0.0, status=200, links=links, repeats=not fresh))
        frontier.report(outcomes)
        fetched += len(leases)
    return fetched


RETURNS: dict[str, Any] = {"traps": Traps(returns_min=0.03), "delay": 0, "delay_factor": 0}


def test_endless_pages_without_new_content_end(tmp_path) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        fetched = calendar(frontier, "calendar/2031", fresh=False, pages=100_000)
        assert RETURNS_FETCHES_MIN <= fetched <= 2 * RETURNS_FETCHES_MIN
        counts = frontier.statistics()["urls"]
        assert (0, counts["done"]) == (counts["queued"], fetched)  # type: ignore[index]
        last = f"http://a.test/calendar/2031/{counts['done']}"  # type: ignore[index]
        known = frontier.status(last)
        assert ("parked", "trap", "trap_returns") == (str(known.state), known.reason, known.error)
        text = frontier.explain(last).reason_text
        assert all(part in text for part in ("'/calendar/#/#'", f"{fetched} pages were fetched", " % had new"))
        assert 10 == calendar(frontier, "honest/page", fresh=True, pages=10)
        assert frontier.verify().ok


def test_the_returns_of_a_shape_are_the_same_after_a_replay_and_after_a_checkpoint(tmp_path) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        calendar(frontier, "calendar/2031", fresh=False, pages=40)
        calendar(frontier, "honest/page", fresh=True, pages=30)
        before = inspect(frontier).tables.returns.blocks(0, 100)
        assert before
    for _ in range(2):
        with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
            assert sorted(map(str, before)) == sorted(map(str, inspect(frontier).tables.returns.blocks(0, 100)))
            frontier.checkpoint()
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        assert inspect(frontier).tables.returns.get(0) == Returns()
        assert calendar(frontier, "calendar/2032", fresh=False, pages=1_000) <= RETURNS_FETCHES_MIN


def test_a_parked_shape_is_probed_now_and_then(tmp_path) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        calendar(frontier, "calendar/2031", fresh=False, pages=100_000)
        passed = frontier.statistics()["urls"]["parked"]  # type: ignore[index]
        told = [Link(f"http://a.test/calendar/2040/{number}", depth=1) for number in range(4 * RETURNS_PROBE_FIRST)]
        frontier.discover(told)
        probes = 0
        while leases := frontier.lease(9, per_queue=9):
            frontier.report([Outcome(lease.token, Verdict.DONE, 0.0, 200, repeats=True) for lease in leases])
            probes += len(leases)
        assert 1 <= probes <= 3
        assert passed < frontier.statistics()["urls"]["parked"]  # type: ignore[index]


def test_a_host_with_ever_new_shapes_is_parked_but_its_good_shape_is_not(tmp_path) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        calendar(frontier, "good/page", fresh=True, pages=RETURNS_FETCHES_MIN + 1)
        fetched = 0
        for number in range(0, 8 * RETURNS_FETCHES_MIN_OF_HOST, 16):
            letters = ["".join(chr(97 + int(digit)) for digit in str(number + more)) for more in range(16)]
            frontier.discover([Link(f"http://a.test/{word}/x", depth=1) for word in letters])
            leases = frontier.lease(16, per_queue=16)
            frontier.report([Outcome(lease.token, Verdict.DONE, 0.0, 200, repeats=True) for lease in leases])
            fetched += len(leases)
        assert RETURNS_FETCHES_MIN_OF_HOST <= fetched <= RETURNS_FETCHES_OF_TRIALS + 32
        frontier.discover([Link("http://a.test/good/page/4711", depth=1)])
        assert ["http://a.test/good/page/4711"] == frontier.lease(9).urls


def test_shapes_of_one_kind_end_next_to_good_ones_and_their_explanation_names_the_kind(tmp_path) -> None:
    """The first folder is a session of words, so each folder has a shape of its own. The host's other pages are
    good."""
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        fetched = 0
        for number in range(0, 2_000, 16):
            letters = ["".join(chr(97 + int(digit)) for digit in str(number + more)) for more in range(16)]
            frontier.discover([Link(f"http://a.test/{word}/page-7", depth=1) for word in letters])
            frontier.discover([Link(f"http://a.test/notes/{word}", depth=1) for word in letters])
            while leases := frontier.lease(32, per_queue=32):
                new = ["/notes/" in lease.url for lease in leases]
                rows = zip(leases, new, strict=True)
                frontier.report([Outcome(lease.token, Verdict.DONE, 0.0, 200, repeats=not one) for lease, one in rows])
                fetched += new.count(False)
        assert RETURNS_FETCHES_MIN_OF_HOST <= fetched <= RETURNS_FETCHES_OF_TRIALS + 32 + 6  # probes
        assert 2_000 + fetched == frontier.statistics()["urls"]["done"]  # type: ignore[index]
        frontier.discover([Link("http://a.test/one/two/three/four", depth=1)])
        assert ["http://a.test/one/two/three/four"] == frontier.lease(9).urls
        parked = next(iter(frontier.urls(state="parked"))).url
        assert "'/*/a#'" in frontier.explain(parked).reason_text
        assert frontier.verify().ok


def test_honest_pages_next_to_a_trap_are_fetched_even_if_they_are_found_late(tmp_path) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        for path in ("calendar/a", "day/b/c", "shop/d/e/f", "list/g/h/i/j"):
            calendar(frontier, path, fresh=False, pages=10_000)
        assert 30 == calendar(frontier, "honest/page", fresh=True, pages=30)


@pytest.mark.parametrize(
    ("path", "title", "expected"),
    [
        ("calendar/2031/05/", "", True),
        ("day/20413", "Calendar 2026-05-17", True),
        ("day/20413", "Events on 17 May 2026", True),
        ("day/20413", "May 17th, 2026 - Town hall", True),
        ("day/20413", "17.05.2026", True),
        ("page/3;jsessionid=1F", "Page 3", True),
        ("f/0a1b2c3d4e5f", "", True),
        ("shop?color=red&size=m&sort=new", "Shop", True),
        ("shop?page=3", "Shop", False),
        ("item/4711.html", "Item 4711", False),
        ("item/20260517", "Maybe 2000 items", False),
        ("deadbeef/", "Releases 1.2.3", False),
    ],
)
def test_pages_that_may_be_endless_are_reported_by_url_and_title(path: str, title: str, expected: bool) -> None:
    assert expected == may_be_endless("http://a.test/" + path, title)


def fetch_shape(frontier: Frontier, folder: str, numbers: range, brings: Callable[[int], dict[str, bool]]) -> int:
    """Fetches pages of a folder, a few at once. brings: the content by the number of a page. Returns how many were
    fetched."""
    fetched = 0
    for first in range(numbers.start, numbers.stop, 16):
        some = range(first, min(first + 16, numbers.stop))
        frontier.discover([Link(f"http://a.test/{folder}/{number}", depth=1) for number in some])
        while leases := frontier.lease(16, per_queue=16):
            told = [brings(int(lease.url.rpartition("/")[2])) for lease in leases]
            rows = zip(leases, told, strict=True)
            frontier.report([Outcome(lease.token, Verdict.DONE, 0.0, 200, **how) for lease, how in rows])
            fetched += len(leases)
    return fetched


NEW: Final[dict[str, bool]] = {}
FIRST_COPY: Final = {"duplicate": True, "repeats": True, "first_copy": True}
REPEATS: Final = {"duplicate": True, "repeats": True}


def test_a_folder_of_a_language_with_few_translations_is_fetched_whole(tmp_path) -> None:
    """Its pages are copies, each of another page, with two original pages after them: all of them were once parked."""
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        assert 300 == fetch_shape(frontier, "en/manual", range(300), lambda _: NEW)
        for language in ("da", "es", "ru"):
            assert 300 == fetch_shape(
                frontier, f"{language}/manual", range(300), lambda number: NEW if number > 297 else FIRST_COPY
            )
        assert {} == frontier.statistics()["traps"]


def test_after_folders_of_copies_a_new_shape_still_has_its_trial(tmp_path) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        fetch_shape(frontier, "en/manual", range(300), lambda _: NEW)
        for language in ("da", "es", "ru"):
            fetch_shape(frontier, f"{language}/manual", range(300), lambda _: FIRST_COPY)
        assert 30 == fetch_shape(frontier, "fr/manual", range(30), lambda _: NEW)


@pytest.mark.parametrize(
    ("brings", "most"),
    [
        # Each URL once more, like a mirror on the same host.
        (lambda _: FIRST_COPY, RETURNS_COPIES_MAX + 2),
        # A hundred pages, each under any number of URLs.
        (lambda number: FIRST_COPY if number < 100 else REPEATS, 100 + RETURNS_WINDOW + 16),
        # Nine of ten reply to a comment, and still are the page.
        (lambda number: FIRST_COPY if not number % 10 else REPEATS, RETURNS_FETCHES_MIN + 16),
    ],
)
def test_a_shape_with_only_copies_ends(tmp_path, brings: Callable[[int], dict[str, bool]], most: int) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        assert RETURNS_FETCHES_MIN <= fetch_shape(frontier, "old/manual", range(3_000), brings) <= most + 6  # probes
        assert frontier.verify().ok


def test_endless_shapes_with_some_copies_each_end_like_shapes_without_copies(tmp_path) -> None:
    """A session id in the folder: each session has a few pages of the site, all of them copies."""
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        fetch_shape(frontier, "page/of", range(100), lambda _: NEW)
        sessions = ["".join(chr(97 + int(digit)) for digit in str(number)) for number in range(800)]
        frontier.discover([Link(f"http://a.test/{one}/of/{page}", depth=1) for one in sessions for page in range(3)])
        assert fetch_all(frontier, want=16, **FIRST_COPY) <= RETURNS_FETCHES_OF_TRIALS


FOREIGN: Final = {"duplicate": True, "repeats": True, "foreign_copy": True}


def fetch_listed(frontier: Frontier, pages: range, brings: Callable[[int], dict[str, bool]]) -> set[int]:
    """Finds all pages of a host at once, and fetches the possible leases, a few at a time. Returns their numbers."""
    frontier.discover([Link(f"http://a.test/page/{number}", depth=1) for number in pages])
    fetched: set[int] = set()
    while not frontier.finished():  # a call looks at a limited number of URLs, and may return no lease
        leases = frontier.lease(8, per_queue=8)
        numbers = [int(lease.url.rpartition("/")[2]) for lease in leases]
        rows = zip(leases, numbers, strict=True)
        frontier.report([Outcome(lease.token, Verdict.DONE, 0.0, 200, **brings(number)) for lease, number in rows])
        fetched.update(numbers)
    return fetched


def test_the_original_of_a_site_that_was_copied_first_is_fetched_whole(tmp_path) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        assert set(range(300)) == fetch_listed(frontier, range(300), lambda number: FOREIGN if number < 200 else NEW)
        assert [] == list(frontier.urls(state="parked"))
        assert not {"trap_returns", "trap_session"} & set(frontier.statistics()["traps"])  # type: ignore[call-overload]
        assert frontier.verify().ok


def test_a_mirror_is_sampled_explained_and_returned(tmp_path) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        fetched = fetch_listed(frontier, range(2_000), lambda _: FOREIGN)
        assert RETURNS_FETCHES_MIN + 16 <= len(fetched) <= RETURNS_FETCHES_MIN + 64
        assert {"possible_mirror": 2_000 - len(fetched)} == frontier.statistics()["traps"]
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        parked = next(iter(frontier.urls(state="parked")))
        text = frontier.explain(parked.url).reason_text
        said = "mirror", "possible_mirror", f"{len(fetched)} pages", "copies of pages of other hosts", "and 0 its own"
        assert ("possible_mirror", []) == (parked.error, [part for part in said if part not in text])
        assert "as a trap" not in text
        assert 0 == frontier.retry(error="trap_returns")
        assert 2_000 - len(fetched) == frontier.retry(error="possible_mirror")
        assert 2_000 - len(fetched) == fetch_all(frontier)
        assert frontier.verify().ok


@pytest.mark.parametrize("new_shapes", [False, True])
def test_endless_copies_of_the_same_pages_of_another_host_are_a_trap(tmp_path, new_shapes: bool) -> None:
    """Sixty pages of another host, under any number of URLs."""
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        names = [
            "".join(chr(97 + int(digit)) for digit in str(number)) if new_shapes else "page" for number in range(4_000)
        ]
        frontier.discover([Link(f"http://a.test/{name}/{number}", depth=1) for number, name in enumerate(names)])
        fetched = 0
        while not frontier.finished():
            leases = frontier.lease(8, per_queue=8)
            how = FOREIGN if fetched < 60 else REPEATS
            frontier.report([Outcome(lease.token, Verdict.DONE, 0.0, 200, **how) for lease in leases])
            fetched += len(leases)
        assert fetched <= (RETURNS_FETCHES_OF_TRIALS if new_shapes else 60) + RETURNS_WINDOW + 32
        assert "trap_returns" in frontier.statistics()["traps"]  # type: ignore[operator]


def test_a_possible_mirror_with_endless_new_shapes_ends(tmp_path) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        names = ["".join(chr(97 + int(digit)) for digit in str(number)) for number in range(6_000)]
        frontier.discover([Link(f"http://a.test/{name}/page", depth=1) for name in names])
        assert RETURNS_FETCHES_OF_TRIALS <= fetch_all(frontier, want=8, **FOREIGN) <= RETURNS_FETCHES_OF_TRIALS + 96
        assert frontier.finished()
        assert {"possible_mirror"} == set(frontier.statistics()["traps"])  # type: ignore[call-overload]


@pytest.mark.parametrize("closed", [False, True])
def test_parked_pages_return_when_their_shape_has_new_content(tmp_path, closed: bool) -> None:
    """closed: the store is closed, and opened again, before they return."""
    brought = 0
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        frontier.discover([Link(f"http://a.test/page/{number}", depth=1) for number in range(150)])
        while leases := frontier.lease(8, per_queue=8):
            fresh = bool(frontier.statistics()["traps"])
            frontier.report([Outcome(lease.token, Verdict.DONE, 0.0, 200, repeats=not fresh) for lease in leases])
            brought += len(leases)
            if fresh and closed:
                break
        assert closed or (150, []) == (brought, list(frontier.urls(state="parked")))
        assert not closed or (False, True) == (frontier.finished(), brought < 60)
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        assert 150 - brought == fetch_all(frontier, want=8)
        assert frontier.finished()
        assert frontier.verify().ok
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        assert frontier.finished()


@pytest.mark.parametrize("error", ["hook_on_page", "hook_reader", "internal", "too_large", "stopped"])
def test_failures_on_our_own_side_park_no_page_and_retry_returns_the_pages(tmp_path, error: str) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        frontier.discover([Link(f"http://a.test/page/{number}", depth=1) for number in range(300)])
        failed = 0
        while leases := frontier.lease(16, per_queue=16):
            frontier.report([Outcome(lease.token, Verdict.GONE, 0.0, 200, error=error) for lease in leases])
            failed += len(leases)
        assert (300, {}) == (failed, frontier.statistics()["traps"])
        assert 300 == frontier.retry(error=error)
        assert 300 == fetch_all(frontier)
        assert 1_000 == fetch_shape(frontier, "page", range(1_000, 2_000), lambda _: NEW)


def test_a_session_id_is_named_where_its_urls_have_no_new_content(tmp_path) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        frontier.discover([Link(f"http://a.test/shop/?PHPSESSID={number:032}", depth=1) for number in range(500)])
        while leases := frontier.lease(50, per_queue=50):
            frontier.report([Outcome(lease.token, Verdict.DONE, 0.0, 200, duplicate=True) for lease in leases])
        assert {"trap_session"} == set(frontier.statistics()["traps"])  # type: ignore[call-overload]


def test_returns_of_many_names_have_a_limit() -> None:
    kept = ReturnsTable(most=100)
    for name in range(1, 1_000):
        for slot, victim in kept.victims([name]):
            kept._returns(*map(np.array, zip((slot, victim, 0, 0.0, 0, 0, 0))))
        kept._returns(*map(np.array, zip((7, name, 50 if name < 30 else 1, 0.5, 0, 0, 0))))
    assert (100, 101) >= (len(kept), kept.places())
    assert sum(kept.get(name).fetched == 50 for name in range(30)) >= 25  # names with few fetches leave first


def test_victims_make_room_for_all_new_names_and_are_not_among_them() -> None:
    chance, kept = random.Random(3), ReturnsTable(most=200)
    for _ in range(300):
        coming = {chance.randrange(1, 600): chance.randrange(1, 9) for _ in range(chance.choice((1, 7, 150)))}
        victims = kept.victims(coming)
        gone = [name for _, name in victims]
        new = sum(not kept.get(name).fetched for name in coming)
        assert len(gone) == len(set(gone)) == max(0, len(kept) + new - 200)
        assert all(kept.get(name).fetched and slot == name % 7 for slot, name in victims)
        assert not coming.keys() & set(gone)
        rows = [(slot, name, 0, 0.0, 0, 0, 0) for slot, name in victims]
        rows += [(name % 7, name, fetched, 0.5, 0, 0, 0) for name, fetched in coming.items()]
        kept._returns(*map(np.array, zip(*rows, strict=True)))
        assert kept.places() <= 200


@pytest.mark.parametrize("pages", [5_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_honest_pages_of_one_shape_do_not_count_as_a_trap(tmp_path, pages: int) -> None:
    with Frontier.open(
        tmp_path / "store", settings={**RETURNS, "traps": Traps(2_000, 15, 3, 2.0, None, 0.03)}, robots="caller"
    ) as one:
        for first in range(0, pages, 5_000):
            some = range(first, first + 5_000)
            one.discover([Link(f"http://a.test/shop/2025/item-{number}.html", depth=1) for number in some])
        fetched = 0
        while leases := one.lease(5_000, per_queue=5_000):
            one.report([Outcome(lease.token, Verdict.DONE, seconds=0.0, status=200) for lease in leases])
            fetched += len(leases)
        assert (pages, {}) == (fetched, one.statistics()["traps"])


# -- the size of a host ------------------------------------------------------------------------------------------------


def fetch_all(frontier: Frontier, want: int = 5_000, **how: Any) -> int:
    """Fetches the possible leases. Returns the number of pages."""
    fetched = 0
    while leases := frontier.lease(want, per_queue=want):
        frontier.report([Outcome(lease.token, Verdict.DONE, 0.0, 200, **how) for lease in leases])
        fetched += len(leases)
    return fetched


@settings_of(max_examples=30)
@given(st.lists(st.integers(1, 3_000), min_size=HOSTS_COMPARED_MIN, max_size=300), st.sampled_from([0.5, 0.9, 0.99]))
def test_the_quantile_of_the_sizes_of_hosts_is_that_of_all_of_them_within_one_step(
    sizes: list[int], quantile: float
) -> None:
    found = sizes_of([sum(size >= level for size in sizes) for level in LEVELS], quantile)
    compared = sorted(size for size in sizes if size >= HOST_FETCHES_COMPARED)
    if len(compared) < HOSTS_COMPARED_MIN:
        assert found is None
        return
    assert found is not None
    largest = compared[max(0, len(compared) - int(len(compared) * (1 - quantile) + 1e-9) - 1)]
    assert (len(compared), HOST_QUANTILE_TIMES * found.most) == (found.hosts, found.bound)
    assert largest < found.most <= 1.3 * largest + 1


def test_a_host_with_twice_the_fetches_of_nearly_all_hosts_is_parked_explained_and_returned(tmp_path) -> None:
    rules = {"traps": Traps(host_quantile=0.99), "delay": 0, "delay_factor": 0}
    hosts = HOSTS_COMPARED_MIN + 20
    with Frontier.open(tmp_path / "store", settings=rules, robots="caller") as frontier:
        pages = [Link(f"http://{n}.test/{page}", depth=1) for n in range(hosts) for page in range(20)]
        frontier.discover(pages)
        assert len(pages) == fetch_all(frontier)
        frontier.discover([Link(f"http://large.test/{page}", depth=1) for page in range(500)])
        fetched = fetch_all(frontier, want=4)
        bound = 2 * next(level for level in LEVELS if level > 20)
        assert bound <= fetched <= bound + 4
        assert {"trap_host_size": 500 - fetched} == frontier.statistics()["traps"]
        levels = [
            inspect(frontier).tables.returns.get(inspect(frontier).traps._sizes.name_of(step)) for step in range(9)
        ]
    with Frontier.open(tmp_path / "store", settings=rules, robots="caller") as frontier:
        kept = inspect(frontier).tables.returns
        assert levels == [kept.get(inspect(frontier).traps._sizes.name_of(step)) for step in range(9)]
        parked = next(iter(frontier.urls(state="parked"))).url
        text = frontier.explain(parked).reason_text
        numbers = f"{fetched} pages of its host", f"of {hosts + 1} hosts", "99 % had at most", f"may have {bound}"
        assert [] == [part for part in ("trap_host_size", *numbers) if part not in text]
        frontier.discover([Link("http://small.test/", depth=1)])
        assert 1 == fetch_all(frontier)
        assert 500 - fetched == frontier.retry(error="trap_host_size")
        assert 500 - fetched == fetch_all(frontier)
        assert frontier.verify().ok


# -- the new hosts of a domain -----------------------------------------------------------------------------------------


def probed(frontier: Frontier, url: str, status: int = 200) -> None:
    """Queues a probe and answers it."""
    assert ["new"] == list(map(str, frontier.queue_errands("probe", url)))
    (lease,) = frontier.lease(9, errands=True)
    assert (Kind.PROBE, url) == (lease.kind, lease.url)
    frontier.report([Outcome(lease.token, Verdict.DONE if status < 300 else Verdict.GONE, 0.0, status)])


def homes(first: int, last: int) -> list[Link]:
    return [Link(f"http://h{number}.wild.test/", depth=1) for number in range(first, last)]


def test_new_hosts_of_a_wildcard_domain_share_one_budget(tmp_path) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        frontier.discover(["http://wild.test/"])
        assert 1 == fetch_all(frontier)
        probed(frontier, "http://qzkvxw.wild.test/")
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        frontier.discover(homes(0, 1_000))
        fetched = fetch_all(frontier, want=8, repeats=True)
        assert RETURNS_HOSTS_MIN <= fetched <= RETURNS_HOSTS_MIN + 8 + 5
        assert {"trap_hosts": 1_000 - fetched} == frontier.statistics()["traps"]
        parked = next(iter(frontier.urls(state="parked"))).url
        text = frontier.explain(parked).reason_text
        assert all(part in text for part in ("trap_hosts", "new hosts of its domain were tried", "had new content"))
        frontier.discover([Link(f"http://h{number}.good.test/", depth=1) for number in range(100)])
        frontier.discover([Link("http://wild.test/more", depth=1), Link("http://h0.wild.test/more", depth=1)])
        assert 102 == fetch_all(frontier)
        assert 1_000 - fetched == frontier.retry(error="trap_hosts")
        assert 1_000 - fetched == fetch_all(frontier)
        assert frontier.verify().ok


@pytest.mark.parametrize(
    ("probe", "status"), [("http://qzkvxw.wild.test/", 404), ("http://wild.test/qzkvxw", 200), ("", 0)]
)
def test_hosts_of_an_ordinary_domain_share_a_budget_only_if_they_have_no_new_content(
    tmp_path, probe: str, status: int
) -> None:
    for how, store in ({"repeats": True}, "poor"), ({}, "good"):
        with Frontier.open(tmp_path / store, settings=RETURNS, robots="caller") as frontier:
            frontier.discover(["http://wild.test/"])
            assert 1 == fetch_all(frontier)
            if probe:
                probed(frontier, probe, status)
            frontier.discover(homes(0, 200))
            fetched = fetch_all(frontier, want=8, **how)
            if how:
                assert RETURNS_HOSTS_MIN <= fetched <= RETURNS_HOSTS_MIN + 8 + 5
            else:
                assert 200 == fetched


def visit_all(frontier: Frontier, named: Callable[[str], bool], repeats: Callable[[str], bool]) -> dict[Kind, int]:
    """Answers every lease until no URL is queued. named: whether a host has an address; repeats: whether a page has
    nothing new. Returns how many leases of each kind there were."""
    asked, parked = dict.fromkeys(Kind, 0), 0
    for _ in range(10_000):
        leases = frontier.lease(64, errands=True)
        outcomes = []
        for lease in leases:
            asked[lease.kind] += 1
            if lease.kind is Kind.ADDRESS:
                host = lease.url.removeprefix("dns:")
                address, error = ("192.0.2.1", None) if named(host) else (None, "dns_unknown")
                verdict = Verdict.DONE if address else Verdict.GONE
                outcomes.append(Outcome(lease.token, verdict, 0.0, address=address, error=error, ttl_seconds=9e4))
            elif lease.kind is Kind.ROBOTS:
                answer = RobotsAnswer(404) if named(host_of(lease.url)) else RobotsAnswer(None)
                error = None if answer.status else "dns_unknown"
                outcomes.append(Outcome(lease.token, Verdict.DONE, 0.0, robots=answer, error=error))
            else:
                new = not repeats(lease.url)
                outcomes.append(Outcome(lease.token, Verdict.DONE, 0.0, 200, repeats=not new))
        if leases:
            frontier.report(outcomes)
        left = frontier.statistics()["urls"]
        if not left["queued"]:
            break
        assert leases or left["parked"] > parked  # a call may park URLs, and return no lease
        parked = left["parked"]
    return asked


ASKING: Final = {"robots": "errands", "addresses": "errands", "settings": RETURNS | {"group": "address"}}


def test_hosts_queued_before_a_verdict_on_their_domain_cost_no_look_up_and_no_robots_txt(tmp_path) -> None:
    """400 hosts without an address, and 400 with one same page, next to 400 blogs with a page each."""
    with Frontier.open(tmp_path / "store", **ASKING) as frontier:
        for name in ("dead", "same", "blog"):
            frontier.discover([Link(f"http://h{number}.{name}.test/", depth=1) for number in range(400)])
        asked = visit_all(frontier, lambda host: ".dead." not in host, lambda url: ".same." in url)
        trials = 2 * (HOST_TRIALS_MAX + 2 * RETURNS_HOSTS_MIN)
        assert 400 <= asked[Kind.PAGE] <= 400 + trials
        assert 400 <= asked[Kind.ROBOTS] <= 400 + trials
        assert 400 <= asked[Kind.ADDRESS] <= 400 + trials
        parked = frontier.statistics()["urls"]["parked"]
        assert {"trap_hosts": parked} == frontier.statistics()["traps"]
        blogs = [frontier.status(f"http://h{number}.blog.test/") for number in range(400)]
        assert {"done"} == {blog.state for blog in blogs}
        dead = next(row.url for row in frontier.urls(state="parked") if ".dead." in row.url)
        assert "new hosts of its domain were tried" in frontier.explain(dead).reason_text
        assert parked == frontier.retry(error="trap_hosts")
        assert frontier.verify().ok
    with Frontier.open(tmp_path / "store", **ASKING) as frontier:
        assert parked == frontier.statistics()["urls"]["queued"]
        assert frontier.verify().ok


def test_a_limited_number_of_new_hosts_of_a_domain_is_tried_at_once(tmp_path) -> None:
    with Frontier.open(tmp_path / "store", **ASKING) as frontier:
        frontier.discover([Link(f"http://h{number}.wild.test/", depth=1) for number in range(500)])
        frontier.discover(["http://seed.wild.test/", "http://other.test/"])
        leases = frontier.lease(1_000, errands=True)
        hosts = {lease.url.removeprefix("dns:") for lease in leases}
        assert {"seed.wild.test", "other.test"} <= hosts
        assert HOST_TRIALS_MAX + 2 == len(hosts)
        assert not len(frontier.lease(1_000, errands=True))
        assert 0 < (frontier.next_ready_seconds() or 0) <= 600
        waits = next(f"http://h{number}.wild.test/" for number in range(500) if f"h{number}.wild.test" not in hosts)
        assert "new hosts of its domain" in frontier.explain(waits).reason_text
        frontier.report(
            [Outcome(lease.token, Verdict.GONE, 0.0, address=None, error="dns_unknown") for lease in leases[:10]]
        )
        assert 0 == frontier.next_ready_seconds()
        ended = sum(".wild." in lease.url and "seed" not in lease.url for lease in leases[:10])
        again = [lease for lease in frontier.lease(1_000, errands=True) if lease.kind is Kind.ADDRESS]
        assert ended == len(again)


def test_further_new_hosts_of_a_poor_domain_are_parked_before_any_request(tmp_path) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        frontier.discover(["http://wild.test/"])
        assert 1 == fetch_all(frontier)
        probed(frontier, "http://qzkvxw.wild.test/")
        frontier.discover(homes(0, 100))
        fetch_all(frontier, want=8, repeats=True)
        codes = list(map(str, frontier.discover(homes(1_000, 1_050))))
        assert 48 <= codes.count("parked")
        assert "trap_hosts" == frontier.status(f"http://h{1_000 + codes.index('parked')}.wild.test/").error
        others = [Link(url, depth=1) for url in ("http://wild.test/a", "http://h0.wild.test/a", "http://h0.good.test/")]
        assert ["new"] * 3 == list(map(str, frontier.discover(others)))
        assert ["new"] == list(map(str, frontier.discover(["http://seed.wild.test/"])))
        assert frontier.verify().ok


def test_new_hosts_of_a_wildcard_domain_with_new_content_are_fetched(tmp_path) -> None:
    with Frontier.open(tmp_path / "store", settings=RETURNS, robots="caller") as frontier:
        probed(frontier, "http://qzkvxw.wild.test/")
        frontier.discover(homes(0, 300))
        assert 300 == fetch_all(frontier)
