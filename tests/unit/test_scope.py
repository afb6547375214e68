"""Scope: which URLs a crawl wants."""

from __future__ import annotations

from typing import Any, cast

import pytest

from outrider.errors import SettingsError
from outrider.url import Scope
from outrider.url.refusal import shown


def wanted(scope: Scope, *urls: str, depth: int = 0) -> list[bool]:
    return scope.verdicts(urls, [depth] * len(urls))


def test_host_scope_includes_the_seeds_hosts_on_any_port_and_scheme() -> None:
    scope = Scope.of_seeds("host", ["http://example.org/a"])
    urls = ["https://example.org:8443/", "http://www.example.org/", "http://example.org.evil.example/"]
    assert [True, False, False] == wanted(scope, *urls)


def test_domain_scope_includes_all_hosts_of_the_registrable_domain() -> None:
    scope = Scope.of_seeds("domain", ["http://www.example.co.uk/"])
    assert [True, True, False] == wanted(
        scope, "http://example.co.uk/", "http://a.b.example.co.uk/", "http://other.co.uk/"
    )


@pytest.mark.parametrize("seed", ["http://127.0.0.1:8000/", "http://localhost/", "http://github.io/"])
def test_domain_scope_of_a_host_without_a_domain_is_the_host(seed: str) -> None:
    scope = Scope.of_seeds("domain", [seed])
    assert [True, False] == wanted(scope, seed + "x", "http://other.github.io/")


def test_prefix_scope_includes_urls_next_to_and_below_the_seed() -> None:
    scope = Scope.of_seeds("prefix", ["http://example.org/docs/start.html?x=/y/"])
    urls = [
        "http://example.org/docs/a/b",
        "http://example.org/docs/",
        "http://example.org/doc",
        "https://example.org/docs/",
    ]
    assert [True, True, False, False] == wanted(scope, *urls)


def test_any_scope_includes_all_urls() -> None:
    assert [True] == wanted(Scope.of_seeds("any", []), "http://elsewhere.example/")


def test_a_scope_without_seeds_includes_no_url() -> None:
    for kind in ("host", "domain", "prefix"):
        assert [False] == wanted(Scope.of_seeds(cast(Any, kind), []), "http://example.org/")


def test_the_target_of_a_redirected_seed_joins_the_scope() -> None:
    scope = Scope.of_seeds("host", ["http://example.org/"])
    wider = scope.widened("https://www.example.org/start")
    assert [True, True] == wanted(wider, "http://example.org/", "http://www.example.org/")
    assert [False] == wanted(scope, "http://www.example.org/")


def test_links_beyond_the_depth_are_not_wanted() -> None:
    scope = Scope.of_seeds("any", [], depth_max=2)
    assert [True, False] == scope.verdicts(["http://a.example/", "http://a.example/"], [2, 3])


def test_exclude_beats_include() -> None:
    scope = Scope.of_seeds("any", [], include=["/docs/"], exclude=[r"\.pdf$"])
    urls = ["http://a.example/docs/x", "http://a.example/docs/x.pdf", "http://a.example/blog/x"]
    assert [True, False, False] == wanted(scope, *urls)


def test_one_include_pattern_of_several_is_enough() -> None:
    scope = Scope.of_seeds("any", [], include=["^http://a[.]", "^http://b[.]"])
    assert [True, True, False] == wanted(scope, "http://a.example/", "http://b.example/", "http://c.example/")


def test_patterns_do_not_widen_the_place() -> None:
    scope = Scope.of_seeds("host", ["http://example.org/"], include=["."])
    assert [False] == wanted(scope, "http://other.example/")


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "a{1001}", "\ud800"])
def test_a_malformed_pattern_is_named_with_its_reason(pattern: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Scope.of_seeds("any", [], exclude=[pattern])
    assert f"exclude pattern {shown(pattern)}: " in str(caught.value)


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingsError, match="it can be host, domain, prefix, any"):
        Scope.of_seeds(cast(Any, "site"), [])


def test_a_negative_depth_is_refused() -> None:
    with pytest.raises(SettingsError, match="max-depth is -1"):
        Scope.of_seeds("any", [], depth_max=-1)


def test_a_pattern_that_hurts_backtracking_engines_is_linear_here() -> None:
    scope = Scope.of_seeds("any", [], include=["(a+)+$"])
    assert [False] == wanted(scope, "http://example.org/" + "a" * 50_000 + "!")


def test_scopes_with_the_same_content_are_equal() -> None:
    one, other = (Scope.of_seeds("host", ["http://example.org/"], include=["a"]) for _ in range(2))
    assert one == other
