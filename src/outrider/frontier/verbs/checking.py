"""The check of each argument of each verb by its name, for a remote frontier. It refuses what the parts refuse, with
the same messages, before a request is sent.

A check returns the value as JSON has it. Only the process with the tables checks whether a crawl exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from outrider.frontier import priority
from outrider.frontier.verbs import (
    arguments,
    explaining,
    host_lists,
    leasing,
    listing,
    operations,
    queued_errands,
    single_urls,
)
from outrider.journey import Link, RobotsAnswer

Check = Callable[[Any], Any]


def checked(verb: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a verb as they are sent. Raises SettingsError for arguments that the verb refuses."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        check = CHECKS.get(f"{verb}.{name}") or CHECKS[name]
        found[name] = check(value)
    return found


def sendable(text: Any) -> str:
    """Returns a URL that can be sent. A value that is not text, or has half a surrogate pair, becomes an empty URL."""
    if not isinstance(text, str):
        return ""
    return text if text.isascii() or text.encode("utf-8", "ignore").decode() == text else ""


def _state(value: Any) -> Any:
    listing.state_number(value)
    return None if value is None else str(value)


def _host_state(value: Any) -> Any:
    if value is not None:
        host_lists.check_state(value)
    return value


def _urls_cursor(value: Any) -> Any:
    listing.after_of(value)
    return value


def _cursor(what: str, hashes: int, value: Any) -> Any:
    host_lists.hashes_after(value, hashes, what)
    return value


def _kind(value: Any) -> Any:
    queued_errands.kind_number(value)
    return str(value)


def _host(value: Any) -> Any:
    return None if value is None else arguments.listed_host(value)


def _error(value: Any) -> Any:
    if value is not None:
        arguments.text("error", value)
        arguments.unicode("error", value)
    return value


def _status(value: Any) -> Any:
    arguments.status(value)
    return value


def _body(value: Any) -> Any:
    arguments.robots(RobotsAnswer(None, value))
    return value


def _url(value: Any) -> Any:
    return _named(arguments.url_name(value))


def _explained(value: Any) -> Any:
    name = arguments.url_name(value)
    if isinstance(name, str) and name and not sendable(name):
        raise explaining.no_url(name)  # it cannot be sent, and no crawl has it
    return _named(name)


def _named(name: Any) -> Any:
    """Returns the name of a URL as a body has it (`messages.UrlNamed`)."""
    if isinstance(name, bytes):
        return {"unique_key": name}
    if not isinstance(name, Link):
        return sendable(name)
    if name.unique_key is not None:
        return {"unique_key": name.unique_key}
    return {"url": sendable(name.url), "key": name.key} if name.key is not None else sendable(name.url)


def _url_priorities(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return [_named(url) for url, _ in single_urls.url_priorities(value, 0.5)]
    found = [(_named(url), wish) for url, wish in single_urls.url_priorities(value, None)]
    if all(isinstance(name, str) for name, _ in found):
        return dict(found)
    return [{**(name if isinstance(name, dict) else {"url": name}), "priority": wish} for name, wish in found]


def _priority(value: Any) -> Any:
    single_urls.url_priorities({} if value is None else ["x"], value)
    return value


def _texts(value: Any) -> list[str]:
    return [sendable(arguments.text("url", url)) for url in arguments.listed("urls", value)]


CHECKS: Final[dict[str, Check]] = {
    **leasing.CHECKS,
    "wait_seconds": partial(arguments.seconds, "wait_seconds"),
    "reason": partial(arguments.name, "reason"),
    "tokens": lambda value: arguments.tokens(value).tolist(),
    "until": arguments.until,
    "seconds": partial(arguments.of_requests, "seconds"),
    "ended_at": partial(arguments.of_requests, "ended_at"),
    "delay_seconds": arguments.delay,
    "limit": arguments.rows,
    "set_limit.limit": arguments.requests_at_once,
    "lease_id": arguments.lease_id,
    "beyond_seconds": partial(arguments.span, "beyond_seconds"),
    "within_seconds": lambda value: None if value is None else arguments.span("within_seconds", value),
    "state": _state,
    "hosts.state": _host_state,
    "after": _urls_cursor,
    "hosts.after": partial(_cursor, "hosts", 1),
    "queues.after": partial(_cursor, "queues", 2),
    "host": _host,
    "recheck.host": lambda value: arguments.host(arguments.text("host", value)),
    "name": arguments.listed_host,
    "make_crawl.name": operations.crawl_name,
    "unique": lambda value: arguments.unique(value).value,
    "order": lambda value: arguments.order(value).value,
    "error": _error,
    "kind": _kind,
    "url": _url,
    "explain.url": _explained,
    "urls": _texts,
    "queue_errands.urls": lambda value: list(map(sendable, queued_errands.urls_of(value))),
    "reprioritise.urls": _url_priorities,
    "requeue.urls": lambda value: list(map(_named, single_urls.requeued_urls(value))),
    "delete_urls.urls": lambda value: list(map(_named, single_urls.deleted_urls(value))),
    "requeue.priority": lambda value: None if value is None else priority.possible(value),
    "at": lambda value: None if value is None else arguments.until(value, "at"),
    "priority": _priority,
    "digests": arguments.digests,
    "authorities": arguments.authorities,
    "authority": lambda value: arguments.robots_url(value).removesuffix("/robots.txt"),
    "status": _status,
    "body": _body,
    "records": lambda value: value,  # `transfer.checked_records` made them
    "addresses": lambda value: {host: address or None for host, address in arguments.addresses(value).items()},
}
"""By the name of the argument, or by verb and argument if a verb has its own check."""
