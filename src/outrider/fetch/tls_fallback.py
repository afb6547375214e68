"""A second client for servers with which the first one cannot agree on TLS: the fetch kernel, and libcurl for the rest.

rustls has no CBC, no RSA key exchange and few curves. A handshake that fails for such a reason has sent no request. So
the same lease continues with libcurl, as it continues at the next address of a host that refused a connection. This
happens once for each origin: later requests use libcurl at once, or only rustls if libcurl could not agree either.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from outrider.clock import seconds
from outrider.fetch.downloader import Beginner, Downloader, FetchEnded, Request, Response, Tag, Target
from outrider.fetch.failures import FetchError
from outrider.fetch.fetch_tasks import FetchTasks
from outrider.limits import TLS_ORIGINS_MAX

LIBCURL = "libcurl"
"""The client of a response from the second downloader."""

# A certificate that proves nothing proves nothing to libcurl either, unless rustls cannot read it.
_PROVES_NOTHING = re.compile(r"invalid peer certificate: (?!.*(?:Unsupported|CaUsedAsEndEntity))", re.DOTALL)


class FirstDownloader(Downloader, Beginner, Protocol):
    """A downloader with both interfaces: to await, and with callbacks."""


def cannot_agree(response: Response) -> bool:
    """Whether a handshake failed, before a request was sent, for another reason than a certificate that proves
    nothing."""
    failed = response.error is FetchError.TLS and not response.request_head
    return failed and _PROVES_NOTHING.match(response.error_text) is None


class TlsFallback:
    """A downloader that uses a second one where the first cannot agree on TLS."""

    def __init__(self, first: FirstDownloader, make_second: Callable[[], Downloader]) -> None:
        """make_second: makes the second one when it is needed for the first time."""
        self._first = first
        self._make_second = make_second
        self._second: FetchTasks | None = None
        self._second_plain: Downloader | None = None
        self._resting = False
        self._closed = False
        # By origin, whether the second one could agree; of too many the oldest is forgotten.
        self._agreed: OrderedDict[tuple[str, str, int], bool] = OrderedDict()
        self._open: dict[Tag, Request] = {}

    async def fetch(self, request: Request) -> Response:
        """Fetches one page; never raises for a fault of the site."""
        if request.modern_tls or self._of(request.target) is not True:
            response = await self._first.fetch(request)
            if not self._goes_on(response, request):
                return response
            request = _rest_of(request, response)
        return self._noted(request, await self._others()[1].fetch(request))

    def begin(self, train: Sequence[tuple[Tag, Request]], ended: FetchEnded) -> None:
        """As `Beginner.begin`. The fetches after one that needs the second client are released."""
        target = train[0][1].target
        if target.scheme != "https":
            self._first.begin(train, ended)
        elif self._of(target) is True and not train[0][1].modern_tls:
            self._open.update(train)
            self._others()[0].begin(train, partial(self._second_ended, ended))
        else:
            self._open.update(train)
            self._first.begin(train, partial(self._first_ended, ended))

    def _first_ended(self, ended: FetchEnded, tag: Tag, answer: Response | BaseException | None) -> None:
        request = self._open[tag]
        if isinstance(answer, Response) and not self._closed and self._goes_on(answer, request):
            self._others()[0].begin([(tag, _rest_of(request, answer))], partial(self._second_ended, ended))
            return
        del self._open[tag]
        ended(tag, answer)

    def _second_ended(self, ended: FetchEnded, tag: Tag, answer: Response | BaseException | None) -> None:
        request = self._open.pop(tag)
        ended(tag, self._noted(request, answer) if isinstance(answer, Response) else answer)

    def let_go(self, tag: Tag) -> None:
        """Stops the train of a fetch after the current one."""
        self._first.let_go(tag)
        if self._second is not None:
            self._second.let_go(tag)

    def cancel(self, tag: Tag) -> None:
        """Interrupts the current fetch of its train; the fetches after it are released."""
        self._open.pop(tag, None)
        self._first.cancel(tag)
        if self._second is not None:
            self._second.cancel(tag)

    def rest(self, resting: bool) -> None:
        """Pauses or resumes large answers."""
        self._resting = resting
        self._first.rest(resting)
        if self._second is not None:
            self._second.rest(resting)

    def statistics(self) -> dict[str, int]:
        """The figures of the first downloader."""
        return self._first.statistics()  # type: ignore[attr-defined, no-any-return]

    async def close(self) -> None:
        """Ends the fetches that were begun, and closes every connection."""
        self._closed = True
        await self._first.close()
        if self._second is not None:
            await self._second.close()

    def _others(self) -> tuple[FetchTasks, Downloader]:
        if self._second is None or self._second_plain is None:
            self._second_plain = self._make_second()
            self._second = FetchTasks(self._second_plain)
            self._second.rest(self._resting)
        return self._second, self._second_plain

    def _of(self, target: Target) -> bool | None:
        return self._agreed.get(target.origin) if self._agreed else None

    def _goes_on(self, response: Response, request: Request) -> bool:
        """Whether to use the second downloader: once for each origin, and never for requests with modern TLS only."""
        return cannot_agree(response) and not request.modern_tls and self._of(request.target) is not False

    def _noted(self, request: Request, response: Response) -> Response:
        """Remembers how the second one fared, and has the response say which it was."""
        origin = request.target.origin
        if cannot_agree(response):
            self._agreed[origin] = False
        elif response.request_head:
            self._agreed[origin] = True
        if len(self._agreed) > TLS_ORIGINS_MAX:
            self._agreed.popitem(last=False)
        return replace(response, client=LIBCURL)


def _rest_of(request: Request, response: Response) -> Request:
    """The same request with the time that is left of it."""
    passed = seconds(response.ended_at - response.started_at)
    return replace(request, total_seconds=max(1.0, request.total_seconds - passed))
