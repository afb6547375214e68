"""The resolver: the hosts file first, no queries for special names, a cache of answers, and one query at a time per
name."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from limiting import set_limits
from outrider.errors import SettingsError
from outrider.fetch.failures import FetchError, FetchFailure
from outrider.fetch.names import Resolver, failure_of, parse_hosts


class Asked:
    """A system resolver that answers from a table and counts."""

    def __init__(self, answers: dict[str, tuple[str, ...] | OSError]) -> None:
        self.answers = answers
        self.names: list[str] = []

    def __call__(self, host: str, port: int) -> tuple[str, ...]:
        self.names.append(host)
        answer = self.answers[host]
        if isinstance(answer, OSError):
            raise answer
        return answer


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def resolver(answers: dict[str, tuple[str, ...] | OSError], **options: object) -> tuple[Resolver, Asked, Clock]:
    asked, clock = Asked(answers), Clock()
    return Resolver(look_up=asked, clock=clock, **options), asked, clock  # type: ignore[arg-type]


async def error_of(names: Resolver, host: str) -> FetchError:
    with pytest.raises(FetchFailure) as caught:
        await names.resolve(host, 80)
    return caught.value.error


async def at_rest(names: Resolver) -> None:
    """Waits until no thread waits for an answer any more."""
    for _ in range(5_000):
        if not names.statistics()["threads"]:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("threads hang")


def test_a_hosts_file_is_read_like_etc_hosts() -> None:
    text = "# remark\n127.0.0.1  A.test b.test # more\n\n::1 a.test.\n127.0.0.1 a.test\n"
    assert {"a.test": ("127.0.0.1", "::1"), "b.test": ("127.0.0.1",)} == parse_hosts(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("127.0.0.1 a.test\nnonsense b.test\n", "line 2: 'nonsense' is not an IP address"),
        ("127.0.0.1\n", "line 1: the address 127.0.0.1 is followed by no name"),
        ("\n\n127.0.0.1 a/b\n", "line 3: 'a/b' is not a host name"),
        ("127.0.0.1 \x1b[31mx\n", r"line 1: '\?\[31mx' is not a host name"),
    ],
)
def test_a_fault_in_a_hosts_file_is_reported_with_its_line(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        parse_hosts(text)


def test_the_hosts_file_is_used_before_the_system() -> None:
    names, asked, _ = resolver({"a.test": ("8.8.8.8",)}, hosts={"a.test": ("127.0.0.7",)})
    assert ("127.0.0.7",) == asyncio.run(names.resolve("A.TEST.", 80))
    assert [] == asked.names


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("192.0.2.1", ("192.0.2.1",)),
        ("[2001:DB8::1]", ("2001:db8::1",)),
        ("localhost", ("127.0.0.1", "::1")),
        ("any.localhost", ("127.0.0.1", "::1")),
    ],
)
def test_a_literal_or_local_name_is_never_looked_up(host: str, addresses: tuple[str, ...]) -> None:
    names, asked, _ = resolver({})
    assert (addresses, []) == (asyncio.run(names.resolve(host, 80)), asked.names)


@pytest.mark.parametrize("host", ["a.invalid", "b.onion", "a..b", "a" * 64 + ".test", "a b", "", "127.1%lo", "x" * 300])
def test_a_name_that_cannot_exist_is_unknown_at_once(host: str) -> None:
    names, asked, _ = resolver({})
    assert (FetchError.DNS_UNKNOWN, []) == (asyncio.run(error_of(names, host)), asked.names)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (socket.gaierror(socket.EAI_NONAME, "unknown"), FetchError.DNS_UNKNOWN),
        (socket.gaierror(socket.EAI_NODATA, "no address"), FetchError.DNS_UNKNOWN),
        (socket.gaierror(socket.EAI_AGAIN, "again"), FetchError.DNS_TEMPORARY),
        (socket.gaierror(socket.EAI_FAIL, "fail"), FetchError.DNS_TEMPORARY),
        (OSError(24, "too many files"), FetchError.DNS_TEMPORARY),
    ],
)
def test_only_a_name_without_address_is_unknown(error: OSError, expected: FetchError) -> None:
    assert expected == failure_of("a.test", error).error


def test_an_answer_is_used_until_it_expires() -> None:
    names, asked, clock = resolver({"a.test": ("8.8.8.8",)}, ttl_seconds=10)

    async def run() -> list[int]:
        counts = []
        for now in (0, 9_999_999, 10_000_000):
            clock.now = now
            assert ("8.8.8.8",) == await names.resolve("a.test", 80)
            counts.append(len(asked.names))
        return counts

    assert [1, 1, 2] == asyncio.run(run())


def test_a_failure_is_cached_for_a_shorter_time() -> None:
    names, asked, clock = resolver({"a.test": socket.gaierror(socket.EAI_AGAIN, "again")}, ttl_seconds=3_600)

    async def run() -> list[int]:
        counts = []
        for now in (0, 4_999_999, 5_000_000):
            clock.now = now
            assert FetchError.DNS_TEMPORARY == await error_of(names, "a.test")
            counts.append(len(asked.names))
        return counts

    assert [1, 1, 2] == asyncio.run(run())


def test_the_same_name_is_looked_up_once_at_a_time() -> None:
    names, asked, _ = resolver({"a.test": ("8.8.8.8",)})

    async def run() -> list[tuple[str, ...]]:
        return await asyncio.gather(*(names.resolve("a.test", 80) for _ in range(50)))

    assert ([("8.8.8.8",)] * 50, ["a.test"]) == (asyncio.run(run()), asked.names)


def test_the_cache_is_bounded() -> None:
    names, _, _ = resolver({f"h{n}.test": ("8.8.8.8",) for n in range(30)}, names_max=10)

    async def run() -> int:
        for n in range(30):
            await names.resolve(f"h{n}.test", 80)
        return names.statistics()["remembered"]

    assert 10 == asyncio.run(run())


def test_a_silent_server_is_a_temporary_failure() -> None:
    released = threading.Event()

    def silent(host: str, port: int) -> tuple[str, ...]:
        released.wait(20)
        return ()

    names = Resolver(look_up=silent, seconds_max=0.05)
    assert FetchError.DNS_TEMPORARY == asyncio.run(error_of(names, "a.test"))
    released.set()


def test_a_caller_that_stops_waiting_does_not_affect_other_callers() -> None:
    go = threading.Event()

    def slow(host: str, port: int) -> tuple[str, ...]:
        go.wait(20)
        return ("8.8.8.8",)

    async def run() -> tuple[str, ...]:
        names = Resolver(look_up=slow)
        first = asyncio.create_task(names.resolve("a.test", 80))
        second = asyncio.create_task(names.resolve("a.test", 80))
        await asyncio.sleep(0)
        first.cancel()
        go.set()
        answer = await second
        await names.close()
        return answer

    assert ("8.8.8.8",) == asyncio.run(run())


def test_a_thousand_answers_are_cut_to_sixteen() -> None:
    names, _, _ = resolver({"a.test": tuple(f"8.8.{n // 256}.{n % 256}" for n in range(1_000))})
    assert 16 == len(asyncio.run(names.resolve("a.test", 80)))


def test_the_time_of_a_name_runs_from_its_look_up_and_not_from_its_wait() -> None:
    """A call that waited for a thread once got `no answer in 15 s` for a name that was never looked up."""
    go = threading.Event()

    def look_up(host: str, port: int) -> tuple[str, ...]:
        if host == "slow.test":
            go.wait(20)
        return ("8.8.8.8",)

    async def run() -> tuple[str, ...]:
        names = Resolver(look_up=look_up, threads_max=1, seconds_max=0.05)
        slow = asyncio.create_task(error_of(names, "slow.test"))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(names.resolve("a.test", 80))
        assert FetchError.DNS_TEMPORARY == await slow
        await asyncio.sleep(0.1)
        go.set()
        return await waiting

    assert ("8.8.8.8",) == asyncio.run(run())


def test_a_name_that_hangs_uses_one_thread_however_often_it_is_requested() -> None:
    go = threading.Event()
    asked: list[str] = []

    def look_up(host: str, port: int) -> tuple[str, ...]:
        asked.append(host)
        go.wait(20)
        return ("8.8.8.8",)

    async def run() -> tuple[list[FetchError], int, tuple[str, ...]]:
        clock = Clock()
        names = Resolver(look_up=look_up, seconds_max=0.02, clock=clock)
        told = []
        for _ in range(3):
            told.append(await error_of(names, "a.test"))
            clock.now += 60_000_000  # the failure is forgotten
        threads = names.statistics()["threads"]
        go.set()
        await at_rest(names)
        return told, threads, await names.resolve("a.test", 80)

    # The answer that arrived after all callers stopped waiting is still used.
    assert ([FetchError.DNS_TEMPORARY] * 3, 1, ("8.8.8.8",)) == asyncio.run(run())
    assert ["a.test"] == asked


def test_names_that_were_silent_before_block_no_thread_for_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, DNS_SLOW_THREADS=2)
    go = threading.Event()
    running: list[str] = []

    def look_up(host: str, port: int) -> tuple[str, ...]:
        if host != "good.test":
            running.append(host)
            go.wait(20)
            raise socket.gaierror(socket.EAI_AGAIN, "again")
        return ("8.8.8.8",)

    async def run() -> tuple[int, tuple[str, ...]]:
        clock = Clock()
        names = Resolver(look_up=look_up, seconds_max=0.02, threads=4, threads_max=4, clock=clock)
        silent = [f"s{number}.test" for number in range(4)]
        await asyncio.gather(*(error_of(names, host) for host in silent))
        go.set()
        await at_rest(names)
        go.clear()
        running.clear()
        clock.now += 60_000_000
        again = [asyncio.create_task(error_of(names, host)) for host in silent]
        found = await names.resolve("good.test", 80)
        held = len(running)
        go.set()
        await asyncio.gather(*again)
        return held, found

    assert (2, ("8.8.8.8",)) == asyncio.run(run())


def test_a_machine_without_more_threads_is_a_temporary_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def run() -> FetchError:
        names = Resolver(look_up=lambda *_: ("8.8.8.8",))
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            found = await error_of(names, "a.test")
        assert ("8.8.8.8",) == await names.resolve("b.test", 80)
        return found

    assert FetchError.DNS_TEMPORARY == asyncio.run(run())


SILENT = socket.gaierror(socket.EAI_AGAIN, "no server answers")
DAY = 86_400 * 1_000_000


def test_old_addresses_are_used_while_no_server_answers() -> None:
    """RFC 8767: a name service that is unavailable for an hour must not end the pages of all hosts as errors."""

    async def run() -> list[tuple[str, ...]]:
        names, asked, clock = resolver({"a.test": ("8.8.8.8",)}, ttl_seconds=300)
        found = [await names.resolve("a.test", 80)]
        asked.answers["a.test"] = SILENT
        for _ in range(3):
            clock.now += 301 * 1_000_000
            found.append(await names.resolve("a.test", 80))
        assert (4, 3) == (len(asked.names), names.statistics()["stale"])
        asked.answers["a.test"] = ("9.9.9.9",)
        clock.now += 31 * 1_000_000
        found.append(await names.resolve("a.test", 80))
        await names.close()
        return found

    assert [("8.8.8.8",)] * 4 + [("9.9.9.9",)] == asyncio.run(run())


def test_old_addresses_are_used_for_a_day_at_most() -> None:
    async def run() -> FetchError:
        names, asked, clock = resolver({"a.test": ("8.8.8.8",)})
        await names.resolve("a.test", 80)
        asked.answers["a.test"] = SILENT
        clock.now += DAY
        error = await error_of(names, "a.test")
        await names.close()
        return error

    assert FetchError.DNS_TEMPORARY is asyncio.run(run())


def test_a_deleted_name_has_no_old_addresses() -> None:
    async def run() -> FetchError:
        names, asked, clock = resolver({"a.test": ("8.8.8.8",)})
        await names.resolve("a.test", 80)
        asked.answers["a.test"] = socket.gaierror(socket.EAI_NONAME, "unknown")
        clock.now += 400 * 1_000_000
        error = await error_of(names, "a.test")
        await names.close()
        return error

    assert FetchError.DNS_UNKNOWN is asyncio.run(run())
