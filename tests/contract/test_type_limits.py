"""How much of an answer is kept, by the type of its content, on both downloaders: bounded while it arrives."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from e2e.downloaders import AnyDownloader, each_downloader, new, run  # noqa: F401 - a fixture
from e2e.hostile import Connection, Script, Site, closes_after
from outrider.errors import SettingsError
from outrider.fetch.downloader import Decoding, Request, Response
from outrider.fetch.large_answers import LargeAnswers
from outrider.fetch.type_limits import TypeBytes, bytes_of_type

pytestmark = pytest.mark.usefixtures("each_downloader")

AGENT = "Outrider/0.1 (+https://example.org/bot)"
PIECE = b"x" * 65_536
LIMITS = (("application/pdf", 300_000), ("image/*", 200_000), ("text/plain", 1_000))
USUAL = 100_000


def asked(site: Site, path: str = "/", host: str = "site.test", **limits: Any) -> Request:
    told = {"bytes_max": USUAL, "type_bytes_max": LIMITS, **limits}
    return Request(f"http://{host}:{site.port}{path}", "127.0.0.1", AGENT, **told)


def one(script: Script, **limits: Any) -> Response:
    return run(script, lambda downloader, site: downloader.fetch(asked(site, **limits)))


def head_of(*fields: str) -> bytes:
    return "".join(f"{line}\r\n" for line in ("HTTP/1.1 200 OK", *fields, "")).encode("latin-1")


def endless(*fields: str, piece: bytes = PIECE) -> Script:
    """A script that sends a body without an end."""

    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(head_of(*fields))
        while True:
            await connection.send(piece)

    return script


CHUNK = b"%x\r\n%s\r\n" % (len(PIECE), PIECE)


@pytest.mark.parametrize(
    ("content_type", "most"),
    [
        ("Content-Type: application/pdf", 300_000),
        ("content-type:\tApplication/PDF ;charset=x", 300_000),
        ("Content-Type: application/\r\n pdf", None),
        ("Content-Type:\r\n application/pdf", 300_000),
        ("Content-Type: image/png", 200_000),
        ("Content-Type: image", 200_000),
        ("Content-Type: text/plain; charset=utf-8", 1_000),
        ("Content-Type: text/html", None),
        ("Content-Type: application/pdf, text/html", None),
        ("Content-Type: text/html\r\nContent-Type: application/pdf", None),
        ("Content-Type: application/pdf\r\nContent-Type: text/html", 300_000),
        ("X: y", None),
        ("Content-Type:", None),
    ],
)
@pytest.mark.parametrize("framing", ["close", "length", "chunked"])
def test_an_endless_body_is_cut_at_the_limit_of_its_type(content_type: str, most: int | None, framing: str) -> None:
    """A type without a limit has the usual one, which bounds the head too."""
    more = {"close": [], "length": ["Content-Length: 999999999999"], "chunked": ["Transfer-Encoding: chunked"]}
    response = one(endless(content_type, *more[framing], piece=CHUNK if framing == "chunked" else PIECE))
    kept = USUAL - len(response.head) if most is None else most
    assert (kept, "length", None) == (len(response.body), response.truncated, response.error)
    assert len(response.body) - 200 <= len(response.content) <= len(response.body)


@pytest.mark.parametrize("content_type", [None, "text/html", "made/up"])
def test_any_other_type_and_a_missing_type_have_the_limit_of_the_star(content_type: str | None) -> None:
    fields = [f"Content-Type: {content_type}"] if content_type else []
    response = one(endless(*fields), type_bytes_max=(*LIMITS, ("*", 4_321)))
    assert (4_321, "length") == (len(response.body), response.truncated)


@pytest.mark.parametrize("content_type", ["application/pdf", "text/plain"])
def test_a_body_of_just_the_limit_is_whole(content_type: str) -> None:
    size = bytes_of_type(LIMITS, content_type) or 0
    fields = (f"Content-Type: {content_type}", f"Content-Length: {size}")
    response = one(closes_after(head_of(*fields) + b"x" * size))
    assert (size, size, None) == (len(response.body), len(response.content), response.truncated)


@pytest.mark.parametrize("content_type", ["application/pdf", "text/plain", "text/html"])
def test_packed_content_has_the_limit_of_its_type(content_type: str) -> None:
    packed = gzip.compress(bytes(5_000_000))
    fields = (f"Content-Type: {content_type}", "Content-Encoding: gzip", f"Content-Length: {len(packed)}")
    response = one(closes_after(head_of(*fields) + packed))
    most = bytes_of_type(LIMITS, content_type) or USUAL
    assert most == len(response.content)
    whole = len(packed) <= most
    assert (None if whole else "length", Decoding.CUT) == (response.truncated, response.decoding)


def test_interim_heads_say_nothing_of_the_type() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nContent-Type: application/pdf\r\n\r\n"

    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(early + head_of("Content-Type: text/plain") + PIECE)

    assert 1_000 == len(one(script).body)


def test_without_limits_by_type_the_usual_limit_applies() -> None:
    response = one(endless("Content-Type: application/pdf"), type_bytes_max=())
    assert (USUAL, "length") == (len(response.head) + len(response.body), response.truncated)


@pytest.mark.parametrize("limits", [(("a/b",),), (("A/b", 1),), (("a/b", -1),), (("a/b", 1.5),), "a/b", 7, {"é/x": 1}])
def test_invalid_limits_are_refused(limits: Any) -> None:
    with pytest.raises(SettingsError, match="type_bytes_max"):
        Request("http://a.test/", "127.0.0.1", AGENT, type_bytes_max=limits)


def test_limits_may_be_given_as_a_mapping() -> None:
    request = Request("http://a.test/", "127.0.0.1", AGENT, type_bytes_max={"a/b": 1})  # type: ignore[arg-type]
    assert (("a/b", 1),) == request.type_bytes_max
    assert hash(request) == hash(request)


@given(
    names=st.lists(st.sampled_from(["a/b", "a/*", "b/*", "*", "a/c", "/*"]), max_size=4, unique=True),
    values=st.lists(st.text(st.sampled_from("aAbBcC/;*, \t=\x0b\x0c\xa0é"), max_size=9), min_size=1, max_size=20),
)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_downloaders_read_any_type_alike(names: list[str], values: list[str]) -> None:
    """The rule of the kernel is that of `bytes_of_type`, on values as written in heads."""
    limits: TypeBytes = tuple((name, 10 + at) for at, name in enumerate(names))
    replies = [head_of(f"Content-Type:{value}", "Content-Length: 20") + b"x" * 20 for value in values]

    async def script(connection: Connection) -> None:
        while True:
            at = int((await connection.request()).split()[1][1:])
            await connection.send(replies[at])

    async def act(downloader: AnyDownloader, site: Site) -> list[Response]:
        requests = [asked(site, f"/{at}", bytes_max=10_000, type_bytes_max=limits) for at in range(len(values))]
        return [await downloader.fetch(request) for request in requests]

    for response in run(script, act):
        most = bytes_of_type(limits, response.headers.get("content-type") or "")
        assert min(20, most if most is not None else 20) == len(response.body)


# Large answers together


LARGE = (("application/pdf", 4_000_000),)


def pdf(size: int, *, seconds: float = 0.0) -> Script:
    """A script that sends a document of this number of bytes; its last byte is late by this time."""

    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(head_of("Content-Type: application/pdf", f"Content-Length: {size}", "Connection: close"))
        await connection.send(b"x" * (size - 1))
        await asyncio.sleep(seconds)
        await connection.send(b"x")

    return script


def all_at_once(many: int, **limits: Any) -> Callable[[AnyDownloader, Site], Awaitable[list[Response]]]:
    async def act(downloader: AnyDownloader, site: Site) -> list[Response]:
        requests = [asked(site, host=f"h{at}.test", type_bytes_max=LARGE, **limits) for at in range(many)]
        return list(await asyncio.gather(*map(downloader.fetch, requests)))

    return act


@pytest.mark.parametrize("bytes_max", [0, 1_000_000, 100_000_000])
def test_large_answers_beyond_the_bound_arrive_one_after_another_and_whole(bytes_max: int) -> None:
    found = run(pdf(3_000_000), all_at_once(12), large_bytes_max=bytes_max)
    assert {(3_000_000, None, None)} == {(len(one.body), one.truncated, one.error) for one in found}


def test_a_large_answer_that_waits_too_long_is_cut_and_says_why() -> None:
    found = run(pdf(3_000_000, seconds=1.0), all_at_once(3), large_bytes_max=0, large_wait_seconds=0.2)
    told = sorted((one.truncated or "", len(one.body) == 3_000_000, one.error_text) for one in found)
    words = "no room for more of it beside other large answers"
    assert [("", True, ""), ("length", False, words), ("length", False, words)] == told
    assert all(len(one.body) > USUAL - 200 for one in found)


def test_a_downloader_continues_after_a_cut_for_want_of_room() -> None:
    async def act(downloader: AnyDownloader, site: Site) -> list[str | None]:
        first = await all_at_once(2)(downloader, site)
        second = await all_at_once(2)(downloader, site)
        return sorted(str(one.truncated) for one in first + second)

    found = run(pdf(3_000_000, seconds=0.5), act, large_bytes_max=0, large_wait_seconds=0.1)
    assert ["None", "None", "length", "length"] == found


def test_the_total_time_is_paused_while_a_large_answer_waits() -> None:
    """Each needs half a second at its site; the last one waits for the rest longer than its total time."""
    found = run(pdf(1_000_000, seconds=0.5), all_at_once(4, total_seconds=1.2), large_bytes_max=0)
    assert [(None, 1_000_000)] * 4 == [(one.truncated, len(one.body)) for one in found]
    assert max(one.seconds for one in found) < 1.2


def test_usual_answers_do_not_wait_for_large_ones() -> None:
    async def script(connection: Connection) -> None:
        if b"GET /large" in await connection.request():
            await connection.send(head_of("Content-Type: application/pdf"))
            await connection.send(b"x" * 2_000_000)
            await connection.hang()
        await connection.send(head_of("Content-Length: 50000") + b"x" * 50_000)

    async def act(downloader: AnyDownloader, site: Site) -> list[int]:
        large = [asked(site, "/large", host=f"h{at}.test", type_bytes_max=LARGE) for at in range(4)]
        tasks = [asyncio.ensure_future(downloader.fetch(request)) for request in large]
        usual = [asked(site, host=f"u{at}.test", type_bytes_max=LARGE) for at in range(4)]
        found = [len((await downloader.fetch(request)).body) for request in usual]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        again = await downloader.fetch(asked(site, host="last.test"))
        return [*found, len(again.body)]

    assert [50_000] * 5 == run(script, act, large_bytes_max=0)


def test_large_answers_rest_while_the_caller_has_no_room() -> None:
    async def act(downloader: AnyDownloader, site: Site) -> tuple[bool, list[tuple[str | None, int]]]:
        downloader.rest(True)
        tasks = [asyncio.ensure_future(all_at_once(3)(downloader, site))]
        usual = await downloader.fetch(asked(site, host="u.test", type_bytes_max=(("application/pdf", 10),)))
        assert 10 == len(usual.body)
        _, pending = await asyncio.wait(tasks, timeout=0.3)
        downloader.rest(False)
        return bool(pending), [(one.truncated, len(one.body)) for one in await tasks[0]]

    assert (True, [(None, 3_000_000)] * 3) == run(pdf(3_000_000), act)


def test_the_twin_counts_received_bytes_and_forgets_ended_transfers() -> None:
    large = LargeAnswers(100)
    told: list[str] = []
    large.grow("a", 60)
    large.grow("b", 41)
    assert (True, False, True) == tuple(map(large.goes_on, "abc"))
    large.wait("b", lambda: told.append("b"))
    large.rest(True)
    assert (False, False, True, []) == (*map(large.goes_on, "abc"), told)
    large.leave("a")
    large.rest(False)
    assert (True, ["b"]) == (large.goes_on("b"), told)
    large.leave("b")
    assert "<Large 0 bytes of 0 transfers, 0 rest>" == repr(large)
