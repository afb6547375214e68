"""Bad input about permission: long files and fields are read within limits, and what cannot be read is told."""

from __future__ import annotations

import base64
import json

import pytest

from outrider.cli.main import run
from outrider.kernels import robots as twin
from outrider.limits import (
    PREFERENCE_LINES_MAX,
    PREFERENCE_STATEMENTS_MAX,
    PREFERENCE_TEXT_CHARACTERS_MAX,
    ROBOTS_BYTES_MAX,
    ROBOTS_IGNORED_LINES_MAX,
)
from outrider.robots import Rules, ignored_lines, preferences_of, rules
from unit.test_crawl_sitemaps import A, House, Web

FIELD_BYTES = 64 << 10


def test_four_mebibytes_of_statements_are_read_within_limits():
    line = b"Content-Usage: /%06d train-ai=n\n"
    body = b"User-agent: *\nDisallow: /no\n" + b"".join(line % number for number in range(ROBOTS_BYTES_MAX // 33))
    found = Rules.parse(body).of("Outrider")
    assert (True, False) == (found.allowed("http://a.test/000001"), found.allowed("http://a.test/no"))
    assert {"train-ai": "n"} == preferences_of(found.about_uses("http://a.test/000001")).uses
    beyond = f"http://a.test/{PREFERENCE_LINES_MAX + 1:06d}"
    assert ({}, True) == (preferences_of(found.about_uses(beyond)).uses, found.memory_bytes < 1 << 20)


@pytest.mark.parametrize("kernel", ["as installed", "twin"])
def test_many_lines_of_one_path_are_told_in_bounds_with_all_their_answers(kernel, monkeypatch):
    if kernel == "twin":
        monkeypatch.setattr(rules, "RobotsText", twin.RobotsText)
    lines = b"Content-Usage: / search=y\n" * 500 + b"Content-Usage: / train-ai=n\n"
    said = Rules.parse(b"User-agent: *\n" + lines).about_uses("Outrider", "http://a.test/x")
    assert {"train-ai": "n", "search": "y"} == said.uses
    assert len(said.said) <= PREFERENCE_STATEMENTS_MAX


@pytest.mark.parametrize("name", ["content-usage", "content-signal", "tdm-reservation"])
def test_a_field_of_64_kib_says_nothing_and_is_told_with_its_beginning(name):
    (said,) = preferences_of((), [(name, "train-ai=n, " * (FIELD_BYTES // 12))]).said
    assert ({}, True) == (said.uses, bool(said.fault))
    assert len(said.text) <= PREFERENCE_TEXT_CHARACTERS_MAX


@pytest.mark.parametrize("value", ["train-ai", "train-ai=n,", "Train-AI=n", "train-ai = n", "1=n", "tr\u00e4in=n", '"'])
def test_a_dictionary_that_does_not_parse_is_told_with_its_line(value):
    body = f"User-agent: *\nContent-Usage: {value}\n".encode()
    (said,) = Rules.parse(body).about_uses("Outrider", "http://a.test/x").said
    assert ({}, 2) == (said.uses, said.line)


BAD_LINES = """User-agent: *
Visit-time: 0600-0600
Request-rate: fast
Content-Usage: train-ai=n,
Content-Usage: /good search=n
Disallow: /no
"""
FAULTS = ("line 2: visit-time: 0600-0600", "line 3: request-rate: fast", "line 4: content-usage: train-ai=n,")


def test_lines_that_cannot_be_read_are_named_with_their_numbers_and_the_rest_counts():
    told = ignored_lines(BAD_LINES.encode(), "Outrider")
    assert list(FAULTS) == [one.partition(" is ignored: ")[0] for one in told.split("; ")]
    found = Rules.parse(BAD_LINES.encode()).of("Outrider")
    assert ((), None, False) == (found.hours, found.crawl_delay, found.allowed(f"{A}/no"))


@pytest.mark.parametrize("text", ["", "Visit-time: 0600-0845\nRequest-rate: 1/5\nContent-Usage: search=n\n"])
def test_a_file_without_a_fault_has_no_message(text):
    assert None is ignored_lines(b"User-agent: *\n" + text.encode(), "Outrider")


def test_a_message_names_few_lines_in_bounds():
    line = b"Visit-time: " + b"9" * FIELD_BYTES + b"\n"
    told = ignored_lines(b"User-agent: *\n" + line * 50, "Outrider")
    assert ROBOTS_IGNORED_LINES_MAX == told.count(" is ignored: ")
    assert len(told) < ROBOTS_IGNORED_LINES_MAX * (PREFERENCE_TEXT_CHARACTERS_MAX + 200)


def test_the_check_of_a_file_names_the_lines_that_cannot_be_read(tmp_path, capsys):
    (tmp_path / "robots.txt").write_text(BAD_LINES)
    assert 0 == run(["robots", "check", str(tmp_path / "robots.txt"), "/x"])
    told = capsys.readouterr().err
    assert [] == [fault for fault in FAULTS if fault not in told]


class BadWeb(Web):
    """A site whose answers have each fault: fields of 64 KiB, unreadable prices and offers, a wrong dictionary."""

    def page(self, url, path):
        status, body, fields = super().page(url, path)
        more = {
            "/long": [("Content-Usage", "train-ai=n, " * (FIELD_BYTES // 12))],
            "/wrong": [("Content-Usage", "train-ai=n,,")],
            "/price": [("crawler-price", "USD 0.01\x1b[2J")],
            "/dear": [("crawler-price", "USD 1" + "0" * 400)],
            "/offer": [("payment-required", "%%%")],
            "/html": [("payment-required", base64.b64encode(b"<html>").decode())],
            "/charged": [("crawler-charged", "9" * 400)],
        }.get(path, [])
        return (402 if path in PAID else status), body, [*fields, *more]


PAID = ("/price", "/dear", "/offer", "/html")


def test_a_crawl_of_a_site_with_each_fault_goes_on_and_tells_them(tmp_path):
    house = House(tmp_path)
    house.web = BadWeb()
    paths = ("/long", "/wrong", "/price", "/dear", "/charged", "/offer", "/html", "/good")
    line = "Content-Usage: /%07d train-ai=n\n"
    rest = "".join(line % number for number in range(ROBOTS_BYTES_MAX // 34 + 10))
    house.web.pages |= {
        f"{A}/robots.txt": BAD_LINES + rest,
        f"{A}/": "".join(f"<a href={A}{path}></a>" for path in paths),
        f"{A}/.well-known/tdmrep.json": "<!doctype html><title>Home</title>",
        **{f"{A}{path}": "text" for path in paths},
    }
    assert 0 == house.crawl(tdmrep=True, sitemaps=False).exit_code
    pages = house.pages()
    assert {f"{A}/", *(A + path for path in paths)} == set(pages)
    log = (house.output / "crawl.log").read_text()
    assert [] == [fault for fault in (*FAULTS, "it is not a JSON array") if fault not in log]
    faults = {path: pages[A + path]["preferences"]["said"] for path in ("/long", "/wrong")}
    assert ["it is longer than 8,192 characters", "it is not a dictionary of RFC 9651"] == [
        next(one["fault"] for one in said if one["source"] == "header content-usage") for said in faults.values()
    ]
    on_line_4 = [one for one in faults["/wrong"] if one.get("line") == 4]
    assert "it is not a dictionary of RFC 9651" == on_line_4[0]["fault"]
    assert {"search": "n"} == pages[f"{A}/good"]["preferences"]["uses"]
    told = {path: pages[A + path]["payment"] for path in (*PAID, "/charged")}
    assert {path for path, text in told.items() if "(unreadable: " in text} == {*PAID[:3], "/charged"}
    assert "x402 (an offer that cannot be read)" == told["/html"]
    assert all(text.isprintable() and len(text) < 100 for text in told.values())
    assert json.dumps(told).isascii()
