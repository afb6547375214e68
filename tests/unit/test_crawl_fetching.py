"""From a lease to an answer: the addresses that are dialled, their order and time, and the visits that use a place."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import wraps

import msgspec
import pytest

from fake_web import FakeNames, FakeWeb
from limiting import set_limits
from outrider.crawl.output.output import Output
from outrider.crawl.run.fetching import Fetching
from outrider.crawl.run.visit import Visit
from outrider.engine import Frontier
from outrider.fetch.addresses import AddressGuard
from outrider.fetch.downloader import FetchEnded, Request, Response
from outrider.fetch.failures import FetchError, FetchFailure
from outrider.fetch.names import Resolver
from unit.test_crawl_loop import HOSTS, House, until
from unit.test_crawl_visit import lease, response

DEAD = {FetchError.CONNECT_REFUSED, FetchError.CONNECT_TIMEOUT, FetchError.UNREACHABLE}


class Table(FakeNames):
    def __init__(self, *addresses: str) -> None:
        super().__init__(defaultdict(lambda: addresses))


class Wire(FakeWeb):
    """Addresses with the result of a request there: an error or an answer. A time-out moves the loop's clock on."""

    def __init__(self, *, sent: bool = False, **answers: FetchError | None) -> None:
        self.answers = {name.removeprefix("at_").replace("_", "."): answer for name, answer in answers.items()}
        self.sent = sent
        self.dialled: list[str] = []
        self.passed = 0.0
        super().__init__()

    async def fetch(self, request: Request) -> Response:
        self.dialled.append(request.address)
        self.asked.append(request)
        error = self.answers[request.address]
        if error is FetchError.CONNECT_TIMEOUT:
            self.passed += request.connect_seconds
        return replace(
            response(200 if error is None else None, error=error),
            address=request.address,
            request_head=request.head() if error is None or self.sent else b"",
        )


def visited(wire: Wire, *addresses: str, times: int = 1, guard: AddressGuard | None = None, **more):
    """Visits one host several times. Returns the last visit."""

    async def run():
        loop = asyncio.get_running_loop()
        clock = loop.time
        loop.time = lambda: clock() + wire.passed
        fetching = Fetching(
            wire,
            Table(*addresses),
            guard or AddressGuard(),
            user_agent="Test",
            loopback_only=False,
            clock=lambda: 0,
        )
        for _ in range(times):
            found = await fetching.visit(lease(**more))
        return found

    return asyncio.run(run())


@pytest.mark.parametrize("error", sorted(DEAD))
def test_the_next_address_is_dialled_when_one_refuses_the_connection(error):
    """Only the first address was once dialled, so a host whose first address is dead was never reached."""
    wire = Wire(at_8_8_8_8=error, at_9_9_9_9=None)
    found = visited(wire, "8.8.8.8", "9.9.9.9")
    assert (["8.8.8.8", "9.9.9.9"], "9.9.9.9", 200) == (wire.dialled, found.response.address, found.status)


def test_an_address_that_refused_a_connection_is_dialled_last_from_then_on():
    """Otherwise each page of a host would wait for its dead address again."""
    wire = Wire(at_8_8_8_8=FetchError.CONNECT_TIMEOUT, at_9_9_9_9=None)
    visited(wire, "8.8.8.8", "9.9.9.9", times=3)
    assert ["8.8.8.8", "9.9.9.9", "9.9.9.9", "9.9.9.9"] == wire.dialled


def test_where_no_address_accepts_a_connection_the_last_failure_is_reported():
    wire = Wire(at_8_8_8_8=FetchError.CONNECT_TIMEOUT, at_9_9_9_9=FetchError.CONNECT_REFUSED)
    found = visited(wire, "8.8.8.8", "9.9.9.9", times=2)
    assert (FetchError.CONNECT_REFUSED, 4) == (found.failure, len(wire.dialled))


