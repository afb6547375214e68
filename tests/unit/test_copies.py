"""Copies of other pages: by bytes, by likeness, in earlier runs, and in the list."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from outrider.cli.main import outrider
from outrider.cli.query_commands import explained
from outrider.crawl.output.output import Output
from outrider.crawl.questions import crawl_queries
from outrider.crawl.run import copies as copies_of_pages
from outrider.crawl.run.copies import Copies, clusters
from outrider.crawl.run.settle import Settler
from unit.test_crawl_settle import House
from unit.test_crawl_sitemaps import A, B
from unit.test_crawl_sitemaps import House as Crawl

WORDS = " ".join(f"word{number}" for number in range(400))
LONG = f"<p>{WORDS}</p><a href=/x>x</a><a href=/y>y</a>".encode()


@pytest.fixture
def house(tmp_path, request):
    made = House(tmp_path / "crawl", **getattr(request, "param", {}))
    yield made
    made.close()


def lines(house):
    return [json.loads(line) for line in (house.directory / "pages.jsonl").read_bytes().splitlines()]


def line_of(house, url):
    return next(line for line in lines(house) if line["url"] == url)


def test_the_same_bytes_name_the_first_page_with_them(house):
    leases = house.pages()
    house.settler.turn([house.visit(lease, body=LONG) for lease in leases[:2]], 0)
    house.settler.turn([house.visit(leases[2], body=LONG)], 0)
    first = leases[0].url
    assert "duplicate_of" not in line_of(house, first)
    for lease in leases[1:3]:
        line = line_of(house, lease.url)
        assert ("duplicate", first, True) == (line["outcome"], line["duplicate_of"], "distance" not in line)


def test_nearly_the_same_text_names_its_page_and_the_similarity(house):
    leases = house.pages()
    other = LONG.replace(b"word399", b"changed")
    house.settler.turn([house.visit(leases[0], body=LONG), house.visit(leases[1], body=other)], 0)
    line = line_of(house, leases[1].url)
    assert ("done", leases[0].url) == (line["outcome"], line["duplicate_of"])
    assert 0 <= line["distance"] <= 3
    assert 399 == line["shingles"]


def test_short_pages_are_copies_by_their_bytes_only(house):
    leases = house.pages()
    visits = [house.visit(leases[0], body=b"<p>a b c"), house.visit(leases[1], body=b"<p>a b c ")]
    house.settler.turn(visits, 0)
    assert ["done", "done"] == [line["outcome"] for line in lines(house)]
    assert all("duplicate_of" not in line for line in lines(house))


@pytest.mark.parametrize(
    ("house", "found"), [({"copies": "last"}, 4), ({"copies": "drop"}, 2)], indirect=["house"], ids=["last", "drop"]
)
def test_the_links_of_a_copy_are_last_or_dropped(house, found):
    leases = house.pages()
    house.settler.turn([house.visit(lease, body=LONG) for lease in leases[:2]], 0)
    known = [house.frontier.status(f"{lease.url}{name}") for lease in leases[:2] for name in "xy"]
    assert found == sum(str(one.state) == "queued" for one in known)
    assert {"drop": {"copy": 2}, "last": {}}[house.options.copies] == house.settler.not_followed
    if found == 4:
        assert [0.5, 0.5, 0.0, 0.0] == [one.priority for one in known]


def test_pages_of_an_earlier_run_are_known(house):
    leases = house.pages()
    house.settler.turn([house.visit(leases[0], body=LONG)], 0)
    house.output.note()
    again = Output(house.files, house.frontier, house.options)
    again.open()
    copies = Copies()
    copies.read(again.pages())
    again.close()
    settler = Settler(house.frontier, house.output, house.options, house.journal, copies=copies)
    settler.turn([house.visit(leases[1], body=LONG), house.visit(leases[2], body=LONG + b" more")], 0)
    assert [leases[0].url] * 2 == [line_of(house, lease.url)["duplicate_of"] for lease in leases[1:3]]


def test_only_a_limited_number_of_pages_is_kept():
    copies = Copies(pages_max=2)
    for number in range(3):
        copies.add(f"http://a.test/{number}", bytes([number]) * 20, number << 60, 100)
    assert [2, None, "http://a.test/0"] == [
        len(copies),
        copies.exact("http://b.test/", bytes([2]) * 20),
        copies.exact("http://b.test/", bytes(20)),
    ]


@pytest.mark.parametrize("together", [1, 2, 3, 100])
def test_the_first_page_of_each_value_stays_with_or_without_indexes(together, monkeypatch):
    monkeypatch.setattr(copies_of_pages, "_INDEXED_TOGETHER", together)
    copies = Copies()
    for row, (digest, simhash) in enumerate([(b"d", 7 << 20), (b"d", 7 << 40), (b"e", 7 << 20), (b"f", 0), (b"d", 0)]):
        copies.add(f"http://a.test/{row}", digest * 20, simhash, 100)
    assert ["0", "2", "3", None] == [
        found and found[-1]
        for found in (copies.exact("http://b.test/", digest * 20) for digest in (b"d", b"e", b"f", b"g"))
    ]
    near = [copies.near("http://b.test/", simhash, 100) for simhash in (7 << 20, 7 << 40, 1, 15 << 50)]
    assert [("http://a.test/0", 0), ("http://a.test/1", 0), ("http://a.test/3", 1)] == [one for one in near if one]


def test_a_page_is_never_a_copy_of_itself():
    copies = Copies()
    copies.add("http://a.test/", b"d" * 20, 5, 100)
    assert (None, None) == (copies.exact("http://a.test/", b"d" * 20), copies.near("http://a.test/", 5, 100))
    assert ("http://a.test/", 1) == copies.near("http://b.test/", 4, 100)


def test_the_first_seen_of_two_sites_with_one_page_is_the_original():
    copies = Copies()
    for row, url in enumerate((f"{A}/", f"{B}/", f"{B}/x?y", f"{A}/z")):
        copies.add(url, bytes([row + 1] * 20), row, 0)
    assert copies.is_of_mirror(f"{A}/x?y", f"{B}/x?y")
    assert not copies.is_of_mirror(f"{B}/z", f"{A}/z")
    assert not copies.is_of_mirror(f"{A}/x", f"{B}/x?y")
    assert not copies.is_of_mirror(f"{A}/z", f"{A}/z")
    assert not copies.is_of_mirror("http://unknown.test/z", f"{A}/z")
    assert copies.is_of_mirror(f"{A}/z", "http://unknown.test/z")


def test_values_of_an_earlier_version_are_not_compared():
    line = {"url": "http://a.test/", "outcome": "done", "digest": "sha1:" + "A" * 32, "simhash": "0000000000000005"}
    copies = Copies()
    copies.read([json.dumps(line).encode(), b"{}", b"nonsense"])
    assert (1, None, "http://a.test/") == (
        len(copies),
        copies.near("http://b.test/", 5, 100),
        copies.exact("http://b.test/", bytes(20)),
    )


def told(url, of=None, distance=None):
    line = {"url": url, "outcome": "done"} | ({"duplicate_of": of} if of else {})
    return json.dumps(line if distance is None else line | {"distance": distance}).encode()


def test_copies_of_copies_belong_to_one_cluster():
    lines = [told("a"), told("b", "a"), told("c", "b", 2), told("d", "x", 1), told("e", "e2"), told("e")]
    found = [(original, [(copy.url, copy.distance) for copy in copies]) for original, copies in clusters(lines)]
    assert [("a", [("b", None), ("c", 2)]), ("x", [("d", 1)])] == found
    assert ["x"] == [original for original, _ in clusters(lines, "d")]
    assert [("a", 1)] == [
        (original, len(copies)) for original, copies in clusters([told("a", "b"), told("b", "a")], "a")
    ]


def test_the_command_lists_copies(house):
    leases = house.pages()
    house.settler.turn([house.visit(lease, body=LONG) for lease in leases[:2]], 0)
    run = CliRunner().invoke(outrider, ["duplicates", str(house.directory)])
    assert f"{leases[0].url}\n  same    {leases[1].url}\n" == run.stdout
    run = CliRunner().invoke(outrider, ["duplicates", str(house.directory), leases[1].url, "--json"])
    assert {"url": leases[0].url, "copies": [{"url": leases[1].url, "distance": None}]} == json.loads(run.stdout)
    assert "" == CliRunner().invoke(outrider, ["duplicates", str(house.directory), "http://z.test/"]).stdout


@pytest.mark.parametrize("simhash", ["no digits", "-1", "f" * 17])
def test_a_line_with_an_invalid_simhash_is_skipped(simhash):
    line = {
        "url": "http://a.test/",
        "outcome": "done",
        "digest": "sha1:" + "A" * 32,
        "simhash": simhash,
        "shingles": 99,
    }
    copies = Copies()
    copies.read([json.dumps(line).encode()])
    assert 0 == len(copies)


# -- explain -----------------------------------------------------------------------------------------------------------


def test_explain_names_the_original_of_a_copy_and_the_record(house):
    leases = house.pages()
    for lease in leases[:2]:
        house.settler.turn([house.visit(lease, body=LONG)], 0)
    line = line_of(house, leases[1].url)
    found = crawl_queries._with_page(
        str(house.directory), {}, crawl_queries.LOOKS["explain"](house.frontier, {"url": leases[1].url})
    )
    place = {name: line["warc"][name] for name in ("file", "offset", "length")}
    assert (place, leases[0].url, None) == tuple(found[name] for name in ("archived", "duplicate_of", "distance"))
    said = "\n".join(explained(found))
    assert f"copy of  {leases[0].url} (the same bytes)" in said
    assert f"file    {line['warc']['file']}" in said


# -- copies of pages of other shapes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "original", "expected"),
    [
        (f"{A}/es/mod/core.html", f"{A}/en/mod/core.html", True),
        (f"{A}/old/page", f"{A}/page", True),
        (f"{A}/page/2", f"{A}/page/1", False),  # with its own shape: a calendar, a session
        (f"{A}/page?print=1", f"{A}/page", False),  # the same path
        (f"{A}/page;jsessionid=1F", f"{A}/page", False),
        (f"{B}/es/page", f"{A}/en/page", False),  # a mirror
    ],
)
def test_a_first_copy_copies_a_page_of_another_shape_of_its_host(url: str, original: str, expected: bool) -> None:
    copies = Copies()
    assert [expected, False] == [copies.is_first_of_shape(url, (original, distance)) for distance in (None, 3)]
    assert not copies.is_first_of_shape(url, None)


def test_a_foreign_copy_is_the_first_copy_of_a_page_of_another_host() -> None:
    copies = Copies()
    told = [copies.is_first_of_host(url, (f"{A}/page", None)) for url in (f"{B}/page", f"{B}/other", f"{A}/other")]
    assert [True, False, False] == told
    assert not copies.is_first_of_host(f"{B}/page", None)


def test_first_copies_are_recognised_up_to_a_limit() -> None:
    copies = Copies(pages_max=2)
    told = [copies.is_first_of_shape(f"{A}/es/{name}", (f"{A}/en/{name}", None)) for name in "abc"]
    assert [True, True, False] == told


def test_original_pages_among_untranslated_pages_are_fetched(tmp_path) -> None:
    """A manual in three languages: two of 90 pages are translated, and only copies lead to them."""
    pages, translated = 90, (80, 89)
    crawl = Crawl(tmp_path)
    for language in ("en", "da", "ru"):
        for number in range(pages):
            own = language if number in translated else "en"
            text = " ".join(f"{own}{number}word{word}" for word in range(80))
            onward = "".join(f"<a href={more}>x</a>" for more in (2 * number + 1, 2 * number + 2) if more < pages)
            crawl.web.pages[f"{A}/{language}/manual/{number}"] = f"<title>{number}</title><p>{text}</p>{onward}"
    crawl.web.pages[f"{A}/"] = "".join(f"<a href=/{language}/manual/0>x</a>" for language in ("en", "da", "ru"))
    crawl.crawl(sitemaps=False)
    told = {url: line["outcome"] for url, line in crawl.pages().items()}
    assert (3 * pages + 1, {"done", "duplicate"}) == (len(told), set(told.values()))
    assert {"done"} == {told[f"{A}/{language}/manual/{number}"] for language in ("da", "ru") for number in translated}
    assert 2 * (pages - 2) == sum(word == "duplicate" for word in told.values())
