"""Reading pages against foreign material: real pages, WPT's refresh table, html5lib's encodings, link extractors.

The data are next to the project (`../shared/data/html`, with a README that names sources and licences).
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

from contract.test_pages import assert_as_alone
from outrider.page import Page, Unread, read
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


def test_every_link_found_in_the_real_pages_is_found_by_another_extractor(
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
    """Cases without those that want elements or attributes of their own choice, and without links of other schemes."""
    wrong = []
    for number, case in enumerate(json_lines(html_data / "scrapy-linkextractor.jsonl")):
        if {"tags", "attrs"} & set(case["kwargs"]):
            continue
        content_type = f"text/html; charset={case['encoding']}"
        found = {link.url for link in read(base64.b64decode(case["body_b64"]), case["url"], content_type).links}
        urls = spell([link["url"] for link in case["links"]])
        wrong += [(number, url) for url in urls if url is not None and url not in found]
    assert [] == wrong


def octets_of(value: Any) -> bytes:
    """A recorded argument, which is text or base 64."""
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else str(value).encode()


W3LIB_DIFFERS = {
    # WHATWG Fetch, "extract a MIME type".
    "charset=utf-8, text/plain; charset=utf-16": "the last of several types counts, with its charset",
    # The standard reads a page without scripts so, and a crawler runs none.
    "<noscript><base href": "a base in noscript counts",
    '<noscript foo="bar"><base': "a base in noscript counts",
    "<head><noscript><meta": "a refresh in noscript counts",
    "<head><script>if(!foobar())": "markup in a script is text, whatever a caller asks for",
    # WHATWG HTML 13.2.5, 4.2.5.3, 13.2.3.2.
    'content="5;url=newpage"': "a tag that the page breaks off in is none",
    '"refresh" content="5" />': "a refresh without an address leads to the page itself",
    "httpequiv=": "the attribute has another name",
    "&illegal;": "an entity that is none stays as it stands, a number that is no character becomes U+FFFD",
    "&#157;": "a number that is no character of text becomes the control character",
    "&#82179209091;": "a number that is no character becomes U+FFFD",
    "charset = utf-8": "blanks around the sign are read",
    'charset= "utf-8"': "blanks around the sign are read",
    "charset='utf-8'": "quotes of the other sort are read",
    'charset="utf-8': "a quote without its end is read",
    "<b>Low &lt; High": "all references are undone, whatever a caller asks to keep",
}
"""How the page differs, by a part of the case."""


def as_w3lib(case: Case) -> tuple[object, object]:
    """The answer of w3lib to a case, and that of the page."""
    body = octets_of(case["args"][0])
    told = case["args"][2] if len(case["args"]) > 2 else case["kw"].get("encoding", "utf-8")
    result = case["result"]
    given = octets_of(case["args"][1]).decode() if len(case["args"]) > 1 else ""
    url = given or "http://x.test/"
    match case["fn"]:
        case "get_base_url":
            return spell([result or url])[0], spell([read(body, url, f"text/html; charset={told}").base])[0]
        case "get_meta_refresh":
            found = read(body, url, f"text/html; charset={told}").refresh
            return None if result[0] is None else (int(result[0]), spell([result[1]], url)[0]), found
        case "replace_entities":
            page = read(b"<title>" + body + b"</title>", url, f"text/html; charset={told}")
            return " ".join(result.split()), page.title
        case "http_content_type_encoding":
            page = read(b"<p>", url, "text/html; " + body.decode().partition(";")[2])
        case _:
            page = read(body, url)
    return label_of(result), page.charset


def label_of(name: str | None) -> str:
    """The label that the standard has for an encoding, as w3lib names it; pages that name none have windows-1252."""
    if name is None:
        return "windows-1252"
    return read(b"", URL, f"text/html; charset={name.replace('gb18030', 'gbk')}").charset


def test_helpers_of_w3lib_say_the_same_but_for_what_the_standard_says(html_data: Path) -> None:
    cases = [case for case in json_lines(html_data / "w3lib-helpers.jsonl") if case["fn"] != "html_to_unicode"]
    differing = []
    for case in cases:
        expected, found = as_w3lib(case)
        text = octets_of(case["args"][0]).decode("latin-1")
        if expected != found and not any(part in text for part in W3LIB_DIFFERS):
            differing.append((case["fn"], text, expected, found))
    assert (103, []) == (len(cases), differing)


def test_links_of_courlan_are_found(html_data: Path) -> None:
    """Which of them its callers keep (by host, language, kind of page) is their choice; so is the slash at the end."""
    cases = json_lines(html_data / "courlan-extract-links.jsonl")
    wrong = []
    for case in cases:
        page, url = (*case["args"], *(case["kw"].get(name) for name in ("pagecontent", "url")))[:2]
        if page is None or "raises" in case:
            continue
        url = url or case["kw"]["url"]
        found: Page = read(page.encode(), url)
        known = {link.url.partition("?")[0].rstrip("/") for link in found.links}
        wrong += [one for one in spell(case["result"]["set"]) if one is None or one.rstrip("/") not in known]
    assert (24, []) == (len(cases), wrong)


def test_pages_of_a_batch_are_read_as_alone(html_data: Path, real_pages: dict[str, bytes]) -> None:
    """All markup in the data: pages, extractors' cases, html5lib's tests of encodings and tokens."""
    bodies = [
        *real_pages.values(),
        *(case["html"].encode() for case in json_lines(html_data / "outlinks-nutch-heritrix.jsonl")),
        *(base64.b64decode(case["body_b64"]) for case in json_lines(html_data / "scrapy-linkextractor.jsonl")),
        *(octets_of(case["args"][0]) for case in json_lines(html_data / "w3lib-helpers.jsonl")),
        *(
            base64.b64decode(case["data_b64"])
            for name in ("tests1.jsonl", "tests2.jsonl")
            for case in json_lines(html_data / "encoding" / name)
        ),
        *(file.read_bytes() for file in sorted(html_data.rglob("*")) if file.is_file()),
    ]
    unread = [Unread(body, f"http://host{row}.org/dir/page?q") for row, body in enumerate(bodies)]
    assert_as_alone(unread)
    assert_as_alone([one._replace(follow_nofollow=True, content_type="application/xhtml+xml") for one in unread])
