"""tdmrep.json: how the file is read, and a crawl that requests it for each site."""

from __future__ import annotations

import json

import pytest

from outrider.crawl.run import tdm_files
from outrider.crawl.run.tdm_files import TDMREP_FILE
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import SettingsError
from outrider.limits import TDMREP_BYTES_MAX, TDMREP_RULES_MAX
from outrider.robots import TdmFile, preferences_of
from unit.test_crawl_sitemaps import ROBOTS, A, House

FILE = f"{A}/.well-known/tdmrep.json"


def rule(location: object, value: object = 1, **more: object) -> dict[str, object]:
    return {"location": location, "tdm-reservation": value, **more}


def read(*rules: object) -> tuple[TdmFile, int]:
    return TdmFile.parse(json.dumps(rules).encode())


def test_the_first_rule_that_matches_counts_not_the_longest():
    file, _ = read(rule("/a/*.pdf", 0), rule("/a/"), rule("/a/b/c", 0), rule("/d$"), rule("/%7Ee"), rule("*?x=#"))
    values = {"/a/1.pdf": {}, "/a/b/c": {"train-ai": "n", "ai-use": "n"}, "/A/": None, "/d": {"train-ai": "n"}}
    for path, uses in values.items():
        said = file.about(A + path)
        assert (uses is None) == (said is None)
        assert said is None or (uses or {}).get("train-ai") == said.uses.get("train-ai")
    assert (True, True) == (file.about(f"{A}/~e") is not None, file.about(f"{A}/y?x=%23") is not None)
    assert None is file.about(f"{A}/dd")


def test_a_statement_has_the_rule_as_written_and_its_policy():
    body = b'\xef\xbb\xbf[ {"location":"/", "tdm-reservation": 1,"tdm-policy":"http://a.test/P"} ]'
    said = TdmFile.parse(body)[0].about(f"{A}/x")
    assert ("file tdm-reservation", "http://a.test/P") == (said.source, said.policy)
    assert '{"location":"/", "tdm-reservation": 1,"tdm-policy":"http://a.test/P"}' == said.text


def test_a_later_statement_of_tdmrep_supersedes_the_file():
    said = read(rule("/"))[0].about(f"{A}/x")
    assert {} == preferences_of((), [("TDM-Reservation", "0")], file=said).uses
    assert {"train-ai": "n", "ai-use": "n"} == preferences_of((), [("TDM-Reservation", "?")], file=said).uses


@pytest.mark.parametrize("value", [True, 1.0, "01", None, 2, [1], "9" * 5_000])
def test_a_value_that_is_neither_1_nor_0_says_nothing_and_is_told(value):
    said = read(rule("/", value))[0].about(f"{A}/x")
    assert ({}, "it is neither 1 nor 0") == (said.uses, said.fault)


@pytest.mark.parametrize(
    "bad", [1, None, [], {}, rule(1), rule(""), rule("a"), rule("http://a.test/"), rule("/\nAllow: /"), rule("/\x00")]
)
def test_a_rule_without_a_location_is_ignored_and_counted(bad):
    file, left_out = read(bad, rule("/b"))
    assert (1, True, None) == (left_out, file.about(f"{A}/b") is not None, file.about(f"{A}/a"))


def test_rules_above_the_limit_are_ignored_and_counted():
    file, left_out = read(*[rule(f"/{number}$") for number in range(TDMREP_RULES_MAX + 3)])
    assert (3, TDMREP_RULES_MAX) == (left_out, len(file.rules))
    assert None is file.about(f"{A}/{TDMREP_RULES_MAX}")


@pytest.mark.parametrize(
    "body", [b"<html>", b"{}", b"", b"[1,", b"\xff", b"[" * 100_000, b" " * TDMREP_BYTES_MAX + b"[]", b'["\\ud800"']
)
def test_any_other_content_is_refused_with_the_reason(body):
    with pytest.raises(SettingsError, match=r"^Refused: it is (not a JSON array|longer than)"):
        TdmFile.parse(body)


@pytest.fixture
def house(tmp_path):
    house = House(tmp_path)
    house.web.pages |= {ROBOTS: "User-agent: *\nDisallow: /no\n", f"{A}/": f"<a href={A}/x>", f"{A}/x": "text"}
    return house


def asked(house):
    return [url for url in house.web.urls if url == FILE]


