"""Answers that ask for payment, and answers that say they were charged. Nothing here pays.

A 402 names its price in `crawler-price` (Cloudflare's pay per crawl, 23 April 2026), in `PAYMENT-REQUIRED` (x402
version 2) or in its body (x402 version 1). The scheme and the price are kept as text: amounts of different schemes
cannot be compared. A price that cannot be read is kept as such, and the answer asks for payment all the same.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import Final

import msgspec

from outrider.fetch.downloader import Response
from outrider.limits import PAYMENT_FIELD_BYTES_MAX

ASKS: Final = 402
_PRICE: Final = re.compile(r"[A-Z]{3} [0-9]{1,12}(\.[0-9]{1,12})?")
_WORD: Final = re.compile(r"[!-~]{1,64}")


class _Offer(msgspec.Struct):
    """One way to pay, as x402 describes it. Version 2 has `amount`, version 1 `maxAmountRequired`."""

    network: str
    asset: str
    amount: str = ""
    max_amount: str = msgspec.field(default="", name="maxAmountRequired")


class _Offers(msgspec.Struct):
    accepts: list[_Offer]


_DECODER: Final = msgspec.json.Decoder(_Offers)


def payment_of(response: Response) -> str | None:
    """Returns what a 402 asks for: scheme and price, "" without a price. For another answer the sum that its
    `crawler-charged` names, None without that field."""
    if response.status == ASKS:
        return _asked(response)
    charged = response.headers.get("crawler-charged")
    return None if charged is None else _price(charged)


def _asked(response: Response) -> str:
    headers = response.headers
    price = headers.joined("crawler-price") if "crawler-price" in headers.names else None
    if price is not None:
        return f"crawler-price {_price(price)}"
    offer = response.headers.get("payment-required")
    if offer is not None:
        return f"x402 {_offered_in_field(offer)}"
    if b'"accepts"' in response.content[:PAYMENT_FIELD_BYTES_MAX]:
        return f"x402 {_offered(response.content)}"
    return ""


def _price(text: str) -> str:
    """Returns a price as it was written, or why it cannot be read."""
    text = text.strip(" \t")
    return text if _PRICE.fullmatch(text) else _unreadable(text)


def _offered_in_field(value: str) -> str:
    if len(value) > PAYMENT_FIELD_BYTES_MAX:
        return _unreadable(value)
    try:
        return _offered(b64decode(value.strip(" \t"), validate=True))
    except (binascii.Error, ValueError):  # broken base64, or characters beyond ASCII
        return _unreadable(value)


def _offered(body: bytes) -> str:
    """Returns the first offer of x402: the amount in the smallest unit of its asset, the asset, the network."""
    if len(body) > PAYMENT_FIELD_BYTES_MAX:
        return "(an offer that is too long)"
    try:
        offers = _DECODER.decode(body).accepts
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "(an offer that cannot be read)"
    if not offers:
        return "(no offer)"
    first = offers[0]
    words = (first.amount or first.max_amount, first.asset, first.network)
    return "{} of {} on {}".format(*words) if all(map(_WORD.fullmatch, words)) else "(an offer that cannot be read)"


def _unreadable(text: str) -> str:
    """Returns words for a text that cannot be a price, with its beginning in printable characters."""
    return f"(unreadable: {text[:40]!a})"
