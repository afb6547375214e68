"""Scope on columns: its verdict on a batch is that on each URL. Also the rules of shape."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import InvalidUrlError, SettingsError
from outrider.url import Scope, UrlBatch

URLS = [
    *(
        "http://a.org/",
        "https://a.org:81/docs/x.html?a/b",
        "http://www.a.org/docs/",
        "http://b.co.uk/y.ZIP",
        "nonsense",
    ),
    *(
        "http://a.b.co.uk/docs/x/x/y/x",
        "http://[::1]/",
        "http://a.org/docs/.zip",
        "http://a.org/x?f=y.zip",
        "http://zip/",
    ),
]
SHAPES: list[dict[str, Any]] = [
    {},
    {"schemes": ["https"]},
    {"extensions_refused": ["zip", "html"]},
    {"bytes_max": 20},
    {"path_depth_max": 2},
    {"path_repeats_max": 2},
    {"include": ["docs", "y"], "exclude": [r"\.html"]},
]


@given(
    kind=st.sampled_from(["host", "domain", "prefix", "any"]),
    seeds=st.lists(st.sampled_from([url for url in URLS if url != "nonsense"]), max_size=3),
    shape=st.sampled_from(SHAPES),
    rows=st.lists(st.tuples(st.sampled_from(URLS), st.integers(0, 3)), max_size=8),
)
def test_a_batch_is_judged_like_its_urls(
    kind: Any, seeds: list[str], shape: dict[str, Any], rows: list[tuple[str, int]]
) -> None:
    scope = Scope.of_seeds(kind, seeds, depth_max=2, **shape)
    urls, depths = [url for url, _ in rows], [depth for _, depth in rows]
    verdicts = scope.verdicts(UrlBatch.of(urls), np.array(depths, dtype=np.int64))
    assert [scope.verdicts([url], [depth])[0] for url, depth in rows] == verdicts.tolist()


def wanted(*urls: str, **shape: Any) -> list[bool]:
    return Scope.of_seeds("any", [], **shape).verdicts(UrlBatch.of(urls), [0] * len(urls)).tolist()


def test_an_invalid_url_is_not_wanted() -> None:
    assert [True, False] == wanted("http://a.org/", "nonsense")


def test_schemes_exclude_all_other_schemes() -> None:
    assert [False, True] == wanted("http://a.org/", "https://a.org/", schemes=["https"])
    assert [True, True] == wanted("http://a.org/", "https://a.org/", schemes=["https", "http"])


def test_refused_extensions_are_matched_in_file_names() -> None:
    urls = ["http://a.org/x.ZIP", "http://a.org/x.zip?y", "http://a.org/x.tar.gz", "http://a.org/.zip", "http://x.zip/"]
    assert [False, False, True, True, True] == wanted(*urls, extensions_refused=["zip"])
    assert [True, True] == wanted("http://a.org/x.zip/", "http://a.org/?x.zip", extensions_refused=["zip"])


def test_long_urls_are_excluded() -> None:
    assert [True, False] == wanted("http://a.org/1", "http://a.org/12", bytes_max=14)


def test_deep_paths_are_excluded() -> None:
    urls = ["http://a.org/", "http://a.org/a/b.html?c/d", "http://a.org/a//b/", "http://a.org/a/b/c"]
    assert [True, True, True, False] == wanted(*urls, path_depth_max=2)


def test_paths_that_repeat_themselves_are_excluded() -> None:
    urls = ["http://a.org/a/b/a/b", "http://a.org/a/b/a/b/a/b", "http://a.org/a//////b?a/a/a"]
    assert [True, False, True] == wanted(*urls, path_repeats_max=2)


@pytest.mark.parametrize(
    ("shape", "fact"),
    [
        ({"bytes_max": 0}, "bytes_max is 0; it can be 1 or more"),
        ({"path_depth_max": -1}, "path_depth_max is -1; it can be 0 or more"),
        ({"path_repeats_max": 0}, "path_repeats_max is 0; it can be 1 or more"),
        ({"schemes": ["ftp"]}, "scheme 'ftp' is never crawled; http and https are"),
        ({"extensions_refused": [".zip"]}, "extension '.zip': write it in lower case and without the dot"),
        ({"extensions_refused": ["ZIP"]}, "extension 'ZIP': write it in lower case and without the dot"),
    ],
)
def test_an_impossible_shape_is_refused_by_name(shape: dict[str, Any], fact: str) -> None:
    with pytest.raises(SettingsError, match=fact):
        Scope.of_seeds(cast(Any, "any"), [], **shape)


def test_a_wider_scope_keeps_its_shape() -> None:
    scope = Scope.of_seeds("host", ["http://a.org/"], bytes_max=20).widened("http://b.org/")
    assert [True, False] == scope.verdicts(["http://b.org/", "http://b.org/" + "x" * 20], [0, 0])


@pytest.mark.parametrize("kind", ["host", "domain", "prefix"])
def test_seeds_may_be_spelled_in_any_way(kind: Any) -> None:
    assert Scope.of_seeds(kind, ["http://a.org/x"]) == Scope.of_seeds(kind, ["HTTP://u@A.org:80/y/../x#z"])


def test_a_seed_that_cannot_be_crawled_is_refused_with_its_reason() -> None:
    with pytest.raises(InvalidUrlError, match="it has no scheme"):
        Scope.of_seeds("host", ["a.org"])


@pytest.mark.parametrize("depths", [0, [0], [[0, 0]], [0, 0, 0]])
def test_each_url_needs_a_depth(depths: Any) -> None:
    with pytest.raises(ValueError, match="2 URLs need 2 depths"):
        Scope.of_seeds("any", []).verdicts(["http://a.org/", "http://b.org/"], depths)
