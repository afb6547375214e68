"""The types of questions and answers: bodies and parameters are validated by them, and the OpenAPI document is made of
them.

Instants are RFC 3339 in UTC, lengths of time milliseconds (`_ms`) or seconds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct
from msgspec.structs import fields

from outrider.frontier.state.errand import OF_CALLERS
from outrider.journey import (
    LEASE_FIELDS,
    OUTCOME_FIELDS,
    RECORD_FIELDS,
    Form,
    Lease,
    Link,
    Outcome,
    UrlName,
    UrlNames,
    UrlPriorities,
)
from outrider.limits import (
    DELTA_SECONDS_MAX,
    INSTANT_MAX,
    LEASE_SECONDS_MAX,
    NAME_CHARACTERS_MAX,
    PAYMENT_TEXT_MAX,
    PRIORITY_WHOLE_MAX,
    RETRY_AFTER_SECONDS_MAX,
    SERVICE_BATCH_MAX,
    SERVICE_ROWS_MAX,
    SERVICE_TEXT_CHARACTERS_MAX,
    SERVICE_WAIT_SECONDS_MAX,
)
from outrider.uses import UseLine

_TTL_MS_MAX = int(LEASE_SECONDS_MAX * 1000)
_ERRANDS = [row.kind.value for row in OF_CALLERS.values()]
_WAIT_MS_MAX = int(SERVICE_WAIT_SECONDS_MAX * 1000)

Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
Text = Annotated[str, Meta(max_length=SERVICE_TEXT_CHARACTERS_MAX)]
Token = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Priority = Annotated[float, Meta(ge=-PRIORITY_WHOLE_MAX, le=PRIORITY_WHOLE_MAX)]
"""From 0 to 1, or a whole number in a crawl with an exact order."""
Micro = Annotated[int, Meta(ge=0, le=INSTANT_MAX)]
Depth = Annotated[int, Meta(ge=0, le=65_535)]
Status = Annotated[int, Meta(ge=100, le=999)]
Milliseconds = Annotated[float, Meta(ge=0, le=_TTL_MS_MAX)]
TtlMs = Annotated[int, Meta(ge=1, le=_TTL_MS_MAX, description="how long the lease lives, in milliseconds")]
Limit = Annotated[int, Meta(ge=1, le=1_000)]


class NewUrl(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A URL to visit. `discovered_at` is accepted and ignored: the frontier dates URLs itself. `not_before_us`: an
    instant, in microseconds since 1970. `unique_key`: as base64, in a crawl by unique keys. `modified`: when the page
    changed last, an instant or a date as text, and `change_seconds`: how long it usually stays the same
    (docs/revisits.md)."""

    url: str
    priority: Priority | None = None
    source_url: str | None = None
    depth: Depth = 0
    discovered_at: datetime | None = None
    crawl_id: Name | None = None
    key: Text | None = None
    hops: Annotated[int, Meta(ge=0, le=255)] = 0
    not_before_us: Micro | None = None
    metadata: dict[str, Any] | None = None
    unique_key: bytes | None = None
    modified: Micro | Text | None = None
    change_seconds: Annotated[float, Meta(gt=0)] | None = None


