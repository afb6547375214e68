"""The scopes of crawls, made from their seeds at first use."""

from __future__ import annotations

from collections.abc import Iterable

from outrider.frontier.format.facts import Fact
from outrider.frontier.policy.frontier_settings import FrontierSettings
from outrider.frontier.state.crawls import Crawls
from outrider.frontier.verbs.draft import Draft
from outrider.limits import OWN_SLOT
from outrider.url.scope import Scope, span_of


class Scopes:
    """The scope of each crawl by its row, and the hosts, domains or prefixes of its seeds."""

    def __init__(self, settings: FrontierSettings, crawls: Crawls) -> None:
        self._settings = settings
        self._crawls = crawls
        self._scopes: dict[int, Scope] = {}
        self._spans: dict[int, set[str]] = {}

    def of(self, crawl: int) -> Scope:
        """Returns the scope of a crawl."""
        scope = self._scopes.get(crawl)
        if scope is None:
            s = self._settings
            seeds = self._crawls.scope.get(crawl, {})
            scope = self._scopes[crawl] = Scope.of_seeds(s.scope, seeds, s.include, s.exclude, s.max_depth)
        return scope

    def widen(self, draft: Draft, crawl: int, seeds: Iterable[str]) -> None:
        """Widens the scope of a crawl by these seeds. It changes before the draft is logged: call `forget` if the
        logging fails."""
        known = self._spans_of(crawl)
        wider: list[str] = []
        for text in seeds:
            span = span_of(self._settings.scope, text)
            if span not in known:
                known.add(span)
                draft.add(Fact.SCOPE, (OWN_SLOT, crawl, text))
                wider.append(text)
        if wider:
            self._scopes[crawl] = self.of(crawl).widened(*wider)

    def _spans_of(self, crawl: int) -> set[str]:
        """Returns the hosts, domains or prefixes of all its seeds."""
        spans = self._spans.get(crawl)
        if spans is None:
            seeds = self._crawls.scope.get(crawl, {})
            spans = self._spans[crawl] = {span_of(self._settings.scope, seed) for seed in seeds}
        return spans

    def forget(self) -> None:
        """Drops all scopes; the next use makes them from the tables."""
        self._scopes.clear()
        self._spans.clear()
