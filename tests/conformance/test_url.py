"""URLs against foreign material: WPT, RFC 3986, crawler-commons, real URLs, the public suffix list's own vectors.

The data are next to the project (`../shared/data/url` and `psl`, each with a README that names sources and licences).
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from outrider.url import Url, host_of, normalize, registrable_domain, spell

pytestmark = pytest.mark.conformance

Case = dict[str, Any]


def json_lines(file: Path) -> list[Case]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line]


def json_cases(file: Path) -> list[Case]:
    return [case for case in json.loads(file.read_text("utf-8")) if isinstance(case, dict)]


@pytest.fixture(scope="module")
def url_data(shared: Path) -> Path:
    return shared / "data" / "url"


def spelled(url: str, base: str | None = None) -> str | None:
    return spell([url], base)[0]


def canonical_of(href: str | None) -> str | None:
    """Returns the canonical text of a WHATWG href."""
    return None if href is None else spelled(href)


def is_crawlable(case: Case) -> bool:
    return not case.get("failure") and str(case["href"]).startswith(("http:", "https:"))


def needs_nothing_more(href: str) -> bool:
    """Whether a WHATWG href is already canonical: no RFC 3986 step changes it."""
    return "%" not in href and "#" not in href and "@" not in href and not href.endswith("?")


@pytest.mark.parametrize("name", ["wpt/urltestdata.json", "ada/ada_extra_urltestdata.json"])
def test_wpt_urls_are_parsed_as_the_standard_says(url_data: Path, name: str) -> None:
    """Every case with an http or https result has it; every other case (failures too) has no result."""
    cases = json_cases(url_data / name)
    wrong = [
        (case["input"], case.get("base"))
        for case in cases
        if spelled(case["input"], case.get("base")) != (canonical_of(case["href"]) if is_crawlable(case) else None)
    ]
    assert [] == wrong


def test_wpt_hrefs_that_are_canonical_remain_unchanged(url_data: Path) -> None:
    hrefs = [case["href"] for case in json_cases(url_data / "wpt/urltestdata.json") if is_crawlable(case)]
    plain = [href for href in hrefs if needs_nothing_more(href)]
    assert plain != []
    assert plain == spell(plain)


def test_wpt_hosts_become_ascii(url_data: Path) -> None:
    wrong = [
        case["input"]
        for name in ("wpt/toascii.json", "wpt/IdnaTestV2.json")
        for case in json_cases(url_data / name)
        if _host(case["input"]) != (case["output"] or None)
    ]
    assert [] == wrong


def _host(name: str) -> str | None:
    url = spelled(f"https://{name}/x")
    return None if url is None else host_of(url)


def test_parts_are_those_of_wpt(url_data: Path) -> None:
    """Runs every http and https case, and the result of each setter of the standard; `Url` itself never changes."""
    setters = json.loads((url_data / "wpt/setters_tests.json").read_text("utf-8"))
    cases = json_cases(url_data / "wpt/urltestdata.json")
    cases += [case["expected"] for name in sorted(setters) for case in setters[name] if "expected" in case]
    crawlable = [case for case in cases if not case.get("failure") and case["href"].startswith(("http:", "https:"))]
    assert len(crawlable) > 240
    # Where a triplet or an empty query is rewritten, the parts say so too.
    wrong = [
        (case, parts) for case in crawlable if (parts := _differing_parts(case)) and needs_no_rewriting(case["href"])
    ]
    assert [] == wrong


def needs_no_rewriting(href: str) -> bool:
    return "%" not in href and not href.partition("#")[0].endswith("?")


def _differing_parts(case: Case) -> dict[str, str]:
    url = Url.parse(case["href"])
    port = url.origin.removeprefix(f"{url.scheme}://{url.host}")
    parts = {
        "protocol": f"{url.scheme}:",
        "host": url.host + port,
        "hostname": url.host,
        "port": port.removeprefix(":"),
        "origin": url.origin,
        "pathname": url.path,
        "search": "" if url.query is None else f"?{url.query}",
    }
    dropped = {"username": "user", "password": "password", "hash": "fragment"}
    wrong = {name: part for name, part in parts.items() if case.get(name, part) != part}
    return wrong | {
        name: word for name, word in dropped.items() if name in case and (case[name] != "") != (word in url.dropped)
    }


def test_odd_ipv4_addresses_are_spelled_in_one_form(url_data: Path) -> None:
    cases = json_lines(url_data / "hosts/funky_ipv4.jsonl")
    wrong = [
        case for case in cases if case["expected"] and spelled(f"http://{case['input']}/x") != _at(case["expected"])
    ]
    assert [] == wrong


def _at(host: str) -> str:
    return f"http://{host}/x"


def test_dot_segments_are_removed_from_every_path(url_data: Path) -> None:
    """The cases of special schemes; a backslash is a slash to WHATWG, but not to the authors of these."""
    cases = [case for case in json_lines(url_data / "paths/path_dots.jsonl") if case["kind"] == "special"]
    plain = [case for case in cases if "\\" not in case["input"] + case["expected"]]
    assert len(plain) > 150
    assert [] == [case for case in plain if spelled(f"http://a{case['input']}") != f"http://a{case['expected']}"]


def test_rfc_3986_references_resolve(url_data: Path) -> None:
    """The table of RFC 3986 section 5.4, base http://a/b/c/d;p?q."""
    cases = json_lines(url_data / "resolve/rfc3986-5.4.jsonl")
    wrong = [case for case in cases if spelled(case["input"], case["base"]) != canonical_of(case["expected"])]
    assert [] == wrong


