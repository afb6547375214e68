"""Readers in processes of their own: each result arrives whole, and a failing reader costs only its page."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from outrider.crawl.run.reader_page import as_sent, checked_page, sent_page
from outrider.crawl.run.reader_process import ReaderFailedError, ReaderProcess
from outrider.limits import LINKS_PER_PAGE_BYTES_MAX, LINKS_PER_PAGE_MAX, TEXT_BYTES_MAX, TITLE_CHARACTERS_MAX
from outrider.page import read

U = "http://a.test/dir/x"
MODULE = """
import os, signal, subprocess, sys, time
from outrider.page import read

def mine(body, url, content_type):
    return {"title": body.decode(), "links": ["y", "mailto:x@y"], "text": content_type}

def html(body, url, content_type):
    return read(body, url, "text/html")

def nothing(body, url, content_type):
    return None

def fails(body, url, content_type):
    if body == b"leaves":
        sys.exit("no more")
    if body == b"rubbish":
        return {"titel": "x"}
    raise ZeroDivisionError("in my own code")

def talks(body, url, content_type):
    print("words " * 100_000, flush=True)
    os.write(1, b"more words" * 1000)
    sys.stderr.write("and more")
    return {"title": repr(sys.stdin.read())}

def turns(body, url, content_type):
    while body != b"good":
        pass
    return {"title": "good"}

def sleeps(body, url, content_type):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    time.sleep(3600)

def starts(body, url, content_type):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    with open(body.decode(), "w") as file:
        file.write(str(child.pid))
    time.sleep(3600)

def takes(body, url, content_type):
    many = []
    while body != b"good":
        many.append(bytearray(1 << 20))
    return {"title": "good"}

def dies(body, url, content_type):
    if body == b"good":
        return {"title": "good"}
    os.kill(os.getpid(), signal.SIGSEGV)

def knows(body, url, content_type):
    return {"title": str(os.getpid())}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("readers")
    (place / "my_readers_9313.py").write_text(MODULE)
    return str(place)


@pytest.fixture
def apart(place):
    made = []

    def make(name, **limits):
        made.append(ReaderProcess(f"my_readers_9313:{name}", path=[*sys.path, place], **limits))
        return made[-1]

    yield make
    for one in made:
        one.close()


def kind(reader, body=b"bad"):
    with pytest.raises(ReaderFailedError) as failed:
        reader(body, U, "a/b")
    return failed.value.kind


def test_a_mapping_arrives_as_a_page(apart):
    page = apart("mine")("Grüße".encode(), U, "a/b; c=d")
    assert ("Grüße", "a/b; c=d", ["http://a.test/dir/y"]) == (page.title, page.text, page.followed())


def test_a_page_arrives_whole(apart):
    body = b"""<html lang=de><base href=/b/><title>T</title><meta name=robots content="nofollow, noarchive">
        <meta name=description content=D><link rel=canonical href=/c><link rel=alternate hreflang=de href=/de>
        <link rel=alternate type="application/rss+xml" href=feed><meta http-equiv=refresh content="5; url=/r">
        <a href=1 rel="nofollow ugc">one <b>two</b></a><a href=1>again</a><img src=i alt=pic><iframe src=f></iframe>
        <p>caf\xe9"""
    here, there = read(body, U), apart("html")(body, U, "text/html")
    assert here == there
    assert (here.alternates, here.feeds) == (there.alternates, there.feeds)
    assert here.link_batch() == there.link_batch()
    assert 3 <= len(here.alternates) + len(here.feeds)


def test_an_empty_answer_is_a_page_without_content(apart):
    assert checked_page(None, U) == apart("nothing")(b"", U, "")


def test_a_reader_that_raises_says_why_and_its_process_continues(apart):
    reader = apart("fails")
    for body, word in ((b"raises", "in my own code"), (b"leaves", "no more"), (b"rubbish", "titel")):
        with pytest.raises(ReaderFailedError) as failed:
            reader(body, U, "")
        assert ("raised", True) == (failed.value.kind, word in failed.value.lines[-1])
        assert "reader_process.py" not in "".join(failed.value.lines)


