"""Questions and orders of commands: to the crawl that owns the directory, or to files without an owner.

One table each, `LOOKS` and `ORDERS`, serves both, so that a running crawl and its files cannot differ in shape.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import msgspec

from outrider.archive.line_index import last_line
from outrider.cluster.description import is_cluster_file
from outrider.crawl.output.output import FILES, PAGES
from outrider.crawl.output.summary import held_back
from outrider.crawl.questions.cluster_queries import asking_cluster
from outrider.crawl.questions.control import Answers, ask
from outrider.crawl.questions.remote_queries import Access, asking
from outrider.crawl.questions.skipped import why_skipped
from outrider.crawl.setup.directory import (
    FRONTIER_NAME,
    kept_settings,
    refuse_worker_or_node,
    settings_of,
    store_of,
    write_settings,
)
from outrider.crawl.setup.options import SETTINGS_FILE, CrawlOptions, as_toml, resolved
from outrider.crawl.setup.permission import Admitted, Permission
from outrider.crawl.setup.seeds import read_hosts
from outrider.engine import Frontier
from outrider.engine.http_requests import is_address
from outrider.engine.process_queries import LOOKS, ORDERS
from outrider.errors import (
    NoCrawlError,
    OutriderError,
    StoreInUseError,
    UnreachableError,
)
from outrider.journey import ArchivePlace, Code, HostStatus
from outrider.limits import CONTROL_PAGE_ROWS_MAX, EXPLAINED_PAGES_BYTES_MAX
from outrider.storage.files import Directory

Looks = Callable[[str, Mapping[str, Any]], Any]
"""A question by its name, and its arguments; the answer is made of JSON values."""


def _with_page(directory: str, question: Mapping[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Adds the facts of a crawl to an explanation: the place of the last answer in the archive, what it
    says about uses, the URL of which the page is a copy, and the crawl's function of priority.

    It reads pages.jsonl by its index, without one only its end (EXPLAINED_PAGES_BYTES_MAX), and only for URLs that
    may be in it."""
    ranking = found.get("ranking")
    if ranking is None or question.get("crawl") not in (None, "default"):
        return found
    with suppress(OutriderError):  # the next run reports unreadable settings
        hook = kept_settings(directory).options.get("priority")
        if hook is not None and ranking["function"] is None:
            found = {**found, "ranking": {**ranking, "function": str(hook[0])}}
    if found["fetched_at"] is None and found["discovered_at"] is not None:
        return found
    try:
        line = last_line(os.path.join(directory, FILES[PAGES]), found["url"], EXPLAINED_PAGES_BYTES_MAX) or {}
        place = msgspec.convert(line.get("warc"), ArchivePlace | None)
    except (OSError, msgspec.MsgspecError):
        return found  # `verify` names unreadable lines
    archived = None if place is None else asdict(place)
    copy = {name: line.get(name) for name in ("duplicate_of", "distance")}
    preferences = line.get("preferences") or found["preferences"]
    return {**found, "archived": archived, **copy, "preferences": preferences}


