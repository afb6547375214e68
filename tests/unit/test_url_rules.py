"""Lossy rules: the effect and limits of each, order, text form, rules of hosts, idempotence, hostile input."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import SettingsError
from outrider.limits import URL_BYTES_MAX
from outrider.url import LossyRules, normalize, spell
from outrider.url.lossy_rules import (
    PRESETS,
    ROUNDS_MAX,
    RULES,
    SESSION_NAMES,
    SESSION_NAMES_BY_VALUE,
    TRACKING_NAMES,
    TRACKING_PREFIXES,
)
from timing import seconds_of

H = "http://example.org"
TOKEN = "587fba8f825b05844526519fdb7d75c8"


@pytest.mark.parametrize(
    ("rule", "given", "expected"),
    [
        ("https", f"{H}/a", "https://example.org/a"),
        ("https", "http://[::1]/", "https://[::1]/"),
        ("www", "http://www.example.org/a", f"{H}/a"),
        ("www", "http://www.www.example.org:8080/", f"{H}:8080/"),
        ("www", "http://www.example.co.uk/", "http://example.co.uk/"),
        ("host_dot", "http://www.example.org./a", "http://www.example.org/a"),
        ("host_dot", "http://example.org.:8080/", f"{H}:8080/"),
        ("strict_characters", f"{H}/90%+of", f"{H}/90%25+of"),
        ("strict_characters", f"{H}/%zz%7", f"{H}/%25zz%257"),
        ("strict_characters", f"{H}/a|b?x[y]={{1}}", f"{H}/a%7Cb?x%5By%5D=%7B1%7D"),
        ("repeated_slashes", f"{H}//a///b/?c//d", f"{H}/a/b/?c//d"),
        ("session_ids", f"{H}/a;jsessionid=1E6F/b;JSESSIONID=2?c", f"{H}/a/b?c"),
        ("session_ids", f"{H}/a;phpsessid=1;v=2", f"{H}/a;v=2"),
        ("session_ids", f"{H}/(S(4hqa0555fwsecu455xqckv45))/mileg.aspx", f"{H}/mileg.aspx"),
        ("session_ids", f"{H}/(X(1)S(4hqa0555fwsecu455xqckv45)F(x-y_))/m.aspx", f"{H}/m.aspx"),
        ("session_ids", f"{H}/(4hqa0555fwsecu455xqckv45)/m.aspx", f"{H}/m.aspx"),
        ("session_ids", f"{H}/?a=1&PHPSESSID=x&b=2", f"{H}/?a=1&b=2"),
        ("session_ids", f"{H}/?sid={TOKEN}", f"{H}/"),
        ("session_ids", f"{H}/?_sid={TOKEN}&a", f"{H}/?a"),
        ("session_ids", f"{H}/?ASPSESSIONIDAQBSDSRT=EOHB", f"{H}/"),
        ("index_files", f"{H}/a/index.html", f"{H}/a/"),
        ("index_files", f"{H}/Default.aspx?x=1", f"{H}/?x=1"),
        ("index_files", f"{H}/INDEX.PHP", f"{H}/"),
        ("trailing_slash", f"{H}/a/", f"{H}/a"),
        ("trailing_slash", f"{H}/a//?b/", f"{H}/a?b/"),
        ("trailing_slash", f"{H}//", f"{H}/"),
        ("tracking", f"{H}/?utm_source=a&id=3&fbclid=x", f"{H}/?id=3"),
        ("tracking", f"{H}/?UTM_anything=a&GCLID=b", f"{H}/"),
        ("tracking", f"{H}/?utm%5Fsource=a", f"{H}/"),
        ("blank_parameters", f"{H}/?q=x&category=&price=", f"{H}/?q=x"),
        ("empty_parameters", f"{H}/?&&a=1&&=2&b=&", f"{H}/?a=1&b"),
        ("empty_parameters", f"{H}/?=", f"{H}/"),
        ("sort_query", f"{H}/?c=1&b=2&a=3&b=1", f"{H}/?a=3&b=2&b=1&c=1"),
    ],
)
def test_a_rule_makes_one_spelling_of_several(rule: str, given: str, expected: str) -> None:
    assert expected == LossyRules.of(rule).apply(normalize(given))


@pytest.mark.parametrize(
    ("rule", "url"),
    [
        ("https", f"{H}:8080/"),
        ("https", "http://[::1]:8080/"),
        ("www", "http://www.com/"),
        ("www", "http://www.co.uk/"),
        ("www", "http://www.github.io/"),
        ("www", "http://www2.example.org/"),
        ("www", "http://wwwexample.org/"),
        ("host_dot", "http://./"),
        ("strict_characters", f"{H}/~a'(b)*;c=1,2:@!$&/%C3%A9?d=%5B/e?"),
        ("repeated_slashes", f"{H}/a?u=http://b//c"),
        ("session_ids", f"{H}/article.pl?sid=99/03/31/0137221"),
        ("session_ids", f"{H}/modules.php?name=News&sid=1234"),
        ("session_ids", f"{H}/?s=how-to-bake-bread-for-2-people-at-home"),
        ("session_ids", f"{H}/?s=internationalisation"),
        ("session_ids", f"{H}/a;v=1/photos/36050182@N05/(S(short))/x"),
        ("index_files", f"{H}/index.html/"),
        ("index_files", f"{H}/my-index.html"),
        ("index_files", f"{H}/a?index.html"),
        ("trailing_slash", f"{H}/"),
        ("trailing_slash", f"{H}/?a/"),
        ("tracking", f"{H}/?ref=a&source=b&from=c&cid=d&outm_source=e"),
        ("tracking", f"{H}/utm_source=a?b=fbclid"),
        ("blank_parameters", f"{H}/?wsdl&a==&="),
        ("empty_parameters", f"{H}/?/category/3"),
        ("sort_query", f"{H}/?one/valid_query/without_%2F_params"),
        ("sort_query", f"{H}/?b;a"),
    ],
)
def test_a_rule_does_not_change_other_urls(rule: str, url: str) -> None:
    assert normalize(url) == LossyRules.of(rule).apply(normalize(url))


def test_no_rule_is_on_by_default() -> None:
    url = "http://www.example.org./a//index.html?b=&utm_source=x&a=%"
    assert url == LossyRules().apply(url)
    assert not LossyRules()


def test_every_rule_of_a_parameter_table_is_written_in_lower_case() -> None:
    names = [*TRACKING_NAMES, *TRACKING_PREFIXES, *SESSION_NAMES, *SESSION_NAMES_BY_VALUE]
    assert names == [name.lower() for name in names]


def test_dot_segments_that_appear_after_a_rule_are_resolved() -> None:
    assert f"{H}/b" == LossyRules.of("session_ids").apply(f"{H}/a/..;jsessionid=1/b")


def test_rules_run_in_their_own_order_however_they_are_named() -> None:
    assert LossyRules.of("sort_query,tracking") == LossyRules.of(["tracking", "sort_query"])
    assert ("tracking", "sort_query") == LossyRules.of("sort_query tracking").names


def test_aggressive_is_every_rule() -> None:
    rules = LossyRules.of("aggressive")
    assert RULES == rules.names
    url = "http://www.example.org./a//index.html;jsessionid=1?b=&utm_source=x&a=%&=1"
    assert "https://example.org/a?a=%25" == rules.apply(url)


def test_a_minus_switches_a_rule_of_a_preset_off() -> None:
    assert tuple(name for name in RULES if name != "https") == LossyRules.of("aggressive,-https").names


def test_a_mapping_switches_rules_on_and_off() -> None:
    assert ("www",) == LossyRules.of({"www": True, "https": False, "sort-query": False}).names


@pytest.mark.parametrize("nothing", ["", "none", " ", []])
def test_an_empty_setting_means_no_rules(nothing: Any) -> None:
    assert LossyRules() == LossyRules.of(nothing)


# ------------------------------------------------------------------------------------------------------ hosts' own


def test_the_rules_of_a_host_replace_those_of_the_crawl() -> None:
    rules = LossyRules.of("sort_query", hosts={"example.org": "tracking"})
    assert f"{H}/?b&a" == rules.apply(f"{H}/?b&a&gclid=1")
    assert "http://example.com/?a&b" == rules.apply("http://example.com/?b&a")


def test_a_star_matches_the_names_below_a_host() -> None:
    rules = LossyRules.of(hosts={"*.example.org": "trailing_slash"})
    assert ["http://a.b.example.org/x", f"{H}/x/", "http://notexample.org/x/"] == rules.apply_batch(
        ["http://a.b.example.org/x/", f"{H}/x/", "http://notexample.org/x/"]
    )


def test_the_most_specific_pattern_of_a_host_applies() -> None:
    rules = LossyRules.of(
        "aggressive", hosts={"*.example.org": "none", "*.b.example.org": "www", "a.b.example.org": "tracking"}
    )
    url = "http://{}/x/?b&gclid=1&a"
    assert "http://a.b.example.org/x/?b&a" == rules.apply(url.format("a.b.example.org"))
    assert url.format("c.b.example.org") == rules.apply(url.format("c.b.example.org"))
    assert url.format("c.example.org") == rules.apply(url.format("c.example.org"))


def test_a_host_pattern_replaces_in_path_and_query() -> None:
    rules = LossyRules.of(
        "sort_query", hosts={"example.org": {"replace": [[r"/s-[0-9]+/", "/"], [r"[?&]print=1\b", ""]]}}
    )
    assert f"{H}/a/?b&c" == rules.apply(f"{H}/a/s-1/?c&b&print=1")


def test_a_replacement_can_name_groups() -> None:
    rules = LossyRules.of(hosts={"example.org": {"replace": [[r"^/p/([0-9]+)/([^/?]+)$", r"/\2?p=\1&x=\\"]]}})
    assert f"{H}/title?p=12&x=\\" == rules.apply(f"{H}/p/12/title")


def test_a_host_with_only_patterns_keeps_the_rules_of_the_crawl() -> None:
    rules = LossyRules.of("tracking", hosts={"example.org": {"replace": [["^/old", "/new"]]}})
    assert f"{H}/new" == rules.apply(f"{H}/old?gclid=1")


def test_a_replacement_never_changes_the_host() -> None:
    rules = LossyRules.of(
        hosts={"example.org": {"replace": [["^/x", ".evil.example"], ["^/y", ":81/"], ["^/z", "@h/"]]}}
    )
    assert [f"{H}/.evil.example", f"{H}/:81/", f"{H}/@h/"] == rules.apply_batch([f"{H}/x", f"{H}/y", f"{H}/z"])


def test_the_result_of_a_replacement_is_made_canonical() -> None:
    rules = LossyRules.of(hosts={"example.org": {"replace": [["^/x$", "/a b/./ü/../%7e#c"]]}})
    assert f"{H}/a%20b/~" == rules.apply(f"{H}/x")


def test_a_replacement_without_a_fixed_point_is_not_applied() -> None:
    for pairs in ([["a", "aa"]], [["^/b$", "/c"], ["^/c$", "/b?1"], ["^/b.1$", "/b"]]):
        rules = LossyRules.of(hosts={"example.org": {"replace": pairs}})
        for url in (f"{H}/a", f"{H}/b"):
            assert rules.apply(url) == rules.apply(rules.apply(url))
    assert f"{H}/a" == LossyRules.of(hosts={"example.org": {"replace": [["a", "aa"]]}}).apply(f"{H}/a")


def test_a_replacement_does_not_make_a_url_longer_than_one_may_be() -> None:
    rules = LossyRules.of(hosts={"example.org": {"replace": [["x", "y" * 200]]}})
    url = f"{H}/" + "x" * 60 + "z" * (URL_BYTES_MAX - 100)
    assert url == rules.apply(url)


def test_after_a_rule_changes_the_host_the_rules_of_the_new_host_apply() -> None:
    rules = LossyRules.of("www", hosts={"example.org": "sort_query"})
    assert f"{H}/?a&b" == rules.apply("http://www.example.org/?b&a")


# -------------------------------------------------------------------------------------------------------- text form


@pytest.mark.parametrize(
    "rules",
    [
        LossyRules(),
        LossyRules.of("tracking"),
        LossyRules.of("aggressive"),
        LossyRules.of(
            "www", hosts={"Example.ORG": "none", "*.bücher.example": {"replace": [["ü\\d", r"\\"]], "rules": "https"}}
        ),
        LossyRules.of(hosts={"example.org": {"replace": []}, "example.com": {"replace": [["a", ""]]}}),
    ],
)
def test_the_text_form_reads_back_as_the_same_rules(rules: LossyRules) -> None:
    assert rules == LossyRules.parse(rules.text)
    assert rules.text.isascii()
    assert rules.text.isprintable()


def test_the_text_form_is_the_same_for_the_same_rules() -> None:
    one = LossyRules.of("sort_query,tracking", hosts={"b.example": "www", "a.example": "https"})
    other = LossyRules.of(["tracking", "sort-query"], hosts={"A.example": ["https"], "b.example": {"rules": "www"}})
    expected = '1:tracking,sort_query {"a.example":{"rules":["https"]},"b.example":{"rules":["www"]}}'
    assert [expected, expected] == [one.text, str(other)]


def test_rules_of_another_version_are_refused() -> None:
    with pytest.raises(SettingsError, match="version 2, this Outrider has version 1"):
        LossyRules.parse("2:tracking")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("trakking", "'trakking' is no rule; did you mean tracking"),
        ("tracking,none", "'none' is no rule"),
        ("x\x1b[2J", r"'x\\x1b\[2j' is no rule|'x\\x1b\[2J' is no rule"),
        ("tracking {", "not a JSON object"),
        ("tracking " + "{" * 100_000, "not a JSON object"),
        ('{"exa mple.org": "www"}', "'exa mple.org' is no host"),
        ('{"http://example.org/": "www"}', "is no host"),
        ('{"*": "www"}', "is no host"),
        ('{"example.org": 7}', "url-rules of example.org are no names of rules: 7"),
        ('{"example.org": "wwww"}', "url-rules of example.org: 'wwww' is no rule; did you mean www"),
        ('{"example.org": {"rules": "www", "x": 1}}', "'x' is neither rules nor replace"),
        ('{"example.org": {"replace": "a"}}', "replace is not a list"),
        ('{"example.org": {"replace": ["ab"]}}', r"'ab' is no \[pattern, replacement\]"),
        ('{"example.org": {"replace": [[1, 2]]}}', "not a pair of texts"),
        ('{"example.org": {"replace": [["(", ""]]}}', r"the pattern '\('"),
        ('{"example.org": {"replace": [["(?=a)", ""]]}}', "the pattern"),
        ('{"example.org": {"replace": [["a", "\\\\1"]]}}', "is no group of 'a'; it has 0"),
        ('{"example.org": {"replace": [["(a)", "\\\\n"]]}}', "is no group"),
        ('{"example.org": {"replace": [["a", "\\ud800"]]}}', "half a character"),
        ('{"example.org": {"replace": [["a", "%s"]]}}' % ("b" * 201), "longer than 200 characters"),
        ('{"example.org": {"replace": [["%s", ""]]}}' % ("b" * 10_001), "longer than 10000 characters"),
    ],
)
def test_an_unknown_rule_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says) as caught:
        LossyRules.parse(text)
    assert len(str(caught.value)) < 700


def test_an_unknown_rule_is_answered_with_all_rules() -> None:
    with pytest.raises(SettingsError) as caught:
        LossyRules.parse("x")
    assert all(name in str(caught.value) for name in (*RULES, *PRESETS))


def test_rules_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        cast(Any, LossyRules.of("www")).names = ()


def test_rules_out_of_order_are_refused() -> None:
    with pytest.raises(SettingsError, match="one order only"):
        LossyRules(("sort_query", "tracking"))


def test_rules_can_be_keys_of_a_dictionary() -> None:
    assert {LossyRules.of("www"): 1}[LossyRules.parse("www")] == 1


# --------------------------------------------------------------------------------------------------------- explain


def test_explain_names_each_rule_with_the_url_before_and_after() -> None:
    rules = LossyRules.of("tracking,sort_query,trailing_slash", hosts={"example.org": {"replace": [["^/old/", "/"]]}})
    assert [
        ("replace ^/old/", f"{H}/old/a/?b&gclid=1&a", f"{H}/a/?b&gclid=1&a"),
        ("trailing_slash", f"{H}/a/?b&gclid=1&a", f"{H}/a?b&gclid=1&a"),
        ("tracking", f"{H}/a?b&gclid=1&a", f"{H}/a?b&a"),
        ("sort_query", f"{H}/a?b&a", f"{H}/a?a&b"),
    ] == rules.explain(f"{H}/old/a/?b&gclid=1&a")


def test_a_rule_without_effect_is_not_explained() -> None:
    assert [] == LossyRules.of("aggressive").explain("https://example.org/a")


PLACES = [
    "http://www.example.org",
    "https://example.org.",
    "http://www.www.co.uk:8080",
    "http://www.1.2.3.4",
    "http://[::1]",
]
PIECES = [
    *(
        "/",
        "//",
        "/..",
        "/.",
        ";jsessionid=1",
        ";jsessionid=",
        "/(S(4hqa0555fwsecu455xqckv45))",
        "index.html",
        "/index.html",
    ),
    *(
        "/Default.aspx",
        "%",
        "%%36%31",
        "%2",
        "5",
        "|",
        "[",
        "a",
        "b",
        ".",
        "?",
        "&",
        "=",
        "utm_source=1",
        "gclid",
        f"sid={TOKEN}",
    ),
    *("z=1", "a=", "=1", "phpsessid", "é", " ", "#", "\\", "@", ":", "(", ")", ";", "/old/", "www."),
]
urls = st.builds(
    lambda place, pieces: place + "/" + "".join(pieces),
    st.sampled_from(PLACES),
    st.lists(st.sampled_from(PIECES), max_size=14),
)
rule_sets = st.builds(lambda names: LossyRules.of(names), st.sets(st.sampled_from(RULES), min_size=1))
HOSTILE = LossyRules.of(
    "aggressive",
    hosts={
        "*.example.org": {"replace": [["a", "b"], ["b(.)", r"\1a"]]},
        "example.org": {"replace": [["$", "x/"]], "rules": "www"},
    },
)


@given(urls, rule_sets)
def test_rules_are_idempotent_and_their_results_canonical(url: str, rules: LossyRules) -> None:
    canonical = spell([url])[0]
    if canonical is not None:
        once = rules.apply(canonical)
        assert [once, once] == [normalize(once), rules.apply(once)]


@given(st.text(max_size=60), st.sampled_from(RULES))
def test_each_rule_is_idempotent_on_any_path(path: str, rule: str) -> None:
    rules = LossyRules.of(rule)
    canonical = normalize(f"http://www.example.org/{path}".encode("utf-8", "replace").decode())
    once = rules.apply(canonical)
    assert [once, once] == [normalize(once), rules.apply(once)]


@given(urls)
def test_hostile_patterns_are_idempotent_too(url: str) -> None:
    canonical = spell([url])[0]
    if canonical is not None:
        once = HOSTILE.apply(canonical)
        assert [once, once] == [normalize(once), HOSTILE.apply(once)]


@given(urls, rule_sets)
def test_the_steps_of_explain_lead_from_the_url_to_the_result_of_apply(url: str, rules: LossyRules) -> None:
    canonical = spell([url])[0]
    if canonical is not None:
        at = canonical
        for name, before, after in rules.explain(canonical):
            assert (name in rules.names, before) == (True, at)
            at = after
        assert rules.apply(canonical) == at


@given(st.lists(urls, max_size=8))
def test_a_batch_is_rewritten_like_each_of_its_urls(texts: list[str]) -> None:
    rules = LossyRules.of("aggressive", hosts={"example.org": "www"})
    canonical = [url for url in spell(texts) if url is not None]
    assert [rules.apply(url) for url in canonical] == rules.apply_batch(canonical)


def test_nested_index_files_end() -> None:
    """Deeper than the number of rounds: the URL is unchanged, so that a second call returns the same."""
    rules = LossyRules.of("index_files,trailing_slash")
    deep = f"{H}" + "/index.html" * (ROUNDS_MAX + 5) + "/"
    assert [deep, []] == [rules.apply(deep), rules.explain(deep)]


@pytest.mark.parametrize(
    "piece", ["/index.html", "/(S(", "/(A()", "&a=", "&", ";jsessionid=", "%", "/..;jsessionid=1", "[", "sid=a1&"]
)
def test_long_urls_cost_time_in_proportion_to_their_length(piece: str) -> None:
    """100,000 characters that a rule looks for: well below a second, where quadratic work would need minutes."""
    rules = LossyRules.of("aggressive")
    url = (
        normalize(f"{H}/?" + piece * (100_000 // len(piece)))
        if piece[0] in "&s"
        else normalize(f"{H}/" + piece * (100_000 // len(piece)))
    )
    assert seconds_of(lambda: rules.apply(url)) < 1


def test_a_url_that_is_never_crawled_is_unchanged() -> None:
    longest, longer = (f"{H}/?utm_x=" + "a" * (size - len(H) - 8) for size in (URL_BYTES_MAX, URL_BYTES_MAX + 1))
    assert [f"{H}/", longer] == LossyRules.of("tracking").apply_batch([longest, longer])


def test_a_host_may_be_named_only_once() -> None:
    with pytest.raises(SettingsError, match=r"'a\.org' is there twice"):
        LossyRules.of(hosts={"A.org": "www", "a.org.": "none"})


def test_hosts_are_a_mapping() -> None:
    with pytest.raises(SettingsError, match="not a list"):
        LossyRules.of(hosts=cast(Any, ["a.org"]))


def test_an_address_may_have_rules_of_its_own() -> None:
    rules = LossyRules.of(hosts={"[0::1]": "trailing_slash"})
    assert ["http://[::1]/a", f"{H}/a/"] == rules.apply_batch(["http://[::1]/a/", f"{H}/a/"])
