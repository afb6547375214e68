"""The commands around a crawl, each in its own process: crawls are queried, moved, damaged, repaired and continued."""

from __future__ import annotations

import json
import signal

import pytest

from e2e import crawling
from outrider.engine import Frontier
from outrider.storage.files import Directory
from outrider.storage.repair import survey


def rows(ended):
    assert 0 == ended.returncode, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    with crawling.web(folder / "web", hosts=4, pages=40) as served:
        output = folder / "out"
        assert 0 == crawling.outrider(*crawling.on(served, output, "--delay", "0.01")).returncode
        yield served, output


def test_lists_and_explanations_of_a_crawl_that_has_ended(finished):
    _, output = finished
    done = rows(crawling.outrider("urls", output, "--state", "done", "--limit", "0", "--json"))
    assert crawling.fetched(output) <= {row["url"] for row in done}
    hosts = rows(crawling.outrider("hosts", output, "--json"))
    assert {crawling.host_and_path(row["url"])[0] for row in done} == {host["name"] for host in hosts}
    (explained,) = rows(crawling.outrider("explain", done[0]["url"], "-o", output, "--json"))
    assert ("done", done[0]["url"]) == (explained["state"], explained["url"])
    (idle,) = rows(crawling.outrider("why-idle", output, "--json"))
    assert ("finished", idle["known"]) == (idle["reason"], sum(idle["hosts"].values()))
    verified = crawling.outrider("verify", output)
    assert (0, True) == (verified.returncode, verified.stdout.startswith("all is correct"))


def test_a_running_crawl_is_queried_and_not_disturbed(tmp_path):
    output = tmp_path / "out"
    with crawling.web(tmp_path / "web", hosts=3, pages=240) as served:
        crawl = crawling.started(*crawling.on(served, output, "--delay", "1.5"))
        try:
            crawling.wait_for(lambda: (output / "control.sock").exists())
            crawling.wait_for(lambda: bool(rows(crawling.outrider("urls", output, "--state", "done", "--json"))))
            (idle,) = rows(crawling.outrider("why-idle", output, "--json"))
            assert idle["known"] == sum(idle["hosts"].values()) > 0
            url = rows(crawling.outrider("urls", output, "--json"))[0]["url"]
            (explained,) = rows(crawling.outrider("explain", url, "-o", output, "--json"))
            assert url == explained["url"]
            assert rows(crawling.outrider("hosts", output, "--json"))
            for command in (["verify"], ["retry"], ["export", "--to", tmp_path / "x.jsonl"]):
                answered = crawling.outrider(command[0], output, *command[1:])
                assert 0 == answered.returncode, answered.stderr
            refused = crawling.outrider("repair", output)
            assert (6, True) == (refused.returncode, str(crawl.pid) in refused.stderr), refused.stderr
            assert 0 == crawling.outrider("export", output, "--what", "pages", "--to", tmp_path / "p.csv").returncode
        finally:
            crawl.send_signal(signal.SIGINT)
            assert 4 == crawl.wait(60)


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_an_export_of_an_import_equals_the_first_export(finished, tmp_path, form):
    _, output = finished
    first, second = tmp_path / f"1.{form}", tmp_path / f"2.{form}"
    assert 0 == crawling.outrider("export", output, "--to", first).returncode
    moved = crawling.outrider("import", tmp_path / "copy", first)
    assert (0, "") == (moved.returncode, "".join(line for line in moved.stderr.splitlines() if "outrider:" in line))
    again = crawling.outrider("import", tmp_path / "copy", first)
    assert (0, True) == (again.returncode, again.stdout.startswith("0 imported, "))
    assert 0 == crawling.outrider("export", tmp_path / "copy", "--to", second).returncode
    assert lines_of(first) == lines_of(second)
    assert 0 == crawling.outrider("verify", tmp_path / "copy").returncode


def test_a_copy_continues_where_the_first_stopped(tmp_path):
    """States, scope and order are carried: the second crawl fetches no URL of the first again, and misses no URL."""
    output, copy, carried = tmp_path / "out", tmp_path / "copy", tmp_path / "all.jsonl"
    with crawling.web(tmp_path / "web", hosts=4, pages=40) as served:
        arguments = crawling.on(served, output, "--delay", "0.01")
        assert 3 == crawling.outrider(*arguments, "--max-pages", "20").returncode
        assert 0 == crawling.outrider("export", output, "--to", carried).returncode
        assert 0 == crawling.outrider("import", copy, carried).returncode
        ended = crawling.outrider("crawl", "-o", copy, *arguments[4:], "--max-pages", "none")
        assert 0 == ended.returncode, ended.stderr
        first, second = crawling.fetched(output), crawling.fetched(copy)
        assert (set(), expected_pages(served, tmp_path)) == (first & second, first | second)