def test_look_ups_with_a_wait_and_kept_connections_are_counted():
    """The second look-up is answered from memory. Its request uses the connection of the first."""
    wire, waits = Wire(at_9_9_9_9=None), [0.25, 0.0]

    class Names(Table):
        async def resolve(self, host: str, port: int):
            wire.passed += waits.pop(0)
            return self.hosts[host]

    async def run():
        loop = asyncio.get_running_loop()
        clock = loop.time
        loop.time = lambda: wire.passed
        fetching = Fetching(
            wire, Names("9.9.9.9"), AddressGuard(), user_agent="Test", loopback_only=False, clock=lambda: 0
        )
        for _ in range(2):
            await fetching.visit(lease())
        loop.time = clock
        return fetching.statistics()

    counted = asyncio.run(run())
    made = 2 * (not response(200).new_connection)
    assert {"names": 2, "names_waited": 1, "names_seconds": 0.25, "requests": 2, "kept": made} == counted


def test_every_address_passes_the_guard():
    """A name with private addresses among its addresses is dialled only at the public ones."""
    wire = Wire(at_8_8_8_8=FetchError.CONNECT_REFUSED, at_9_9_9_9=None)
    visited(wire, "10.0.0.1", "8.8.8.8", "127.0.0.1", "::1", "9.9.9.9")
    assert ["8.8.8.8", "9.9.9.9"] == wire.dialled
    only = Wire(at_8_8_8_8=FetchError.CONNECT_REFUSED)
    visited(only, "8.8.8.8", "10.0.0.1", "::ffff:8.8.8.8")
    assert ["8.8.8.8"] == only.dialled


def test_all_addresses_share_the_time_limit_of_one():
    """Sixteen silent addresses need half a minute, not three, and the rest of the time is for the answer."""
    silent = {f"at_8_8_8_{number}": FetchError.CONNECT_TIMEOUT for number in range(16)}
    wire = Wire(**silent)
    visited(wire, *wire.answers)
    assert (3, 30.0) == (len(wire.dialled), pytest.approx(wire.passed, abs=0.2))
    assert [60.0, 50.0, 40.0] == pytest.approx([one.total_seconds for one in wire.asked], abs=0.2)


@pytest.mark.parametrize("error", [FetchError.RESET, FetchError.FIRST_BYTE_TIMEOUT, FetchError.TLS])
def test_a_request_that_was_sent_is_sent_to_no_other_address(error):
    wire = Wire(at_8_8_8_8=error, at_9_9_9_9=None, sent=True)
    assert error is visited(wire, "8.8.8.8", "9.9.9.9").failure
    assert ["8.8.8.8"] == wire.dialled


def test_a_lease_that_names_an_address_uses_only_that_address():
    wire = Wire(at_8_8_8_8=FetchError.CONNECT_REFUSED, at_9_9_9_9=None)
    found = visited(wire, "8.8.8.8", "9.9.9.9", address="8.8.8.8")
    assert (["8.8.8.8"], FetchError.CONNECT_REFUSED) == (wire.dialled, found.failure)


def test_the_address_that_answered_is_in_the_archive(tmp_path, monkeypatch):
    kept: list[str] = []

    def packed(_output, answers):
        kept.extend(response.address for response, *_ in answers)
        return [None] * len(answers)

    monkeypatch.setattr(Output, "packed", packed)
    house = House(tmp_path, {"max_pages": 1}, names=lambda: Table("127.0.0.99", "127.0.0.1"))
    house.dead = {"127.0.0.99"}
    asyncio.run(house.run(seeds=["http://h0.test/"]))
    assert {"127.0.0.1"} == set(kept)


def test_a_host_grouped_by_its_address_moves_to_the_next_address(tmp_path):
    """Its leases name the one address that was found. When no connection succeeds there, the address is looked up
    again."""
    house = House(tmp_path, {"group": ("address",)}, names=lambda: Table("127.0.0.99", "127.0.0.1"))
    house.dead = {"127.0.0.99"}
    result = asyncio.run(asyncio.wait_for(house.run(seeds=["http://h0.test/"]), 30))
    assert (0, 4) == (result.exit_code, result.statistics["answered"])


# -- who holds a place


class Slow(FakeNames):
    """A name service in which some names hang until they are released."""

    def __init__(self, *hang: str) -> None:
        super().__init__(HOSTS)
        self.hang = hang
        self.go = asyncio.Event()
        self.asked: set[str] = set()

    async def resolve(self, host: str, port: int):
        self.asked.add(host)
        if host in self.hang:
            await self.go.wait()
        return HOSTS[host]


