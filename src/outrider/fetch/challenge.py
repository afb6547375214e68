"""Answers with a challenge for a browser or a person in place of the page: a table of signs, as of 2026-11-23.

A sign names a field of the header or bytes of the body that its maker's documents or pages show. The statuses exclude
pages that only mention such a service. Nothing here helps to evade a challenge.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from outrider import kernels
from outrider.fetch.downloader import Headers
from outrider.limits import UNWELCOME_BODY_BYTES_MAX

_CLOSED = (401, 403, 405, 429, 503)


@dataclass(frozen=True, slots=True)
class Sign:
    """One sign. header: a field and a text in its value ("" for any value); body: bytes in lower case that must all
    be there; statuses: () for any status."""

    name: str
    statuses: tuple[int, ...] = ()
    header: tuple[str, str] | None = None
    body: tuple[bytes, ...] = ()


SIGNS = (
    Sign("cloudflare", header=("cf-mitigated", "challenge")),
    Sign("cloudflare", _CLOSED, ("server", "cloudflare"), (b"/cdn-cgi/challenge-platform/",)),
    Sign("cloudflare", _CLOSED, ("server", "cloudflare"), (b"cf-error-code", b"1020")),
    Sign("aws-waf", header=("x-amzn-waf-action", "challenge")),
    Sign("aws-waf", header=("x-amzn-waf-action", "captcha")),
    Sign("datadome", _CLOSED, ("x-datadome", "")),
    Sign("datadome", _CLOSED, None, (b"captcha-delivery.com",)),
    Sign("imperva", (*_CLOSED, 200), ("x-iinfo", ""), (b"_incapsula_resource", b"<iframe")),
    Sign("akamai", (403,), ("server", "akamaighost"), (b"access denied", b"reference")),
    Sign("human", _CLOSED, None, (b"px-captcha",)),
    Sign("ddos-guard", _CLOSED, ("server", "ddos-guard"), (b"ddos-guard",)),
    Sign("sucuri", _CLOSED, ("x-sucuri-block", "")),
    Sign("siteground", header=("sg-captcha", "challenge")),
    Sign("anubis", (*_CLOSED, 200), None, (b"anubis_challenge", b"/.within.website/")),
    Sign("interstitial", _CLOSED, None, (b"enable javascript and cookies to continue",)),
    Sign("interstitial", _CLOSED, None, (b"checking your browser before accessing",)),
    Sign("interstitial", _CLOSED, None, (b"verify you are human",)),
    Sign("interstitial", _CLOSED, None, (b"g-recaptcha",)),
    Sign("interstitial", _CLOSED, None, (b"h-captcha",)),
)


def sign_of(status: int | None, headers: Headers, body: bytes) -> str | None:
    """Returns the name of the first sign in an answer, or None. Reads only the first bytes of its decoded body."""
    fields, signs, without_fields = _signs_of(status)
    for sign in without_fields if headers.names.isdisjoint(fields) else signs:
        if sign.header is not None:
            value = headers.get(sign.header[0])
            if value is None or sign.header[1] not in value.lower():
                continue
        if kernels.holds_all(body, sign.body, UNWELCOME_BODY_BYTES_MAX):
            return sign.name
    return None


@lru_cache(maxsize=1_024)
def _signs_of(status: int | None) -> tuple[frozenset[str], tuple[Sign, ...], tuple[Sign, ...]]:
    """The signs that an answer of this status may carry: the fields that they name, all of them, those without one."""
    signs = tuple(sign for sign in SIGNS if not sign.statuses or status in sign.statuses)
    fields = frozenset(sign.header[0] for sign in signs if sign.header is not None)
    return fields, signs, tuple(sign for sign in signs if sign.header is None)
