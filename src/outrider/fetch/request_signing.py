"""Signs the requests of a crawl (Web Bot Auth), and reads from refusals what sites want to be signed.

Only requests over https with a verified certificate are signed. A redirect is a new request, so it is signed anew. The
memory of what sites asked for is that of one run: after a restart, a host asks once more.
"""

from __future__ import annotations

import base64
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Final, TypeVar

from outrider.clock import Instant, wall
from outrider.errors import SettingsError
from outrider.fetch.downloader import Fields, Request, Response
from outrider.fetch.failures import FetchError, http_date
from outrider.identity.accept_signature import ANY_SIGNATURE, WantedSignature, wanted_signature
from outrider.identity.signatures import AgentForm, SignedTarget, agent_value, sign_request
from outrider.identity.signing_key import SigningKey, require_own
from outrider.limits import (
    CLOCK_AHEAD_SECONDS_MIN,
    CLOCK_LATE_SECONDS_MIN,
    MICROSECONDS,
    SIGNATURE_BACKDATE_SECONDS,
    SIGNATURE_HOSTS_MAX,
    SIGNATURE_SECONDS,
)


class SignWhen(StrEnum):
    """Which requests are signed: none, those to hosts that asked for it, or all."""

    OFF = "off"
    CHALLENGE = "challenge"
    ALWAYS = "always"


class SignScope(StrEnum):
    """The requests for which a signature is valid: one, or all to a host for a minute."""

    REQUEST = "request"
    HOST = "host"


SIGNATURE_COUNTS: Final = (
    "made",
    "reused",
    "asked",
    "not_signable",
    "refused",
    "clock_ahead_seconds",
    "clock_late_seconds",
)
"""The counts of a signer: see its `statistics`."""
_CHALLENGES: Final = frozenset({401, 403, 429})
_NONCE_BYTES: Final = 32

K = TypeVar("K")
V = TypeVar("V")


