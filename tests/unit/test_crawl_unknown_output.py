"""A missing, older or foreign store: opening refuses to cut output that is unknown to the store."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import tomllib

import pytest

from model.inside import inspect
from outrider.archive import Exchange, WarcWriter, line_index
from outrider.cli import main as cli
from outrider.crawl import start as starting
from outrider.crawl.local_run import CrawlRun
from outrider.crawl.orders import exchange, store_repair
from outrider.crawl.orders.move_old import move_old
from outrider.crawl.orders.store_repair import repair
from outrider.crawl.output.output_recovery import judge_of, refuse_output_alone
from outrider.crawl.setup.options import CrawlOptions, as_toml, from_environment, from_file
from outrider.engine import Frontier
from outrider.errors import (
    DamagedStoreError,
    ForeignStoreError,
    SettingsError,
    StoreError,
    StoreInUseError,
    UnknownOutputError,
)
from outrider.storage.files import Directory
from unit.test_crawl_loop import SEEDS, House, Names

OUTPUT = ("pages.jsonl", "politeness.jsonl", "archive/crawl-000000.warc.gz")


def crawled(directory, **options) -> House:
    """A crawl that has ended."""
    house = House(directory, options)
    asyncio.run(house.run())
    return house


def bytes_of(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(house, seeds=SEEDS) -> str:
    """Returns the message with which an opening was refused. It changed nothing in the directory."""
    before = bytes_of(house.output)
    with pytest.raises(UnknownOutputError) as refusal:
        asyncio.run(house.run(seeds=seeds))
    changed = {name for name, data in bytes_of(house.output).items() if before.get(name) != data}
    assert (set(), set()) == (changed, set(before) - set(bytes_of(house.output)))
    assert ("--anew" in str(refusal.value), refusal.value.exit_code) == (True, 5)
    return str(refusal.value)


def test_a_missing_frontier_does_not_cost_the_output(tmp_path):
    """A new store in its place would cut every line and record. Opening refuses, and makes no store."""
    house = crawled(tmp_path)
    (house.output / "frontier").rename(tmp_path / "elsewhere")
    assert "is missing, but its output" in refused(house)
    assert not (house.output / "frontier").exists()
    (tmp_path / "elsewhere").rename(house.output / "frontier")
    assert 0 == asyncio.run(house.run()).exit_code


def test_an_empty_folder_in_place_of_the_frontier_counts_as_no_frontier(tmp_path):
    house = crawled(tmp_path)
    shutil.rmtree(house.output / "frontier")
    (house.output / "frontier").mkdir()
    refused(house)


def test_a_store_without_its_manifest_is_reported_as_such(tmp_path):
    """The store is there but damaged, so the way out is different."""
    house = crawled(tmp_path)
    (house.output / "frontier" / "manifest.json").unlink()
    with pytest.raises(ForeignStoreError, match="bring the manifest back"):
        asyncio.run(house.run())


@pytest.mark.parametrize("place", OUTPUT)
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["directory", "pipe"])
def test_a_directory_or_pipe_in_place_of_a_file_is_named(tmp_path, place, make):
    """The check of the files before an opening once reported the directory as a bug, and waited at the pipe for
    ever."""
    house = crawled(tmp_path)
    (house.output / place).unlink()
    make(house.output / place)
    with pytest.raises(StoreError, match=f"{place} is "):
        asyncio.run(house.run())


@pytest.mark.parametrize("left", OUTPUT)
def test_any_single_output_file_without_its_frontier_causes_a_refusal(tmp_path, left):
    house = crawled(tmp_path)
    shutil.rmtree(house.output / "frontier")
    for name in OUTPUT:
        if name != left:
            (house.output / name).unlink()
    assert left.rpartition("/")[2] in refused(house)


def with_older_frontier(tmp_path) -> House:
    """A crawl that has ended, with an older copy of its frontier that has fewer pages."""
    house = crawled(tmp_path, max_pages=11)
    shutil.copytree(house.output / "frontier", tmp_path / "older")
    house.options = CrawlOptions(**{**options_of(house), "max_pages": None})
    assert 32 == asyncio.run(house.run()).statistics["answered"]
    shutil.rmtree(house.output / "frontier")
    shutil.copytree(tmp_path / "older", house.output / "frontier")
    return house


def options_of(house) -> dict[str, object]:
    return {name: getattr(house.options, name) for name in CrawlOptions.__dataclass_fields__}


def test_an_older_frontier_does_not_destroy_the_newer_output(tmp_path):
    """A backup of the store is copied over today's crawl. The later lines and records are not cut."""
    house = with_older_frontier(tmp_path)
    assert "line at byte" in refused(house)