def test_the_output_of_a_print_is_not_an_answer(apart):
    assert "''" == apart("talks")(b"", U, "").title


def test_a_reader_that_sleeps_and_ignores_signals_ends_with_its_page(apart):
    assert "time" == kind(apart("sleeps", seconds_max=0.3))


def test_the_page_after_one_that_hung_is_read(apart):
    reader = apart("turns", seconds_max=2.0)
    assert "time" == kind(reader)
    assert "good" == reader(b"good", U, "").title


def test_the_processes_of_a_reader_end_with_it(apart, tmp_path):
    note = tmp_path / "pid"
    assert "time" == kind(apart("starts", seconds_max=3.0), str(note).encode())
    pid = int(note.read_text())
    deadline = time.monotonic() + 30
    while _runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="other systems bound data otherwise")
def test_a_reader_that_uses_too_much_memory_ends_with_its_page(apart):
    reader = apart("takes", memory_bytes_max=64 << 20)
    assert "memory" == kind(reader)
    assert "good" == reader(b"good", U, "").title


def test_a_reader_whose_process_dies_ends_its_page(apart):
    reader = apart("dies")
    assert "died" == kind(reader)
    assert "good" == reader(b"good", U, "").title


@pytest.mark.parametrize("function", ["my_readers_9313:nothing_of_the_kind", "nowhere_9313:f"])
def test_a_function_that_cannot_be_loaded_is_a_failure(place, function):
    assert "died" == kind(ReaderProcess(function, path=[*sys.path, place]))


def test_one_process_serves_many_pages_and_each_thread_has_its_own(apart):
    reader = apart("knows")
    assert 1 == len({reader(b"", U, "").title for _ in range(5)})
    found = set()
    threads = [threading.Thread(target=lambda: found.add(reader(b"", U, "").title)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(found) <= 3


def test_a_process_that_was_killed_between_two_pages_is_replaced(apart):
    reader = apart("knows")
    pid = int(reader(b"", U, "").title)
    os.kill(pid, 9)
    assert str(pid) != reader(b"", U, "").title


def test_the_result_of_a_reader_has_the_limits_of_a_page():
    links = [f"/{number}/{'x' * 2_000}" for number in range(2 * LINKS_PER_PAGE_MAX)]
    page = checked_page({"title": "t" * 10**6, "text": "é" * 10**6, "language": "x" * 10**6, "links": links}, U)
    assert TITLE_CHARACTERS_MAX == len(page.title)
    assert len(page.octets) <= TEXT_BYTES_MAX
    assert len(page.language) <= 100
    assert sum(len(url) + len(U) for url in page.link_batch().strings()) <= LINKS_PER_PAGE_BYTES_MAX


@pytest.mark.parametrize("given", [7, "text", {"links": "http://a.test/"}, {"links": b"/x"}, {3: 4}])
def test_a_result_that_is_not_a_page_is_refused(given):
    with pytest.raises(TypeError, match="a reader returned"):
        checked_page(given, U)


@pytest.mark.parametrize(
    "html", [b"", b"<a href=/1>x", b"<a href=/1>x<img src=http://b.test/ rel=x>", b"\xff\xfe\x00<a href=1>"]
)
def test_pages_are_equal_after_a_message(html):
    page = read(html, U)
    assert page == sent_page(as_sent(page), U)


FIRST_DECODES = {
    "reader": "from outrider.crawl.run.reader_process import _decode_answer\ndef first(): _decode_answer(b'\\x80')",
    "client": "from outrider.engine import http_requests, messages\n"
    "def first(): http_requests._decoder_of(messages.Workers).decode(b'{\"workers\": []}')",
}
IN_THREADS = """
import sys, threading
sys.setswitchinterval(1e-6)
together = threading.Barrier(8)
def late():
    together.wait()
    first()
threads = [threading.Thread(target=late) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join()
"""


@pytest.mark.parametrize("name", FIRST_DECODES)
def test_threads_that_decode_a_type_for_the_first_time_do_not_crash(name):
    code = FIRST_DECODES[name] + IN_THREADS
    running = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(4)]
    assert [(b"", 0)] * 4 == [(one.communicate(timeout=60)[1], one.returncode) for one in running]