def test_a_crawl_requests_the_file_between_robots_txt_and_the_first_page(house):
    house.web.pages[FILE] = json.dumps([rule("/x")])
    house.crawl(tdmrep=True, sitemaps=False)
    assert [ROBOTS, FILE, f"{A}/"] == house.web.urls[:3]
    pages = house.pages()
    assert {"train-ai": "n", "ai-use": "n"} == pages[f"{A}/x"]["preferences"]["uses"]
    assert "preferences" not in pages[f"{A}/"]
    assert ["tdmrep"] == [line["kind"] for line in house.lines("politeness.jsonl") if line["url"] == FILE]
    assert [{"authority": A, "rules": [json.dumps(rule("/x"))]}] == house.lines(TDMREP_FILE)


def test_without_the_option_the_file_is_not_requested(house):
    house.crawl()
    assert [] == asked(house)


def test_a_refused_use_keeps_no_body_and_follows_no_links(house):
    house.web.pages[FILE] = json.dumps([rule("/")])
    house.crawl(tdmrep=True, use="train-ai")
    assert {f"{A}/": "use"} == {url: line["error"] for url, line in house.pages().items()}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("<!doctype html><title>Home</title>", "it is not a JSON array"),
        (json.dumps([rule("/"), 7]), "1 rule ignored"),
        ((404, "no"), "status=404"),
    ],
)
def test_faults_in_a_file_are_in_the_log_and_the_crawl_continues(house, answer, told):
    house.web.pages[FILE] = answer
    assert 0 == house.crawl(tdmrep=True).exit_code
    lines = (house.output / "crawl.log").read_text().splitlines()
    (line,) = [line for line in lines if " tdmrep " in line]
    assert told in line
    assert {f"{A}/", f"{A}/x"} == set(house.pages())


def test_a_file_that_robots_txt_refuses_is_not_requested(house):
    house.web.pages[ROBOTS] = "User-agent: *\nDisallow: /.well-known/\n"
    house.crawl(tdmrep=True)
    assert ([], 2) == (asked(house), len(house.pages()))


def test_a_killed_crawl_reads_the_rules_of_its_file_and_requests_it_once(house):
    house.web.pages[FILE] = json.dumps([rule("/x")])
    house.web.dies_at = f"{A}/x"
    with pytest.raises(ZeroDivisionError):
        house.crawl(tdmrep=True)
    house.web.dies_at = None
    house.crawl(tdmrep=True)
    assert [FILE] == asked(house)
    assert "n" == house.pages()[f"{A}/x"]["preferences"]["uses"]["train-ai"]


def test_a_later_run_with_the_option_asks_sites_whose_robots_txt_is_known(house):
    house.web.dies_at = f"{A}/x"
    with pytest.raises(ZeroDivisionError):
        house.crawl()
    house.web.dies_at = None
    house.crawl(tdmrep=True)
    assert [FILE] == asked(house)


def test_above_the_limits_of_a_crawl_further_files_are_refused_with_a_message(house, monkeypatch):
    monkeypatch.setattr(tdm_files, "TDMREP_CRAWL_BYTES_MAX", 10)
    house.web.pages[FILE] = json.dumps([rule("/")])
    house.crawl(tdmrep=True)
    assert "tdmrep_limit" in (house.output / "crawl.log").read_text()
    assert "preferences" not in house.pages()[f"{A}/"]


@pytest.mark.parametrize("torn", [b'{"authority": "http://a.te', b"\x00\xff\n", b"7\n"])
def test_a_torn_end_of_the_note_is_overwritten(house, torn):
    house.web.pages[FILE] = json.dumps([rule("/x")])
    house.crawl(tdmrep=True)
    whole = (house.output / TDMREP_FILE).read_bytes()
    (house.output / TDMREP_FILE).write_bytes(torn)
    house.crawl(f"{A}/y", tdmrep=True, anew=False)
    assert (house.output / TDMREP_FILE).read_bytes() in (whole, torn)


def test_workers_and_nodes_refuse_the_option_with_a_reason():
    from outrider.crawl import cluster_run
    from outrider.crawl.run import remote_run

    with pytest.raises(SettingsError, match="--tdmrep and --cluster cannot be used together"):
        cluster_run.refuse_in_clusters({"tdmrep": True}, CrawlOptions(output="x", tdmrep=True))
    with pytest.raises(SettingsError, match="OUTRIDER_TDMREP is set, but workers do not share"):
        remote_run._refuse_destinations(CrawlOptions(output="x", tdmrep=True), {"tdmrep": True})
