"""Queries and orders of other processes, and how a frontier answers them: one table each.

`LOOKS` and `ORDERS` serve a running crawl, a program with its own store, a server and the files of a store. So their
answers have the same shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

from outrider.clock import instant
from outrider.errors import SettingsError, shown
from outrider.limits import CONTROL_PAGE_ROWS_MAX, ORDER_SECONDS_MAX

if TYPE_CHECKING:
    from outrider.engine.owner import Frontier


def _explain(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = frontier.explain(str(question.get("url", "")), crawl=question.get("crawl")).as_dict()
    # 16 hex digits: as a number it is larger than many readers of JSON keep exactly.
    return {**found, "fingerprint": f"{found['fingerprint']:016x}"}


def _stands(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    """The state of one URL and the frontier's own reason in words; no page is searched for a link to it."""
    found = frontier.explain(str(question.get("url", "")))
    return {"state": str(found.state), "reason_text": found.reason_text}


def _why_idle(frontier: Frontier, _: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = frontier.explain_idle().as_dict()
    # The hint is for the program that owns the frontier; the shell is another process.
    hint = found.pop("hint", "")
    return {**found, "text": found["text"].replace(hint, "")} if hint else found


def _hosts(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    page = frontier.hosts(state=question.get("state"), after=question.get("after"), limit=_limit(question))
    return {"rows": [asdict(host) for host in page], "cursor": page.cursor}


def _urls(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    page = frontier.urls(
        state=question.get("state"),
        host=question.get("host"),
        reason=question.get("reason"),
        after=question.get("after"),
        limit=_limit(question),
    )
    # Its fields are not containers, and asdict() would copy them as such: a third of the time of a page.
    return {"rows": [{one.name: getattr(url, one.name) for one in fields(url)} for url in page], "cursor": page.cursor}


def _limit(question: Mapping[str, Any]) -> int:
    limit = question.get("limit")
    return max(1, min(limit, CONTROL_PAGE_ROWS_MAX)) if isinstance(limit, int) else CONTROL_PAGE_ROWS_MAX


LOOKS: Final[dict[str, Callable[[Frontier, Mapping[str, Any]], dict[str, Any]]]] = {
    "explain": _explain,
    "stands": _stands,
    "why-idle": _why_idle,
    "hosts": _hosts,
    "urls": _urls,
}
"""Each query and its function. `hosts` and `urls` return `rows` and the `cursor` after them, None at the
end; a result may have fewer rows than requested and still a cursor."""


# -- orders ------------------------------------------------------------------------------------------------------------


def _add(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    """Adds URLs as seeds: they widen the scope."""
    codes: dict[str, int] = {}
    for code in frontier.discover(question.get("urls", ())):
        codes[str(code)] = codes.get(str(code), 0) + 1
    return {"codes": codes}


def _retry(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    return {"count": frontier.retry(error=question.get("error"), host=question.get("host"))}


def _host(frontier: Frontier, question: Mapping[str, Any]) -> dict[str, Any]:
    """Sets a rule for the queues of a host, later ones included."""
    host, order = str(question.get("host", "")), str(question.get("order", ""))
    value = order_value(order, question.get("value"))
    if frontier.host(host) is None:
        raise SettingsError(
            f"this crawl has no host {host!r:.200}; `outrider hosts DIR` lists its hosts, `outrider add` adds one"
        )
    if order == "pause":
        count = frontier.pause(host)
    elif order == "resume":
        count = frontier.resume(host)
    elif order == "block":
        count = frontier.block_until(frontier.now() + instant(float(value or 0)), host)
    elif order == "delay":
        count = frontier.set_delay(value, host)
    elif order == "recheck":
        count = frontier.recheck(host)
    else:
        count = frontier.set_limit(None if value is None else int(value), host)
    return {"count": count}


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


HOST_ORDERS: Final = ("pause", "resume", "block", "delay", "limit", "recheck")
ORDERS: Final[dict[str, Callable[[Frontier, Mapping[str, Any]], dict[str, Any]]]] = {
    "add": _add,
    "host": _host,
    "retry": _retry,
}
"""Each order and the function that carries it out: for the crawl that runs, or for a store without an owner."""


def totals(frontier: Frontier, _: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of a frontier, for the status of a store that a program keeps alone."""
    tail = frontier.explain_idle().tail_seconds
    return {"statistics": frontier.statistics(), "tail_seconds": tail, "parked": frontier._parked()}