class RequestSigner:
    """Signs the requests of one run; used by one event loop."""

    def __init__(
        self,
        key: SigningKey,
        origin: str,
        when: SignWhen,
        scope: SignScope = SignScope.REQUEST,
        *,
        clock: Callable[[], Instant] = wall,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """origin: of the crawler's site. clock: the wall clock, by which sites judge. note: a line for the journal.
        Raises SettingsError for a key that a standard prints."""
        require_own(key)
        self._key, self._origin, self._when, self._scope = key, origin, when, scope
        self._clock, self._note = clock, note
        self._wanted: OrderedDict[str, WantedSignature] = OrderedDict()  # by authority
        self._kept: OrderedDict[str, tuple[int, Fields]] = OrderedDict()  # by authority and form, with their ends
        self._noted: OrderedDict[str, None] = OrderedDict()
        self._counts = dict.fromkeys(SIGNATURE_COUNTS, 0)

    def __repr__(self) -> str:
        return f"<RequestSigner {self._key.id} {self._when} {self._scope}>"

    def statistics(self) -> dict[str, float]:
        """Returns signatures made, requests that reused one, answers that asked for one, of these the ones that we do
        not sign; signatures that a site called wrong, and the largest differences of our clock then, in seconds."""
        return {f"signatures_{name}": count for name, count in self._counts.items()}

    def sign(self, request: Request, form: AgentForm) -> None:
        """Signs a request that is to be signed, before it is sent. form: of Signature-Agent."""
        fields = self._fields(request, form)
        if fields or request.signature:
            request.sign(fields)

    def _fields(self, request: Request, form: AgentForm) -> Fields:
        """Returns the fields of the signature of a request, () if it is not to be signed."""
        target = request.target
        if target.scheme != "https" or not request.verified:
            return ()
        wanted = self._wanted.get(target.authority, ANY_SIGNATURE if self._when is SignWhen.ALWAYS else None)
        if wanted is None:
            return ()
        now = self._clock() // MICROSECONDS
        if wanted is ANY_SIGNATURE and self._scope is SignScope.HOST:
            kept = self._kept.get(target.authority + form)
            if kept is not None and now < kept[0]:
                self._counts["reused"] += 1
                return kept[1]
        return self._made(request, wanted, form, now)

    def _made(self, request: Request, wanted: WantedSignature, form: AgentForm, now: int) -> Fields:
        """Makes a signature, and keeps one that is valid for the whole host."""
        told = request.target
        path, mark, query = told.path.partition("?")
        target = SignedTarget("GET", told.scheme, told.authority, path, mark + query)
        by_host = wanted is ANY_SIGNATURE and self._scope is SignScope.HOST
        if wanted is not ANY_SIGNATURE:
            components = wanted.components
        elif by_host:
            components = ("@authority",)
        else:
            components = ("@method", "@authority", "@path", "@query") if mark else ("@method", "@authority", "@path")
        # A clock that is ahead by a moment would make a signature of the future, which verifiers refuse.
        created = now - SIGNATURE_BACKDATE_SECONDS
        expires = now + SIGNATURE_SECONDS
        made = sign_request(
            self._key,
            target,
            components,
            agent=agent_value(self._origin, form),
            form=form,
            created=created,
            expires=expires,
            nonce=self._nonce(told.authority, wanted),
            label=wanted.label,
        )
        self._counts["made"] += 1
        fields = made.fields()
        if by_host:
            _put(self._kept, told.authority + form, (now + SIGNATURE_SECONDS // 2, fields))
        return fields

    def _nonce(self, authority: str, wanted: WantedSignature) -> str | None:
        """Returns the nonce of the next signature. A site's own is used once; then ours follow."""
        if wanted.nonce is None:
            return None
        if wanted.nonce:
            self._wanted[authority] = wanted._replace(nonce="")
            return wanted.nonce
        return base64.b64encode(os.urandom(_NONCE_BYTES)).decode()

    def answered(self, request: Request, response: Response) -> Response:
        """Returns the answer to a request, with the error `asks_signature` if the next request is to be signed as the
        site asks."""
        status = response.status
        if status is None or status < 400 or response.error is not None:
            return response
        if request.target.scheme != "https" or not request.verified:
            return response
        was_signed = b"\r\nSignature-Input: " in response.request_head
        crawler_error = (response.headers.get("crawler-error") or "").strip().lower()
        values = response.headers.get_all("accept-signature") if status in _CHALLENGES else []
        if was_signed and (values or crawler_error == "invalidsignature"):
            self._note_clock(request.target.authority, response)
        if was_signed and crawler_error == "invalidsignature":
            self._counts["refused"] += 1
            self._note_once(
                request.target.authority,
                f"{request.target.authority} says that our signature is wrong (400 InvalidSignature)",
            )
            return response
        if not values and crawler_error != "strongauthrequired":
            return response
        return self._challenged(request.target.authority, values, response, was_signed)

    def _challenged(self, authority: str, values: list[str], response: Response, was_signed: bool) -> Response:
        self._counts["asked"] += 1
        try:
            wanted = wanted_signature(values, self._key.id) if values else ANY_SIGNATURE
        except SettingsError as refused:
            self._counts["not_signable"] += 1
            self._note_once(authority, f"{authority} asks for a signature that we do not make: {refused.facts}")
            return response
        known = self._wanted.get(authority)
        as_asked = known is not None and known[:2] == wanted[:2] and not wanted.nonce
        if was_signed and (as_asked or wanted is ANY_SIGNATURE):
            return response  # it was signed as asked, and is refused all the same
        _put(self._wanted, authority, wanted)
        return replace(response, error=FetchError.ASKS_SIGNATURE, error_text="the site asks for a signed request")

    def _note_once(self, authority: str, text: str) -> None:
        """Notes the first fault of each host."""
        if authority not in self._noted:
            _put(self._noted, authority, None)
            self._note(text)

    def _note_clock(self, authority: str, response: Response) -> None:
        """Notes by how much our clock differs from a site's that refused a signature."""
        now = self._clock() / MICROSECONDS
        date = http_date(response.headers.get("date") or "", now)
        if date is None:
            return
        if now - date >= CLOCK_AHEAD_SECONDS_MIN:
            way, reason = "ahead", "its signatures are of the future"
        elif date - now >= CLOCK_LATE_SECONDS_MIN:
            way, reason = "late", "its signatures end too early"
        else:
            return
        off = round(abs(now - date))
        if off > self._counts[f"clock_{way}_seconds"]:
            self._counts[f"clock_{way}_seconds"] = off
            place = f"ahead of {authority}" if way == "ahead" else f"late against {authority}"
            self._note(f"the clock of this machine is {off} s {place}, so {reason} and are refused: set it")


def _put(kept: OrderedDict[K, V], key: K, value: V) -> None:
    """Keeps a value; the oldest one goes if there are too many."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > SIGNATURE_HOSTS_MAX:
        kept.popitem(last=False)
