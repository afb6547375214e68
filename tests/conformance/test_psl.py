"""Registrable domains against the public suffix list's own vectors (`../shared/data/psl`), and our snapshot's age."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from outrider.url import PUBLIC_SUFFIX_VERSION, key, registrable_domain, registrable_domains, spell

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def vectors(shared: Path) -> list[tuple[str, str | None]]:
    cases = [json.loads(line) for line in (shared / "data/psl/test_psl.jsonl").read_text("utf-8").splitlines()]
    return [(case["host"], case["registrable"]) for case in cases]


def test_every_vector_has_its_registrable_domain(vectors: list[tuple[str, str | None]]) -> None:
    assert len(vectors) >= 38
    assert [domain for _, domain in vectors] == [registrable_domain(host) for host, _ in vectors]
    assert [domain for _, domain in vectors] == registrable_domains(host for host, _ in vectors)


def test_every_vector_that_is_a_host_has_its_key(vectors: list[tuple[str, str | None]]) -> None:
    """A key is of the canonical URL: in ASCII, lower case; the host where there is no domain."""
    checked = 0
    for host, domain in vectors:
        url = f"http://{host}/"
        if spell([url]) == [url]:
            checked += 1
            assert (domain or host) == key(url, "domain")
    assert checked >= 25


def test_the_packaged_list_answers_like_the_one_of_the_vectors(project: Path, shared: Path) -> None:
    """Nine of ten rules at least are the same, so that a list cut in half would be noticed; the newer one is known."""
    with gzip.open(shared / "data/psl/public_suffix_list.dat.gz", "rt", encoding="utf-8") as lines:
        theirs = lines.read()
    ours = (project / "src/outrider/url/data/public_suffix_list.dat").read_text("utf-8")
    assert PUBLIC_SUFFIX_VERSION in ours
    assert len(rules(theirs) & rules(ours)) > 0.9 * max(len(rules(theirs)), len(rules(ours)))


def rules(text: str) -> set[str]:
    return set(re.findall(r"^(?!//)(\S+)", text, re.MULTILINE))