def test_an_older_frontier_does_not_destroy_the_newer_archive(tmp_path):
    """Where only the archive is newer, the tokens of its records show it."""
    house = crawled(tmp_path, max_pages=11)
    for name in ("frontier", *OUTPUT[:2]):
        (shutil.copytree if name == "frontier" else shutil.copyfile)(house.output / name, tmp_path / name)
    house.options = CrawlOptions(**{**options_of(house), "max_pages": None})
    asyncio.run(house.run())
    shutil.rmtree(house.output / "frontier")
    for name in ("frontier", *OUTPUT[:2]):
        (shutil.copytree if name == "frontier" else shutil.copyfile)(tmp_path / name, house.output / name)
    assert "crawl-000000.warc.gz" in refused(house)


def test_a_file_put_into_the_archive_is_not_removed(tmp_path):
    """A WARC file with the next number, which no process of this store started."""
    house = crawled(tmp_path)
    foreign = house.output / "archive" / "crawl-000001.warc.gz"
    with Frontier.look(house.output / "frontier") as frontier:
        last = inspect(frontier).tables.token
    writer = WarcWriter(Directory(tmp_path / "more"), prefix="crawl", software="test", random_bytes=os.urandom)
    writer.add(Exchange("http://x.test/", "127.0.0.1", 0, b"GET", b"HTTP/1.1 200 OK\r\n\r\n", b"", token=last + 1))
    writer.close()
    foreign.write_bytes((tmp_path / "more" / "crawl-000000.warc.gz").read_bytes())
    assert "crawl-000001.warc.gz" in refused(house)


def test_the_frontier_of_another_crawl_does_not_destroy_the_output(tmp_path):
    house, other = crawled(tmp_path), crawled(tmp_path / "other", max_pages=3)
    shutil.rmtree(house.output / "frontier")
    shutil.copytree(other.output / "frontier", house.output / "frontier")
    refused(house)


