"""Where archive and line files really end: whole lines and records stay, also those that the store has forgotten."""

from __future__ import annotations

import gzip
import zlib

import pytest

from outrider.crawl.output.output_recovery import archive_end, line_file_end

LINES = [b'{"n":%d}' % number for number in range(10)]


def ended(tmp_path, text, noted=(0, 0), log=()):
    (tmp_path / "pages.jsonl").write_bytes(text)
    return line_file_end(str(tmp_path), "pages", noted, log, 1_000_000)


def text_of(lines):
    return b"".join(line + b"\n" for line in lines)


def test_lines_that_the_store_forgot_stay(tmp_path):
    """The log has no lines any more, and the store no length, but the file is whole."""
    assert ((72, 0), None) == ended(tmp_path, text_of(LINES[:9]))
    assert ((72, 7), None) == ended(tmp_path, text_of(LINES[:9]), (16, 7))


def test_lines_of_the_log_that_are_in_the_file_are_not_written_again(tmp_path):
    log = [(5, LINES[3]), (5, LINES[4]), (6, LINES[5])]
    assert ((48, 6), None) == ended(tmp_path, text_of(LINES[:6]), (16, 3), log)


def test_lines_of_the_log_that_the_file_lacks_are_added_at_its_end(tmp_path):
    log = [(5, LINES[3]), (6, LINES[4]), (7, LINES[5])]
    assert ((40, 6), None) == ended(tmp_path, text_of(LINES[:5]), (16, 3), log)


def test_a_frame_with_only_some_lines_in_the_file_is_written_again_completely(tmp_path):
    log = [(5, LINES[3]), (6, LINES[4]), (6, LINES[5]), (6, LINES[6])]
    assert ((32, 5), None) == ended(tmp_path, text_of(LINES[:6]), (16, 3), log)


def test_a_lost_frame_in_the_middle_leaves_its_lines_in_the_file(tmp_path):
    """Lines 2 and 3 were of a frame that is no longer in the log."""
    log = [(5, LINES[1]), (7, LINES[4]), (8, LINES[5])]
    assert ((40, 7), None) == ended(tmp_path, text_of(LINES[:5]), (8, 4), log)


def test_a_torn_line_at_the_end_does_not_count(tmp_path):
    assert ((16, 3), None) == ended(tmp_path, text_of(LINES[:2]) + b'{"n"', (8, 3))


def test_a_line_is_recognised_in_its_written_form(tmp_path):
    line = '{"t":"a\u202eb"}'.encode()
    written = b'{"t":"a\\u202eb"}'
    assert ((len(written) + 1, 9), None) == ended(tmp_path, text_of([written]), (0, 0), [(9, line)])


def test_a_file_that_is_shorter_than_the_store_says_is_named(tmp_path):
    (place, loss) = ended(tmp_path, text_of(LINES[:2]), (40, 3))
    assert ((16, 3), (16, 40)) == (place, (loss.begin, loss.end))
    (tmp_path / "pages.jsonl").unlink()
    (place, loss) = line_file_end(str(tmp_path), "pages", (40, 3), (), 100)
    assert ((0, 3), "pages.jsonl") == (place, loss.file)


def test_a_file_that_was_never_made_is_not_a_loss(tmp_path):
    assert ((0, 0), None) == line_file_end(str(tmp_path), "pages", (0, 0), (), 100)


# -- the archive


@pytest.fixture
def archive(tmp_path):
    (tmp_path / "archive").mkdir()
    members = [gzip.compress(b"WARC/1.1 record %d " % number + bytes(5_000 * number)) for number in range(4)]

    def write(number, data):
        (tmp_path / "archive" / f"crawl-{number:06d}.warc.gz").write_bytes(data)

    return tmp_path, members, write


def test_the_archive_ends_after_its_last_whole_record(archive):
    folder, members, write = archive
    whole = b"".join(members)
    write(0, whole)
    write(1, whole + members[2][:-5])
    assert (("crawl-000001.warc.gz", len(whole)), None) == archive_end(str(folder), None)
    assert (("crawl-000001.warc.gz", len(whole)), None) == archive_end(str(folder), ("crawl-000000.warc.gz", 10))
    place = ("crawl-000001.warc.gz", len(members[0]))
    assert (("crawl-000001.warc.gz", len(whole)), None) == archive_end(str(folder), place)


def test_a_file_without_a_whole_record_does_not_count(archive):
    folder, members, write = archive
    write(0, members[0])
    write(1, members[1][:20])
    assert (("crawl-000000.warc.gz", len(members[0])), None) == archive_end(str(folder), None)


def test_an_archive_shorter_than_the_store_says_is_named(archive):
    folder, members, write = archive
    write(0, members[0])
    place, loss = archive_end(str(folder), ("crawl-000000.warc.gz", 10_000))
    assert (("crawl-000000.warc.gz", len(members[0])), 10_000) == (place, loss.end)
    (folder / "archive" / "crawl-000000.warc.gz").unlink()
    place, loss = archive_end(str(folder), ("crawl-000000.warc.gz", 5))
    assert (("crawl-000001.warc.gz", 0), "crawl-000000.warc.gz") == (place, loss.file)


def test_after_an_archive_without_a_whole_record_the_next_file_is_used(archive):
    folder, _, write = archive
    write(0, b"")
    write(3, b"")
    place, loss = archive_end(str(folder), ("crawl-000000.warc.gz", 5))
    assert (("crawl-000004.warc.gz", 0), "it has no whole record") == (place, loss.what)
    assert (None, None) == archive_end(str(folder), ("crawl-000000.warc.gz", 0))


def test_a_missing_archive_is_not_a_loss(tmp_path):
    assert (None, None) == archive_end(str(tmp_path), None)


def test_a_record_larger_than_the_memory_limit_is_read_in_steps(archive):
    folder, _, write = archive
    packer = zlib.compressobj(wbits=31)
    member = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    write(0, member + member)
    assert (("crawl-000000.warc.gz", 2 * len(member)), None) == archive_end(str(folder), None)
