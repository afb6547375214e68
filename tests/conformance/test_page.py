"""Reading pages against the material of others: real pages, WPT's refresh table, html5lib's encodings, link extractors.

The data lie beside the project (`../shared/data/html`, with a README that names sources and licences).
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from outrider.page import read
from outrider.url import spell

pytestmark = pytest.mark.conformance

Case = dict[str, Any]
URL = "http://example.org/dir/page.html"


@pytest.fixture(scope="module")
def html_data(shared: Path) -> Path:
    return shared / "data" / "html"


@pytest.fixture(scope="module")
def real_pages(html_data: Path) -> dict[str, bytes]:
    with tarfile.open(html_data / "real-pages/pages.tar.xz") as archive:
        return {
            member.name.removesuffix(".html"): content.read()
            for member in archive
            if (content := archive.extractfile(member)) is not None
        }


def json_lines(file: Path) -> list[Case]:
    lines = (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()).splitlines()
    return [json.loads(line) for line in lines if line]


def test_every_link_of_the_real_pages_is_found(html_data: Path, real_pages: dict[str, bytes]) -> None:
    """lxml and html5lib agree on these 6,765 links of 73 pages."""
    missing = []
    for case in json_lines(html_data / "real-pages/links.jsonl.gz"):
        found = {link.url for link in read(real_pages[case["page"]], case["url"]).links if link.kind in {"a", "area"}}
        missing += [(case["page"], url) for url in spell(case["must"]) if url not in found]
    assert [] == missing


def test_nothing_is_found_in_the_real_pages_that_nobody_else_finds(
    html_data: Path, real_pages: dict[str, bytes]
) -> None:
    strange = []
    for case in json_lines(html_data / "real-pages/links.jsonl.gz"):
        known = set(spell(case["must"])) | set(spell(case["may"]))
        links = read(real_pages[case["page"]], case["url"]).links
        strange += [(case["page"], link.url) for link in links if link.kind in {"a", "area"} and link.url not in known]
    assert [] == strange


def test_meta_refresh_is_read_as_browsers_read_it(html_data: Path) -> None:
    """Compared after resolving: the table's URLs are stripped as a URL parser strips them."""
    wrong = []
    for case in json_lines(html_data / "wpt-meta-refresh.jsonl"):
        markup = f'<meta http-equiv="refresh" content="{html.escape(case["content"])}">'
        # A form feed or carriage return in the markup would be changed before the attribute is read.
        markup = markup.replace("\r", "&#13;").replace("\f", "&#12;")
        expected = None
        if case["expected"] is not None:
            seconds, address = case["expected"]
            expected = (seconds, spell([address], URL)[0])
        if read(markup.encode(), URL).refresh != expected:
            wrong.append(case["content"])
    assert [] == wrong


@pytest.mark.parametrize("name", ["tests1.jsonl", "tests2.jsonl"])
def test_encodings_are_found_as_html5lib_finds_them(html_data: Path, name: str) -> None:
    wrong = []
    for case in json_lines(html_data / "encoding" / name):
        found = read(base64.b64decode(case["data_b64"]), URL).charset
        if found != case["encoding"].lower():
            wrong.append((case["src"], case["encoding"], found))
    assert [] == wrong


def test_outlinks_of_nutch_and_heritrix_are_found(html_data: Path) -> None:
    wrong = []
    for number, case in enumerate(json_lines(html_data / "outlinks-nutch-heritrix.jsonl")):
        found = {link.url for link in read(case["html"].encode(), case["base"]).links}
        wrong += [(number, url) for url in spell(case["links"] or []) if url not in found]
        wrong += [(number, url) for url in spell(case.get("must_not", [])) if url in found]
    assert [] == wrong


def test_links_of_scrapys_extractor_are_found(html_data: Path) -> None:
    """Cases that ask for elements or attributes of their own choice, and links of other schemes, aside."""
    wrong = []
    for number, case in enumerate(json_lines(html_data / "scrapy-linkextractor.jsonl")):
        if {"tags", "attrs"} & set(case["kwargs"]):
            continue
        content_type = f"text/html; charset={case['encoding']}"
        found = {link.url for link in read(base64.b64decode(case["body_b64"]), case["url"], content_type).links}
        urls = spell([link["url"] for link in case["links"]])
        wrong += [(number, url) for url in urls if url is not None and url not in found]
    assert [] == wrong
