"""Lossy rules against foreign pairs: crawler-commons' basic normaliser, and idempotence on every available input.

The data are next to the project (`../shared/data/url`, whose README names sources and licences).
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import InvalidUrlError
from outrider.url import LossyRules, Url, spell
from outrider.url.lossy_rules import RULES

pytestmark = pytest.mark.conformance

Case = dict[str, Any]
PRESET = LossyRules.of("crawler_commons")
DEFAULT_SCHEME = "--default-scheme"
NOTHING = "nothing"


@pytest.fixture(scope="module")
def data(shared: Path) -> Path:
    return shared / "data" / "url"


@pytest.fixture(scope="module")
def pairs(data: Path) -> list[Case]:
    cases = [json.loads(line) for line in (data / "normalize/pairs.jsonl").read_text("utf-8").splitlines()]
    return [case for case in cases if case["set"] == "cc-basic"]


def normalized(text: str, *, default_scheme: str | None) -> str | None:
    try:
        return PRESET.apply(Url.parse(text, default_scheme=default_scheme).text)
    except InvalidUrlError:
        return None


def is_crawlable(case: Case) -> bool:
    """Whether a pair is about http or https: refused ones are, `ftp:` and `file:` are not."""
    return case["expected"] is None or case["expected"].startswith(("http:", "https:"))


def test_at_least_98_of_100_pairs_about_http_agree_under_the_matching_options(pairs: list[Case]) -> None:
    about_http = [case for case in pairs if is_crawlable(case)]
    agree = sum(normalized(case["input"], default_scheme="http") == case["expected"] for case in about_http)
    assert (72, 73) == (agree, len(about_http))
    assert agree / len(about_http) >= 0.98


def test_the_figures_of_the_page_are_those_of_the_pairs(project: Path, pairs: list[Case]) -> None:
    plain = sum(spell([case["input"]])[0] == case["expected"] for case in pairs)
    preset = sum(normalized(case["input"], default_scheme=None) == case["expected"] for case in pairs)
    whole = sum(normalized(case["input"], default_scheme="http") == case["expected"] for case in pairs)
    about_http = sum(map(is_crawlable, pairs))
    text = " ".join((project / "docs/urls.md").read_text("utf-8").split())
    assert f"Of its own {len(pairs)} test pairs" in text
    assert f"{plain} agree without any rule. With the preset `crawler_commons` {preset} agree, and {whole} with" in text
    assert (
        f"all but one of the {about_http} pairs about http and https ({whole / about_http:.1%})".replace("%", " %")
        in text
    )


def test_every_difference_is_explained_on_the_page_with_what_makes_it_agree(project: Path, pairs: list[Case]) -> None:
    found: dict[tuple[str, ...], list[str]] = {}
    for case in pairs:
        plain = spell([case["input"]])[0]
        if plain == case["expected"]:
            continue
        if normalized(case["input"], default_scheme="http") != case["expected"]:
            options: tuple[str, ...] = (NOTHING,)
        elif plain is None:
            options = (DEFAULT_SCHEME,)
        else:
            options = tuple(name for name, _, _ in PRESET.explain(plain))
            assert LossyRules.of(options).apply(plain) == case["expected"]
        found.setdefault(options, []).append(case["src"])
    assert {options: sorted(sources) for options, sources in found.items()} == explained(project)


def explained(project: Path) -> dict[tuple[str, ...], list[str]]:
    """The table of the page: the rules that make pairs agree → the pairs."""
    page = (project / "docs/urls.md").read_text("utf-8")
    rows: dict[tuple[str, ...], list[str]] = {}
    for row in page.split("| Pairs |", maxsplit=1)[1].split("\n\n", maxsplit=1)[0].splitlines()[2:]:
        sources, explanation, options = (cell.strip() for cell in row.strip("|").split("|"))
        assert len(explanation) > 20
        file = ""
        for source in re.findall(r"`([^`]+)`", sources):
            name, _, line = source.partition(":")
            file = name or file
            rows.setdefault(tuple(re.findall(r"[\w-]+", options)), []).append(f"{file}:{line}" if line else file)
    return {options: sorted(sources) for options, sources in rows.items()}


@pytest.mark.parametrize("names", [*RULES, "crawler_commons", "aggressive"])
def test_rules_are_idempotent_and_canonical_on_every_input_of_every_set(data: Path, names: str) -> None:
    rules = LossyRules.of(names)
    once = rules.apply_batch(canonical_inputs(data))
    assert len(once) > 1_500
    assert once == rules.apply_batch(once)
    assert once == spell(once)


def canonical_inputs(data: Path) -> list[str]:
    inputs = [case["input"] for case in json.loads((data / "wpt/urltestdata.json").read_text("utf-8"))]
    for name in ("normalize/pairs.jsonl", "hosts/funky_ipv4.jsonl", "paths/path_dots.jsonl"):
        for line in (data / name).read_text("utf-8").splitlines():
            inputs.append(next(value for key, value in json.loads(line).items() if key in {"input", "url", "in"}))
    with gzip.open(data / "real/real-urls-whatwg.jsonl.gz", "rt", encoding="utf-8") as lines:
        inputs += [json.loads(line)[0] for number, line in enumerate(lines) if number % 40 == 0]
    return [url for url in spell([*inputs, *(f"http://example.org{text}" for text in inputs)]) if url is not None]


def test_the_figures_of_the_page_on_real_links_are_right(project: Path, data: Path) -> None:
    with gzip.open(data / "real/real-urls-whatwg.jsonl.gz", "rt", encoding="utf-8") as lines:
        links = sorted({url for url in spell([json.loads(line)[0] for line in lines]) if url is not None})
    rewritten = LossyRules.of("aggressive").apply_batch(links)
    changed = sum(after != before for before, after in zip(links, rewritten, strict=True))
    copies = {name: len(links) - len(set(LossyRules.of(name).apply_batch(links))) for name in RULES}
    text = " ".join((project / "docs/urls.md").read_text("utf-8").split())
    assert f"of {len(links):,} different real links, `aggressive` rewrites {changed:,}" in text
    assert (3, {"index_files": 2, "repeated_slashes": 1}) == (
        len(links) - len(set(rewritten)),
        {name: count for name, count in copies.items() if count},
    )
    assert "finds three copies among them (`index_files` two, `repeated_slashes` one)" in text
