"""The errands that callers queue: requests for files that are not pages, such as a sitemap, on the clock of their
host."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.clock import Instant
from outrider.errors import SettingsError, shown
from outrider.frontier.state.errand import KINDS, CallersErrand
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.deciding import Part, bounded
from outrider.journey import Code
from outrider.limits import CALLERS_ERRANDS_MAX, URL_BYTES_MAX
from outrider.url import host_of, spell


class QueuedErrands(Part):
    """The part of the machine that accepts errands from callers."""

    def queue_errands(self, kind: str, urls: str | Sequence[str], crawl: str | None, now: Instant) -> list[Code]:
        """Queues an errand of this kind for each URL, in a crawl (None: the default one). Returns for each `new`,
        `known` (it is already queued or leased), `invalid` or `over_limit`. Raises SettingsError for a kind that
        callers cannot queue or a host whose slot another frontier owns, StoreFullError."""
        number, given = kind_number(kind), urls_of(urls)
        crawl = arguments.name("crawl", crawl)
        now = self._core.advance(now)
        self._core.wake(now)
        called = self.tables.errands.called
        draft = self._core.draft(now)
        row = draft.crawl(crawl)
        wanted: dict[str, int] = {}  # by URL: the slot of its host
        slots: dict[str, int] = {}  # by host
        codes: list[Code] = []
        for url in spell(given):
            if url is None:
                codes.append(Code.INVALID)
            elif url in wanted or called.get(number, row, url) is not None:
                codes.append(Code.KNOWN)
            elif len(url) > URL_BYTES_MAX or len(called) + len(wanted) >= CALLERS_ERRANDS_MAX:
                codes.append(Code.OVER_LIMIT)
            else:
                codes.append(Code.NEW)
                host = self.tables.home_of(host_of(url))
                if host not in slots:
                    slots[host] = self._own_slot_of(host)
                self._homes.add(draft, host, row)
                wanted[url] = slots[host]
        for url, slot in wanted.items():
            draft.add(*CallersErrand(slot, 0, number, row, url).cells(url))
        self._core.commit(draft)
        return codes

    def _own_slot_of(self, host: str) -> int:
        """Returns the slot of a host. Raises SettingsError if another frontier owns it, because two clocks would then
        send requests to the host."""
        slot = self._homes.slot_of(host)
        if self._homes.owned is not None and slot not in self._homes.owned:
            raise SettingsError(f"host {shown(host)}: slot {slot} belongs to another frontier; queue its errands there")
        return slot


def kind_number(kind: str) -> int:
    """Returns the number of a kind that callers queue. Raises SettingsError."""
    named = arguments.text("kind", kind) if isinstance(kind, str) else None
    number = next((row.number for row in KINDS.values() if row.number and row.kind == named), None)
    if number is None:
        known = ", ".join(row.kind.value for row in KINDS.values() if row.number)
        raise SettingsError(f"kind {shown(kind)}: callers queue errands of kind {known}")
    return number


def urls_of(urls: str | Sequence[str]) -> list[str]:
    """Returns the URLs of errands; a single URL may be passed alone. Raises SettingsError."""
    given = [urls] if isinstance(urls, str) else arguments.listed("urls", urls)
    bounded(len(given), "errands")
    return [arguments.text("url", url) for url in given]
