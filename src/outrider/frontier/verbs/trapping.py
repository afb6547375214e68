"""Traps: URLs that a site makes without end are parked when they are drawn, as robots rules park others.

Rules look at one URL alone; returns (policy/returns.py) tell of its host and its shape. None of them judges a seed, a
URL that was fetched before, or one that an operator put back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.frontier.format.cards import Cards
from outrider.frontier.policy.returns import Returns, class_of_shape, counted, is_parked, shape_of
from outrider.frontier.state.urls import PARKED, Reason
from outrider.frontier.verbs import outcomes as verdicts
from outrider.frontier.verbs.deciding import CODE_NUMBERS, Deciding
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.outcomes import Outcomes
from outrider.journey import Code
from outrider.kernels.cards import Heads
from outrider.limits import RETURNS_FETCHES_MIN
from outrider.url import UrlBatch
from outrider.url.rules import has_session
from outrider.url.traps import BY_NEW_URLS, BY_RETURNS, BY_SESSION, RULES

GO: Final = (0, None)
"""Neither a trap nor of another class."""


class Trapping(Deciding):
    """The part of the machine that knows traps."""

    @property
    def counts_returns(self) -> bool:
        """Whether fetches are counted by host and shape."""
        traps = self.settings.traps
        return traps is not None and traps.returns_min is not None

    def _names_of(self, urls: Sequence[str]) -> list[tuple[int, int]]:
        """The names under which the returns of the shapes and of the hosts of these URLs are kept."""
        texts: list[str] = []
        for url in urls:
            host, slash, rest = url.partition("://")[2].partition("/")
            texts += (f"{host}\n{shape_of(slash + rest)}", f"{host}\n")
        found = np.frombuffer(kernels.fingerprints(texts, self.tables.fingerprint_key), np.uint64).tolist()
        return list(zip(found[::2], found[1::2], strict=True))

    def _names_judged(self, urls: Sequence[str], judged: Sequence[bool]) -> dict[int, tuple[int, int]]:
        """The names of the drawn URLs whose returns are looked at, by row; none before a fetch was counted."""
        if not self.counts_returns or not len(self.tables.returns):
            return {}
        rows = [row for row, one in enumerate(judged) if one]
        return dict(zip(rows, self._names_of([urls[row] for row in rows]), strict=True))

    @staticmethod
    def _may_be_traps(heads: Heads) -> list[bool]:
        """Which of these drawn URLs are judged."""
        fetched = (heads["depth"] == 0) | (heads["status"] != 0) | (heads["attempts"] != 0)
        told: list[bool] = (~fetched & (heads["reason"] != Reason.TRAP)).tolist()
        return told

    def _trap(self, draft: Draft, head: Any, url: str, names: tuple[int, int] | None) -> tuple[int, int | None]:
        """The rule that makes a drawn URL a trap (0: none), and the class that it falls to (None: it keeps its own).
        names: its own among `_names_judged`."""
        traps = self.settings.traps
        if traps is None:
            return GO
        broken = traps.rule_of(url, draft.now)
        if broken or traps.returns_min is None or names is None:
            return broken, None
        shape, host = names
        own = draft.returns_seen(shape)
        poor = is_parked(own, draft.returns_seen(host), traps.returns_min)
        if poor is not None:
            if draft.returns(int(head["slot"]), shape if poor is own else host).is_probed():
                return GO
            return BY_SESSION if has_session(url[url.index("/", 8) :]) else BY_RETURNS, None
        before = int(head["klass"])
        klass = class_of_shape(before, own)
        return 0, klass if klass < before else None

    def _park_new(
        self, urls: UrlBatch, rows: npt.NDArray[np.intp], heads: Heads, codes: npt.NDArray[np.uint8], draft: Draft
    ) -> None:
        """Parks new URLs of hosts and registrable domains that have made as many as they may in a window; no seeds."""
        most = self.settings.traps.new_urls_max if self.settings.traps is not None else None
        if most is None:
            return
        new = np.flatnonzero((heads["depth"] > 0) & (heads["state"] != PARKED))
        over = np.zeros(len(rows), np.bool_)
        of_domains = urls.keys("domain")
        for where, names in (urls.keys("host"), of_domains):
            for code in np.unique(where[rows[new]]).tolist():
                if names is not of_domains.names and names[code] in of_domains.names:
                    continue  # such a host has one window with its subdomains
                here = new[where[rows[new]] == code]
                here = here[~over[here]]
                if not len(here):
                    continue
                name = self.tables.hash_of(f"{names[code]}\nnew")
                window = draft.returns(int(heads["slot"][here[0]]), name)
                room = window.room(most, draft.now)
                window.found += min(room, len(here))
                over[here[room:]] = True
        if over.any():
            self._parked_by(draft, heads, over, BY_NEW_URLS)
            codes[rows[over]] = CODE_NUMBERS[Code.PARKED]

    @staticmethod
    def _parked_by(draft: Draft, heads: Any, mask: npt.NDArray[np.bool_], number: int) -> None:
        rule = RULES[number - 1]
        heads["state"][mask], heads["reason"][mask] = PARKED, Reason.TRAP
        heads["error"][mask] = draft.error_number(rule)
        draft.tally(f"trap.{rule}", int(np.count_nonzero(mask)))

    def _count_returns(self, draft: Draft, cards: Cards, outcomes: Outcomes) -> None:
        """Counts the first fetches of these pages by host and shape. A redirect counts where it leads to."""
        chosen, statuses = outcomes.verdicts, outcomes.statuses
        told = (chosen == verdicts.DONE) | (chosen == verdicts.AGAIN) | ((chosen == verdicts.GONE) & (statuses > 0))
        told &= cards.heads["status"] == 0
        fresh = (chosen != verdicts.GONE) & (statuses < 300)
        for flags in (outcomes.duplicate, outcomes.repeats):
            if flags is not None:
                fresh &= ~flags
        rows = [row for row in np.flatnonzero(told).tolist() if row not in outcomes.locations]
        slots = cards.heads["slot"].tolist()
        for row, (shape, host) in zip(rows, self._names_of([cards.url(row) for row in rows]), strict=True):
            slot = slots[row]
            counted(draft.returns(slot, shape), draft.returns(slot, host), fresh=bool(fresh[row]))

    def _returns_told(self, url: str) -> str | None:
        """The returns for which a URL is parked, in words."""
        ((shape, host),) = self._names_of([url])
        own = self.tables.returns.get(shape)
        if own.fetched >= RETURNS_FETCHES_MIN:
            rest = url[url.index("/", 8) :]
            return f"of its shape {shape_of(rest)!r} {_shown(own)}"
        return f"of the new shapes of its host {_shown(self.tables.returns.get(host))}"


def _shown(returns: Returns) -> str:
    return (
        f"{returns.fetched} pages were fetched, and lately {100 * returns.share:.1f} % brought new content; "
        f"{returns.passed} URLs were drawn since"
    )
