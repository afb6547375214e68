"""One table of paths, with the functions that answer them. It makes both the application and the document."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from outrider import journey
from outrider.clock import Instant, elapsed, seconds, wall
from outrider.crawl.setup.instants import dated, moment
from outrider.engine import Frontier
from outrider.engine import messages as m
from outrider.engine.process_queries import HOST_ORDERS, answer_of, as_sent, order_value
from outrider.engine.sent_outcomes import link_of, outcome_from_body
from outrider.engine.verbs import ServedVerb, served_of
from outrider.errors import OutriderError, PagesNeedErrandsError
from outrider.identity.signatures import DIRECTORY_PATH
from outrider.journey import (
    Code,
    HostStatus,
    Lease,
    LeaseBatch,
    Outcome,
    RequestId,
    Settled,
    Verdict,
)
from outrider.limits import (
    SERVICE_LEASED_URLS_MAX,
    SERVICE_LINKS_MAX,
    SERVICE_ROWS_MAX,
    SERVICE_WAITERS_MAX,
)
from outrider.service.access import Role
from outrider.service.lease_registry import IssuedLease
from outrider.service.metrics import CONTENT_TYPE, exposition
from outrider.service.problems import Problem
from outrider.service.server_errands import OWN_KINDS
from outrider.service.service_state import ServiceState
from outrider.service.verdicts import outcome_of
from outrider.url import host_of, normalize

JSON: Final = "application/json"
_NEW = frozenset({Code.NEW, Code.HELD, Code.PARKED})


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, read and validated. local: it arrived over the loopback address of this machine, without a proxy in
    between, so its sender is, or could become, the owner of the store."""

    who: str
    local: bool
    query: Any
    body: Any
    path: dict[str, str]
    key: str | None
    gone: Callable[[], Awaitable[None]]
    """Returns when the client has disconnected."""
    lost: Callable[[], bool] = lambda: False
    """Whether the answer can no longer reach the client."""


@dataclass(frozen=True, slots=True)
class Text:
    """An answer that is encoded already."""

    content: bytes
    media_type: str
    fields: tuple[tuple[str, str], ...] = ()
    """More header fields, with names in lower case."""


def encode(found: Any) -> bytes:
    """Returns an answer as JSON. An older store may contain texts with half surrogate pairs, which JSON does not have:
    a question mark replaces each."""
    try:
        return msgspec.json.encode(found, enc_hook=str)
    except UnicodeEncodeError:
        return msgspec.json.encode(_whole(msgspec.to_builtins(found, enc_hook=str)))


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list | tuple):
        return [_whole(one) for one in value]
    return {_whole(name): _whole(one) for name, one in value.items()} if isinstance(value, dict) else value


Answer = Callable[[ServiceState, Ask], Awaitable[Struct | dict[str, Any] | Text]]


@dataclass(frozen=True, slots=True)
class Route:
    """A path: the role it needs, the types of parameters, body and answer, the function, and words for the document.
    role: None for every client. fetches: for programs that fetch; refused by a crawl that fetches itself."""

    method: str
    path: str
    role: Role | None
    answer: Answer
    gives: Any
    words: str
    query: type[Struct] | None = None
    body: type[Struct] | None = None
    problems: tuple[str, ...] = ()
    idempotent: bool = False
    fetches: bool = False


def _request(ask: Ask, read: Struct) -> bytes:
    """Returns the request of a key as it was read, because a repeated request may have other octets (0 and 0.0,
    another order of fields)."""
    return b"" if ask.key is None else encode(read)


def _added(codes: Sequence[Code], refused: Sequence[str] = ()) -> m.Added:
    new = sum(code in _NEW for code in codes)
    known = sum(code == Code.KNOWN for code in codes)
    return m.Added(new, len(codes) - new - known, known, [str(code) for code in codes], list(refused))


async def _add(service_state: ServiceState, ask: Ask) -> m.Added:
    body: m.AddUrls = ask.body
    links = [link_of(one, crawl=body.crawl_id) for one in body.urls]
    urls = [link.url for link in links]
    admitted = await service_state.admit(urls, owner=ask.local)
    refused = admitted.named(urls)
    if refused and not admitted.places:
        raise Problem("address-refused", refused[0], refused=refused)
    some = [links[place] for place in admitted.places]
    with service_state.keys.used("urls", ask.who, body.worker_id or "", ask.key, _request(ask, body)) as request:
        found = dict(zip(admitted.places, await service_state.add(some, request) if some else [], strict=True))
    return _added([found.get(place, Code.INVALID) for place in range(len(links))], refused)