def test_real_urls_have_their_whatwg_href(url_data: Path) -> None:
    """38,404 real URLs: canonical text is that of the href; where no RFC 3986 step applies, it is the href."""
    with gzip.open(url_data / "real/real-urls-whatwg.jsonl.gz", "rt", encoding="utf-8") as lines:
        pairs = [json.loads(line) for line in lines]
    crawlable = [href if href is not None and href.startswith(("http:", "https:")) else None for _, href in pairs]
    results = spell([url for url, _ in pairs])
    assert [canonical_of(href) for href in crawlable] == results
    unequal = [
        (href, result)
        for href, result in zip(crawlable, results, strict=True)
        if href is not None and needs_nothing_more(href) and href != result
    ]
    assert [] == unequal


def test_spelling_is_idempotent_on_every_input_of_every_set(url_data: Path) -> None:
    inputs = [case["input"] for case in json_cases(url_data / "wpt/urltestdata.json")]
    inputs += [case["input"] for case in json_lines(url_data / "normalize/pairs.jsonl")]
    with gzip.open(url_data / "real/real-urls-whatwg.jsonl.gz", "rt", encoding="utf-8") as lines:
        inputs += [json.loads(line)[0] for line in lines]
    once = [url for url in spell(inputs) if url is not None]
    assert once == spell(once)


def test_public_suffix_vectors(shared: Path) -> None:
    cases = json_lines(shared / "data/psl/test_psl.jsonl")
    wrong = [case for case in cases if registrable_domain(case["host"]) != case["registrable"]]
    assert [] == wrong


def test_crawler_commons_pairs_agree_except_for_the_rules_that_change_meaning(url_data: Path) -> None:
    """Agreement is 55 of 75; docs/decisions/url.md names the rules that explain the other 20."""
    pairs = [case for case in json_lines(url_data / "normalize/pairs.jsonl") if case["set"] == "cc-basic"]
    agree = sum(spelled(case["input"]) == case["expected"] for case in pairs)
    assert agree / len(pairs) >= 0.73


def test_normalize_says_why_for_every_failure_of_wpt(url_data: Path) -> None:
    for case in json_cases(url_data / "wpt/urltestdata.json"):
        if case.get("failure") and case["base"] is None:
            with pytest.raises(ValueError, match=r"^Wrong URL: .{1,200}$"):
                normalize(case["input"])
