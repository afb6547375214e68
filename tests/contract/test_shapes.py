"""The contract of the shapes of URLs, for the native build and its plain twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contract.kinds import WITHOUT_NATIVE, both, native_of
from outrider.kernels import shapes as twin
from outrider.kernels.siphash import hash_messages
from outrider.url.dates import months_in

KEY = bytes(range(16))
SESSIONS = b"sid\nphpsessid\naspsessionid*\n"
NATIVE = native_of(twin)
BOTH = both(twin)
PIECES = st.sampled_from(
    [
        *"/?&=.;(_#%-",
        "a",
        "7",
        "page",
        "2031",
        "2031/05",
        "year=2031",
        "/year/2031",
        "date=2031%2F05",
        "calendar-2031-05",
        "y=2031&m=5",
        "1999",
        "sid",
        "_SID=x",
        "aspsessionidqq",
        ".html",
    ]
)
URLS = st.lists(PIECES, max_size=12).map(lambda some: f"https://a.example/{''.join(some)}".encode())


def spans(urls: list[bytes]) -> tuple[bytes, np.ndarray, np.ndarray]:
    ends = np.cumsum(np.array([len(url) for url in urls], np.int64), dtype=np.int64)
    return b"".join(urls), ends - np.array([len(url) for url in urls], np.int64), ends


def told(kernel, *urls: bytes, bytes_max: int = 200) -> list[tuple[int, int, int, int]]:
    """The fingerprints of shape and host, slashes and marks of each URL."""
    names, slashes, marks = kernel.shapes_of(*spans(list(urls)), KEY, bytes_max, SESSIONS)
    columns = np.frombuffer(names, "<u8"), np.frombuffer(slashes, "<u4"), np.frombuffer(marks, "u1")
    pairs, *others = (column.tolist() for column in columns)
    return list(zip(pairs[::2], pairs[1::2], *others, strict=True))


def print_of(text: bytes) -> int:
    return int.from_bytes(hash_messages([text], KEY), "little")


@BOTH
@pytest.mark.parametrize(
    ("rest", "shape"),
    [
        (b"/", b"/"),
        (b"/blog2/some-title/", b"/blog#/a/"),
        (b"/calendar/2026/05/17.html", b"/calendar/#/#/#.html"),
        (b"/a.b/c4.tar.longest", b"/a.b/a#"),
        (b"/x/7z.mp3", b"/x/a#.mp#"),
        (b"/x/.htm", b"/x/.htm"),
        (b"/list?page=3&sort=up&page=4&n1&n22=", b"/a?n#&page&sort"),
        (b"/list?", b"/a"),
        (b"/list?&=1&", b"/a?"),
    ],
)
def test_a_name_is_the_fingerprint_of_authority_and_shape(kernel, rest: bytes, shape: bytes) -> None:
    (found,) = told(kernel, b"http://a.example:81" + rest)
    assert (print_of(b"a.example:81\n" + shape), print_of(b"a.example:81\n")) == found[:2]
    assert rest.count(b"/") == found[2]


@BOTH
def test_a_long_shape_is_cut(kernel) -> None:
    ((short, *_), (long, *_)) = told(kernel, b"http://a.example/abc/d", b"http://a.example/abcdef/d", bytes_max=4)
    assert short == long == print_of(b"a.example\n/abc")


@BOTH
@pytest.mark.parametrize(
    ("rest", "session", "month"),
    [
        (b"/a/b?c=d", False, False),
        (b"/a;b", True, False),
        (b"/a/(S(x))/b", True, False),
        (b"/?a=1&__SiD=2", True, False),
        (b"/?sidney=1", False, False),
        (b"/?a=sid", False, False),
        (b"/?ASPSESSIONIDabc=1", True, False),
        (b"/?aspsessionid", True, False),
        (b"/2031/05/", False, True),
        (b"/x1999-05", False, False),
        (b"/year/2031", False, True),
        (b"/story/2031", False, False),
        (b"/?9=2031", False, False),
        (b"/?d=2031", False, True),
        (b"/?d=2031%2f5", False, True),
        (b"/?date=203105", False, True),
    ],
)
def test_urls_are_marked_for_a_closer_look(kernel, rest: bytes, session: bool, month: bool) -> None:
    ((_, _, _, marks),) = told(kernel, b"http://a.example" + rest)
    assert (session, month) == (bool(marks & twin.MAY_HAVE_SESSION), bool(marks & twin.MAY_HAVE_MONTH))


@BOTH
@given(url=URLS)
@example(url=b"https://a.example/?x=y&YEAR=2031")
def test_no_url_that_names_a_month_is_without_the_mark(kernel, url: bytes) -> None:
    ((*_, marks),) = told(kernel, url)
    months = [month for month in months_in(url[17:].decode()) if month >= 2000 * 12]
    assert marks & twin.MAY_HAVE_MONTH or not months


@BOTH
@pytest.mark.parametrize("url", [b"", b"http://a.example", b"no scheme/x", b"http:/"])
def test_no_url_is_refused(kernel, url: bytes) -> None:
    with pytest.raises(ValueError, match="row 1: a URL has an authority and a path"):
        told(kernel, b"http://a.example/", url)


@WITHOUT_NATIVE
@given(urls=st.lists(URLS, max_size=8), bytes_max=st.integers(0, 30))
def test_twin_and_kernel_return_the_same_shapes(urls: list[bytes], bytes_max: int) -> None:
    given_ = (*spans(urls), KEY, bytes_max, SESSIONS)
    assert twin.shapes_of(*given_) == NATIVE.shapes_of(*given_)
