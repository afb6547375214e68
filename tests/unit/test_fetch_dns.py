"""DNS servers on loopback that answer, answer falsely, fail and stay silent, and the results of the resolver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pycares
import pytest

from e2e.name_server import REFUSED, SERVFAIL, Stub, read_question, served
from limiting import set_limits
from outrider.errors import SettingsError
from outrider.fetch import dns, lookups
from outrider.fetch.dns import NameServers, read_server, system_servers
from outrider.fetch.failures import FetchError, FetchFailure
from outrider.fetch.names import Resolver


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def no_system(host: str, port: int) -> tuple[str, ...]:
    raise AssertionError(f"{host} was looked up by the system")


def resolver(servers: list[str], clock: Clock | None = None, **more: object) -> Resolver:
    clock = clock or Clock()
    names = NameServers(servers, clock=clock)
    return Resolver(clock=clock, look_up=no_system, servers=names, **more)  # type: ignore[arg-type]


async def error_of(names: Resolver, host: str) -> FetchFailure:
    with pytest.raises(FetchFailure) as caught:
        await names.resolve(host, 80)
    return caught.value


def run(test: Callable[[], object]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_a_name_gets_the_addresses_of_the_servers_answer() -> None:
    async def test() -> None:
        stub = Stub({"www.example.org": [("192.0.2.1", 300), ("192.0.2.2", 300)]})
        async with served(stub) as servers:
            names = resolver(servers)
            assert {"192.0.2.1", "192.0.2.2"} == set(await names.resolve("www.example.org", 80))
            assert (1, 0) == (names.statistics()["look_ups"], names.statistics()["threads"])
            await names.close()

    run(test)


@pytest.mark.parametrize(("ttl", "held"), [(0, 60), (59, 60), (300, 300), (86_400, 86_400), (1 << 30, 86_400)])
def test_an_answer_is_used_for_its_ttl_within_limits(ttl: int, held: int) -> None:
    async def test() -> None:
        stub, clock = Stub({"a.test": [("192.0.2.1", ttl)]}), Clock()
        async with served(stub) as servers:
            names = resolver(servers, clock)
            for seconds, look_ups in ((0, 1), (held - 1, 1), (held, 2)):
                clock.now = seconds * 1_000_000
                assert ("192.0.2.1",) == await names.resolve("a.test", 80)
                assert look_ups == names.statistics()["look_ups"], seconds
            await names.close()

    run(test)


def test_a_name_that_does_not_exist_and_a_name_without_an_address_are_unknown() -> None:
    async def test() -> None:
        async with served(Stub({"empty.test": []})) as servers:
            names = resolver(servers)
            assert FetchError.DNS_UNKNOWN == (await error_of(names, "gone.test")).error
            assert FetchError.DNS_UNKNOWN == (await error_of(names, "empty.test")).error
            await names.close()

    run(test)


@pytest.mark.parametrize("rcode", [SERVFAIL, REFUSED])
def test_a_failing_server_is_replaced_by_the_next(rcode: int) -> None:
    async def test() -> None:
        ill, well = Stub({}, rcode=rcode), Stub({f"{n}.test": [("192.0.2.1", 300)] for n in range(9)})
        async with served(ill, well) as servers:
            names = NameServers(servers, clock=Clock())
            asking = Resolver(clock=Clock(), look_up=no_system, servers=names)
            for n in range(9):
                assert ("192.0.2.1",) == await asking.resolve(f"{n}.test", 80)
            rows = {row["server"]: row for row in names.statistics()}
            assert (9, 9, 0) == tuple(rows[servers[1]][word] for word in ("asked", "answered", "failed"))
            assert rows[servers[0]]["asked"] == 1  # then it pauses, and the other one is queried first
            await asking.close()

    run(test)


def test_when_all_servers_fail_the_failure_is_temporary_and_names_one() -> None:
    async def test() -> None:
        async with served(Stub({}, rcode=SERVFAIL), Stub({}, rcode=SERVFAIL)) as servers:
            names = resolver(servers)
            failure = await error_of(names, "a.test")
            assert FetchError.DNS_TEMPORARY == failure.error
            assert any(server in failure.facts for server in servers)
            await names.close()

    run(test)


def test_the_resolver_does_not_wait_for_a_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, DNS_HEDGE_SECONDS=0.01)

    async def test() -> None:
        silent, well = Stub({}, silent=True), Stub({"a.test": [("192.0.2.1", 300)]})
        async with served(silent, well) as servers:
            names = resolver(servers)
            assert ("192.0.2.1",) == await names.resolve("a.test", 80)
            assert (["a.test"], ["a.test"]) == (silent.asked, well.asked)
            await names.close()

    run(test)


def test_three_hundred_silent_names_do_not_delay_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, DNS_PROMPT_SECONDS=0.01)

    async def test() -> None:
        stub = Stub({"good.test": [("192.0.2.1", 300)]})
        answer = stub.datagram_received
        stub.datagram_received = lambda data, address: (  # type: ignore[method-assign]
            answer(data, address) if read_question(data)[0] == "good.test" else None
        )
        async with served(stub) as servers:
            names = resolver(servers)
            silent = [asyncio.create_task(names.resolve(f"{n}.test", 80)) for n in range(300)]
            await asyncio.sleep(0)
            assert ("192.0.2.1",) == await names.resolve("good.test", 80)
            await names.close()
            await asyncio.gather(*silent, return_exceptions=True)

    run(test)


def test_garbage_for_one_name_does_not_affect_the_answer_of_another() -> None:
    async def test() -> None:
        stub = Stub({f"{n}.test": [("192.0.2.1", 300)] for n in range(50)}, garbage=("bad.test",))
        async with served(stub) as servers:
            names = resolver(servers)
            asking = [names.resolve(name, 80) for name in ("bad.test", *(f"{n}.test" for n in range(50)))]
            bad, *good = await asyncio.gather(*asking, return_exceptions=True)
            assert isinstance(bad, FetchFailure)
            assert FetchError.DNS_TEMPORARY == bad.error
            assert [("192.0.2.1",)] * 50 == good
            await names.close()

    run(test)


@pytest.mark.parametrize(("lost", "found"), [(1, True), (2, True), (3, True), (4, False)])
def test_a_query_whose_socket_is_lost_is_repeated_three_times(lost: int, found: bool) -> None:
    class Channel:
        def __init__(self, server: str) -> None:
            self.server = dns.open_channel(server)

        def getaddrinfo(self, *words: object, callback: Callable[[object, int | None], None], **more: object) -> None:
            asked.append(words)
            if len(asked) <= lost:
                callback(None, pycares.errno.ARES_ECONNREFUSED)
            else:
                self.server.getaddrinfo(*words, callback=callback, **more)  # type: ignore[arg-type]

        def close(self) -> None:
            self.server.close()

    asked: list[object] = []

    async def test() -> None:
        async with served(Stub({"a.test": [("192.0.2.1", 300)]})) as servers:
            names = NameServers(servers, clock=Clock(), open_channel=Channel)  # type: ignore[arg-type]
            asking = Resolver(clock=Clock(), look_up=no_system, servers=names)
            if found:
                assert ("192.0.2.1",) == await asking.resolve("a.test", 80)
            else:
                assert FetchError.DNS_TEMPORARY == (await error_of(asking, "a.test")).error
            assert min(lost + 1, 4) == len(asked)
            await asking.close()

    run(test)


def test_garbage_together_with_silent_names_delays_no_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """c-ares abandons all queries of the channel. Each silent one once used a place of its own for 13 seconds."""
    set_limits(monkeypatch, DNS_PROMPT_SECONDS=0.01, DNS_ALONE_MAX=2)

    async def test() -> None:
        stub = Stub({"good.test": [("192.0.2.1", 300)]}, garbage=("bad.test",))
        answer, asked, good_asked = stub.datagram_received, [], asyncio.Event()

        def answered(data: bytes, address: tuple[str, int]) -> None:
            name = read_question(data)[0]
            asked.append(name)
            if name == "good.test":
                good_asked.set()
            if name == "bad.test" or (name == "good.test" and asked.count("bad.test") > 1):
                answer(data, address)

        stub.datagram_received = answered  # type: ignore[method-assign]
        async with served(stub) as servers:
            names = resolver(servers, seconds_max=60.0)
            silent = [asyncio.create_task(names.resolve(f"{n}.test", 80)) for n in range(40)]
            good = asyncio.create_task(names.resolve("good.test", 80))
            await good_asked.wait()
            assert FetchError.DNS_TEMPORARY == (await error_of(names, "bad.test")).error
            assert ("192.0.2.1",) == await good
            await names.close()
            await asyncio.gather(*silent, return_exceptions=True)

    run(test)


def test_a_name_that_waits_for_a_second_place_keeps_all_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up that starts again is like one that has not started."""

    class Again(lookups.Lanes):
        def _start(self, one: lookups.LookUp, loop: asyncio.AbstractEventLoop) -> None:
            loop.call_soon(one.begin_again)
            loop.call_later(0.3, one.begins)
            loop.call_later(0.35, self._settle, one, lookups.NameAnswer(("192.0.2.1",)))

    async def test() -> None:
        names = Resolver(look_up=no_system, servers=Again(9, 9, 9), seconds_max=0.1)  # type: ignore[arg-type]
        assert ("192.0.2.1",) == await names.resolve("a.test", 80)
        await names.close()

    run(test)