async def _next(service_state: ServiceState, ask: Ask) -> m.Leased | Text:
    wish: m.Next = ask.query
    service_state.hear(wish.worker_id)
    if service_state.closing.is_set():
        raise Problem("closing", "the server leases nothing more; results are accepted until it ends")
    service_state.registry.expire(await service_state.frontier.now())
    if service_state.registry.urls + wish.batch_size > SERVICE_LEASED_URLS_MAX:
        raise Problem(
            "too-many-leases",
            f"{service_state.registry.urls:,} URLs are leased, at most {SERVICE_LEASED_URLS_MAX:,} may be",
        )
    if wish.timeout_ms and service_state.frontier.waiting_leases >= SERVICE_WAITERS_MAX:
        raise Problem("too-many-waiters", f"{SERVICE_WAITERS_MAX:,} requests wait; use timeout_ms=0")
    began = elapsed()
    # The caller's waiting time is not part of the request: a repeated request may have less time left.
    with service_state.keys.used(
        "next", ask.who, wish.worker_id, ask.key, _request(ask, replace(wish, timeout_ms=0))
    ) as request:
        make = _pages if wish.robots == "server" else _leases
        leases = await make(service_state, ask, wish, request)
    service_state.hear(wish.worker_id)
    waited = (elapsed() - began) // 1000
    in_ms: int | None = None
    if len(leases) < wish.batch_size:
        ready = await service_state.frontier.next_ready_seconds()
        in_ms = None if ready is None else round(ready * 1000)
    if not leases:
        return m.Leased([], next_ready_in_ms=in_ms, now_us=await service_state.frontier.now(), waited_ms=waited)
    given = IssuedLease(min(leases.tokens), wish.worker_id, leases)
    service_state.registry.add(given)
    try:
        now = await service_state.frontier.now()
        authorities = sorted({one.authority for one in leases if one.authority})
        found = await service_state.frontier.crawl_delays(authorities)
        delays = dict(zip(authorities, found, strict=True))
        records = [_record(one, delays.get(one.authority), now) for one in leases]
        until = moment(given.deadline)
        document = m.Leased(records, given.lease_id, until, _ms(given.deadline - now), in_ms, now, waited)
        answer = Text(encode(document), JSON)
        if ask.key is None and ask.lost():
            raise Problem("client-gone", "the client closed the connection before its leases could be sent")
        return answer
    except BaseException:  # otherwise these URLs wait for the end of their lease
        service_state.registry.drop(given.lease_id)
        with suppress(OutriderError):
            await asyncio.shield(service_state.frontier.release(leases.tokens))
        raise


async def _leases(
    service_state: ServiceState,
    ask: Ask,
    wish: m.Next,
    request: RequestId | None,
    wait_seconds: float | None = None,
    *,
    errands: bool = True,
) -> LeaseBatch:
    """Leases pages and errands. The longest wait is that of the request, or the rest of it."""
    wait_seconds = wish.timeout_ms / 1000 if wait_seconds is None else wait_seconds
    lease = service_state.frontier.lease(
        wish.batch_size,
        ttl_seconds=wish.ttl_ms / 1000,
        per_queue=wish.per_queue,
        train_seconds=None if wish.train_ms is None else wish.train_ms / 1000,
        queues_max=wish.queues_max,
        crawl=wish.crawl_id,
        key=wish.queue_key,
        worker=wish.worker_id,
        errands=errands,
        wait_seconds=wait_seconds,
        request_id=request,
    )
    return await (_waited(service_state, ask, lease) if wait_seconds else lease)


