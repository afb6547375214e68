"""Requests of Scrapy as octets: values keep their types, and others are refused."""

from __future__ import annotations

import msgspec
import pytest

from outrider.integrations.stored_requests import UnstorableError, packed, unpacked
from outrider.limits import STORED_REQUEST_BYTES_MAX

URL = "http://example.org/"


def test_a_request_is_read_as_it_was_written():
    meta = {"depth": 2, "pair": (1, (2.5, None)), "names": {"a", "b"}, "frozen": frozenset({3}), 7: [True]}
    values = {"url": URL, "body": b"\xff", "headers": {b"Accept": [b"*/*"]}, "meta": meta, "priority": -3}
    found = unpacked(packed(values))
    assert values == found
    assert [tuple, tuple, set, frozenset] == [
        *map(type, (found["meta"]["pair"], found["meta"]["pair"][1], found["meta"]["names"], found["meta"]["frozen"]))
    ]


def test_values_that_are_the_default_take_no_room():
    values = {"url": URL, "callback": None, "headers": {}, "method": "GET", "dont_filter": False, "priority": 0}
    assert {"url": URL} == unpacked(packed(values))
    assert {"url": URL, "priority": False} == unpacked(packed({"url": URL, "priority": False}))


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (print, r"meta\['x'\] has a value of type builtins.builtin_function_or_method"),
        ({(1, 2): 3}, "a key of type tuple"),
        (1 << 70, "more than 64 bits"),
        (nested(100), "nested more than"),
        ("\ud800", "surrogate"),
        (b"x" * (STORED_REQUEST_BYTES_MAX + 1), "can be stored"),
    ],
)
def test_other_values_are_refused_with_their_place(value, message):
    with pytest.raises(UnstorableError, match=message):
        packed({"url": URL, "meta": {"x": value}})


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\x80\x04}.",
        msgspec.msgpack.encode({"body": b""}),
        msgspec.msgpack.encode({"url": msgspec.msgpack.Ext(9, b"")}),
        msgspec.msgpack.encode({"url": URL, "meta": msgspec.msgpack.Ext(2, msgspec.msgpack.encode([[]]))}),
        b"\x91" * 5_000,
    ],
)
def test_octets_that_are_no_request_are_refused(octets):
    with pytest.raises(ValueError, match="cannot be read"):
        unpacked(octets)