def test_a_channel_with_enough_queries_is_replaced_by_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, DNS_CHANNEL_NAMES=10)

    async def test() -> None:
        stub = Stub({f"{n}.test": [("192.0.2.1", 300)] for n in range(100)})
        async with served(stub) as servers:
            opened: list[str] = []
            names = NameServers(servers, open_channel=lambda one: opened.append(one) or dns.open_channel(one))
            asking = Resolver(look_up=no_system, servers=names)
            told = await asyncio.gather(*(asking.resolve(f"{n}.test", 80) for n in range(100)))
            assert [("192.0.2.1",)] * 100 == told
            assert 10 == len(opened)
            await asking.close()

    run(test)


def test_names_that_dns_does_not_have_are_looked_up_by_the_system() -> None:
    async def test() -> None:
        async with served(Stub({})) as servers:
            system = {"printer.local": ("192.0.2.7",), "intranet": ("192.0.2.8",)}
            names = Resolver(look_up=lambda host, _: system[host], servers=NameServers(servers))
            assert [("192.0.2.7",), ("192.0.2.8",)] == [await names.resolve(name, 80) for name in system]
            await names.close()

    run(test)


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("9.9.9.9", "9.9.9.9:53"),
        ("127.0.0.1:5353", "127.0.0.1:5353"),
        ("2620:fe::fe", "[2620:fe::fe]:53"),
        ("[2620:fe::fe]:5353", "[2620:fe::fe]:5353"),
    ],
)
def test_a_server_is_an_address_with_an_optional_port(text: str, server: str) -> None:
    assert server == read_server(text) == read_server(server)


@pytest.mark.parametrize("text", ["", "dns.example.org", "9.9.9.9:", "9.9.9.9:0", "9.9.9.9:65536", "[::1", "1.1.1.1:x"])
def test_an_invalid_server_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        read_server(text)


def test_the_servers_of_the_system_are_read_from_resolv_conf(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text(
        "# nameserver 1.1.1.1\nsearch example.org\n nameserver 10.0.0.1\nnameserver fe80::1%eth0\nnameserver ::1\n"
    )
    assert ("10.0.0.1:53", "[::1]:53") == system_servers(file)
    assert () == system_servers(tmp_path / "none")