async def _pages(service_state: ServiceState, ask: Ask, wish: m.Next, request: RequestId | None) -> LeaseBatch:
    """Returns the leases without the errands that the server does itself, and waits while there are only such errands.
    A request with a key leases once, and its repetition gets the same answer. A server that cannot fetch leases the
    pages with known rules."""
    if service_state.errands is None:
        with suppress(PagesNeedErrandsError):  # no worker has leased errands yet; the client may wait for one
            return await _leases(service_state, ask, wish, request, errands=False)
        return LeaseBatch()
    loop = asyncio.get_running_loop()
    ends = loop.time() + wish.timeout_ms / 1000
    while True:
        found = await _leases(service_state, ask, wish, request, max(0.0, ends - loop.time()))
        own = [one for one in found if one.kind in OWN_KINDS]
        await service_state.errands.take(own)
        pages = LeaseBatch([one for one in found if one.kind not in OWN_KINDS]) if own else found
        if pages or not own or ask.key is not None or loop.time() >= ends:
            return pages


async def _waited(service_state: ServiceState, ask: Ask, lease: Awaitable[LeaseBatch]) -> LeaseBatch:
    """Returns the leases. A disconnected client gets none, and a closing server answers at once."""
    taking = asyncio.ensure_future(lease)
    others = [asyncio.ensure_future(ask.gone()), asyncio.ensure_future(service_state.closing.wait())]
    try:
        await asyncio.wait([taking, *others], return_when=asyncio.FIRST_COMPLETED)
        if not taking.done():
            taking.cancel()
            with suppress(asyncio.CancelledError):
                return await taking
            raise Problem("closing", "the server closes and ended the wait for a lease")
        leases = taking.result()
        if others[0].done() and leases:
            await service_state.frontier.release(leases.tokens)
        return leases
    finally:
        for one in (taking, *others):
            one.cancel()


def _ms(length: Instant) -> int:
    return max(0, length // 1000)


def _record(lease: Lease, delay: float | None, now: Instant) -> m.Record:
    return m.Record(
        **{there: getattr(lease, name) for name, there in m.LEASE_AS_IT_IS.items()},
        kind=str(lease.kind),
        metadata=dict(lease.metadata) if lease.metadata is not None else None,
        robots_rules=m.RobotsSaid(None if delay is None else True, delay or None),
        not_before=moment(lease.not_before),
        not_before_in_ms=_ms(lease.not_before - now),
    )


async def _results(service_state: ServiceState, ask: Ask) -> m.Taken:
    body: m.Results = ask.body
    if sum(len(one.links) for one in body.results) > SERVICE_LINKS_MAX:
        raise Problem("too-many-rows", f"the results have more than {SERVICE_LINKS_MAX:,} links; send them in parts")
    given = await service_state.issued(body.lease_id, [one.token for one in body.results if one.token is not None])
    if given is None:
        if not service_state.was_issued(body.lease_id):
            raise Problem("unknown-lease", f"lease_id {body.lease_id} does not exist")
        # A repeated call gets its answer. Any other call changes nothing, because this token is not open.
        outcomes = [Outcome(body.lease_id, Verdict.DONE) for _ in body.results]
    else:
        if given.worker:
            service_state.hear(given.worker)
        outcomes = [_outcome(given, one, row) for row, one in enumerate(body.results)]
    worker = (given.worker if given is not None else "") or f"lease {body.lease_id}"
    with service_state.keys.used("results", ask.who, worker, ask.key, _request(ask, body)) as request:
        report = await service_state.frontier.report(outcomes, request_id=request)
    codes = [str(code) for code in report.outcomes]
    counted = sum(code == Settled.OK for code in report.outcomes)
    if given is not None:
        service_state.registry.settle(given, [one.token for one in outcomes])
    if not counted:
        raise Problem(
            "lease-ended",
            f"lease {body.lease_id} has ended, or its URLs had results before; URLs that are due are leased again",
            codes=codes,
        )
    return m.Taken(counted, len(codes) - counted, codes, _added([code for row in report.links for code in row]))


def _outcome(given: IssuedLease, result: m.Result, row: int) -> Outcome:
    lease = given.named(result.url, result.token)
    if lease is None and result.url is not None and result.token is None:
        lease = given.named(normalize(result.url), None)
    if lease is None:
        named = f"url {result.url!r:.200}" if result.url is not None else f"token {result.token}"
        raise Problem("url-not-in-lease", f"results[{row}]: {named} is not in lease {given.lease_id}")
    return outcome_of(result, lease)


async def _extend(service_state: ServiceState, ask: Ask) -> m.Extended:
    given = await _open(service_state, ask)
    body: m.Extend = ask.body
    codes = await service_state.frontier.extend(sorted(given.open), body.ttl_ms / 1000)
    alive = sum(code == Settled.OK for code in codes)
    if not alive:
        raise _ended(given.lease_id)
    now = await service_state.frontier.now()
    service_state.registry.extend(given, now + body.ttl_ms * 1000)
    return m.Extended(alive, moment(given.deadline), body.ttl_ms)


async def _return(service_state: ServiceState, ask: Ask) -> m.Returned:
    given = await _open(service_state, ask)
    codes = await service_state.frontier.release(sorted(given.open))
    service_state.registry.drop(given.lease_id)
    returned = sum(code == Settled.OK for code in codes)
    if not returned:
        raise _ended(given.lease_id)
    return m.Returned(returned)


async def _open(service_state: ServiceState, ask: Ask) -> IssuedLease:
    text = ask.path["lease_id"]
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 19 and int(text)):
        raise Problem("unknown-lease", f"lease_id {text!r:.50}: use the number from `next`")
    given = await service_state.issued(int(text))
    if given is None:
        if service_state.was_issued(int(text)):
            raise _ended(int(text))
        raise Problem("unknown-lease", f"lease_id {text} does not exist")
    if given.worker:
        service_state.hear(given.worker)
    return given