@pytest.fixture
def soon(monkeypatch):
    """A name is slow after a hundredth of a second."""
    set_limits(monkeypatch, DNS_PROMPT_SECONDS=0.01)


def test_names_that_hang_occupy_no_place_of_other_names(tmp_path, soon):
    """Six of eight hosts wait for their names, and two may be visited at once: the other two are crawled meanwhile."""
    names = []

    async def beside(house):
        await until(lambda: house.site is not None and len(house.site.urls) == 10)
        assert 8 == len(names[0].asked)
        names[0].go.set()

    def make():
        names.append(Slow(*list(HOSTS)[:6]))
        return names[0]

    house = House(tmp_path, {"concurrency": 2}, names=make)
    result = asyncio.run(asyncio.wait_for(house.run(beside), 60))
    assert (0, 32) == (result.exit_code, result.statistics["answered"])


def test_names_that_resolve_at_once_cause_no_more_requests_than_allowed(tmp_path, soon):
    names = []

    async def beside(house):
        await until(lambda: len(names) and len(names[0].asked) == 8)
        names[0].go.set()

    def make():
        names.append(Slow(*HOSTS))
        return names[0]

    house = House(tmp_path, {"concurrency": 3}, {"seconds": 0.02}, names=make)
    assert 0 == asyncio.run(asyncio.wait_for(house.run(beside), 60)).exit_code
    assert 3 == house.site.most


def test_a_lease_lasts_longer_than_the_wait_for_a_name(tmp_path, soon, monkeypatch):
    """A name that waits longer than its lease lasts costs its URL no attempt, and its outcome is not stale."""
    for name, seconds in {"LEASE_SECONDS": 0.4, "EXTEND_STEP_SECONDS": 0.02, "EXTEND_SECONDS": 0.3}.items():
        monkeypatch.setattr(f"outrider.crawl.run.loop.{name}", seconds)
    monkeypatch.setattr("outrider.crawl.run.loop.WAIT_SECONDS_MAX", 0.1)
    monkeypatch.setattr("outrider.crawl.run.settle.LEASE_SECONDS", 0.4)
    names, extended = [], []

    def extend(frontier, tokens, ttl_seconds, plain=Frontier.extend):
        extended.append(tokens)
        return plain(frontier, tokens, ttl_seconds)

    monkeypatch.setattr(Frontier, "extend", extend)

    async def beside(house):
        await until(lambda: house.site is not None and names and names[0].asked == {"h0.test"})
        await until(lambda: len(extended) >= 8)  # each at least 0.1 s after the one before: the lease of 0.4 s is over
        names[0].go.set()

    def make():
        names.append(Slow("h0.test"))
        return names[0]

    house = House(tmp_path, {"max_pages": 1}, names=make)
    asyncio.run(asyncio.wait_for(house.run(beside, seeds=["http://h0.test/"]), 60))
    assert (1, [1]) == (house.site.urls.count("http://h0.test/robots.txt"), [one["attempt"] for one in house.pages()])
    assert "stale" not in (house.output / "crawl.log").read_text()


def test_six_hundred_silent_names_do_not_block_sixty_good_ones(soon, monkeypatch):
    """Each silent name hangs for ever. All good names are found without a false `no answer`, and the silent ones are
    reported."""
    set_limits(monkeypatch, DNS_PROMPT_SECONDS=0.02)
    go = threading.Event()

    def look_up(host, _port):
        if host.startswith("dead"):
            go.wait(60)
        return ("8.8.8.8",)

    async def run():
        names = Resolver(look_up=look_up, seconds_max=1.0)
        hosts = [f"dead{number}.test" for number in range(600)]
        hosts[5::10] = [f"good{number}.test" for number in range(60)]
        hosts += [f"dead{number}.test" for number in range(5, 600, 10)]
        wire = Wire(at_8_8_8_8=None)
        fetching = Fetching(
            wire, names, AddressGuard(), user_agent="Test", loopback_only=False, clock=lambda: 0, concurrency=8
        )
        leases = [
            msgspec.structs.replace(lease(), url=f"http://{host}/", host=host, token=token)
            for token, host in enumerate(hosts, 1)
        ]
        found = await asyncio.gather(*map(fetching.visit, leases))
        told = {host: one.failure for host, one in zip(hosts, found, strict=True)}
        statistics = names.statistics()
        go.set()
        await names.close()
        return told, statistics

    told, statistics = asyncio.run(run())
    assert {None} == {failure for host, failure in told.items() if host.startswith("good")}
    assert {FetchError.DNS_TEMPORARY} == {failure for host, failure in told.items() if host.startswith("dead")}
    assert (600, 660) == (statistics["threads"], statistics["look_ups"])