class UrlNamed(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The name of a URL of a crawl by unique keys: its unique key as base64, or its text and key. `priority`: for a
    verb that sets one."""

    url: str = ""
    key: Text | None = None
    unique_key: bytes | None = None
    priority: Priority | None = None

    def name(self) -> UrlName:
        """Returns the name as the library has it."""
        if self.unique_key is not None:
            return self.unique_key
        return self.url if self.key is None else Link(self.url, key=self.key)


def in_library(value: Any) -> Any:
    """Returns an argument of a verb as the library has it: names of URLs, and their priorities."""
    if isinstance(value, UrlNamed):
        return value.name()
    if not isinstance(value, list) or not any(isinstance(one, UrlNamed) for one in value):
        return value
    names = [one.name() if isinstance(one, UrlNamed) else one for one in value]
    priorities = [one.priority if isinstance(one, UrlNamed) else None for one in value]
    return names if priorities.count(None) == len(names) else dict(zip(names, priorities, strict=True))


class AddUrls(Struct, frozen=True, forbid_unknown_fields=True):
    """URLs for the frontier, of one crawl unless they say otherwise. `worker_id`: whose Idempotency-Key it is."""

    urls: Annotated[list[str | NewUrl], Meta(max_length=SERVICE_ROWS_MAX)]
    crawl_id: Name | None = None
    worker_id: Name | None = None


class Added(Struct, frozen=True):
    """The numbers of new, refused and known URLs; and a code for each, in order. refused: a sentence for each of the
    first URLs whose address is not permitted."""

    accepted: int
    rejected: int
    duplicates: int
    codes: list[str]
    refused: list[str] = []


class Next(Struct, frozen=True, forbid_unknown_fields=True):
    """A request for leases. `timeout_ms`: the longest wait without a lease. `per_queue`: most URLs of one host,
    `queues_max`: most hosts; `train_ms`: only URLs of a host whose turns are within this time. `robots`: who fetches
    robots.txt files. `worker`: they are records of kind `robots`. `server`: the server fetches them, with the
    crawl's User-Agent."""

    worker_id: Name
    batch_size: Annotated[int, Meta(ge=1, le=SERVICE_BATCH_MAX)] = 10
    timeout_ms: Annotated[int, Meta(ge=0, le=_WAIT_MS_MAX)] = 0
    ttl_ms: TtlMs = 60_000
    per_queue: Annotated[int, Meta(ge=1, le=SERVICE_BATCH_MAX)] = 1
    queues_max: Annotated[int, Meta(ge=1, le=SERVICE_BATCH_MAX)] | None = None
    train_ms: Annotated[int, Meta(ge=0, le=_TTL_MS_MAX)] | None = None
    crawl_id: Name | None = None
    queue_key: Text | None = None
    robots: Literal["server", "worker"] = "worker"


class VerbAnswer(Struct, frozen=True):
    """The answer of a verb as the library has it; instants are RFC 3339 in UTC."""

    answer: Any


class RobotsSaid(Struct, frozen=True):
    """The verdict of the host's robots rules, and its Crawl-delay in seconds. None: no rules were read."""

    allowed: bool | None
    crawl_delay: float | None


_KEPT_TYPES: dict[Form, Any] = {
    Form.TEXT: str | None,
    Form.OCTETS: bytes | None,
    Form.METADATA: dict[str, Any] | None,
    Form.COUNT: int | None,
}
_OfRecord: Any = defstruct(
    "_OfRecord", [(name, _KEPT_TYPES[told.form], None) for name, told in LEASE_FIELDS.items()], frozen=True
)
KEPT_TEXTS = tuple(name for name, told in RECORD_FIELDS.items() if told.form is Form.TEXT)
"""The texts that records keep: a result may contain each."""
_Texts: Any = defstruct("_Texts", [(name, Text | None, None) for name in KEPT_TEXTS], frozen=True)


class Record(_OfRecord, frozen=True, kw_only=True):  # type: ignore[misc, call-arg]
    """One leased URL. `kind`: page, robots (fetch this robots.txt) or address (find the host's address). `key`: of its
    queue. Instants in `_us` are microseconds since 1970 by the server's clock; `ended_before_us`: the end of the last
    request to this host, `gap_seconds`: the required gap, by the rule `gap_reason`. `capacity`: the number of requests
    to this host that may be open at once, this one included. `digest`: of the content at the last visit, in base64.
    `about_uses`: number, field and value of the lines of the robots.txt that say what the page may be used for.
    `ruled_by`: digest of that file, and number of the line that allows the page (0: no line decides)."""

    url: str
    token: int
    kind: str
    crawl_id: str
    priority: float
    host: str
    ip: str | None
    robots_rules: RobotsSaid
    depth: int
    attempt: int
    not_before: str
    not_before_in_ms: int
    referrer: str | None
    key: str = ""
    authority: str = ""
    hops: int = 0
    deadline_us: int = 0
    not_before_us: int = 0
    ended_before_us: int | None = None
    gap_seconds: float | None = None
    gap_reason: str | None = None
    capacity: int = 1
    about_uses: tuple[UseLine, ...] = ()
    ruled_by: tuple[str, int] | None = None


class Leased(Struct, frozen=True):
    """A lease of some URLs. With fewer than wanted, `next_ready_in_ms` says when to try again, null if waiting alone
    does not help. `now_us`: the server's clock; `waited_ms`: how long the request waited here."""

    urls: list[Record]
    lease_id: int | None = None
    lease_expires_at: str | None = None
    lease_expires_in_ms: int | None = None
    next_ready_in_ms: int | None = None
    now_us: int = 0
    waited_ms: int = 0


OTHER_NAMES = {
    "crawl": "crawl_id",
    "address": "ip",
    "deadline": "deadline_us",
    "not_before": "not_before_us",
    "ended_before": "ended_before_us",
}
"""The names over HTTP of arguments and fields that have another one there."""
OWN_NAMES = {there: name for name, there in OTHER_NAMES.items()}
LEASE_AS_IT_IS = {
    name: OTHER_NAMES.get(name, name) for name in Lease.__struct_fields__ if name not in ("kind", "metadata")
}
"""The fields whose values are alike in a lease and in its record, and the names that they have there."""


class Result(_Texts, frozen=True, kw_only=True, forbid_unknown_fields=True):  # type: ignore[misc, call-arg]
    """The result of one URL, named by `url` or `token`. `fetch_time_ms` is the time that the site needed; it sets the
    host's rest. `first_byte_ms`: until its first byte; a host that answers later than usual gets longer pauses.
    `challenged`: a challenge for browsers or people in place of the page. `payment`: with the status 402 what the site
    asks for, otherwise the sum that it says it charged. `links` are URLs, or references as in the
    page, relative to the page's URL. `body` answers a record of kind robots, `fresh_seconds` is the time for which
    it may be used, `address` answers one of kind address."""

    status: Literal["success", "error"]
    url: str | None = None
    token: Token | None = None
    http_status: Status | None = None
    content_type: Text | None = None
    content_length: Count | None = None
    content_hash: Text | None = None
    simhash: Text | None = None
    fetch_time_ms: Milliseconds | None = None
    first_byte_ms: Milliseconds | None = None
    challenged: bool = False
    payment: Annotated[str, Meta(max_length=PAYMENT_TEXT_MAX)] | None = None
    links_found: Count | None = None
    is_duplicate: bool = False
    error: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    retry_after: Annotated[float, Meta(ge=0, le=RETRY_AFTER_SECONDS_MAX)] | None = None
    location: str | None = None
    links: list[str | NewUrl] = []  # noqa: RUF012
    body: str | None = None
    fresh_seconds: Annotated[float, Meta(ge=0, le=DELTA_SECONDS_MAX)] | None = None
    address: Text | None = None


class Results(Struct, frozen=True, forbid_unknown_fields=True):
    """The results of some URLs of one lease, kept together with their links or not at all."""

    lease_id: Token
    results: Annotated[list[Result], Meta(min_length=1, max_length=SERVICE_ROWS_MAX)]


class Taken(Struct, frozen=True):
    """The numbers of accepted and of late results; a code for each (`ok`, `stale`); codes of their links."""

    accepted: int
    stale: int
    codes: list[str]
    links: Added


class RobotsBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The answer to a request for a robots.txt: its status (null: no answer), its body as base64, its redirect target,
    and the time for which it may be used."""

    status: Status | None = None
    body: bytes = b""
    location: str | None = None
    fresh_seconds: Annotated[float, Meta(ge=0, le=DELTA_SECONDS_MAX)] | None = None


Seconds = Annotated[float, Meta(ge=0, le=RETRY_AFTER_SECONDS_MAX)]


_OF_FORM: dict[Form, Any] = {
    Form.TOKEN: Token,
    Form.VERDICT: Literal["done", "again", "retry", "gone"],
    Form.SECONDS: Seconds | None,
    Form.STATUS: Status | None,
    Form.INSTANT: Micro | None,
    Form.FLAG: bool,
    Form.FLAG_OR_NONE: bool | None,
    Form.COUNT: Count,
    Form.ERROR: Annotated[str, Meta(min_length=1, max_length=100)] | None,
    Form.LOCATION: str | None,
    Form.TEXT: Text | None,
    Form.OCTETS: bytes | None,
    Form.METADATA: dict[str, Any] | None,
    Form.LINKS: list[str | NewUrl],
    Form.ROBOTS: RobotsBody | None,
    Form.ADDRESS: Text | None,
}
_IN_BODY = {
    name: f"{name}_us" if told.form is Form.INSTANT else name for name, told in OUTCOME_FIELDS.items() if told.served
}
_ABSENT = {one.name: [] if one.default == () else one.default for one in fields(Outcome) if not one.required}
_Served: Any = defstruct(
    "_Served",
    [
        (body, _OF_FORM[OUTCOME_FIELDS[name].form], *([_ABSENT[name]] if name in _ABSENT else ()))
        for name, body in _IN_BODY.items()
    ],
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
)


class OutcomeBody(_Served):  # type: ignore[misc]
    """The outcome of one lease as the library has it: nothing is judged by the server. digest: of the content, as
    base64."""


OUTCOME_AS_IT_IS = {
    name: body
    for name, body in _IN_BODY.items()
    if OUTCOME_FIELDS[name].form not in (Form.VERDICT, Form.LINKS, Form.ROBOTS, Form.METADATA)
}
"""The fields whose values are alike in an outcome and in its body, and the names that they have there."""


class Outcomes(Struct, frozen=True, forbid_unknown_fields=True):
    """Outcomes of any leases, kept together with their links. `worker_id`: whose Idempotency-Key it is."""

    outcomes: Annotated[list[OutcomeBody], Meta(min_length=1, max_length=SERVICE_ROWS_MAX)]
    worker_id: Name | None = None


class Reported(Struct, frozen=True):
    """A code for each outcome (`ok`, `stale`), and for each its links' codes."""

    codes: list[str]
    links: list[list[str]]


class Tokens(Struct, frozen=True, forbid_unknown_fields=True):
    """Leases by their tokens."""

    tokens: Annotated[list[Token], Meta(max_length=SERVICE_ROWS_MAX)]
    ttl_ms: TtlMs = 60_000


class Codes(Struct, frozen=True):
    """A code for each, in their order."""

    codes: list[str]


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """Requests for something else than pages."""

    kind: Annotated[str, Meta(max_length=SERVICE_TEXT_CHARACTERS_MAX, extra_json_schema={"enum": _ERRANDS})]
    urls: Annotated[list[str], Meta(max_length=SERVICE_ROWS_MAX)]
    crawl_id: Name | None = None


class Urls(Struct, frozen=True, forbid_unknown_fields=True):
    """URLs to look at."""

    urls: Annotated[list[str], Meta(max_length=SERVICE_ROWS_MAX)]


class Allowed(Struct, frozen=True):
    """Whether robots.txt allows each; null where that of its authority was not read."""

    allowed: list[bool | None]


class Digests(Struct, frozen=True, forbid_unknown_fields=True):
    """Digests of contents, as base64."""

    digests: Annotated[list[bytes], Meta(max_length=SERVICE_ROWS_MAX)]


class Seen(Struct, frozen=True):
    """Whether content with each digest was accepted before."""

    seen: list[bool]


class Addresses(Struct, frozen=True, forbid_unknown_fields=True):
    """The addresses of hosts; null for one that must be resolved again."""

    addresses: Annotated[dict[str, str | None], Meta(max_length=SERVICE_ROWS_MAX)]


class NextReady(Struct, frozen=True):
    """When a lease is possible, null if waiting alone does not help; whether all work is done, and whether a limit
    keeps some of it. `now_us`: the server's clock."""

    now_us: int
    next_ready_in_ms: int | None
    finished: bool
    at_limit: bool


class Register(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker says that it is there, and as which product it crawls."""

    worker_id: Name
    user_agent: Text | None = None


class Registered(Struct, frozen=True):
    """The product for which this frontier reads robots.txt files, the id of its store, and the server's clock.
    allow_address: the loopback addresses in URLs of the store's owner; only for a worker on the same machine.
    gapless: whether hosts need no gap between two requests, if no rule requires one."""

    user_agent: str
    store: str
    now_us: int
    allow_address: list[str] = []
    gapless: bool = False


class Extend(Struct, frozen=True, forbid_unknown_fields=True):
    """A longer life for a lease, from now on."""

    ttl_ms: TtlMs


class Extended(Struct, frozen=True):
    """How many URLs of the lease are open still, and until when."""

    open: int
    lease_expires_at: str
    lease_expires_in_ms: int


class Returned(Struct, frozen=True):
    """How many URLs were given back."""

    returned: int


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No body, or an empty object."""


class Explain(Struct, frozen=True, forbid_unknown_fields=True):
    """One URL, by any spelling; in a crawl by unique keys by its unique key as base64, or by text and key."""

    url: str = ""
    crawl_id: Name | None = None
    queue_key: Text | None = None
    unique_key: bytes | None = None

    @property
    def by_url(self) -> bool:
        """Whether only the URL names it, and in the default crawl, which is by URLs."""
        return self.crawl_id is None and self.queue_key is None and self.unique_key is None


class ListHosts(Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of the list of hosts; `after` is the cursor of the piece before. `name`: that host alone, if it is
    known."""

    name: Text | None = None
    state: Literal["ready", "resting", "blocked", "empty"] | None = None
    after: Text | None = None
    limit: Limit = 100


class ListUrls(Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of the list of URLs."""

    state: Literal["queued", "leased", "waiting", "parked", "done", "gone"] | None = None
    host: Text | None = None
    crawl_id: Name | None = None
    reason: Text | None = None
    after: Text | None = None
    limit: Limit = 100


class Rows(Struct, frozen=True):
    """A piece of a list, and the cursor for the next one; null at the end."""

    rows: list[dict[str, Any]]
    cursor: str | None


class ListRecords(Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of the records of all URLs; `after` is the cursor of the piece before."""

    after: Text | None = None


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """The value of an order to a host: seconds for block and delay, leases at once for limit; null removes it."""

    value: Annotated[float, Meta(ge=0, le=1e9)] | None = None


class Ordered(Struct, frozen=True):
    """How many queues, or URLs, an order touched."""

    count: int


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """The dead letters to queue again; all if nothing is named."""

    error: Text | None = None
    host: Text | None = None


class Worker(Struct, frozen=True):
    """A named worker: its leases, and when it last sent something (null: not since the server began)."""

    worker_id: str
    pages: int
    errands: int
    first_deadline: str | None
    last_deadline: str | None
    heard_at: str | None
    heard_ms_ago: int | None


class Workers(Struct, frozen=True):
    """The workers with leases or with recent messages, by name."""

    workers: list[Worker]


class Throughput(Struct, frozen=True):
    """Answered pages per second: the last ten seconds, since the server began, and its fastest ten seconds."""

    current: float
    average: float
    peak: float


class Stats(Struct, frozen=True):
    """Counts of the frontier."""

    discovered: int
    queued: int
    fetched: int
    failed: int
    urls: dict[str, int]
    throughput: Throughput
    hosts: dict[str, int]
    storage: dict[str, int]
    errors: dict[str, int]
    duplicates: int
    errands: int
    waiting_requests: int
    workers: list[Worker]


class Health(Struct, frozen=True):
    """The state of the server: serving or closing."""

    state: str


class ProblemDetails(Struct, frozen=True):
    """An error as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str


_LISTS: dict[Any, Any] = {
    Iterable[Mapping[str, Any]]: list[dict[str, Any]],
    UrlName: str | UrlNamed,
    UrlNames: str | list[str | UrlNamed],
    UrlPriorities: str | list[str | UrlNamed] | dict[str, float],
}
"""The form in a body of an argument that may be any iterable, or the name of a URL."""


def body_of(method: Callable[..., Any]) -> type[Struct]:
    """The body that has the arguments of a verb; one that is left out has the verb's own default."""
    hints = {name: _LISTS.get(hint, hint) for name, hint in get_type_hints(method).items()}
    parameters = list(inspect.signature(method).parameters.values())[1:]
    some: list[Any] = [
        (one.name, hints[one.name]) if one.default is one.empty else (one.name, hints[one.name] | UnsetType, UNSET)
        for one in parameters
    ]
    name = "".join(map(str.title, method.__name__.split("_"))) + "Arguments"
    doc = f"The arguments of `Frontier.{method.__name__}`."
    return defstruct(name, some, module=__name__, namespace={"__doc__": doc}, frozen=True, forbid_unknown_fields=True)