def _ended(lease_id: int) -> Problem:
    return Problem("lease-ended", f"lease {lease_id} has ended; its URLs are leased again when they are due")


async def _report(service_state: ServiceState, ask: Ask) -> m.Reported:
    """Reports outcomes in the form of the library."""
    body: m.Outcomes = ask.body
    if sum(len(one.links) for one in body.outcomes) > SERVICE_LINKS_MAX:
        raise Problem("too-many-rows", f"the outcomes have more than {SERVICE_LINKS_MAX:,} links; send them in parts")
    outcomes = [outcome_from_body(one) for one in body.outcomes]
    with service_state.keys.used("report", ask.who, body.worker_id or "", ask.key, _request(ask, body)) as request:
        report = await service_state.frontier.report(outcomes, request_id=request)
    service_state.registry.settle_tokens(one.token for one in body.outcomes)
    return m.Reported(list(map(str, report.outcomes)), [list(map(str, row)) for row in report.links])


async def _extend_tokens(service_state: ServiceState, ask: Ask) -> m.Codes:
    codes = await service_state.frontier.extend(ask.body.tokens, ask.body.ttl_ms / 1000)
    alive = [one for one, code in zip(ask.body.tokens, codes, strict=True) if code == Settled.OK]
    service_state.registry.extend_tokens(alive, await service_state.frontier.now() + ask.body.ttl_ms * 1000)
    return m.Codes(list(map(str, codes)))


async def _when_ready(service_state: ServiceState, _: Ask) -> m.NextReady:
    ready = await service_state.frontier.next_ready_seconds()
    in_ms = None if ready is None else round(ready * 1000)
    finished, at_limit = await service_state.frontier.finished(), await service_state.frontier.at_limit()
    return m.NextReady(await service_state.frontier.now(), in_ms, finished, at_limit)


async def _register(service_state: ServiceState, ask: Ask) -> m.Registered:
    """Registers a worker at its first request. A worker that obeys another product's rules is refused."""
    ours = service_state.user_agent
    if ask.body.user_agent is not None and ask.body.user_agent.lower() != ours.lower():
        raise Problem(
            "invalid-argument",
            f"user_agent is {ask.body.user_agent!r:.80}, but this server reads robots.txt for {ours}; crawl as {ours}",
        )
    if ask.body.user_agent is not None and service_state.robots_by_clients:
        raise Problem(
            "invalid-argument",
            "this server leaves robots.txt files to its clients, and a worker would crawl without their rules; start "
            "`outrider serve` with --http, too",
        )
    service_state.hear(ask.body.worker_id)
    # Its name service, guard and certificates may be better than those of earlier workers.
    await asyncio.to_thread(service_state.frontier.sync._ask_sooner)
    # The loopback of this machine is that of the worker only if its request arrived over loopback.
    permitted = service_state.permission.loopback if ask.local and service_state.permission is not None else []
    settings = service_state.frontier.sync._machine.settings
    gapless = not (settings.delay or settings.delay_factor)
    return m.Registered(ours, service_state.store, await service_state.frontier.now(), permitted, gapless)


