"""The contract of reading robots.txt and matching its rules, for the native build and its plain twin.

Protego judges where both should agree: plain octets, no escape, "$" at the end alone.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protego import Protego

from contract.kinds import WITHOUT_NATIVE, both, native_of
from outrider.kernels import robots
from outrider.kernels.robots import RobotsText as Twin
from timing import least_beside

NATIVE = native_of(Twin)
BOTH = both(Twin)
SITE = "http://a.example"

WORDS = "User-agent user-agent: Useragent Allow allow: DISALLOW: Disallow Disalow Crawl-delay: crawl delay"
WORDS += " Content-Usage: Content-Signal: Request-rate: Visit-time: 1/5 train-ai=n"
WORDS += " Sitemap: noindex x : * foo foo/1 bar2 # #c / /a /b /a/b /* *a *a*b /a* /a$ $ /a*$ /%61 /%2f /%2F /%zz %"
WORDS += " ?x=/ ?x=%2F /index.html /index.htm < | ü 3 0.5 1,5 99999999999999 1.x"
PIECES = st.sampled_from([*WORDS.split(), " ", "\t", "\v", "\f", "\n", "\r", "\r\n", ": ", "\nAllow: ", "\nDisallow: "])
TEXTS = st.lists(PIECES, max_size=40).map("".join).map(str.encode) | st.binary(max_size=60)
RULES = st.lists(
    st.tuples(st.sampled_from(["Allow: ", "Disallow: ", "Disallow "]), st.lists(PIECES, max_size=5).map("".join)),
    max_size=8,
).map(lambda rules: ("User-agent: *\n" + "\n".join(word + value for word, value in rules)).encode())
SIGNS = [
    *"/ab*$?%#=x ",
    "%61",
    "%2F",
    "%2f",
    "%3F",
    "?x=",
    "index.html",
    "index.htm",
    "ü",
    "<",
    "\ud800",
    "://",
    "robots.txt",
]
PATHS = st.lists(st.sampled_from(SIGNS), max_size=10).map("".join)
URLS = st.builds(str.__add__, st.sampled_from([SITE, SITE + "/", "", "/", "a+b://h", "1://h", "x:"]), PATHS)


def rules_of(kernel, body, *, lenient=False, token="*", globs_max=2_000):
    return kernel(body, lenient).rules(token, globs_max)


def told(kernel, body, lenient, urls, globs_max):
    """All that a text says, in values that compare."""
    text = kernel(body, lenient)
    tokens = [token for token in ("*", "foo", "bar2", "bar", "x", "") if text.has(token)]
    lines = []
    for number in range(1, body.count(b"\n") + body.count(b"\r") + 3):
        try:
            lines.append(text.line(number))
        except ValueError as error:
            lines.append(str(error))
    matchers = {token: text.rules(token, globs_max) for token in ("*", "foo", "none")}
    verdicts = {token: (len(one), [one.verdict(url) for url in urls]) for token, one in matchers.items()}
    fields = ("content-usage", "content-signal", "request-rate", "visit-time", "allow")
    remarks = {(token, name): text.remarks(token, name, globs_max) for token in ("*", "foo", "none") for name in fields}
    usages = {token: text.usages(token, globs_max) for token in ("*", "foo", "none")}
    uses = {token: (len(one), [one.lines(url) for url in urls]) for token, one in usages.items()}
    delays = [text.delay(token) for token in tokens]
    return text.records, text.agents, tokens, delays, text.sitemaps(), lines, verdicts, remarks, uses


USAGES = st.lists(st.lists(PIECES, max_size=5).map("".join), max_size=8).map(
    lambda values: ("User-agent: *\n" + "".join(f"Content-Usage: {value}\n" for value in values)).encode()
)


@WITHOUT_NATIVE
@given(TEXTS | RULES | USAGES, st.booleans(), st.lists(URLS, max_size=4), st.sampled_from([0, 1, 2_000]))
def test_the_kernel_and_its_twin_say_the_same(body, lenient, urls, globs_max):
    assert told(Twin, body, lenient, urls, globs_max) == told(NATIVE, body, lenient, urls, globs_max)


PATTERN = st.lists(st.sampled_from([*"/ab*"]), min_size=1, max_size=8).map("".join)
PLAIN_RULES = st.lists(st.tuples(st.booleans(), PATTERN, st.sampled_from(["", "$"])), min_size=1, max_size=8)


@BOTH
@given(rules=PLAIN_RULES, paths=st.lists(st.text("/ab", max_size=8), max_size=5))
def test_rules_of_plain_octets_decide_as_protego_decides(kernel, rules, paths):
    lines = [f"{'Allow' if allow else 'Disallow'}: {pattern}{end}" for allow, pattern, end in rules]
    text = "\n".join(["User-agent: *", *lines])
    ours, theirs = rules_of(kernel, text.encode()), Protego.parse(text)
    for path in paths:
        url = f"{SITE}/{path}"
        assert theirs.can_fetch(url, "x") == (ours.verdict(url) >= 0)


@BOTH
@given(rules=PLAIN_RULES, paths=st.lists(st.text("/ab", max_size=8), max_size=5))
def test_the_line_that_decides_alone_decides_alike(kernel, rules, paths):
    lines = [f"{'Allow' if allow else 'Disallow'}: {pattern}{end}" for allow, pattern, end in rules]
    ours = rules_of(kernel, "\n".join(["User-agent: *", *lines]).encode())
    for path in paths:
        verdict = ours.verdict(f"{SITE}/{path}")
        if verdict:
            line = lines[abs(verdict) - 2]
            assert line.startswith("Allow") == (verdict > 0)
            alone = rules_of(kernel, f"User-agent: *\n{line}".encode())
            assert (2 if verdict > 0 else -2) == alone.verdict(f"{SITE}/{path}")


@BOTH
@pytest.mark.parametrize(
    ("rules", "path", "line"),
    [
        (["Disallow: /a", "Allow: /a/b", "Disallow: /a/*/c$"], "/a/b/c", -4),
        (["Disallow: /a", "Disallow: /a"], "/a", -2),
        (["Disallow: /a", "Allow: /a"], "/ab", 3),
        (["Disallow: /a****", "Allow: /ab"], "/abc", -2),
        (["Disallow: *a*b*c", "Allow: /"], "/xaxxbxxc", -2),
        (["Allow: /a$"], "/a", 2),
        (["Allow: /a$"], "/ab", 0),
        (["Disallow: /a*$", "Allow: /a/b"], "/a/bc", 3),
        (["Disallow: /a/%62%61%7A"], "/a/baz", -2),
        (["Disallow: /a%2Ab"], "/a*b", -2),
        (["Disallow: /a%2Ab"], "/axb", 0),
        (["Disallow: /a%24"], "/a$", -2),
        (["Disallow: /a?u=https://b"], "/a?u=https%3A%2F%2Fb", -2),
        (["Disallow: /a?u=https%3A%2F%2Fb"], "/a?u=https://b", -2),
        (["Disallow: /*u=%2F"], "/a?u=%2F", -2),
        (["Disallow: /a%2Fb"], "/a/b", 0),
        (["Disallow: /a|b"], "/a%7Cb", -2),
        (["Allow: /d/index.html", "Disallow: /"], "/d/", 2),
        (["Disallow: /"], "/robots.txt", 0),
        (["Disallow: a"], "/a", 0),
    ],
)
def test_the_line_that_decides_is_named(kernel, rules, path, line):
    assert line == rules_of(kernel, "\n".join(["User-agent: *", *rules]).encode()).verdict(SITE + path)


@BOTH
def test_lines_are_counted_as_an_editor_counts_them(kernel):
    text = kernel(b"User-agent: *\r\n\r\n# x\rDisallow: /a # no\n\n Allow : /a/b\t")
    assert [b"Disallow: /a", b"Allow : /a/b"] == [text.line(4), text.line(6)]
    assert [-4, 6] == [text.rules("*", 9).verdict(SITE + path) for path in ("/a", "/a/b")]
    with pytest.raises(ValueError, match="there is no line 7, only 6"):
        text.line(7)


@BOTH
def test_bytes_without_a_rule_have_no_record(kernel):
    assert [0, 0, 2] == [kernel(body).records for body in (b"", b"<html>\nHello: you", b"user-agent *\nallow: /")]


@BOTH
def test_many_urls_are_judged_in_one_call(kernel):
    verdicts = robots.robots_verdicts if kernel is Twin else native_of(robots).robots_verdicts
    some, none = (rules_of(kernel, body) for body in (b"User-agent: *\nDisallow: /a", b""))
    judged = verdicts([some, none, some], [SITE + "/a", SITE + "/a", SITE + "/b"])
    assert (-2, 0, 0) == struct.unpack("<3q", judged)
    with pytest.raises(ValueError, match="1 rules for 0 URLs"):
        verdicts([some], [])


@BOTH
def test_rules_beyond_the_bound_of_wildcards_err_by_staying_away(kernel):
    body = b"User-agent: *\nDisallow: /x*y\nDisallow: /a*b\nAllow: /a*c\nDisallow: *z\n"
    bounded = rules_of(kernel, body, globs_max=1)
    assert [0, -3, -3, -5] == [bounded.verdict(SITE + path) for path in ("/robots.txt", "/a", "/ac", "/n")]


@WITHOUT_NATIVE
def test_a_pattern_of_two_thousand_stars_is_no_slower_than_adding_thirty_thousand_numbers():
    """The match needs a tenth of a millisecond, the sum a millisecond; a match that backtracks for each star needs
    seconds."""
    for pattern in (b"*a" * 2_000 + b"b", b"*" * 2_000 + b"b$"):
        matcher = rules_of(NATIVE, b"User-agent: *\nDisallow: /" + pattern)
        assert 0 == matcher.verdict(SITE + "/" + "a" * 8_000)
        url = SITE + "/" + "a" * 8_000
        assert 1 > least_beside(lambda matcher=matcher, url=url: matcher.verdict(url), lambda: sum(range(30_000)))


@WITHOUT_NATIVE
def test_two_hundred_thousand_rules_are_read_about_as_fast_as_their_lines_are_sorted():
    """The two need 60 to 150 ms. `make bench` measures the figure; rules that are compared pairwise need minutes."""
    body = b"User-agent: *\n" + b"".join(b"Disallow: /%07d\n" % (n * 7_919 % 200_000) for n in range(200_000))
    assert 5 > least_beside(lambda: rules_of(NATIVE, body), lambda: sorted(body.splitlines()), turns=3)