def test_a_name_without_a_look_up_says_so(monkeypatch):
    """When the limit of hanging look-ups is reached, the wait for one ends, and says for what it waited."""
    set_limits(monkeypatch, DNS_QUEUE_SECONDS_MAX=0.05)
    go = threading.Event()

    async def run():
        names = Resolver(look_up=lambda *_: (go.wait(60), ())[1], threads_max=1, seconds_max=5)
        first = asyncio.create_task(names.resolve("a.test", 80))
        await asyncio.sleep(0)
        with pytest.raises(FetchFailure, match="1 look-ups hang, and no other could begin") as caught:
            await names.resolve("b.test", 80)
        go.set()
        await asyncio.gather(first, return_exceptions=True)
        await names.close()
        return caught.value

    failure = asyncio.run(run())
    assert (FetchError.DNS_TEMPORARY, True) == (failure.error, failure.retryable)


def test_a_request_that_a_hook_changed_has_a_head_of_its_own():
    first = Request("http://one.test/a", "192.0.2.1", "Agent")
    before = first.head()
    changed = replace(first, headers=(("X-Key", "1"),))
    assert b"X-Key: 1\r\n" in changed.head()
    assert before == first.head()
    assert first == Request("http://one.test/a", "192.0.2.1", "Agent")


# -- trains ------------------------------------------------------------------------------------------------------------


class Hand:
    """A downloader whose answers a test sets. begun: the tags of each train; orders: the other calls, in order."""

    def __init__(self) -> None:
        self.begun: list[list[int]] = []
        self.orders: list[tuple[str, int]] = []
        self._ended: dict[int, FetchEnded] = {}

    def begin(self, train: Sequence[tuple[int, Request]], ended: FetchEnded) -> None:
        self.begun.append([tag for tag, _ in train])
        self._ended |= dict.fromkeys(self.begun[-1], ended)

    def answers(self, tag: int, answer: Response | None) -> None:
        self._ended.pop(tag)(tag, answer)

    def let_go(self, tag: int) -> None:
        self.orders.append(("let go", tag))

    def cancel(self, tag: int) -> None:
        self.orders.append(("cancel", tag))

    async def close(self) -> None:
        pass


class Trains:
    """Trains of tokens on a downloader whose answers a test sets, and the visits that have ended, by token."""

    def __init__(self, concurrency: int = 8, *addresses: str) -> None:
        self.hand, self.now, self.is_full = Hand(), 0, False
        self.visits: dict[int, Visit] = {}
        self.fetching = Fetching(
            self.hand,
            KnownTable(*(addresses or ("8.8.8.8",))),
            AddressGuard(),
            user_agent="Test",
            loopback_only=False,
            clock=lambda: self.now,
            concurrency=concurrency,
            goes_on=lambda: not self.is_full,
        )

    def begin(self, *tokens: int, host: str = "a.test", urls: Sequence[str] = ()) -> None:
        leases = [
            msgspec.structs.replace(lease(), token=token, host=host, url=url)
            for token, url in zip(tokens, urls or [f"http://{host}/{token}" for token in tokens], strict=True)
        ]
        self.fetching.begin(leases, lambda one, visit: self.visits.__setitem__(one.token, visit))

    def told(self) -> dict[int, tuple[int | None, bool, int | None]]:
        """Returns of each ended visit the status, whether it was stopped, and the instant at which it began."""
        return {token: (visit.status, visit.stopped, visit.began) for token, visit in self.visits.items()}


class KnownTable(Table):
    """A resolver whose addresses need no wait."""

    def known(self, host: str, port: int):
        return self.hosts[host]


