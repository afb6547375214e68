"""The contract of pieces of text in any case, for the native build and its plain twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import WITHOUT_NATIVE, both, native_of
from outrider.kernels import caseless as twin

NATIVE = native_of(twin)
BOTH = both(twin)
MANY = 1 << 20


@BOTH
@pytest.mark.parametrize(
    ("text", "pieces", "expected"),
    [
        (b"", (), True),
        (b"", (b"",), True),
        (b"", (b"a",), False),
        (b"<p>PX-Captcha</p>", (b"px-captcha",), True),
        (b"<p>PX-Captch", (b"px-captcha",), False),
        (b"px-captcpx-captcha", (b"px-captcha",), True),
        (b"one TWO three", (b"two", b"one", b"three"), True),
        (b"one TWO three", (b"two", b"four"), False),
        (b"two TWO", (b"TWO",), False),  # pieces are in lower case
        ("É é".encode(), ("é".encode(),), True),
        ("É".encode(), ("é".encode(),), False),  # letters of ASCII alone
        (b"[\\]^_`{|}~@", (b"{|}",), True),
        (b"[\\]", (b"{|}",), False),
    ],
)
def test_pieces_are_found_in_any_case_of_ascii(kernel, text, pieces, expected):
    assert expected is kernel.holds_all(text, pieces, MANY)


@BOTH
@pytest.mark.parametrize(("most", "expected"), [(0, False), (7, False), (8, True), (9, True)])
def test_only_the_first_bytes_are_read(kernel, most, expected):
    assert expected is kernel.holds_all(b"..needle..", (b"needle",), most)


@BOTH
def test_any_buffer_of_bytes_will_do(kernel):
    assert kernel.holds_all(memoryview(bytearray(b"a NEEDLE")), (memoryview(b"needle"),), MANY)


@BOTH
@pytest.mark.parametrize(
    ("text", "pieces", "most", "error"),
    [
        ("text", (b"x",), MANY, TypeError),
        (b"text", ("x",), MANY, TypeError),
        (b"text", [b"x"], MANY, TypeError),
        (b"text", (b"x",), -1, OverflowError),
        (memoryview(b"abcd").cast("H"), (b"x",), MANY, BufferError),
    ],
)
def test_other_arguments_are_refused(kernel, text, pieces, most, error):
    with pytest.raises(error):
        kernel.holds_all(text, pieces, most)


@WITHOUT_NATIVE
@given(st.binary(max_size=60), st.lists(st.binary(max_size=3), max_size=3).map(tuple), st.integers(0, 70))
def test_both_find_the_same_in_any_bytes(text, pieces, most):
    assert twin.holds_all(text, pieces, most) is NATIVE.holds_all(text, pieces, most)


@WITHOUT_NATIVE
@given(st.text("aAbBzZ_", max_size=80), st.text("abz_", max_size=6))
def test_both_find_the_same_in_words(text, piece):
    text, piece = text.encode(), piece.encode()
    assert twin.holds_all(text, (piece,), MANY) is NATIVE.holds_all(text, (piece,), MANY)
