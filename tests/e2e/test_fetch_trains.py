"""Trains of requests to one host: by the fetch kernel itself, and by a task around any other downloader, alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from e2e.downloaders import each_downloader, new  # noqa: F401 - a fixture
from e2e.hostile import Connection, Script, Site, answers, hostile
from limiting import set_limits
from outrider.errors import SettingsError
from outrider.fetch.downloader import Beginner, Request, Response, Tag
from outrider.fetch.failures import FetchError
from outrider.fetch.fetch_tasks import beginner_of

T = TypeVar("T")
pytestmark = pytest.mark.usefixtures("each_downloader")

AGENT = "Outrider/0.1 (+https://example.org/bot)"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def of_status(status: int) -> bytes:
    return f"HTTP/1.1 {status} Some\r\nContent-Length: 0\r\n\r\n".encode()


class Told:
    """The reported ends of fetches, and a way to wait for a number of them."""

    def __init__(self) -> None:
        self.ends: list[tuple[Tag, Response | BaseException | None]] = []
        self._more = asyncio.Event()

    def ended(self, tag: Tag, answer: Response | BaseException | None) -> None:
        self.ends.append((tag, answer))
        self._more.set()

    async def so_many(self, count: int) -> list[tuple[Tag, int | None]]:
        """Tags with their statuses; None for a cancelled one."""
        async with asyncio.timeout(20):
            while len(self.ends) < count:
                self._more.clear()
                await self._more.wait()
        return [(tag, answer.status if isinstance(answer, Response) else None) for tag, answer in self.ends]


def train(site: Site, *tags: str, host: str = "site.test", capacity: int = 1) -> list[tuple[str, Request]]:
    """A request for each tag, of which it is the path."""
    url = f"http://{host}:{site.port}/"
    return [(tag, Request(url + tag, "127.0.0.1", AGENT, capacity=capacity)) for tag in tags]


def paths(site: Site) -> list[str]:
    return [head.split()[1].decode().removeprefix("/") for head in site.requests]


def run(script: Script, act: Callable[[Beginner, Site, Told], Awaitable[T]]) -> T:
    async def main() -> T:
        async with hostile(script) as site:
            downloader = beginner_of(new())
            try:
                return await act(downloader, site, Told())
            finally:
                await downloader.close()

    return asyncio.run(main())


def held(first: asyncio.Event, *, behind: bytes = OK) -> Script:
    """A script that answers each request once the event is there."""

    async def script(connection: Connection) -> None:
        while True:
            await connection.request()
            await first.wait()
            await connection.send(behind)

    return script


async def arrived(site: Site, count: int) -> None:
    async with asyncio.timeout(20):
        while len(site.requests) < count:  # noqa: ASYNC110 - the site notes requests in a list
            await asyncio.sleep(0.001)


def test_the_pages_of_a_train_are_requested_one_after_another():
    async def act(downloader: Beginner, site: Site, told: Told) -> None:
        downloader.begin(train(site, *"abc"), told.ended)
        assert [] == told.ends, "never from within the call"
        assert [("a", 200), ("b", 200), ("c", 200)] == await told.so_many(3)
        first, second, third = (answer for _, answer in told.ends if isinstance(answer, Response))
        assert first.started_at <= first.ended_at <= second.started_at <= second.ended_at <= third.started_at
        assert (["a", "b", "c"], 1) == (paths(site), site.connections)

    run(answers(OK), act)


@pytest.mark.parametrize(
    ("status", "goes_on"),
    [(204, True), (304, True), (302, True), (404, True), (410, True)]
    + [(status, False) for status in (400, 401, 403, 429, 500, 503)],
)
def test_a_train_continues_while_its_site_is_well(status: int, goes_on: bool):
    async def act(downloader: Beginner, site: Site, told: Told) -> None:
        downloader.begin(train(site, *"abc"), told.ended)
        behind = 200 if goes_on else None
        assert [("a", status), ("b", behind), ("c", behind)] == await told.so_many(3)
        assert (3 if goes_on else 1) == len(site.requests)

    run(answers(of_status(status), OK), act)


def test_an_answer_that_breaks_off_ends_the_train():
    async def act(downloader: Beginner, site: Site, told: Told) -> None:
        downloader.begin(train(site, *"abc"), told.ended)
        assert ["a", "b", "c"] == [tag for tag, _ in await told.so_many(3)]
        (_, first), *behind = told.ends
        assert isinstance(first, Response)
        assert (FetchError.EMPTY_REPLY, [None, None]) == (first.error, [answer for _, answer in behind])
        assert ["a"] == paths(site)

    async def closes(connection: Connection) -> None:
        await connection.request()

    run(closes, act)


def test_a_train_that_lasts_long_ends(monkeypatch: pytest.MonkeyPatch):
    set_limits(monkeypatch, TRAIN_SECONDS_MAX=0.05)

    async def act(downloader: Beginner, site: Site, told: Told) -> None:
        downloader.begin(train(site, *"abc"), told.ended)
        assert [("a", 200), ("b", None), ("c", None)] == await told.so_many(3)

    async def slow(connection: Connection) -> None:
        while True:
            await connection.request()
            await asyncio.sleep(0.1)
            await connection.send(OK)

    run(slow, act)


@pytest.mark.parametrize("tag", ["a", "c"])
def test_a_cancelled_train_ends_with_the_request_under_way(tag: str):
    answered = asyncio.Event()

    async def act(downloader: Beginner, site: Site, told: Told) -> None:
        downloader.begin(train(site, *"abc"), told.ended)
        await arrived(site, 1)
        downloader.let_go(tag)
        # By the time that a request of a later train arrives, the kernel has the order.
        downloader.begin(train(site, "d", host="other.test"), told.ended)
        await arrived(site, 2)
        answered.set()
        ends = dict(await told.so_many(4))
        assert {"a": 200, "b": None, "c": None, "d": 200} == ends
        assert ["a", "d"] == paths(site)

    run(held(answered), act)


def test_a_train_is_cancelled_before_it_is_sent():
    async def act(downloader: Beginner, site: Site, told: Told) -> None:
        downloader.begin(train(site, *"abc"), told.ended)
        downloader.let_go("b")
        ends = dict(await told.so_many(3))
        assert (None, None) == (ends["b"], ends["c"])
        assert len(site.requests) <= 1

    run(answers(OK), act)


def test_a_request_that_is_broken_off_cancels_the_requests_after_it():
    """Its own end is reported to no function, and the host is free for another train."""
    never, told_of_d = asyncio.Event(), []

    async def act(downloader: Beginner, site: Site, told: Told) -> None:
        downloader.begin(train(site, *"abc"), told.ended)
        await arrived(site, 1)
        downloader.cancel("a")
        assert [("b", None), ("c", None)] == await told.so_many(2)
        never.set()
        downloader.begin(train(site, "d"), told.ended)
        told_of_d.extend(await told.so_many(3))

    run(held(never), act)
    assert [("b", None), ("c", None), ("d", 200)] == told_of_d


def test_a_released_request_is_broken_off_without_harm():
    """Its train ends with its first answer, which cancels the second fetch before that is released."""

    async def act(downloader: Beginner, site: Site, told: Told) -> None:
        def ended(tag: Tag, answer: Response | BaseException | None) -> None:
            told.ended(tag, answer)
            if tag == "a":
                asyncio.get_running_loop().call_soon(downloader.cancel, "b")

        downloader.begin(train(site, *"abc"), ended)
        while "c" not in dict(told.ends):
            await told.so_many(len(told.ends) + 1)
        assert 503 == dict(await told.so_many(2))["a"]
        assert ("c", None) in told.ends
        assert ["a"] == paths(site)

    run(answers(of_status(503), OK), act)


def test_trains_of_one_host_have_one_request_at_a_time():
    under_way = most = 0

    async def one_at_a_time(connection: Connection) -> None:
        nonlocal under_way, most
        while True:
            await connection.request()
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.002)
            under_way -= 1
            await connection.send(OK)

    async def act(downloader: Beginner, site: Site, told: Told) -> None:
        for tags in ("abc", "def", "ghi"):
            downloader.begin(train(site, *tags), told.ended)
        assert dict.fromkeys("abcdefghi", 200) == dict(await told.so_many(9))

    run(one_at_a_time, act)
    assert 1 == most


class Counting:
    """A site that notes how many requests are open when one arrives, and answers on command. begun: by path, how many
    requests were open when it was requested, itself included."""

    def __init__(self) -> None:
        self.open = self.most = 0
        self.begun: dict[str, int] = {}
        self._answers = asyncio.Semaphore(0)

    async def script(self, connection: Connection) -> None:
        while True:
            path = (await connection.request()).split()[1].decode()
            self.open += 1
            self.begun[path] = self.open
            self.most = max(self.most, self.open)
            await self._answers.acquire()
            self.open -= 1
            await connection.send(OK)

    def answer(self, count: int) -> None:
        for _ in range(count):
            self._answers.release()


def test_a_host_has_as_many_requests_open_as_they_say():
    """Three of six at once, never four; the next one begins as soon as one ends."""
    counting = Counting()

    async def act(downloader: Beginner, site: Site, told: Told) -> list[int]:
        for tag in "abcdef":
            downloader.begin(train(site, tag, capacity=3), told.ended)
        await arrived(site, 3)
        counting.answer(1)
        await arrived(site, 4)
        counting.answer(5)
        assert dict.fromkeys("abcdef", 200) == dict(await told.so_many(6))
        return [len(set(paths(site)[:3])), counting.most]

    assert [3, 3] == run(counting.script, act)


def test_each_request_obeys_its_own_limit_and_never_overtakes_an_earlier_one():
    """After two at once, a request that must be alone delays all later ones until it has begun alone."""
    counting = Counting()

    async def act(downloader: Beginner, site: Site, told: Told) -> list[int]:
        open_then = []
        for tag, capacity in (("a", 2), ("b", 2), ("c", 1), ("d", 3), ("e", 3)):
            downloader.begin(train(site, tag, capacity=capacity), told.ended)
        await arrived(site, 2)
        counting.answer(1)
        await told.so_many(1)
        open_then.append(counting.open)
        counting.answer(1)
        await arrived(site, 5)  # in addition to the one that was alone when it began
        open_then.append(counting.open)
        counting.answer(3)
        assert dict.fromkeys("abcde", 200) == dict(await told.so_many(5))
        assert (["c"], {"d", "e"}) == (paths(site)[2:3], set(paths(site)[3:]))
        return open_then

    assert [1, 3] == run(counting.script, act)


def test_each_request_of_a_train_begins_alone_before_any_later_requests():
    """Its pages were leased when the host accepted one request at once."""
    counting = Counting()

    async def act(downloader: Beginner, site: Site, told: Told) -> list[int]:
        downloader.begin(train(site, *"abc"), told.ended)
        downloader.begin(train(site, "d", capacity=3), told.ended)
        counting.answer(4)
        assert dict.fromkeys("abcd", 200) == dict(await told.so_many(4))
        return [counting.begun["/" + tag] for tag in "abc"]

    assert [1, 1, 1] == run(counting.script, act)


def test_one_of_several_that_is_broken_off_leaves_its_turn_to_the_next():
    counting = Counting()

    async def act(downloader: Beginner, site: Site, told: Told) -> list[Tag]:
        for tag in "abcde":
            downloader.begin(train(site, tag, capacity=2), told.ended)
        await arrived(site, 2)
        downloader.cancel("d")  # it waits
        downloader.cancel("a")
        await arrived(site, 3)
        counting.answer(4)
        return sorted(tag for tag, _ in await told.so_many(3))

    assert ["b", "c", "e"] == run(counting.script, act)


def test_a_request_that_no_host_could_accept_is_refused():
    with pytest.raises(SettingsError):
        Request("http://site.test/", "127.0.0.1", AGENT, capacity=0)