async def _status(service_state: ServiceState, _: Ask) -> dict[str, Any]:
    return await service_state.status()


async def _stats(service_state: ServiceState, _: Ask) -> m.Stats:
    found = await service_state.statistics()
    rates = service_state.paces["fetched"].rates(seconds(elapsed()))
    urls = found["urls"]
    log, structures = found["log"], found["structures"]
    return m.Stats(
        discovered=found["accepted"],
        queued=urls["queued"],
        fetched=urls["done"],
        failed=urls["gone"],
        urls=dict(urls),
        throughput=m.Throughput(rates.now, rates.average, rates.peak),
        hosts={name: int(count) for name, count in found["hosts"].items()},
        storage={
            "log_bytes": log["segment_bytes"],
            "ledger_bytes": structures["ledger"]["bytes"],
            "ledger_records": structures["ledger"]["records"],
            "seen_bytes": structures["seen"]["bytes"],
        },
        errors=dict(found["errors"]),
        duplicates=found["duplicates"],
        errands=found["errands"],
        waiting_requests=service_state.frontier.waiting_leases,
        workers=await service_state.workers(),
    )


async def _records(service_state: ServiceState, ask: Ask) -> m.Rows:
    return m.Rows(*await service_state.readings.piece(ask.query.after))


async def _host(service_state: ServiceState, ask: Ask) -> dict[str, Any]:
    found = await service_state.frontier.host(ask.path["host"])
    if found is None:
        raise _no_host(ask.path["host"])
    document: dict[str, Any] = dated(asdict(found))
    return document


def _no_host(host: str) -> Problem:
    return Problem("unknown-host", f"host {host!r:.200} has no accepted URL; /api/v1/hosts lists the known hosts")


async def _rule(service_state: ServiceState, ask: Ask) -> m.Ordered:
    """Carries out an order to a known host."""
    host, order = ask.path["host"], ask.path["order"]
    if order not in HOST_ORDERS:
        raise Problem("unknown-path", f"order {order!r:.50}: there are {', '.join(HOST_ORDERS)}")
    host_of(f"http://{host}/")
    value = order_value(order, ask.body.value)
    question = {"host": host, "order": order, "value": value}
    return m.Ordered((await service_state.order(ask.who, "host", question))["count"])


async def _workers(service_state: ServiceState, _: Ask) -> m.Workers:
    return m.Workers(await service_state.workers())


async def _health(service_state: ServiceState, _: Ask) -> m.Health:
    """Whether the process can answer."""
    return m.Health("closing" if service_state.closing.is_set() else "serving")


async def _ready(service_state: ServiceState, _: Ask) -> m.Health:
    """Whether this server leases URLs. A stopped store raises."""
    await service_state.frontier.now()
    await service_state.frontier.next_ready_seconds()
    if service_state.closing.is_set():
        raise Problem("closing", "the server leases nothing more")
    return m.Health("serving")


async def _metrics(service_state: ServiceState, _: Ask) -> Text:
    statistics = await service_state.statistics()
    return Text(exposition(service_state, statistics, seconds(elapsed())), CONTENT_TYPE)


async def _keys(service_state: ServiceState, _: Ask) -> Text:
    if service_state.identity is None:
        raise Problem("unknown-path", "this server has no keys to publish; start it with --identity DIR")
    made = service_state.identity.directory(wall())
    fields = {name.lower(): value for name, value in made.fields()}
    return Text(made.body, fields.pop("content-type"), tuple(fields.items()))


async def _document(_: ServiceState, __: Ask) -> dict[str, Any]:
    from outrider.service.openapi import document

    return document(ROUTES)


_API = "/api/v1"