UNSENT = (None, True, None)


def in_loop(test):
    """Runs a test within an event loop that never turns."""

    @wraps(test)
    def run(**arguments):
        async def main():
            test(**arguments)

        asyncio.run(main())

    return run


@in_loop
def test_each_visit_of_a_train_has_the_end_of_the_visit_before_it():
    trains = Trains()
    trains.begin(1, 2, 3)
    assert ([[1, 2, 3]], 3, 1) == (trains.hand.begun, len(trains.fetching), trains.fetching.trains)
    first, second = (replace(response(), ended_at=ended_at) for ended_at in (50, 90))
    trains.hand.answers(1, first)
    trains.hand.answers(2, second)
    trains.hand.answers(3, response())
    assert [lease().ended_before, 50, 90] == [trains.visits[token].lease.ended_before for token in (1, 2, 3)]
    assert ([], 0, 0) == (trains.hand.orders, len(trains.fetching), trains.fetching.trains)


@in_loop
def test_visits_that_a_downloader_skips_were_never_sent():
    trains = Trains()
    trains.begin(1, 2, 3)
    trains.hand.answers(1, response(503))
    trains.hand.answers(2, None)
    trains.hand.answers(3, None)
    assert {1: (503, False, None), 2: UNSENT, 3: UNSENT} == trains.told()


@pytest.mark.parametrize(
    ("answer", "is_full"), [(response(cf_mitigated="challenge"), False), (response(), True)], ids=["challenge", "full"]
)
@in_loop
def test_a_train_is_released_after_a_challenge_and_without_room_for_answers(answer, is_full):
    trains = Trains()
    trains.begin(1, 2, 3)
    trains.is_full = is_full
    trains.hand.answers(1, answer)
    assert ([("let go", 3)], [1]) == (trains.hand.orders, list(trains.visits))


@in_loop
def test_released_trains_have_no_visit_after_the_first_one():
    """The downloader gets the call for trains that it has. A train that waits for a place returns its leases at
    once."""
    trains = Trains(concurrency=1)
    trains.begin(1, 2, 3)
    trains.begin(4, 5, 6, host="b.test")
    trains.begin(7, host="c.test")
    trains.fetching.let_go()
    assert ([("let go", 3)], {5: UNSENT, 6: UNSENT}) == (trains.hand.orders, trains.told())
    for token in (2, 3):
        trains.hand.answers(token, None)
    trains.hand.answers(1, response())
    assert [[1, 2, 3], [4]] == trains.hand.begun


@in_loop
def test_a_cancelled_train_says_which_of_its_visits_the_site_may_have_noticed():
    """A waiting train got a place for a moment when another left it. It then said that the site may have noticed."""
    trains = Trains(concurrency=1)
    trains.now = 10
    trains.begin(1, 2)
    trains.begin(3, host="b.test")
    trains.now = 30
    trains.fetching.break_off()
    assert {1: (None, True, 10), 2: UNSENT, 3: UNSENT} == trains.told()
    assert [("cancel", token) for token in (3, 1, 2)] == trains.hand.orders
    assert (0, 0) == (len(trains.fetching), trains.fetching.trains)
    trains.begin(4)
    assert [[1, 2], [4]] == trains.hand.begun


@in_loop
def test_a_train_whose_address_refuses_connections_continues_at_another_with_one_visit():
    trains = Trains(8, "8.8.8.8", "9.9.9.9")
    trains.begin(1, 2)
    trains.hand.answers(1, replace(response(None, error=FetchError.CONNECT_REFUSED), request_head=b""))
    trains.hand.answers(2, None)
    trains.hand.answers(1, response())
    assert ([[1, 2], [1]], {2: UNSENT, 1: (200, False, None)}) == (trains.hand.begun, trains.told())


@in_loop
def test_an_unusable_url_ends_alone_in_its_train():
    trains = Trains()
    trains.begin(1, 2, 3, urls=("http://a.test:25/", "http://a.test/", "http://a b/"))
    assert [[2]] == trains.hand.begun
    assert {1: FetchError.BLOCKED_PORT, 3: FetchError.MALFORMED} == {
        token: visit.failure for token, visit in trains.visits.items()
    }
