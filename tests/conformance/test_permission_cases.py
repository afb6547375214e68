"""What sites say about uses: the cases of the reference material, with kernel and twin alike."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from fake_web import answer
from model.world import World
from outrider import page
from outrider.fetch.payment import payment_of
from outrider.kernels import robots as twin
from outrider.robots import Rules, header_directives, opens_at, preferences_of, rules
from outrider.robots.hours import Rate, windows_of
from outrider.uses import USES

pytestmark = pytest.mark.conformance

_SIGNALS = {"search": "search", "ai-input": "ai-use", "ai-train": "train-ai"}
_ANSWERS = {"y": "yes", "n": "no", None: None}


@pytest.fixture(params=["as installed", "twin"])
def _each_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "twin":
        monkeypatch.setattr(rules, "RobotsText", twin.RobotsText)


def _answers(uses: dict[str, str]) -> dict[str, str | None]:
    return {use: uses.get(use) for use in USES}


def _fields(given: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in given.get("headers", ())]


def _directives(given: dict[str, Any]) -> frozenset[str]:
    """The directives of a page with these metas and fields, as a crawl reads them."""
    metas = "".join(f'<meta name="{name}" content="{content}">' for name, content in given.get("meta", ()))
    agent = given.get("agent", "Outrider")
    read = page.read(metas.encode(), "http://a.test/x", agent=agent)
    return read.robots | header_directives(_fields(given), agent)


@pytest.mark.usefixtures("_each_kernel")
def test_content_usage_lines_are_read_as_the_draft_says(permission_cases):
    for case in permission_cases["content-usage-robots"]:
        given, right = case["input"], case["right"]
        text = Rules.parse(given["robots"].encode())
        said = text.about_uses(given["agent"], given["url"])
        allowed = text.allowed(given["agent"], given["url"])
        found = {"allowed": allowed, "usage": _answers(said.uses) if allowed else None}
        found["lines"] = [one.line for one in said.said]
        if "malformed" in right:
            found["malformed"] = [one.line for one in said.said if one.fault]
        assert right == found, case["id"]


def test_content_usage_fields_are_read_as_the_draft_says(permission_cases):
    for case in permission_cases["content-usage-header"]:
        assert case["right"] == _answers(preferences_of((), _fields(case["input"])).uses), case["id"]


@pytest.mark.usefixtures("_each_kernel")
def test_the_stricter_of_robots_and_field_counts(permission_cases):
    for case in permission_cases["content-usage-both"]:
        given = case["input"]
        lines = Rules.parse(given["robots"].encode()).of(given["agent"]).about_uses(given["url"])
        assert case["right"] == _answers(preferences_of(lines, _fields(given)).uses), case["id"]


@pytest.mark.usefixtures("_each_kernel")
def test_content_signals_are_read(permission_cases):
    for case in permission_cases["content-signal"]:
        given = case["input"]
        uses = Rules.parse(given["robots"].encode()).about_uses(given["agent"], "http://a.test/x").uses
        assert case["right"] == {key: _ANSWERS[uses.get(use)] for key, use in _SIGNALS.items()}, case["id"]
    for case in permission_cases["content-signal-header"]:
        uses = preferences_of((), _fields(case["input"])).uses
        assert case["right"] == {key: _ANSWERS[uses.get(use)] for key, use in _SIGNALS.items()}, case["id"]


def test_noai_is_read_as_noindex_is(permission_cases):
    for case in permission_cases["noai"]:
        said = {one.source for one in preferences_of((), (), _directives(case["input"])).said}
        assert case["right"] == {word: word in said for word in ("noai", "noimageai")}, case["id"]


def test_tdm_reservations_of_fields_and_metas_supersede_each_other(permission_cases):
    for case in permission_cases["tdmrep"]:
        given = case["input"]
        if given["file"] is not None:
            continue
        said = preferences_of((), _fields(given), _directives(given)).said
        last = next((one for one in reversed(said) if one.fault is None), None)
        found = {"reservation": None, "policy": None, "from": None}
        if last is not None:
            found = {"reservation": int(last.text), "policy": last.policy, "from": last.source.partition(" ")[0]}
        assert case["right"] == found, case["id"]


def test_a_wanted_use_is_refused_by_what_the_site_says(permission_cases):
    for case in permission_cases["use"]:
        given, right = case["input"], case["right"]
        robots = [(1, "content-usage", f"{use}={answer}") for use, answer in given.get("robots", {}).items()]
        signals = given.get("content-signal", {}).items()
        robots += [(1, "content-signal", f"{key}={answer}") for key, answer in signals]
        page_says = [("content-usage", f"{use}={answer}") for use, answer in given.get("page", {}).items()]
        if "tdm" in given:
            page_says.append(("tdm-reservation", str(given["tdm"]["reservation"])))
        words = ["noai"] * bool(given.get("noai"))
        asked = preferences_of(robots).refused(given["use"]) is None
        kept = asked and preferences_of(robots, page_says, words).refused(given["use"]) is None
        assert right == {"asked": asked, "kept": kept}, case["id"]


def test_answers_that_ask_for_payment_name_scheme_and_price(permission_cases):
    for case in permission_cases["402"]:
        given, right = case["input"], case["right"]
        fields = tuple(map(tuple, given["headers"]))
        told = payment_of(answer("http://a.test/p", given["status"], given["body"].encode(), fields))
        if right["is"] != "payment":
            assert None is told, case["id"]
            continue
        scheme, _, price = (told or "").partition(" ")
        assert right["scheme"] == (scheme or None), case["id"]
        assert right["price"] == (None if not price or price.startswith("(") else price), case["id"]


def test_hosts_that_ask_for_payment_are_left_alone(permission_cases):
    for case in permission_cases["402-host"]:
        statuses, right = dict(case["input"]["pages"]), case["right"]
        world = World(delay=1.0, delay_factor=0.0)
        world.discover(*[f"http://a.test{path}" for path in statuses])
        requests = 0
        while world.ready_in() is not None:
            for lease in world.lease(1):
                requests += 1
                status = statuses[lease.url.removeprefix("http://a.test")]
                world.report(lease.gone(status=402, seconds=0.0) if status == 402 else lease.done(seconds=0.0))
            world.clock.move(world.ready_in() or 0.0)
        host, counts = world.frontier.host("a.test"), world.counts()
        parked = "host" if host.paused else "path" if counts.get("parked") else "nothing"
        assert (right["parked"], True) == (parked, requests <= right["requests_max"]), case["id"]
        assert right.get("done", 0) == counts.get("done", 0), case["id"]


def test_windows_of_visit_time_open_as_the_cases_say(permission_cases):
    for case in permission_cases["visit-time"]:
        now = _instant(case["input"]["now"])
        found, right = opens_at(windows_of(case["input"]["values"]), now), case["right"]["opens_at"]
        assert (None if right is None else _instant(right)) == found, case["id"]


def test_rates_are_read_as_the_cases_say(permission_cases):
    for case in permission_cases["request-rate"]:
        given, right = case["input"], case["right"]
        if "lines" in given:
            text = "User-agent: *\n" + "\n".join(given["lines"])
            assert right["gap_seconds"] == Rules.parse(text.encode()).gap("Outrider"), case["id"]
            continue
        found = Rate.of(given["value"])
        window = None if found is None or found.window is None else [_clock(minute) for minute in found.window]
        assert right == (None if found is None else {"gap_seconds": found.gap_seconds, "window": window}), case["id"]


def _instant(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}{minute % 60:02d}"
