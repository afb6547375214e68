"""Redirects to another spelling of the requested URL: that spelling is requested once, as it is written.

`/x` may lead to `/x?`, or to `/x?cookie=1` if a rule of the crawl removes that parameter. Both are one URL here,
so the target cannot be a separate URL, and its page would be lost.
"""

from __future__ import annotations

from collections import OrderedDict

from ada_url import join_url

from outrider.crawl.run.visit import Visit
from outrider.errors import InvalidUrlError
from outrider.fetch.downloader import target_of
from outrider.fetch.judging import location_of, written_location
from outrider.fetch.meaning import REDIRECTS
from outrider.limits import SPELLINGS_MAX
from outrider.url import LossyRules


class SpellingRedirects:
    """URLs that are requested in the spelling of a redirect. One thread adds them, another one reads them."""

    def __init__(self, rules: LossyRules | None = None, spellings_max: int = SPELLINGS_MAX) -> None:
        """rules: those by which the crawl treats different URLs as one."""
        self._rules = rules or LossyRules()
        self._most = spellings_max
        self._written: OrderedDict[str, str] = OrderedDict()
        self._unused: set[str] = set()

    def of(self, url: str) -> str:
        """The spelling in which a URL is requested: its own, or that of its last redirect."""
        written = self._written.get(url)
        if written is None:
            return url
        self._unused.discard(url)
        return written

    def found(self, visit: Visit) -> str | None:
        """Returns the other spelling of its own URL in the redirect of a visit; None without one, if it was
        requested already, or if it is on another origin."""
        lease, response = visit.lease, visit.response
        if response is None or response.status not in REDIRECTS or response.url != lease.url:
            return None
        target, location = location_of(response), written_location(response)
        if target is None or location is None or lease.url not in (target, self._rules.apply(target)):
            return None
        try:
            written = join_url(lease.url, location).partition("#")[0]
            if written == lease.url or target_of(written).origin != target_of(lease.url).origin:
                return None
        except (InvalidUrlError, ValueError):
            return None
        return written

    def note(self, url: str, written: str) -> bool:
        """Makes a URL be requested in this spelling from now on. Returns False if too many others wait for theirs:
        if they displaced each other, each would be redirected for ever."""
        if url not in self._unused and len(self._unused) >= self._most:
            return False
        self._written[url] = written
        self._unused.add(url)
        if len(self._written) > self._most:
            oldest = next((one for one in self._written if one not in self._unused), None)
            if oldest is not None:
                del self._written[oldest]
        return True