def _verb(name: str, verb: ServedVerb, method: Callable[..., Any]) -> Route:
    """Returns the path of a verb: its arguments are the body."""

    async def answer(service_state: ServiceState, ask: Ask) -> m.VerbAnswer:
        body = {one: getattr(ask.body, one) for one in ask.body.__struct_fields__}
        values = {one: m.in_library(value) for one, value in body.items() if value is not UNSET}
        if verb.enriched:
            return m.VerbAnswer(dated(await service_state.answers[verb.word](values)))
        found = await _answered(service_state, ask, name, verb, values)
        now = await service_state.frontier.now()
        records = [_record(one, None, now) for one in found] if isinstance(found, LeaseBatch) else None
        return m.VerbAnswer(dated(as_sent(found)) if records is None else records)

    problems, role = (*_PROBLEMS, "hook-running"), Role[verb.role.upper()]
    path, words, body = f"{_API}/verbs/{name}", _words(method), m.body_of(method)
    return Route("POST", path, role, answer, m.VerbAnswer, words, body=body, problems=problems, fetches=verb.fetches)


def _older(name: str, verb: ServedVerb, method: Callable[..., Any]) -> Route:
    """Returns the older path of a verb, with a body and an answer of its own."""
    arguments = {one: m.OTHER_NAMES.get(one, one) for one in list(inspect.signature(method).parameters)[1:]}
    body, gives, role = _TYPES[verb.takes], _TYPES[verb.gives], Role[verb.role.upper()]

    async def answer(service_state: ServiceState, ask: Ask) -> Any:
        values = {one: getattr(ask.body, there) for one, there in arguments.items()}
        return gives(await _answered(service_state, ask, name, verb, values))

    path, words = f"{_API}/{verb.path}", _words(method)
    return Route("POST", path, role, answer, gives, words, body=body, problems=_PROBLEMS, fetches=verb.fetches)


async def _answered(service_state: ServiceState, ask: Ask, name: str, verb: ServedVerb, values: dict[str, Any]) -> Any:
    if any(isinstance(value, list | dict) and len(value) > SERVICE_ROWS_MAX for value in values.values()):
        raise Problem("too-many-rows", f"more than {SERVICE_ROWS_MAX:,} rows; send them in parts")
    if verb.order:
        return (await service_state.order(ask.who, verb.word or name, values))[answer_of(verb)]
    found = await asyncio.to_thread(partial(getattr(service_state.frontier.sync, name), **values))
    if verb.ends:
        service_state.registry.settle_tokens(values["tokens"])
    return found


def _word(_: str, verb: ServedVerb, method: Callable[..., Any]) -> Route:
    """Returns the path of a question or an order that other processes have a word for. A running crawl answers it with
    facts of its own."""
    takes, gives = _TYPES.get(verb.takes), _TYPES.get(verb.gives, dict[str, Any])

    async def answer(service_state: ServiceState, ask: Ask) -> dict[str, Any]:
        sent = msgspec.structs.asdict(ask.body if verb.order else ask.query) if takes else {}
        question = {m.OWN_NAMES.get(name, name): value for name, value in sent.items()}
        if isinstance(ask.query, m.Explain) and ask.query.by_url:
            question["url"] = normalize(ask.query.url)
        if verb.order:
            return await service_state.order(ask.who, verb.word, question)
        found: dict[str, Any] = await asyncio.to_thread(dated, await service_state.answers[verb.word](question))
        return found

    path, words, role = f"{_API}/{verb.word}", _words(method), Role[verb.role.upper()]
    problems = ("invalid-argument", "invalid-url", *(["hook-running"] if verb.order else []))
    if verb.order:
        return Route("POST", path, role, answer, gives, words, body=takes, problems=problems)
    return Route("GET", path, role, answer, gives, words, query=takes, problems=problems)


def _words(method: Callable[..., Any]) -> str:
    return f"{method.__doc__}".partition(". ")[0].partition("\n")[0].rstrip(".") + "."


