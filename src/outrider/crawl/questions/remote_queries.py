"""Questions and orders of commands to a served frontier: the same table as of a directory, over HTTP or gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from outrider.engine import Frontier
from outrider.engine import messages as m
from outrider.engine.http_requests import RepeatedRequests, path_of, transport_to
from outrider.engine.verbs import served_of
from outrider.limits import REMOTE_PATIENCE_ASKING_SECONDS

Answer = Callable[[RepeatedRequests, Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Access:
    """The access to a server: a token, and a file of trusted certificates."""

    token: str | None = None
    ca: str | None = None


@contextmanager
def asking(address: str, access: Access | None = None) -> Iterator[Callable[[str, Mapping[str, Any]], Any]]:
    """Sends questions and orders to the server at `address`, for the length of a block.

    Raises SettingsError, InvalidUrlError and UnreachableError, with what the server says.
    """
    access = access or Access()
    transport = transport_to(address, token=access.token, ca=access.ca)
    remote = RepeatedRequests(address, transport, patience_seconds=REMOTE_PATIENCE_ASKING_SECONDS)
    try:
        yield lambda name, question: _ANSWERS[name](remote, question)
    finally:
        transport.close()


def _asked(word: str, *, order: bool) -> Answer:
    """Returns the function of a word that a method of `Frontier` declares."""

    def answer(remote: RepeatedRequests, question: Mapping[str, Any]) -> Any:
        values = {m.OTHER_NAMES.get(name, name): value for name, value in question.items() if value is not None}
        if order:
            return remote.post(path_of(word), values, dict[str, Any])
        return remote.get(path_of(word), dict[str, Any], **values)

    return answer


def _host(remote: RepeatedRequests, question: Mapping[str, Any]) -> Any:
    path = path_of("hosts", str(question["host"]), str(question["order"]))
    return remote.post(path, m.Order(question.get("value")), dict[str, Any])


def _add(remote: RepeatedRequests, question: Mapping[str, Any]) -> Any:
    added = remote.post(path_of("frontier", "urls"), m.AddUrls(list(question["urls"])), m.Added, key=remote.key())
    return {"codes": {code: added.codes.count(code) for code in dict.fromkeys(added.codes)}, "refused": added.refused}


_ANSWERS: Final[dict[str, Answer]] = {
    "status": _asked("status", order=False),
    "host": _host,
    "add": _add,
    **{verb.word: _asked(verb.word, order=verb.order) for verb, _ in served_of(Frontier).values() if verb.word},
}
