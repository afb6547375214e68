"""What sites say about uses: the cases of the reference material, with kernel and twin alike."""

from __future__ import annotations

from typing import Any

import pytest

from outrider import page
from outrider.kernels import robots as twin
from outrider.robots import Rules, header_directives, preferences_of, rules
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
