"""Queries and orders of other processes, and how a frontier answers them: one table each.

`LOOKS` and `ORDERS` serve a running crawl, a program with its own store, a server and the files of a store. So their
answers have the same shape. They follow from the words that the methods of `Frontier` declare.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from outrider.clock import instant
from outrider.engine.owner import Frontier
from outrider.engine.verbs import ServedVerb, served_of
from outrider.errors import SettingsError, shown
from outrider.journey import Explanation, Idle, Link, ListPage
from outrider.limits import CATALOG_ROBOTS_BYTES_AT_ONCE, CONTROL_PAGE_ROWS_MAX, ORDER_SECONDS_MAX
from outrider.robots import Rules
from outrider.url.keys import key_of_name

Look = Callable[[Frontier, Mapping[str, Any]], dict[str, Any]]


def as_sent(found: Any) -> Any:
    """Returns the answer of a verb as JSON values."""
    if isinstance(found, ListPage):
        return {"rows": msgspec.to_builtins(list(found)), "cursor": found.cursor}
    sent = msgspec.to_builtins(found)
    if isinstance(found, Explanation):
        # 16 hex digits: as a number it is larger than many readers of JSON keep exactly.
        sent["fingerprint"] = f"{found.fingerprint:016x}"
    if isinstance(found, Idle):
        # The hint is for the program that owns the frontier, and the reader is another process.
        sent["text"] = found.text.replace(sent.pop("hint"), "")
    return sent


def facts_of(question: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an order, or its answer, as it is logged: lists by their length. A line has its own `at`."""
    facts = {name: len(value) if isinstance(value, list | dict) else value for name, value in question.items()}
    return {"due" if name == "at" else name: fact for name, fact in facts.items() if name != "ask"}


def _asked(name: str, verb: ServedVerb, method: Callable[..., Any]) -> Look:
    """Returns the function of a question or an order: its arguments are those of the method, by name."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    has_pages = "after" in (one.name for one in parameters)

    def answer(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
        values = {one.name: question.get(one.name, "") for one in parameters if one.default is one.empty}
        values |= {one.name: question[one.name] for one in parameters if question.get(one.name) is not None}
        if has_pages:
            values["limit"] = _limit(question.get("limit"))
        found = as_sent(getattr(frontier, name)(**values))
        return found if isinstance(found, dict) else {answer_of(verb): found}

    return answer


def answer_of(verb: ServedVerb) -> str:
    """The field with the answer to an order."""
    return "count" if verb.word else "answer"


def _limit(limit: object) -> int:
    return max(1, min(limit, CONTROL_PAGE_ROWS_MAX)) if isinstance(limit, int) else CONTROL_PAGE_ROWS_MAX


def _hosts(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    """Answers for the host of a name alone, too."""
    if question.get("name") is None:
        return _WORDS["hosts"](frontier, question)
    found = frontier.host(question["name"])
    return {"rows": [] if found is None else [as_sent(found)], "cursor": None}


def _url_name(question: Mapping[str, Any]) -> Any:
    """Returns the name of a URL: its text. In a crawl by unique keys also its text and the key of its queue, or its
    unique key as base64."""
    name: Any = question.get("url", "")
    key, unique_key = question.get("queue_key"), question.get("unique_key")
    if unique_key is not None:
        try:
            name = msgspec.convert(unique_key, bytes)
        except msgspec.ValidationError:
            raise SettingsError(
                f"unique_key {shown(unique_key, 200)}: it must be base64, as `outrider urls --json` prints it"
            ) from None
    elif key is not None:
        name = Link(str(name), key=str(key))
    return name


def _explained(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = as_sent(frontier.explain(_url_name(question), crawl=question.get("crawl")))
    return found


def _status(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = as_sent(frontier.status(_url_name(question), crawl=question.get("crawl")))
    return found


def _state(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    """The state of one URL and the frontier's own reason in words; no page is searched for a link to it."""
    found = frontier.explain(str(question.get("url", "")))
    return {"state": str(found.state), "reason_text": found.reason_text}