def test_unacknowledged_output_of_one_process_is_cut_as_usual(tmp_path):
    """A torn line, and records made under tokens that were leased and never reported."""
    house = crawled(tmp_path, max_pages=11)
    pages = house.output / "pages.jsonl"
    whole = pages.read_bytes()
    pages.write_bytes(whole + b'{"url":"http://h0')
    archive = house.output / "archive" / "crawl-000000.warc.gz"
    kept = archive.read_bytes()
    writer = WarcWriter(Directory(tmp_path / "more"), prefix="crawl", software="test", random_bytes=os.urandom)
    writer.add(Exchange("http://x.test/", "127.0.0.1", 0, b"GET", b"HTTP/1.1 200 OK\r\n\r\n", b"", token=3))
    writer.close()
    tail = (tmp_path / "more" / "crawl-000000.warc.gz").read_bytes()
    archive.write_bytes(kept + tail)
    (house.output / "archive" / "crawl-000001.warc.gz").write_bytes(tail[: len(tail) // 2])
    assert 3 == asyncio.run(house.run()).exit_code
    assert (whole, kept) == (pages.read_bytes(), archive.read_bytes())
    assert [archive.name] == sorted(path.name for path in archive.parent.iterdir())


def test_lines_that_are_in_the_log_but_not_noted_do_not_cause_a_refusal(tmp_path):
    """A process died after it wrote its lines. The log of the store contains them, at any number."""
    house = crawled(tmp_path)
    known = []
    Frontier.open(house.output / "frontier", judge=known.append, robots="caller").close()
    lines = [b'{"n":%d}' % number for number in range(3)]
    (tmp_path / "pages.jsonl").write_bytes(b"".join(line + b"\n" for line in lines) + b"\0\0\0}\n")

    class Store:
        token = 0

        def projection(self, _stream):
            return (0, 1)

        def lines(self, stream, _after):
            return ((number + 2, line) for number, line in enumerate(lines if stream == "pages" else ()))

        def watermarks(self):
            return {}

    judge_of(str(tmp_path))(Store())
    lines.pop()
    with pytest.raises(UnknownOutputError, match="line at byte 16 of"):
        judge_of(str(tmp_path))(Store())
    assert 1 == len(known)


def test_a_directory_without_output_needs_no_frontier(tmp_path):
    refuse_output_alone(str(tmp_path / "nowhere"))
    (tmp_path / "pages.jsonl").touch()
    (tmp_path / "archive").mkdir()
    refuse_output_alone(str(tmp_path))


# -- `verify` and `repair` say so, too


def test_verify_says_of_an_older_frontier_that_the_output_is_ahead(tmp_path, capsys):
    """Its counts are correct for itself. The message "all is correct" alone answered another question."""
    house = with_older_frontier(tmp_path)
    before = bytes_of(house.output)
    assert 5 == cli.run(["verify", str(house.output)])
    said = capsys.readouterr()
    assert "all is correct, but the output has pages that the store does not have: " in said.out
    assert ("line at byte" in said.err, "--anew" in said.err) == (True, True)
    assert 5 == cli.run(["verify", str(house.output), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (False, [], [], True) == (
        told["ok"], told["damage"], told["problems"], "line at byte" in told["unknown_output"],
    )  # fmt: skip
    assert before == bytes_of(house.output)


def test_repair_does_not_treat_newer_output_as_damage(tmp_path):
    house = with_older_frontier(tmp_path)
    before = bytes_of(house.output)
    with pytest.raises(UnknownOutputError, match="line at byte"):
        repair(str(house.output))
    assert before == bytes_of(house.output)


def test_verify_accepts_unacknowledged_output_of_one_process(tmp_path):
    house = crawled(tmp_path, max_pages=11)
    with (house.output / "pages.jsonl").open("ab") as pages:
        pages.write(b'{"url":"http://h0')
    assert store_repair.verify(str(house.output)).ok


@pytest.mark.parametrize("lost", OUTPUT)
@pytest.mark.parametrize("how", ["gone", "shorter", "empty"])
def test_missing_or_shorter_output_is_damage_that_a_repair_fixes(tmp_path, lost, how):
    """An opening once refused it and named `repair`, which found no damage: the crawl could not continue."""
    house = crawled(tmp_path, max_pages=11)
    file = house.output / lost
    whole = file.read_bytes()
    match how:
        case "gone":
            file.unlink()
        case "shorter":
            file.write_bytes(whole[: len(whole) // 2])
        case "empty":
            file.write_bytes(b"")
    with pytest.raises(DamagedStoreError):
        asyncio.run(house.run())
    assert [lost] == [loss.file for loss in store_repair.verify(str(house.output)).damage]
    (loss,) = repair(str(house.output)).losses
    assert loss.file in lost
    assert store_repair.verify(str(house.output)).ok
    house.options = CrawlOptions(**{**options_of(house), "max_pages": None})
    result = asyncio.run(house.run())
    assert (0, 32) == (result.exit_code, result.statistics["answered"])
    assert 21 <= len(house.pages()) <= 32
    places = [line["warc"] for line in house.pages()[-21:]]
    archive = house.output / "archive"
    assert all((archive / at["file"]).stat().st_size >= at["offset"] + at["length"] for at in places)
    assert store_repair.verify(str(house.output)).ok


# -- the index of the line files


def test_a_crawl_whose_index_cannot_be_written_says_so_and_continues(tmp_path):
    house = crawled(tmp_path, max_pages=11)
    shutil.rmtree(house.output / "index")
    (house.output / "index").write_text("in the way")
    assert 0 == asyncio.run(House(tmp_path, {}).run()).exit_code
    notes = [line for line in (house.output / "crawl.log").read_text().splitlines() if "the index of" in line]
    assert (1, True) == (len(notes), f"{house.output / 'index'} is not a directory" in notes[0])
    assert "in the way" == (house.output / "index").read_text()


# -- --anew


def begun(monkeypatch, house, *seeds, **flags):
    """Runs a crawl from its command line, of the site of this file. Returns (result, output)."""

    def crawler(*given, **named):
        return CrawlRun(*given, **named, make_downloader=house.make_site, make_names=Names)

    monkeypatch.setattr(starting, "CrawlRun", crawler)
    hosts = house.output.parent / "hosts"
    hosts.write_text("".join(f"127.0.0.{number + 1} h{number}.test\n" for number in range(8)))
    talk = io.StringIO()
    flags = {"output": str(house.output), "hosts": str(hosts), "progress": "log", **flags}
    return starting.start(seeds, flags, environment={}, talk=talk, summary=False), talk.getvalue()


def test_anew_moves_all_files_aside_and_removes_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(line_index, "LINE_INDEX_RUN_BYTES", 1_000)
    house = crawled(tmp_path, max_pages=11)
    assert list((house.output / "index").glob("pages-*.run"))
    before = {name: data for name, data in bytes_of(house.output).items() if name != "outrider.toml"}
    (house.output / "notes.txt").write_text("mine")
    result, talk = begun(monkeypatch, house, SEEDS[0], anew=True, max_pages=None)
    (aside,) = house.output.glob("aside-*")
    kept = bytes_of(aside)
    assert before == {name: data for name, data in kept.items() if name in before}
    assert ("outrider.toml" in kept, (house.output / "notes.txt").read_text()) == (True, "mine")
    assert (0, 4, 4) == (result.exit_code, result.statistics["answered"], len(house.pages()))
    assert f"is in {aside} now" in talk
    # Its settings are in force again, and the next run continues.
    assert 'user_agent = "Test"' in (house.output / "outrider.toml").read_text()
    assert "anew" not in tomllib.loads((house.output / "outrider.toml").read_text())
    assert 0 == begun(monkeypatch, house)[0].exit_code
    assert [aside] == list(house.output.glob("aside-*"))


def test_anew_is_the_way_out_when_the_frontier_is_missing(tmp_path, monkeypatch):
    house = crawled(tmp_path)
    pages = (house.output / "pages.jsonl").read_bytes()
    shutil.rmtree(house.output / "frontier")
    with pytest.raises(UnknownOutputError):
        begun(monkeypatch, house, SEEDS[0])
    assert 0 == begun(monkeypatch, house, SEEDS[0], anew=True)[0].exit_code
    (aside,) = house.output.glob("aside-*")
    assert pages == (aside / "pages.jsonl").read_bytes()


def test_no_file_is_moved_aside_while_the_crawl_has_an_owner(tmp_path):
    house = crawled(tmp_path)
    with Frontier.open(house.output / "frontier", robots="caller"), pytest.raises(StoreInUseError):
        move_old(str(house.output), 0)
    assert (True, []) == ((house.output / "pages.jsonl").exists(), list(house.output.glob("aside-*")))


def test_two_crawls_of_one_second_are_moved_to_different_places(tmp_path):
    for _ in range(2):
        (tmp_path / "pages.jsonl").write_text("{}\n")
        move_old(str(tmp_path), 0)
    names = ["aside-19700101T000000Z", "aside-19700101T000000Z-2"]
    assert names == sorted(path.name for path in tmp_path.iterdir())
    assert move_old(str(tmp_path), 0) is None


def test_anew_applies_to_one_run():
    assert "anew" not in as_toml(CrawlOptions(anew=True), ())
    with pytest.raises(SettingsError, match="for one run"):
        from_file("anew = true", "outrider.toml", "/")
    assert "anew" in from_environment({"OUTRIDER_ANEW": "1"})


def test_resume_does_not_start_anew(tmp_path):
    house = crawled(tmp_path)
    (house.output / "outrider.toml").write_text(as_toml(house.options, SEEDS))
    with pytest.raises(SettingsError, match="`resume` continues"):
        starting.start((), {"output": str(house.output), "anew": True}, environment={}, talk=io.StringIO(), resume=True)
    shutil.rmtree(house.output / "frontier")
    with pytest.raises(UnknownOutputError):
        starting.start((), {"output": str(house.output)}, environment={}, talk=io.StringIO(), resume=True)


# -- a frontier made again from lines and archive


def taken_in(house, directory) -> exchange.Imported:
    return exchange.import_files(str(directory), [str(house.output / "pages.jsonl")], io.StringIO())


def test_the_pages_of_a_crawl_without_its_frontier_are_imported_into_a_new_one(tmp_path, monkeypatch):
    """The new crawl fetches what the old one had left, and no page twice."""
    whole = crawled(tmp_path / "whole")
    house = crawled(tmp_path / "half", max_pages=11)
    shutil.rmtree(house.output / "frontier")
    assert f"`outrider import NEW {house.output / 'pages.jsonl'}`" in refused(house)
    rest = House(tmp_path / "new", {})
    found = taken_in(house, rest.output)
    assert (11, 0, []) == (found.codes["imported"], found.skipped, found.faults)
    assert "without_their_links" not in found.codes
    again = taken_in(house, rest.output)
    assert (0, 11) == (again.codes.get("imported", 0), again.codes["known"])
    asyncio.run(rest.run(seeds=[]))
    old, late = ([line["url"] for line in one.pages()] for one in (house, rest))
    assert (set(), sorted(line["url"] for line in whole.pages())) == (set(old) & set(late), sorted(old + late))


def test_lines_without_their_archive_are_imported_with_a_message(tmp_path):
    house = crawled(tmp_path, max_pages=11)
    shutil.rmtree(house.output / "frontier")
    shutil.rmtree(house.output / "archive")
    found = taken_in(house, tmp_path / "new")
    linked = sum(line["outcome"] != "redirect" and line["links"] > 0 for line in house.pages())
    assert (11, linked) == (found.codes["imported"], found.codes["without_their_links"])
    assert 0 < linked


@pytest.mark.parametrize("place", [{"file": "../secret", "offset": 0, "length": 9}, {"file": "x"}, [], "x"])
def test_a_line_without_a_place_in_the_archive_is_named(tmp_path, place):
    (tmp_path / "archive").mkdir(mode=0o700)
    line = {"url": "http://a.com/", "outcome": "done", "status": 200, "depth": 0, "links": 3, "warc": place}
    (tmp_path / "pages.jsonl").write_text(json.dumps(line) + "\n")
    found = exchange.import_files(str(tmp_path / "new"), [str(tmp_path / "pages.jsonl")], io.StringIO())
    assert (1, 1) == (found.codes["imported"], found.codes["without_their_links"])
    ((_, number, words),) = found.faults
    assert (1, True) == (number, "names no place in the archive" in words)


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ({"outcome": "gone", "status": 404}, "gone"),
        ({"outcome": "error", "error": "decode"}, "gone"),
        ({"outcome": "retry", "status": 503}, "queued"),
        ({"outcome": "robots"}, "queued"),
        ({"outcome": "redirect", "status": 301, "location": "http://b.com/"}, "done"),
        ({"outcome": "duplicate", "status": 200, "digest": "sha1:HLXCF7IEN7KQ5DVJT5BW6N5H3HYZVXL6"}, "done"),
        ({"outcome": "done", "status": 200, "digest": "sha1:no base 32", "etag": "e"}, "done"),
        ({"outcome": ["x"], "status": 200}, None),
        ({"outcome": "done", "status": "x"}, None),
        ({"outcome": "done", "depth": -1}, None),
    ],
)
def test_each_outcome_of_a_line_has_its_state(tmp_path, line, state):
    """The line of the last attempt counts, wherever it is."""
    lines = [{"url": "http://a.com/", "outcome": "retry", "depth": 0}] if state in ("gone", "done") else []
    lines += [{"url": "http://a.com/", "depth": 0, **line}]
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    found = exchange.import_files(str(tmp_path / "new"), [str(tmp_path / "pages.jsonl")], io.StringIO())
    with Frontier.look(str(tmp_path / "new" / "frontier")) as frontier:
        states = {one["url"]: one["state"] for one in frontier.records()}
    expected = {} if state is None else {"http://a.com/": state}
    assert (expected | ({"http://b.com/": "queued"} if "location" in line else {})) == states
    assert (state is None) == (found.skipped == 1)
