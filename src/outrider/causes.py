"""Causes in words: HTTP statuses, and the classes of errors that pages.jsonl and the counts have."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

# RFC 9110 renamed these; the library of Python 3.11 and 3.12 has the names of before.
_RENAMED: Final = {413: "Content Too Large", 416: "Range Not Satisfiable", 422: "Unprocessable Content"}

STOPPED: Final = "stopped"
"""The class of a request that was broken off as its crawl was stopped: nothing failed."""

ERRORS: Final = {
    "dns_unknown": "the host name does not resolve",
    "dns_temporary": "no name server could resolve the host name",
    "blocked_address": "the address is not public, or --contact is missing",
    "blocked_port": "the port is not one of HTTP",
    "unreachable": "no route to the address",
    "connect_refused": "connection refused",
    "connect_timeout": "connection timed out",
    "tls": "TLS failed",
    "first_byte_timeout": "the server did not answer in time",
    "idle_timeout": "the server stopped within its answer",
    "total_timeout": "the answer took too long",
    "reset": "connection reset",
    "empty_reply": "the server closed the connection without an answer",
    "malformed": "the answer is not valid HTTP",
    "too_many_headers": "the head of the answer is too long",
    "decode": "the content coding is damaged or unknown",
    "truncated": "the answer broke off",
    "not_welcome": "the site asks for a browser or a person",
    "asks_signature": "the site asks for a signed request",
    "too_large": "the frontier cannot keep an answer of this size",
    "redirect_foreign": "a redirect leads to a host of another frontier",
    "redirect_self": "the page redirects to itself",
    "robots": "closed by robots.txt",
    "robots_unreachable": "robots.txt cannot be read",
    "payment": "the site asks for payment",
    "use": "its site refuses a use of --use",
    "retries": "every attempt failed",
    "lost": "every lease ended without a report",
    "internal": "a fault of this program or this machine",
}
"""The meaning of each class of error, as a short clause. A fault of a hook has its own class (`hook_…`)."""


def status_words(status: int) -> str:
    """Returns an HTTP status with its name in RFC 9110, as `404 Not Found`; without a name, the number alone."""
    name = _RENAMED.get(status)
    if name is None:
        try:
            name = HTTPStatus(status).phrase
        except ValueError:
            return str(status)
    return f"{status} {name}"


def error_words(error: str) -> str:
    """A class of error as a clause, as `connection refused` or `the server answered 404 Not Found`; "" for a class
    without words here."""
    number = error.removeprefix("http_")
    if number != error and number.isascii() and number.isdigit():
        return f"the server answered {status_words(int(number))}"
    return ERRORS.get(error, "")


def span_words(seconds: float) -> str:
    """A length of time, as `21 s`, `4 min 05 s` or `23 h 59 min`."""
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.5 else f"{seconds:.0f} s"
    whole = round(seconds)
    if whole < 7_200:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3_600:,} h {whole % 3_600 // 60:02d} min"
