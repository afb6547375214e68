"""From a lease to an answer: name, address, guard, port, request (the only way in which a crawl contacts a site).

    leases -> [name] -> guard -> [turn of sitemaps] -> [slot] -> requests, at one address after the other -> visits

Leases are in trains: pages of one host without a gap, requested one after another; any other lease is a train of
its own. Each step calls the next one. A train waits only at the steps in brackets and for its answers; it needs no
task. An errand for an address ends at the guard. A lease with the address of its host skips the name service.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import msgspec

from outrider.clock import Instant, wall
from outrider.crawl.run.bottleneck import Bottleneck, Stage
from outrider.crawl.run.concurrency import Place, RequestPlaces, kept_of
from outrider.crawl.run.hooks import HookFailed, Hooks
from outrider.crawl.run.lease_kinds import KINDS
from outrider.crawl.run.visit import Visit, validators_of
from outrider.crawl.setup.host_settings import HostSettings, PerHost
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import InvalidUrlError, SettingsError
from outrider.fetch.addresses import AddressGuard, is_web_port, parsed
from outrider.fetch.checked_trains import CheckedTrains
from outrider.fetch.downloader import Beginner, Downloader, Request, Response, target_of
from outrider.fetch.failures import BlockedAddress, FetchError, FetchFailure
from outrider.fetch.fetch_tasks import FetchTasks, beginner_of
from outrider.fetch.request_signing import RequestSigner
from outrider.journey import Kind, Lease
from outrider.limits import (
    CONNECT_ALL_SECONDS_MAX,
    CONNECT_FAILURES_MAX,
    CONNECTIONS_MAX,
    DNS_PROMPT_SECONDS,
    HELD_UP_MAX,
    SITEMAPS_AT_ONCE,
    SITEMAPS_WAITING_MAX,
)

_PORT_ASKED = 443  # the port in questions to the name service; an address is valid for all ports

DNS_MEMORY_SECONDS = 0.001  # a faster answer was from memory: no visit waited for it

VisitEnded = Callable[[Lease, Visit | BaseException], None]
"""A callback for the end of a visit; it gets an error only if a bug interrupted the visit."""


class NameService(Protocol):
    """Finds addresses; `Resolver` is the real one. If it has a method `known`, that is called first: it returns the
    addresses that are available without a wait, else None, and raises as `resolve` does."""

    async def resolve(self, host: str, port: int) -> Sequence[str]: ...

    async def close(self) -> None: ...


class _VisitState:
    """A visit on its way. began: when its request was sent, as far as that is known."""

    __slots__ = ("at", "began", "lease", "request", "train")
    request: Request

    def __init__(self, lease: Lease, train: _VisitTrain, at: Instant) -> None:
        self.lease, self.train, self.at = lease, train, at
        self.began: Instant | None = None


class _VisitTrain:
    """Visits to one host in a row. ways: those under way or waiting; others: the addresses to try after the
    first one; own: of the host, from the step with its address; is_mapping: it is one of the few that fetch
    sitemaps; is_mapless: it waits to be one, without a slot."""

    __slots__ = ("asked_at", "ended", "host", "is_mapless", "is_mapping", "naming", "others", "own", "place", "ways")
    own: HostSettings

    def __init__(self, host: str, ended: VisitEnded) -> None:
        self.host, self.ended = host, ended
        self.ways: list[_VisitState] = []
        self.asked_at = 0.0
        self.others: Sequence[str] = ()
        self.place: Place | None = None
        self.naming: asyncio.Task[None] | None = None
        self.is_mapping = self.is_mapless = False

    @property
    def is_asking(self) -> bool:
        """Whether its requests are with the downloader."""
        return self.place is not None and self.place.is_held


def _nothing_known(_host: str, _port: int) -> None:
    return None


class Fetching:
    """Makes one visit for each lease; every refusal is an answer, nothing raises. Used by one event loop."""

    def __init__(
        self,
        downloader: Downloader,
        names: NameService,
        guard: AddressGuard,
        *,
        user_agent: str,
        loopback_only: bool,
        clock: Callable[[], Instant],
        concurrency: int = CONNECTIONS_MAX,
        aside_most: int = 0,
        make_room: Callable[[], None] = lambda: None,
        hooks: Hooks | None = None,
        per_host: PerHost | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        bottleneck: Bottleneck | None = None,
        pins: bool = True,
        goes_on: Callable[[], bool] = lambda: True,
        spelling: Callable[[str], str] = lambda url: url,
        may_send: Callable[[int], bool] | None = None,
        signer: RequestSigner | None = None,
    ) -> None:
        """concurrency: requests at once; aside_most: slow ones in addition. make_room: is called for each visit whose
        name or answer is slow. headers: of each request. bottleneck: counts the stages of visits. pins: whether a
        request uses the address in its lease; if no group depends on addresses, that one may be old. goes_on:
        whether there is room for the answers of further visits; otherwise trains are released. spelling: the
        text in which a URL is requested. may_send: whether the request of a token may be sent now, asked before each
        request; otherwise its visit ends unsent. signer: signs requests when they are sent."""
        self._signer = signer
        self._headers = headers
        self._spelling = spelling
        self._bottleneck = bottleneck or Bottleneck(concurrency, clock())
        self._hooks = hooks
        self._per_host = per_host or PerHost(CrawlOptions())
        own = self._hooks is not None and self._hooks.downloader is not None
        self._downloader: Beginner = FetchTasks(downloader) if own else beginner_of(downloader)
        if may_send is not None:
            self._downloader = CheckedTrains(self._downloader, may_send)
        self._resting = False
        self._names = names
        self._known: Callable[[str, int], Sequence[str] | None] = getattr(names, "known", _nothing_known)
        self._ways: dict[int, _VisitState] = {}  # by token
        self._goes_on = goes_on
        self.trains = 0
        """Trains under way."""
        self._pins = pins
        self._guard = guard
        self._user_agent = user_agent
        self._loopback_only = loopback_only
        self._clock = clock
        self._places = RequestPlaces(concurrency, aside_most, make_room, kept=kept_of(concurrency) if aside_most else 0)
        self._in_line: dict[Place, _VisitTrain] = {}  # trains that wait for a slot
        self._make_room = make_room
        self._mapping = 0  # visits that fetch sitemaps
        self._map_line: deque[_VisitTrain] = deque()  # visits that wait until other sitemaps are read
        self._mapless = 0  # and use no slot meanwhile
        self._unnamed = 0  # visits whose name is slow to resolve
        self._counts = {"names": 0, "names_waited": 0, "names_seconds": 0.0, "requests": 0, "kept": 0}
        self._failed: OrderedDict[tuple[str, str], None] = OrderedDict()  # (host, address) without a connection

    def statistics(self) -> dict[str, float]:
        """Returns visits that resolved an address, `names_waited` of them with a wait, and the total wait; requests
        sent, `kept` of them over a connection of an earlier one."""
        return {**self._counts, **(self._signer.statistics() if self._signer is not None else {})}

    @property
    def aside(self) -> int:
        """The number of visits without a slot: their name or their answer is slow, they wait for other sitemaps, or
        the slots are reserved for other hosts."""
        return self._unnamed + self._mapless + self._places.aside + self._places.held_up

    @property
    def held_up(self) -> int:
        """Returns the number of visits that wait although slots are free: these are reserved for other hosts."""
        return self._places.held_up

    @property
    def leases(self) -> list[Lease]:
        """The leases of visits under way."""
        return [way.lease for way in list(self._ways.values())]  # another thread may call this

    def __len__(self) -> int:
        """Visits under way."""
        return len(self._ways)

    def begin(self, leases: Sequence[Lease], ended: VisitEnded) -> None:
        """Begins the visits of a train: leases of one host, or one lease. `ended` is called at the end of each, perhaps
        from within this call."""
        train = _VisitTrain(leases[0].host, ended)
        self.trains += 1
        at = wall()
        for lease in leases:
            self._ways[lease.token] = way = _VisitState(lease, train, at)
            train.ways.append(way)
        if KINDS[leases[0].kind].stage is Stage.NAMED:
            self._name(train, train.host, _PORT_ASKED)
            return
        port = 0
        for way in train.ways.copy():
            try:
                target = target_of(way.lease.url)
            except InvalidUrlError as refused:
                self._refuse(way, FetchError.MALFORMED, refused.facts)
                continue
            if is_web_port(target.port):
                train.host, port = target.host, target.port
            else:
                self._refuse(way, FetchError.BLOCKED_PORT, f"port {target.port} is not one for HTTP")
        if not train.ways:
            return
        address = train.ways[0].lease.address if self._pins else None
        if address is not None:
            self._named(train, (address,))
        else:
            self._name(train, train.host, port)

    async def visit(self, lease: Lease) -> Visit:
        """The visit of a lease, to await. When it is cancelled, the visit says whether the site may have noticed."""
        made: asyncio.Future[Visit] = asyncio.get_running_loop().create_future()

        def ended(_: Lease, visit: Visit | BaseException) -> None:
            if isinstance(visit, Visit):
                made.set_result(visit)
            else:
                made.set_exception(visit)

        self.begin([lease], ended)
        try:
            return await asyncio.shield(made)
        except asyncio.CancelledError:
            self.break_off((lease.token,))
            return made.result()

    def let_go(self) -> None:
        """Stops every train after its current visit, and waiting trains at once. Visits that are not made
        report so."""
        for train in list(self._in_line.values()) if self._places.held_up else ():
            self._give_back(train)
        for way in list(self._ways.values()):
            if len(way.train.ways) > 1 and way is way.train.ways[0]:
                self._let_go(way.train)

    def rest(self, resting: bool) -> None:
        """Pauses or resumes large answers, because there is no room for them now."""
        if resting is not self._resting:
            self._resting = resting
            self._downloader.rest(resting)

    def break_off(self, tokens: Iterable[int] | None = None) -> None:
        """Ends the visits of these tokens now, all by default; each says whether the site may have noticed."""
        wanted = self._ways if tokens is None else tokens
        ways = [way for token in wanted if (way := self._ways.get(token)) is not None]
        # Visits that wait for a slot end first: otherwise they would get it when a visit with a request leaves it.
        for way in sorted(ways, key=lambda way: way.train.is_asking):
            self._downloader.cancel(way.lease.token)
            self._end(way, Visit(way.lease, way.at, self._clock(), stopped=True, began=way.began))

    # -- the steps of a train -----------------------------------------------------------------------------------------

    def _name(self, train: _VisitTrain, host: str, port: int) -> None:
        """Finds the addresses: at once where they are known, else in a task."""
        try:
            addresses = self._known(host, port)
        except FetchFailure as failure:
            self._counts["names"] += 1
            self._fail_all(train, failure)
            return
        if addresses is not None:
            self._counts["names"] += 1
            self._named(train, addresses)
        else:
            self._bottleneck.move(train.ways[0].lease.token, Stage.NAMED, self._clock())
            train.naming = asyncio.create_task(self._resolve(train, host, port))

    async def _resolve(self, train: _VisitTrain, host: str, port: int) -> None:
        """Resolves the name; a train that waits long for it leaves its slot to another one."""
        waits = False

        def give_place() -> None:
            nonlocal waits
            waits = True
            self._unnamed += 1
            self._make_room()

        loop = asyncio.get_running_loop()
        began = loop.time()
        patience = loop.call_later(DNS_PROMPT_SECONDS, give_place)
        found: Sequence[str] | Exception
        try:
            found = await self._names.resolve(host, port)
        except Exception as error:  # noqa: BLE001 - a bug in one visit ends the crawl, and the loop says so
            found = error
        finally:
            patience.cancel()
            self._unnamed -= waits
            self._counts["names"] += 1
            if (took := loop.time() - began) >= DNS_MEMORY_SECONDS:
                self._counts["names_waited"] += 1
                self._counts["names_seconds"] += took
        train.naming = None
        if isinstance(found, FetchFailure):
            self._fail_all(train, found)
        elif isinstance(found, Exception):
            for way in train.ways.copy():
                self._end(way, found)
        else:
            self._named(train, found)

    def _named(self, train: _VisitTrain, found: Sequence[str]) -> None:
        """Continues with the addresses of the host."""
        try:
            first, *train.others = self._permitted(train.host, found)
        except FetchFailure as failure:
            self._fail_all(train, failure)
            return
        lease = train.ways[0].lease
        kind = KINDS[lease.kind]
        if kind.stage is Stage.NAMED:
            way = train.ways[0]
            self._end(way, Visit(lease, way.at, self._clock(), address=first))
            return
        train.own = self._per_host.of(train.host)
        for way in train.ways.copy():
            self._prepare(way, first)
        if not train.ways:
            return
        if kind.few:
            self._map(train)
        else:
            self._enter(train)

    def _prepare(self, way: _VisitState, address: str) -> None:
        """Makes the request of a visit."""
        lease, own, hooks = way.lease, way.train.own, self._hooks
        again = validators_of(lease) if lease.etag is not None or lease.last_modified is not None else ()
        try:
            way.request = own.request(
                *(self._spelling(lease.url), address, self._user_agent, self._headers),
                last=again,
                bytes_max=KINDS[lease.kind].bytes_max,
                capacity=lease.capacity,
            )
            if hooks is not None and lease.kind is Kind.PAGE:
                way.request = hooks.request(way.request, lease)
        except HookFailed as failed:
            self._end(way, Visit(lease, way.at, self._clock(), fault=failed))
        except (InvalidUrlError, SettingsError) as refused:
            # In canonical spelling, but not valid in a request.
            self._refuse(way, FetchError.MALFORMED, refused.facts)

    def _permitted(self, host: str, addresses: Sequence[str]) -> Sequence[str]:
        """Returns the permitted addresses, in order: first those that accepted connections."""
        if self._loopback_only:
            addresses = [ip for ip in addresses if (address := parsed(ip)) is not None and address.is_loopback]
            if not addresses:
                raise BlockedAddress(f"{host} is not this machine, and no --contact says who crawls")
        permitted = self._guard.permitted(host, addresses)
        if len(permitted) < 2 or not self._failed:
            return permitted
        return sorted(permitted, key=lambda address: (host, address) in self._failed)

    def _map(self, train: _VisitTrain) -> None:
        """Starts at most `SITEMAPS_AT_ONCE` visits to sitemaps; the others wait, and most of them use no slot."""
        if self._mapping < SITEMAPS_AT_ONCE:
            self._mapping += 1
            train.is_mapping = True
            self._enter(train)
            return
        self._map_line.append(train)
        if self._mapless < SITEMAPS_WAITING_MAX:
            self._mapless += 1
            train.is_mapless = True
            self._make_room()

    def _enter(self, train: _VisitTrain) -> None:
        """Sends the request once there is a slot."""
        train.place = Place(train.host, partial(self._ask, train))
        self._places.enter(train.place)
        if not train.place.is_held:
            self._in_line[train.place] = train
            self._bottleneck.move(train.ways[0].lease.token, Stage.WAITS, self._clock())
            if self._places.held_up > HELD_UP_MAX:
                self._give_back(self._in_line[self._places.first_waiting])

    def _give_back(self, train: _VisitTrain) -> None:
        """Ends the visits of a train unsent: their URLs return to their queues, and other hosts have their turn."""
        for way in train.ways.copy():
            self._end(way, Visit(way.lease, way.at, self._clock(), stopped=True))

    def _ask(self, train: _VisitTrain) -> None:
        if train.place is not None:
            self._in_line.pop(train.place, None)
        train.asked_at = asyncio.get_running_loop().time()
        self._at_site(train.ways[0])
        self._dial(train, [(way.lease.token, way.request) for way in train.ways])

    def _at_site(self, way: _VisitState) -> None:
        """Notes that the site works on the request of a visit, as far as that is known here: the downloader sends the
        next one of a train by itself."""
        way.at, way.began = wall(), self._clock()
        self._bottleneck.move(way.lease.token, KINDS[way.lease.kind].stage, way.began)

    def _dial(self, train: _VisitTrain, requests: Sequence[tuple[int, Request]]) -> None:
        try:
            if (signer := self._signer) is not None:
                for _, one in requests:
                    signer.sign(one, train.own.signature_agent)
            self._downloader.begin(requests, self._answered)
        except Exception as error:  # noqa: BLE001 - a bug in one visit ends the crawl, and the loop says so
            for token, _ in requests:
                asyncio.get_running_loop().call_soon(self._answered, token, error)

    def _answered(self, token: int, answer: Response | BaseException | None) -> None:
        """Handles an answer, or an error of the downloader; None if the visit was released."""
        way = self._ways.get(token)
        if way is None:
            return  # it was broken off
        lease = way.lease
        if answer is None:
            self._end(way, Visit(lease, way.at, self._clock(), stopped=True))
            return
        if isinstance(answer, HookFailed):
            self._end(way, Visit(lease, way.at, self._clock(), began=way.began, fault=answer))
        elif isinstance(answer, FetchFailure):
            self._refuse(way, answer.error, _facts_of(answer))
        elif isinstance(answer, SettingsError):
            self._refuse(way, FetchError.MALFORMED, answer.facts)
        elif isinstance(answer, BaseException):
            self._end(way, answer)
        else:
            self._responded(way, answer)

    def _responded(self, way: _VisitState, response: Response) -> None:
        """Tries the next address after one that refused a connection; that one is tried last from then on, until it
        accepts one. All of them share the time of one."""
        train = way.train
        if response.request_head:
            self._counts["requests"] += 1
            self._counts["kept"] += not response.new_connection
        if response.unconnected:
            self._note_failed((train.host, response.address))
            if train.others and self._dial_next(way):
                return
        elif self._failed:
            self._failed.pop((train.host, response.address), None)
        if self._signer is not None:
            response = self._signer.answered(way.request, response)
        self._visited(way, response)

    def _note_failed(self, key: tuple[str, str]) -> None:
        self._failed[key] = None
        self._failed.move_to_end(key)
        if len(self._failed) > CONNECT_FAILURES_MAX:
            self._failed.popitem(last=False)

    def _dial_next(self, way: _VisitState) -> bool:
        """Sends the request to the next address, if there is time left."""
        train, first = way.train, way.request
        passed = asyncio.get_running_loop().time() - train.asked_at
        if passed >= CONNECT_ALL_SECONDS_MAX:
            return False
        address, *train.others = train.others
        connect_seconds = min(first.connect_seconds, CONNECT_ALL_SECONDS_MAX - passed)
        total_seconds = first.total_seconds - passed
        request = replace(first, address=address, connect_seconds=connect_seconds, total_seconds=total_seconds)
        self._dial(train, [(way.lease.token, request)])
        return True

    def _visited(self, way: _VisitState, response: Response) -> None:
        """The visit has its answer; the next one of its train is under way, unless the site needs rest."""
        now, lease, train = self._clock(), way.lease, way.train
        if KINDS[lease.kind].stage is Stage.SITE:
            body = response.ended_at - response.first_byte_at if response.first_byte_at is not None else 0
            self._bottleneck.answered(body, now - response.ended_at)
        self._bottleneck.move(lease.token, Stage.BEGINS, now)
        visit = Visit(lease, way.at, now, response)
        if lease.kind is Kind.PAGE and response.status is not None and train.place is not None:
            self._places.note_page(train.place)
        if len(train.ways) > 1:
            following = train.ways[1]
            following.lease = msgspec.structs.replace(following.lease, ended_before=response.ended_at)
            self._at_site(following)
            assert train.place is not None
            self._places.renew(train.place)
            if visit.sign is not None or not self._goes_on():
                self._let_go(train)
        self._end(way, visit)

    def _let_go(self, train: _VisitTrain) -> None:
        """Stops a train after the current visit."""
        if train.is_asking:
            self._downloader.let_go(train.ways[-1].lease.token)
        else:
            for way in train.ways[1:]:
                self._end(way, Visit(way.lease, way.at, self._clock(), stopped=True))

    def _fail_all(self, train: _VisitTrain, failure: FetchFailure) -> None:
        for way in train.ways.copy():
            self._refuse(way, failure.error, _facts_of(failure))

    def _refuse(self, way: _VisitState, error: FetchError, text: str) -> None:
        """Ends a visit for which no request was sent."""
        self._end(way, Visit(way.lease, way.at, self._clock(), None, error, text))

    def _end(self, way: _VisitState, visit: Visit | BaseException) -> None:
        """Reports the end of a visit; the last one also frees the resources of its train."""
        train = way.train
        del self._ways[way.lease.token]
        train.ways.remove(way)
        if not train.ways:
            self._leave(train)
        train.ended(way.lease, visit)

    def _leave(self, train: _VisitTrain) -> None:
        self.trains -= 1
        if train.naming is not None:
            train.naming.cancel()
        if train.place is not None:
            self._in_line.pop(train.place, None)
            self._places.leave(train.place)
        if train.is_mapless:
            self._mapless -= 1
        if train.is_mapping:
            self._mapping -= 1
            self._map_next()
        elif train in self._map_line:
            self._map_line.remove(train)

    def _map_next(self) -> None:
        if self._map_line:
            following = self._map_line.popleft()
            if following.is_mapless:
                self._mapless -= 1
                following.is_mapless = False
            self._map(following)

    async def close(self) -> None:
        """Ends the visits in flight and frees connections and threads. Raises HookFailed if the downloader is a
        hook and cannot be closed."""
        try:
            await self._downloader.close()
        finally:
            await self._names.close()


def _facts_of(failure: FetchFailure) -> str:
    return failure.facts.removeprefix(f"{failure.error}: ")