def admitting(permission: Permission, add: Callable[[Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Returns the order `add` of a store's owner: it permits the loopback addresses that the URLs name. `refused` has a
    sentence for each of the first URLs whose address is not permitted; they are counted as invalid."""

    def answer(question: Mapping[str, Any]) -> Any:
        urls = [str(url) for url in question.get("urls", ())]
        admitted = permission.admit(urls, owner=True)
        found = add({**question, "urls": [urls[place] for place in admitted.places]})
        return with_refused(found, admitted, urls)

    return answer


def with_refused(found: Mapping[str, Any], admitted: Admitted, urls: Sequence[str]) -> dict[str, Any]:
    """Returns the answer to `add` with the URLs that were refused by their addresses."""
    if not admitted.refused:
        return dict(found)
    invalid = found["codes"].get(str(Code.INVALID), 0) + len(admitted.refused)
    return {**found, "codes": {**found["codes"], str(Code.INVALID): invalid}, "refused": admitted.named(urls)}


@contextmanager
def ordering(path: str, access: Access | None = None) -> Iterator[Looks]:
    """Carries out orders to the crawl in `path`, for the length of a block. A running crawl receives them; otherwise
    its store is opened. `path` may be the address of a server, or the file of a cluster.

    The answer of a crawl that does not run has `stopped`. Raises SettingsError, StoreError (StoreInUseError if the
    owner does not answer) and the errors of the orders.
    """
    if is_address(path):
        with asking(path, access) as ask_server:
            yield ask_server
        return
    if is_cluster_file(path):
        with asking_cluster(path) as ask_cluster:
            yield ask_cluster
        return
    store_of(path)
    try:
        opened = changing(path)
        frontier = opened.__enter__()
    except StoreInUseError as owned:
        yield _asking(path, owned)
        return

    def order(name: str, question: Mapping[str, Any]) -> Any:
        carried_out: Callable[[Mapping[str, Any]], Any] = partial(ORDERS[name], frontier)
        # A store without settings belongs to a program: its guard is not known here.
        if name == "add" and kept_settings(path).options:
            options = resolved({}, {}, kept_settings(path).options, path)
            carried_out = admitting(Permission.of_directory(path, options, read_hosts(options.hosts)), carried_out)
        return {**carried_out(question), "stopped": whole}

    whole = store_of(path) != path  # a program continues with a store of its own
    try:
        yield order
    finally:
        opened.__exit__(None, None, None)


def answers_of(
    frontier: Frontier, in_books: Callable[[Callable[[], Any]], Awaitable[Any]], directory: str | None = None
) -> Answers:
    """Returns the answers of a running crawl over its socket, orders too; `in_books` makes a call in the thread that
    may call the frontier. directory: that of the crawl, None for a frontier alone."""

    def answer(look: Callable[[Frontier, Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Awaitable[Any]]:
        return lambda question: in_books(lambda: look(frontier, question))

    async def explained(question: Mapping[str, Any]) -> Any:
        found = await in_books(lambda: LOOKS["explain"](frontier, question))
        return found if directory is None else await asyncio.to_thread(_with_page, directory, question, found)

    return {**{name: answer(look) for name, look in {**LOOKS, **ORDERS}.items()}, "explain": explained}


@contextmanager
def querying(path: str, access: Access | None = None) -> Iterator[Looks]:
    """Answers questions about the crawl in `path`, at the address of a server, or of the cluster in a file, for the
    length of a block.

    Raises SettingsError, StoreError (StoreInUseError if the owner does not answer) and the errors of the questions.
    """
    if is_address(path):
        with asking(path, access) as ask_server:
            yield ask_server
        return
    if is_cluster_file(path):
        with asking_cluster(path) as ask_cluster:
            yield ask_cluster
        return
    store = store_of(path)
    told = Shell(path) if store != path else None
    try:
        if told is None:
            frontier = Frontier.look(store)
        else:
            frontier = Frontier.look(store, settings=told.frontier_settings(), robots="errands", addresses="errands")
    except StoreInUseError as owned:
        ask_owner = _asking(path, owned)
        yield ask_owner if told is None else lambda name, question: told.running(name, question, ask_owner)
        return

    def look(name: str, question: Mapping[str, Any]) -> Any:
        found = LOOKS[name](frontier, question)
        if told is None:
            return found
        return told.stopped(name, question, found, lambda name, question: LOOKS[name](frontier, question))

    try:
        yield look
    finally:
        frontier.close()


class Shell:
    """Words answers about a crawl in a directory for a shell: adds facts from its settings and its archive,
    and for a stopped crawl the command that continues it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fault: OutriderError | None = None
        self._options: CrawlOptions | None = None
        if os.path.lexists(os.path.join(path, SETTINGS_FILE)):
            try:
                self._options = settings_of(path)
            except OutriderError as fault:
                self._fault = fault

    def frontier_settings(self) -> dict[str, object] | None:
        """Returns the settings for reading the frontier; None if there are no readable settings."""
        if self._options is None:
            return None
        try:
            settings = self._options.frontier_settings()
        except OutriderError as fault:  # a file of groups is missing
            self._fault, self._options = fault, None
            return None
        del settings["url_rules"]  # an existing store has its own
        return settings

    def running(self, name: str, question: Mapping[str, Any], ask_owner: Looks) -> Any:
        """Returns the answer of the process that owns the crawl."""
        found = ask_owner(name, question)
        if name == "why-idle" and found.get("reason") == "blocked":
            return {**found, "text": self._blocked(found, ask_owner)}
        return self._with_skip(question, found) if name == "explain" else found

    def stopped(self, name: str, question: Mapping[str, Any], found: dict[str, Any], look: Looks) -> dict[str, Any]:
        """Returns the answer of the files, which `look` reads. Raises SettingsError and NamedPathError if the settings
        cannot be read and decide the answer."""
        if name == "explain":
            if self._fault is not None:
                raise self._fault
            found = self._with_skip(question, _with_page(self._path, question, found))
            return {**found, "reason_text": self._explained(found)} if self._options is not None else found
        if name == "why-idle" and self._options is not None:
            return {**found, "text": self._idle(found, look)}
        return found

    def _with_skip(self, question: Mapping[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        """Returns an explanation of a URL that no link has named, with the link that the crawl skipped."""
        named = found.get("reason_now") == "unknown" and question.get("crawl") in (None, "default")
        if not named or self._options is None:
            return found
        word, text = why_skipped(self._path, self._options, found["url"], time.monotonic)
        return {**found, "reason_now": word, "reason_text": text}

    def _resume(self) -> str:
        return f"`outrider resume {shlex.quote(self._path)}` continues"

    def _explained(self, found: Mapping[str, Any]) -> str:
        """Returns the reason text for a URL of a stopped crawl."""
        text = str(found["reason_text"])
        if found.get("reason_now") == "leased" and not found.get("worker"):
            text = "it was being fetched when the crawl ended"
        if found.get("state") in ("queued", "leased", "waiting"):
            text += f"; the crawl is stopped: {self._resume()}"
        return text

    def _blocked(self, found: Mapping[str, Any], look: Looks) -> str:
        """Returns the hosts that are held back, and for each the order that releases it."""
        rows = look("hosts", {"state": "blocked", "limit": CONTROL_PAGE_ROWS_MAX})["rows"]
        hosts = [msgspec.convert(row, HostStatus) for row in rows]
        if not any(host.queued and (host.paused or host.not_welcome) for host in hosts):
            return str(found["text"])  # a host that waits for its robots.txt continues by itself
        return held_back(hosts, self._path)

    def _idle(self, found: Mapping[str, Any], look: Looks) -> str:
        """Returns why a stopped crawl does nothing, and how to continue."""
        text, path = str(found["text"]), shlex.quote(self._path)
        if found["reason"] == "finished":
            return f"{text}; `outrider add {path} URL` adds URLs, `outrider retry {path}` queues failed URLs again"
        if found["reason"] == "limit":
            return f"{text}; `outrider resume {path} --max-pages N` continues with another limit"
        if found["reason"] == "leased":
            text = "requests were open when the crawl ended"
        if found["reason"] == "blocked" and (held := self._blocked(found, look)) != text:
            return f"the crawl is stopped, and {held}; after that, {self._resume()}"
        if found["reason"] == "paused":
            return f"the crawl is stopped, and {text}; `outrider hosts {path}` lists its hosts, {self._resume()}"
        return f"the crawl is stopped; when it stopped, {text}; {self._resume()}"


def ask_owner(directory: str, owned: StoreInUseError, name: str, /, **question: Any) -> Any:
    """Returns the answer of the owner: a crawl, or a program that opened the store. Raises StoreInUseError if
    neither answers."""
    given = {key: value for key, value in question.items() if value is not None}
    silence: UnreachableError | None = None
    for place in (directory, os.path.join(directory, FRONTIER_NAME)):
        try:
            return ask(place, name, **given)
        except UnreachableError as error:
            silence = silence or error
        except StoreInUseError as refusal:
            raise StoreInUseError(f"{owned.facts}; {refusal.facts}") from None
    facts = silence.facts if silence is not None else ""
    raise StoreInUseError(f"{owned.facts}; it did not answer ({facts})") from None


def _asking(path: str, owned: StoreInUseError) -> Looks:
    return lambda name, question: ask_owner(path, owned, name, **question)


def every_row(look: Looks, name: str, question: Mapping[str, Any], limit: int | None) -> Iterator[dict[str, Any]]:
    """Yields the rows of a list one after another, at most `limit` (None: all); then {"cursor": …} if more are left."""
    after, left = question.get("after"), limit
    while left is None or left > 0:
        page = look(name, {**question, "after": after, "limit": CONTROL_PAGE_ROWS_MAX if left is None else left})
        yield from page["rows"]
        after = page["cursor"]
        if after is None:
            return
        if left is not None:
            left -= len(page["rows"])
    yield {"cursor": after}


@contextmanager
def changing(
    path: str, *, create: bool = False, options: CrawlOptions | None = None, robots: str | None = None
) -> Iterator[Frontier]:
    """Opens the frontier of `path` for changes, with the settings of its crawl, and owns it meanwhile.

    create: an empty or missing directory gets a new store. options: settings in place of the saved ones; outrider.toml
    contains them once the store is open. robots: as for `Frontier.open`; None for "errands", or "caller" in the store
    of a program. Raises SettingsError and StoreError, with the owner's process if known.
    """
    try:
        store = store_of(path)
    except NoCrawlError:
        if not create:
            raise
        refuse_worker_or_node(path)
        store = os.path.join(path, FRONTIER_NAME)
    whole = store != path
    settings = None
    if whole:
        settings = (options or settings_of(path)).frontier_settings()
        if not os.path.lexists(os.path.join(path, SETTINGS_FILE)):
            del settings["url_rules"]  # an existing store has its own
    robots = robots or ("errands" if whole else "caller")
    with Frontier.open(store, settings=settings, robots=robots) as frontier:
        if whole and options is not None:
            files = Directory(path, create=False)
            try:
                write_settings(files, as_toml(options, kept_settings(path).seeds))
            finally:
                files.close()
        yield frontier
