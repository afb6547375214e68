"""`Frontier.connect(FILE)`: the verbs of a frontier for a whole cluster. Its nodes answer through the topic `words`.

The methods follow from the declarations of `Frontier`. A verb that leases or reports needs a node that serves workers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from outrider.clock import Instant, wall
from outrider.cluster.words import ORDERS_ASKED, QUESTIONS_ASKED, VERIFY
from outrider.crawl.questions.cluster_queries import ClusterQuestions, questions_to
from outrider.engine import Frontier
from outrider.engine.remote import ANSWERS, RemoteFrontier, made
from outrider.engine.verbs import served_of
from outrider.errors import ClosedError, SettingsError
from outrider.frontier.format.metadata import metadata_bytes_max, packed
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.checking import checked
from outrider.journey import Code, Link, RequestId
from outrider.limits import REMOTE_PATIENCE_SECONDS
from outrider.url import UrlBatch

Given = ParamSpec("Given")
Made = TypeVar("Made")
_SERVED: Final = served_of(Frontier)
_ASKED: Final = {name: verb.word or name for name, (verb, _) in _SERVED.items()} | {"host": "hosts"}
"""The question of each verb. `host` is the name of an order, so a host is asked for by its name in the list."""
_NOT_SENT: Final = ("unique_key", "modified", "hops", "not_before", "change_seconds")
"""The fields of a link that a record of the topic `urls` does not have."""
_ANSWERED: Final = {*ORDERS_ASKED, *QUESTIONS_ASKED}

_WAYS_OUT: Final = {
    "records": "use urls, which lists all URLs with their states",
    "make_crawl": "a link with crawl=NAME makes a crawl with the usual rules",
}
"""For each verb that a cluster refuses, the way out that its error names."""

_OF_NODES: Final = {
    *("lease", "report", "report_bodies", "extend", "register", "held", "seen_content", "crawl_delays", "robots_allow"),
    *(name for name, (verb, _) in _SERVED.items() if verb.fetches),
}
"""The verbs that need a node that serves."""


def _refused(method: Callable[Given, Made]) -> Callable[Given, Made]:
    """Returns a method of a server that raises SettingsError."""

    @wraps(method)
    def refuse(*given: Given.args, **named: Given.kwargs) -> Made:
        frontier: Any = given[0]
        raise frontier._refusal(method.__name__)

    refuse.__doc__ = "Raises SettingsError: the file of a cluster is not enough for it."
    return refuse


class ClusterFrontier(RemoteFrontier):
    """A client for all nodes of a cluster. Any thread may call it."""

    def __init__(self, questions: ClusterQuestions, *, where: str) -> None:
        """where: the file of the cluster, for messages."""
        self._questions, self._where, self._close = questions, where, questions.close
        self._closed = False

    def discover(self, links: Iterable[str | Link] | UrlBatch, *, request_id: RequestId | None = None) -> list[Code]:
        """Sends links to the partitions of their hosts, and returns when they are durable there: `held`. Their owners
        add them, each once."""
        self._check()
        arguments.request(request_id)
        return self._questions.add(list(_links_of(links)))

    def statistics(self) -> dict[str, Any]:
        """The sums of all partitions, with the names of `Frontier.statistics`."""
        found: dict[str, Any] = self._ask("statistics", {})
        return found

    def now(self) -> Instant:
        """The clock of this machine: each node has its own."""
        return wall()

    def _verb(self, method: Callable[..., Made], given: Mapping[str, Any]) -> Made:
        """The answer of all partitions to a verb, or of the partition that it concerns."""
        name = method.__name__
        asked = _ASKED[name]
        if asked not in _ANSWERED:
            raise self._refusal(name)
        # A cursor of a cluster begins with the number of a partition: its nodes check the rest.
        question = checked(name, {one: value for one, value in given.items() if one != "after"})
        question |= {"after": given["after"]} if given.get("after") is not None else {}
        if isinstance(named := question.get("url"), dict):
            question = {**question, "url": "", "queue_key": named.pop("key", None), **named}
        found = self._ask(asked, question)
        if name == "host":
            found = next(iter(found["rows"]), None)
        elif name != VERIFY and len(found) == 1:
            (found,) = found.values()
        answer: Made = found if name == VERIFY else made(ANSWERS[name], found)
        return answer

    def _ask(self, name: str, question: Mapping[str, Any]) -> Any:
        self._check()
        return self._questions.ask(name, question)

    def _check(self) -> None:
        if self._closed:
            raise ClosedError

    lease = _refused(RemoteFrontier.lease)
    report = _refused(RemoteFrontier.report)
    report_bodies = _refused(RemoteFrontier.report_bodies)
    extend = _refused(RemoteFrontier.extend)
    register = _refused(RemoteFrontier.register)
    records = _refused(RemoteFrontier.records)

    def _refusal(self, name: str) -> SettingsError:
        self._check()
        if name not in _OF_NODES:
            return SettingsError(
                f"{name} is not possible in a cluster, and {self._where} is the file of one; {_WAYS_OUT[name]}"
            )
        return SettingsError(
            f"{name} is not possible with {self._where}, which is for questions and orders; connect to a node that "
            f"serves: outrider serve DIR --cluster {self._where} --http HOST:PORT"
        )

    def __repr__(self) -> str:
        return f"<ClusterFrontier {self._where}>"


def _links_of(links: Iterable[str | Link] | UrlBatch) -> Iterable[Link]:
    if isinstance(links, str | bytes | bytearray) or not isinstance(links, Iterable):
        raise SettingsError(f"discover takes a list of links, not {links!r:.80}")
    for one in links if isinstance(links, UrlBatch) else arguments.listed("links", links):
        link = arguments.link(one) if isinstance(one, Link) else Link(one if isinstance(one, str) else "")
        packed(link.metadata, bytes_max=metadata_bytes_max(callers=True))
        lost = next((name for name in _NOT_SENT if getattr(link, name)), None)
        if lost is not None:
            raise SettingsError(f"{lost} of {link.url!r:.200} is not sent between the nodes of a cluster; leave it out")
        yield link


def connect(
    file: str,
    *,
    token: str | None = None,
    ca: str | None = None,
    worker: str | None = None,
    patience_seconds: float = REMOTE_PATIENCE_SECONDS,
) -> ClusterFrontier:
    """Returns the frontier of the cluster in a file. worker and patience_seconds are for leases, which it has not.
    Raises SettingsError, UnreachableError."""
    for name, value in (("token", token), ("ca", ca)):
        if value is not None:
            raise SettingsError(f"{name} is for a server; the file of a cluster ({file}) needs none")
    return ClusterFrontier(questions_to(os.fspath(file), client="outrider-connects"), where=file)
