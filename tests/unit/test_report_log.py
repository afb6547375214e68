"""The books of a worker: a line counts if and only if the frontier accepted its token, even if answers were lost in
transit."""

from __future__ import annotations

import pytest

from contract.test_frontier_faces import A, B, World
from outrider.cli.main import run
from outrider.crawl.output.report_log import FOLDER, REPORTS_FILE, ReportLog, read_reports
from outrider.errors import DamagedStoreError, UnreachableError
from outrider.storage.files import Directory
from outrider.storage.memory import MemoryFiles


def leased(world, *urls):
    world.face.discover(urls)
    return list(world.face.lease(10, ttl_seconds=30))


def with_line(lease, text):
    return type(lease.done())(lease.token, "done", seconds=0.1, line=text, politeness=text)


def lines(accounts, after=0):
    return [line for _, line in accounts.lines("pages", after)]


def test_an_accepted_outcome_has_its_lines_and_a_late_one_has_no_lines():
    world, files = World("remote"), MemoryFiles()
    first, second = leased(world, A, B)
    accounts = ReportLog(world.face, files)
    world.face.report([second.done()])
    report = accounts.report([with_line(first, b'{"a":1}'), with_line(second, b'{"b":1}')], watermark=("archive", b"9"))
    assert ["ok", "stale"] == list(report)
    assert (("pages", b'{"a":1,"new_links":0}'), ("politeness", b'{"a":1}')) == report.lines
    assert ([b'{"a":1,"new_links":0}'], {"archive": b"9"}) == (lines(accounts), accounts.watermarks())


def test_the_line_of_a_page_has_its_number_of_new_links_even_when_it_is_written_again():
    world, files = World("remote"), MemoryFiles()
    (lease,) = leased(world, A)
    accounts = ReportLog(world.face, files)
    outcome = type(lease.done())(lease.token, "done", links=[A, B, B + "x"], line=b'{"a":1}', politeness=b"{}")
    told = accounts.report([outcome]).lines
    assert (("pages", b'{"a":1,"new_links":2}'), ("politeness", b"{}")) == told
    assert [b'{"a":1,"new_links":2}'] == lines(accounts) == lines(ReportLog(world.face, files))


def test_a_report_whose_answer_was_lost_with_its_process_is_sent_again():
    world, files = World("remote"), MemoryFiles()
    first, _ = leased(world, A, B)
    accounts = ReportLog(world.face, files)
    world.wire.lose = 1_000
    with pytest.raises(UnreachableError):
        accounts.report([with_line(first, b'{"n":1}')])
    assert 1 == len(read_reports(files).unanswered)
    world.wire.lose = 0
    again = ReportLog(world.face, files)
    assert (1, [b'{"n":1,"new_links":0}'], False) == (again.settled_again, lines(again), again.owes)
    assert "done" == world.behind.status(first.url).state
    # The answer was that of the first report. As a new report it would have been too late.
    assert ["stale"] == list(again.report([with_line(first, b'{"n":1}')]))


def test_unanswered_outcomes_are_reported_once_together_with_new_ones():
    world, files = World("remote"), MemoryFiles()
    first, second = leased(world, A, B)
    accounts = ReportLog(world.face, files)
    world.wire.lose = 1_000
    with pytest.raises(UnreachableError):
        accounts.report([with_line(first, b'{"n":1}')])
    world.wire.lose = 0
    report = accounts.report([with_line(first, b'{"n":1}'), with_line(second, b'{"n":2}')])
    assert (["ok", "ok"], [b'{"n":1,"new_links":0}', b'{"n":2,"new_links":0}']) == (list(report), lines(accounts))


def test_places_are_kept_and_the_file_starts_again():
    world, files = World("remote"), MemoryFiles()
    (lease,) = leased(world, A)
    accounts = ReportLog(world.face, files)
    report = accounts.report([with_line(lease, b'{"n":1}')], watermark=("archive", b"9"))
    accounts.note_projection("pages", 2, report.lsn)
    accounts.note_watermark("pages chain", b"x")
    accounts.keep()
    again = ReportLog(world.face, files)
    assert ((2, report.lsn), {"archive": b"9", "pages chain": b"x"}, []) == (
        again.projection("pages"), again.watermarks(), lines(again, report.lsn)
    )  # fmt: skip
    (second,) = leased(world, B)
    assert report.lsn < again.report([with_line(second, b'{"n":2}')]).lsn


def test_a_torn_end_is_cut_and_damage_before_it_is_reported():
    world, files = World("remote"), MemoryFiles()
    (lease,) = leased(world, A)
    ReportLog(world.face, files).report([with_line(lease, b'{"n":1}')])
    file = files.open(REPORTS_FILE)
    whole = file.size()
    file.write_at(whole, b'00000000 {"answer":')
    assert whole == read_reports(files).length
    assert [b'{"n":1,"new_links":0}'] == lines(ReportLog(world.face, files))
    file.write_at(12, b"X")
    with pytest.raises(DamagedStoreError, match="byte 0"):
        read_reports(files)


def test_pages_without_an_answer_are_not_exported(tmp_path, capsys):
    world = World("remote")
    (lease,) = leased(world, A)
    (tmp_path / FOLDER).mkdir()
    accounts = ReportLog(world.face, Directory(tmp_path / FOLDER))
    world.wire.lose = 1_000
    with pytest.raises(UnreachableError):
        accounts.report([with_line(lease, b'{"n":1}')])
    words = ["export", str(tmp_path), "--what", "pages", "--to", str(tmp_path / "x.jsonl")]
    assert 2 == run(words)
    assert "outrider work ADDRESS" in capsys.readouterr().err
    world.wire.lose = 0
    ReportLog(world.face, Directory(tmp_path / FOLDER))
    assert 0 == run(words)
    assert 1 == len((tmp_path / "x.jsonl").read_text().splitlines())