def _robots_files(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    """The stored robots.txt files, each with its text and the sitemaps that it names."""
    page = frontier._robots_files(question.get("after"), CATALOG_ROBOTS_BYTES_AT_ONCE)
    rows = [
        {
            **msgspec.to_builtins(status),
            "text": body.decode("utf-8", "replace"),
            "sitemaps": Rules.parse(body).sitemaps if body else [],
        }
        for status, body in page
    ]
    return {"rows": rows, "cursor": page.cursor}


def _domains(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    """The registrable domains with the most queued URLs."""
    found = frontier._fullest_domains(_limit(question.get("limit")))
    return {"rows": [{"domain": domain, "queued": queued} for domain, queued in found]}


def _add(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    """Adds URLs as seeds: they widen the scope."""
    codes: dict[str, int] = {}
    for code in frontier.discover(question.get("urls", ())):
        codes[str(code)] = codes.get(str(code), 0) + 1
    return {"codes": codes}


def _host(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    """Sets a rule for the queues of a host, later ones included."""
    host, order = str(question.get("host", "")), str(question.get("order", ""))
    value = order_value(order, question.get("value"))
    if frontier.host(host) is None:
        raise SettingsError(
            f"this crawl has no host {host!r:.200}; `outrider hosts DIR` lists its hosts, `outrider add` adds one"
        )
    host = key_of_name(host) or host  # a rule is for a key, also where `hosts` lists its name
    verb = getattr(frontier, HOST_ORDERS[order])
    if order not in _TAKES:
        return {"count": verb(host)}
    if order == "block":
        return {"count": verb(frontier.now() + instant(float(value or 0)), host)}
    return {"count": verb(value if value is None or order == "delay" else int(value), host)}


_TAKES: Final = {"block": "seconds above 0", "delay": "seconds, or none", "limit": "a whole number from 1, or none"}
_EXAMPLES: Final = {"block": "block 3600", "delay": "delay 2.5", "limit": "limit 3"}


def missing_value(order: str) -> SettingsError:
    """The error for an order without the value that it needs."""
    return SettingsError(f"{order} needs {_TAKES[order]}, as in `outrider host DIR HOST {_EXAMPLES[order]}`")


def order_value(order: str, given: object, typed: object = None) -> float | None:
    """Returns the value of an order to a host; None removes a delay or limit. Raises SettingsError naming the typed
    value, and the values that the order accepts."""
    if order not in HOST_ORDERS:
        raise SettingsError(f"unknown order {shown(order)}; use {', '.join(HOST_ORDERS)}")
    if order not in _TAKES:
        if given is not None:
            raise SettingsError(f"{order} needs no value, but got {shown(given)}")
        return None
    if given is None:
        if order == "block":
            raise missing_value(order)
        return None
    number = given if isinstance(given, int | float) and not isinstance(given, bool) else -1
    least = 1 if order == "limit" else 0
    whole = order != "limit" or number == int(number) if least <= number <= ORDER_SECONDS_MAX else False
    if not whole or (order == "block" and number == 0):
        raise SettingsError(f"{order} is {shown(given if typed is None else typed)}; use {_TAKES[order]}")
    return number


_SERVED: Final = served_of(Frontier)
HOST_ORDERS: Final = {verb.host_order: name for name, (verb, _) in _SERVED.items() if verb.host_order}
"""Each order to a host, and its method."""
ORDERS: Final[dict[str, Look]] = {
    "add": _add,
    "host": _host,
    **{verb.word or name: _asked(name, verb, method) for name, (verb, method) in _SERVED.items() if verb.order},
}
"""Each order and the function that carries it out: for the crawl that runs, or for a store without an owner."""
_WORDS: Final = {
    verb.word: _asked(name, verb, method) for name, (verb, method) in _SERVED.items() if verb.word and not verb.order
}
LOOKS: Final[dict[str, Look]] = {
    **_WORDS,
    "explain": _explained,
    "hosts": _hosts,
    "url-state": _state,
    "robots-files": _robots_files,
    "domains": _domains,
}
"""Each query and its function. `hosts` and `urls` return `rows` and the `cursor` after them, None at the
end; a result may have fewer rows than requested and still a cursor."""


READS: Final[dict[str, Look]] = {
    **{
        name: _asked(name, verb, method)
        for name, (verb, method) in _SERVED.items()
        if verb.role == "read" and not verb.word and name != "held"
    },
    "status": _status,
    "statistics": lambda frontier, _: dict(frontier.statistics()),
}
"""Each other verb that only reads, by its own name: questions to the nodes of a cluster. Leases belong to the node that
made them (`held`)."""


def totals(frontier: Frontier, _: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of a frontier, for the status of a store that a program keeps alone."""
    tail = frontier.explain_idle().tail_seconds
    return {"statistics": frontier.statistics(), "tail_seconds": tail, "parked": frontier._parked()}