_PROBLEMS: Final = ("too-many-rows", "invalid-argument", "invalid-url", "store-full")
_TYPES: Final = {**vars(journey), **vars(m)}
_SERVED: Final = [(name, *declared) for name, declared in served_of(Frontier).items()]

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "POST",
        f"{_API}/frontier/urls",
        Role.WORK,
        _add,
        m.Added,
        "Add URLs to the frontier; when it answers, they are durable.",
        body=m.AddUrls,
        problems=("too-many-rows", "invalid-argument", "address-refused", "store-full", "hook-running"),
        idempotent=True,
    ),
    Route(
        "GET",
        f"{_API}/frontier/next",
        Role.WORK,
        _next,
        m.Leased,
        "Lease URLs whose hosts may be visited now.",
        query=m.Next,
        problems=("closing", "too-many-waiters", "too-many-leases", "store-full"),
        idempotent=True,
        fetches=True,
    ),
    Route(
        "POST",
        f"{_API}/frontier/results",
        Role.WORK,
        _results,
        m.Taken,
        "Report results and links, as one record.",
        body=m.Results,
        idempotent=True,
        problems=("unknown-lease", "lease-ended", "url-not-in-lease", "too-many-rows", "store-full"),
        fetches=True,
    ),
    Route(
        "POST",
        f"{_API}/frontier/leases/{{lease_id}}/extend",
        Role.WORK,
        _extend,
        m.Extended,
        "Extend the rest of a lease.",
        body=m.Extend,
        problems=("unknown-lease", "lease-ended"),
        fetches=True,
    ),
    Route(
        "POST",
        f"{_API}/frontier/leases/{{lease_id}}/return",
        Role.WORK,
        _return,
        m.Returned,
        "Release the rest of a lease without fetching it.",
        body=m.Nothing,
        problems=("unknown-lease", "lease-ended"),
        fetches=True,
    ),
    Route(
        "POST",
        f"{_API}/frontier/report",
        Role.WORK,
        _report,
        m.Reported,
        "Report outcomes in the form of the library, of any leases, as one record.",
        body=m.Outcomes,
        idempotent=True,
        problems=("too-many-rows", "invalid-argument", "store-full"),
        fetches=True,
    ),
    Route(
        "POST",
        f"{_API}/frontier/extend",
        Role.WORK,
        _extend_tokens,
        m.Codes,
        "Extend leases until `ttl_ms` from now.",
        body=m.Tokens,
        problems=_PROBLEMS,
        fetches=True,
    ),
    *(_older(*declared) for declared in _SERVED if declared[1].path),
    Route(
        "GET",
        f"{_API}/frontier/ready",
        Role.READ,
        _when_ready,
        m.NextReady,
        "The time of the next lease, and the clock.",
    ),
    Route(
        "POST",
        f"{_API}/workers",
        Role.WORK,
        _register,
        m.Registered,
        "Register a worker, with its product name.",
        body=m.Register,
        problems=("invalid-argument",),
        fetches=True,
    ),
    Route("GET", f"{_API}/status", Role.READ, _status, dict[str, Any], "The fields of `outrider status --json`."),
    Route("GET", f"{_API}/stats", Role.READ, _stats, m.Stats, "Counts, rates, storage, workers."),
    *(_word(*declared) for declared in _SERVED if declared[1].word),
    Route(
        "GET",
        f"{_API}/hosts/{{host}}",
        Role.READ,
        _host,
        HostStatus,
        "One host and its clock.",
        problems=("unknown-host", "invalid-argument"),
    ),
    Route(
        "GET",
        f"{_API}/records",
        Role.READ,
        _records,
        m.Rows,
        "A piece of the records of all URLs, as in an export.",
        query=m.ListRecords,
        problems=("invalid-argument",),
    ),
    Route("GET", f"{_API}/workers", Role.READ, _workers, m.Workers, "The workers, and the leases of each."),
    Route(
        "POST",
        f"{_API}/hosts/{{host}}/{{order}}",
        Role.OPERATE,
        _rule,
        m.Ordered,
        "Order a host: pause, resume, block, delay, limit, recheck.",
        body=m.Order,
        problems=("unknown-path", "invalid-argument", "invalid-url", "hook-running"),
    ),
    *(_verb(*declared) for declared in _SERVED),
    Route("GET", "/healthz", None, _health, m.Health, "Whether the process answers."),
    Route(
        "GET",
        "/readyz",
        None,
        _ready,
        m.Health,
        "Whether this server leases URLs.",
        problems=("closing", "store-stopped"),
    ),
    Route("GET", "/metrics", Role.READ, _metrics, Text, "Counts and gauges, as Prometheus reads them."),
    Route(
        "GET",
        DIRECTORY_PATH,
        None,
        _keys,
        Text,
        "The keys that sign requests of the crawler, with proofs of possession.",
        problems=("unknown-path",),
    ),
    Route("GET", "/openapi.json", Role.READ, _document, dict[str, Any], "This interface as OpenAPI 3.1."),
)
"""Every path of the service."""