def lines_of(path):
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path).to_pylist()
    return path.read_bytes().splitlines()


def test_a_crawl_continues_after_a_repair_and_keeps_every_page_once(tmp_path):
    """A frame in the middle of the log is lost: its pages are visited again, and nothing is twice or missing."""
    output = tmp_path / "out"
    with crawling.web(tmp_path / "web", hosts=4, pages=40) as served:
        arguments = crawling.on(served, output, "--delay", "0.01")
        assert 3 == crawling.outrider(*arguments, "--max-pages", "25").returncode
        before = crawling.lines(output / "pages.jsonl")
        damage_a_frame_with_lines(output / "frontier")
        refused = crawling.outrider("resume", output)
        assert (5, True) == (refused.returncode, "outrider repair" in refused.stderr)
        listed = crawling.outrider("verify", output)
        assert (5, True) == (listed.returncode, "LSN" in listed.stdout)
        mended = crawling.outrider("repair", output)
        assert (0, True) == (mended.returncode, "1 frame" in mended.stdout or "LSN" in mended.stdout), mended.stderr
        assert "nothing is damaged" in crawling.outrider("repair", output).stdout
        assert before == crawling.lines(output / "pages.jsonl")
        assert 0 == crawling.outrider("resume", output, "--max-pages", "none").returncode
        assert before == crawling.lines(output / "pages.jsonl")[: len(before)]
        assert [] == crawling.doubled(output)
        assert [] == crawling.not_kept_once(output)
        assert expected_pages(served, tmp_path) == crawling.fetched(output)


def test_a_crawl_that_forgot_how_far_its_files_reach_keeps_them(tmp_path):
    """The checkpoint's first range is lost: totals, seeds, watermarks. Archive and lines stay as they are."""
    output = tmp_path / "out"
    with crawling.web(tmp_path / "web", hosts=4, pages=40) as served:
        arguments = crawling.on(served, output, "--delay", "0.01")
        assert 3 == crawling.outrider(*arguments, "--max-pages", "25").returncode
        before = (crawling.lines(output / "pages.jsonl"), crawling.archived(output))
        with Frontier.open(output / "frontier", robots="errands", output=True) as frontier:
            frontier.checkpoint()
        (checkpoint,) = (output / "frontier").glob("checkpoint-*.ckpt")
        data = bytearray(checkpoint.read_bytes())
        data[64 + 60] ^= 0xFF
        checkpoint.write_bytes(data)
        mended = crawling.outrider("repair", output)
        assert (0, True) == (mended.returncode, "add the seeds again" in mended.stderr), mended.stderr
        ended = crawling.outrider(*arguments, "--max-pages", "none")
        assert 0 == ended.returncode, ended.stderr
        assert before[0] == crawling.lines(output / "pages.jsonl")[: len(before[0])]
        assert before[1].items() <= crawling.archived(output).items()
        assert ([], []) == (crawling.doubled(output), crawling.not_kept_once(output))
        assert expected_pages(served, tmp_path) == crawling.fetched(output)


def expected_pages(served, tmp_path):
    whole = tmp_path / "whole"
    assert 0 == crawling.outrider(*crawling.on(served, whole, "--delay", "0.01")).returncode
    return crawling.fetched(whole)


def damage_a_frame_with_lines(store):
    files = Directory(store)
    manifest = json.loads((store / "manifest.json").read_text())
    found = survey(files, bytes.fromhex(manifest["store"]))
    files.close()
    segment = found.segments[0]
    data = bytearray((store / segment.name).read_bytes())
    from outrider.kernels import scan_frames

    frames, _, _ = scan_frames(data, 64)
    offset, length, *_ = max(frames[len(frames) // 3 : 2 * len(frames) // 3], key=lambda frame: frame[1])
    data[offset + length // 2] ^= 0xFF
    (store / segment.name).write_bytes(data)
