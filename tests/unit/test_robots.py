"""robots.txt: groups, rules, delays, sitemaps, invalid bytes, and the meaning of its status."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.limits import CRAWL_DELAY_SECONDS_MAX, ROBOTS_BYTES_MAX, ROBOTS_WILDCARD_RULES_MAX
from outrider.robots import ALLOW_ALL, REFUSE_ALL, Rules, verdict_of_status, whole_lines
from outrider.robots.agent_groups import groups_of
from timing import scaled, seconds_of

SITE = "http://example.org"


def allows(body: str | bytes, path: str, agent: str = "FooBot") -> bool:
    octets = body if isinstance(body, bytes) else body.encode()
    return Rules.parse(octets).allowed(agent, SITE + path)


def test_the_longest_rule_decides() -> None:
    body = "User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /a/b/c\n"
    assert [False, True, False, True] == [allows(body, path) for path in ("/a", "/a/b", "/a/b/c", "/")]


def test_allow_wins_among_rules_of_equal_length() -> None:
    assert allows("User-agent: *\nDisallow: /page\nAllow: /page\n", "/page")


def test_an_agents_own_group_replaces_the_group_of_all_agents() -> None:
    body = "User-agent: *\nDisallow: /\n\nUser-agent: FooBot\nDisallow: /private\n"
    assert [True, False, False] == [allows(body, "/x"), allows(body, "/private"), allows(body, "/x", "OtherBot")]


def test_all_groups_of_an_agent_are_one() -> None:
    body = "User-agent: FooBot\nDisallow: /a\n\nUser-agent: *\nDisallow: /\n\nUser-agent: foobot\nDisallow: /b\n"
    assert [False, False, True] == [allows(body, path) for path in ("/a", "/b", "/c")]


def test_a_group_may_name_several_agents() -> None:
    body = "User-agent: OtherBot\nUser-agent: FooBot\nDisallow: /\n"
    assert [False, False, True] == [allows(body, "/", agent) for agent in ("FooBot", "OtherBot", "ThirdBot")]


@pytest.mark.parametrize("line", ["FooBot", "foobot", "FooBot 1.0", "FooBot/1.0", "FooBot # ours", "\tFooBot\t"])
def test_only_the_token_of_an_agent_line_counts(line: str) -> None:
    assert not allows(f"User-agent: {line}\nDisallow: /\n", "/")


@pytest.mark.parametrize("line", ["Foo", "Bot", "FooBotNews", "FooBot2", "FooBot-Images"])
def test_a_token_that_is_only_part_of_another_does_not_count(line: str) -> None:
    assert allows(f"User-agent: {line}\nDisallow: /\n", "/")


@pytest.mark.parametrize(
    "agent",
    [
        "FooBot",
        "FOOBOT",
        "FooBot/2.1",
        "FooBot/2.1 (+http://example.org/bot)",
        "Mozilla/5.0 (compatible; FooBot/2.1; +http://example.org/bot)",
    ],
)
def test_an_agent_may_be_named_as_in_its_header(agent: str) -> None:
    body = "User-agent: foobot\nDisallow: /\n\nUser-agent: mozilla\nUser-agent: http\nUser-agent: 2\nAllow: /\n"
    assert not allows(body, "/", agent)


@pytest.mark.parametrize("agent", ["", "*", "\u00e9", "Unheard-Of"])
def test_an_agent_without_a_group_has_the_group_of_all_agents(agent: str) -> None:
    assert not allows("User-agent: *\nDisallow: /\n", "/", agent)


def test_rules_before_any_agent_are_ignored() -> None:
    assert allows("Disallow: /\nUser-agent: *\nAllow: /\n", "/")


def test_a_group_without_rules_allows_everything() -> None:
    assert allows("User-agent: *\nDisallow: /\nUser-agent: FooBot\n", "/")


def test_an_empty_disallow_allows_and_still_ends_the_list_of_agents() -> None:
    body = "User-agent: FooBot\nDisallow:\nUser-agent: OtherBot\nDisallow: /\n"
    assert [True, False] == [allows(body, "/"), allows(body, "/", "OtherBot")]


def test_a_sitemap_line_does_not_end_a_group() -> None:
    body = "User-agent: FooBot\nSitemap: http://example.org/map.xml\nUser-agent: OtherBot\nDisallow: /\n"
    assert not allows(body, "/")


@pytest.mark.parametrize("line", ["Crawl-delay: 5", "Request-rate: 1/5", "Visit-time: 0600-0845", "noindex: /", "x"])
def test_lines_that_rfc_9309_does_not_define_end_no_list_of_agents(line: str) -> None:
    """Section 2.2.4: they must not interfere with the records that it defines."""
    body = f"User-agent: *\n{line}\nUser-agent: BadBot\nDisallow: /\n"
    assert [False, False] == [allows(body, "/"), allows(body, "/", "BadBot")]
    assert [["*", "BadBot"]] == [group["agents"] for group in groups_of(body)]


@pytest.mark.parametrize("line", ["Content-Signal: ai-train=no", "content-usage: train-ai=n", "Content-Usage: /a ai=y"])
def test_a_line_about_the_use_of_content_ends_the_list_of_agents(line: str) -> None:
    body = f"User-agent: *\n{line}\nUser-agent: BadBot\nDisallow: /\n"
    assert [True, False] == [allows(body, "/"), allows(body, "/", "BadBot")]
    assert [["*"], ["BadBot"]] == [group["agents"] for group in groups_of(body)]


@pytest.mark.parametrize(
    ("path", "uses"),
    [
        ("/", {"train-ai": "n"}),
        ("/blog/a", {"train-ai": "n", "search": "y"}),
        ("/docs/a.pdf", {"train-ai": "n", "ai-use": "n"}),
        ("/docs/a.pdf?b", {"train-ai": "n"}),
    ],
)
def test_a_content_signal_line_with_a_path_is_about_that_path_alone(path: str, uses: dict[str, str]) -> None:
    body = b"User-agent: *\nContent-Signal: ai-train=no\nContent-Signal: /blog/\tsearch=yes, ai-train=yes\n"
    body += b"Content-Signal: /*.pdf$ ai-input=no\nContent-Signal: /none\n"
    found = Rules.parse(body).about_uses("FooBot", f"http://a.test{path}")
    assert uses == found.uses
    assert all(statement.fault is None for statement in found.said)


def test_an_unknown_line_ends_no_group() -> None:
    body = "User-agent: FooBot\nHello: world\nUser-agent: OtherBot\nDisallow: /\n"
    assert not allows(body, "/")


@pytest.mark.parametrize(
    ("pattern", "path", "allowed"),
    [
        ("/a*b", "/axxb", False),
        ("/a*b", "/axx", True),
        ("/a$", "/a", False),
        ("/a$", "/ab", True),
        ("/*.pdf$", "/x/y.pdf", False),
        ("/*.pdf$", "/x/y.pdf?z", True),
        ("*", "/anything", False),
        ("/a?b", "/a?b=1", False),
        ("/A", "/a", True),
        ("/%7ejoe", "/~joe/", False),
        ("/~joe", "/%7Ejoe/", False),
        ("/\u00fc", "/%C3%BC", False),
        ("/%c3%bc", "/\u00fc", False),
        ("/a%2fb", "/a/b", True),
        ("/a%2fb", "/a%2Fb", False),
        ("/a b", "/a%20b", False),
    ],
)
def test_patterns_match_as_rfc_9309_says(pattern: str, path: str, allowed: bool) -> None:
    assert allowed == allows(f"User-agent: *\nDisallow: {pattern}\n", path)


def test_robots_txt_itself_is_always_allowed() -> None:
    assert allows("User-agent: *\nDisallow: /\n", "/robots.txt")


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbfUser-agent: *\nDisallow: /\n",
        b"\xef\xbbUser-agent: *\nDisallow: /\n",
        "User-agent: *\nDisallow: /\n".encode("utf-16"),
        b"User-agent: *\rDisallow: /\r",
        b"User-agent: *\r\nDisallow: /\r\n",
        b"User-agent: *\n\nDisallow: /",
        b"\0User-agent\0: *\nDisallow: /\0\0\n",
        b"user-agent:*\nDISALLOW:/",
        b"  User-agent : * # all\n  Disallow : / # of it",
        b"User agent *\nDisallow /",
        b"\xff\xfa\xf0 nonsense\nUser-agent: *\nDisallow: /\n",
        b"<html>\nUser-agent: *\nDisallow: /\n",
    ],
)
def test_invalid_bytes_lose_no_rule(body: bytes) -> None:
    assert not allows(body, "/x")


def test_unicode_line_separators_do_not_end_a_line() -> None:
    """Only CR and LF end a line. U+2028 or U+0085 in a path must not hide the following rules."""
    body = "User-agent: *\nDisallow: /a\u2028Allow: /\n".encode()
    assert not allows(body, "/a\u2028Allow: /")


@given(st.binary(max_size=300), st.text(max_size=30), st.text(max_size=60))
def test_any_bytes_any_agent_and_any_url_have_a_verdict(body: bytes, agent: str, url: str) -> None:
    rules = Rules.parse(b"User-agent: *\nDisallow: /" + body)
    assert rules.allowed(agent, url) in {True, False}
    assert rules.crawl_delay(agent) is None or rules.crawl_delay(agent) >= 0.0  # type: ignore[operator]


@pytest.mark.parametrize("url", ["http://[::1", "http://example.org:x/private", "http://u:p@example.org/private"])
def test_only_the_part_after_the_authority_is_judged(url: str) -> None:
    rules = Rules.parse(b"User-agent: *\nDisallow: /private\n")
    assert url.endswith("/private") != rules.allowed("FooBot", url)


@pytest.mark.parametrize("url", ["http://example.org", "http://example.org/", "http://example.org?x"])
def test_a_url_without_a_path_is_the_root(url: str) -> None:
    assert not Rules.parse(b"User-agent: *\nDisallow: /\n").allowed("FooBot", url)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("10", 10.0),
        ("0.5", 0.5),
        ("2,5", 2.5),
        ("5 seconds", 5.0),
        ("0", 0.0),
        ("99999999", CRAWL_DELAY_SECONDS_MAX),
        ("", None),
        ("-1", None),
        ("nan", None),
        ("infinity", None),
        ("soon", None),
    ],
)
def test_a_crawl_delay_is_a_number_of_seconds_up_to_a_day(value: str, seconds: float | None) -> None:
    assert seconds == Rules.parse(f"User-agent: *\nCrawl-delay: {value}\n".encode()).crawl_delay("FooBot")


def test_the_largest_crawl_delay_of_an_agent_applies() -> None:
    rules = Rules.parse(b"User-agent: a\nCrawl-delay: 5\nUser-agent: a\nCrawl-delay: 2\n")
    assert 5.0 == rules.crawl_delay("a")


def test_an_agent_with_a_group_of_its_own_ignores_the_delay_of_all_agents() -> None:
    rules = Rules.parse(b"User-agent: *\nCrawl-delay: 5\nAllow: /\n\nUser-agent: FooBot\nDisallow: /x\n")
    assert [None, 5.0] == [rules.crawl_delay("FooBot"), rules.crawl_delay("OtherBot")]


def test_sitemaps_are_named_in_order_wherever_they_are() -> None:
    rules = Rules.parse(b"Sitemap: http://a.example/1.xml\nUser-agent: *\nDisallow: /\nSitemap: /2.xml\nsitemap:\n")
    assert ["http://a.example/1.xml", "/2.xml"] == rules.sitemaps


def test_a_caller_cannot_change_the_sitemaps() -> None:
    rules = Rules.parse(b"Sitemap: /1.xml\n")
    rules.sitemaps.append("/2.xml")
    assert ["/1.xml"] == rules.sitemaps


def test_the_digest_is_that_of_the_body() -> None:
    one, same, other = (Rules.parse(body).digest for body in (b"a", b"a", b"b"))
    assert one == same != other
    assert 0 <= one < 1 << 64


def test_a_body_is_cut_at_the_end_of_a_line() -> None:
    """Half of the last line, "Disallow: /", would close the site for all agents."""
    filling = b"User-agent: *\nDisallow: /first\n" + b"# filling\n" * 60_000
    body = filling[: ROBOTS_BYTES_MAX - 11] + b"\nDisallow: /last\n"
    rules = Rules.parse(body)
    assert [True, False] == [rules.allowed("FooBot", SITE + path) for path in ("/x", "/first")]


def test_rules_up_to_500_kib_count() -> None:
    head = b"User-agent: *\n"
    last = b"Disallow: /last\n"
    body = head + b"#" * (ROBOTS_BYTES_MAX - len(head) - len(last) - 1) + b"\n" + last + b"Disallow: /\n"
    rules = Rules.parse(body)
    assert [True, False] == [rules.allowed("FooBot", SITE + path) for path in ("/x", "/last")]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_body_above_the_limit_is_cut_after_a_whole_line(end: bytes) -> None:
    for over in range(-4, 5):
        start = b"#" * (ROBOTS_BYTES_MAX + over - 12 - len(end)) + end
        kept = whole_lines(start + b"Disallow: /x" + end + b"more" + end * 10)
        assert len(kept) <= ROBOTS_BYTES_MAX
        assert kept.splitlines() in ([start.rstrip()], [start.rstrip(), b"Disallow: /x"])
        assert (over <= 0) == kept.rstrip().endswith(b"Disallow: /x")


def test_a_body_without_its_end_loses_its_last_line() -> None:
    cut = [whole_lines(body, cut=True) for body in (b"a\nDisallow: /", b"a\r\n", b"Disallow: /", b"")]
    assert [b"a\n", b"a\r\n", b"", b""] == cut


def test_a_single_line_above_the_limit_is_not_a_rule() -> None:
    assert b"" == whole_lines(b"Disallow: /" + b"x" * ROBOTS_BYTES_MAX)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_body_in_utf_16_is_cut_between_lines_not_within_a_character(encoding: str) -> None:
    """U+0A0A has both bytes of a line end, and ends no line."""
    text = "\ufeffUser-agent: *\nDisallow: /first\nDisallow: /" + "\u0a0a" * ROBOTS_BYTES_MAX
    rules = Rules.parse(text.encode(encoding))
    assert [True, False] == [rules.allowed("FooBot", SITE + path) for path in ("/x", "/first")]


@given(st.lists(st.binary(max_size=20)), st.integers(0, 60))
def test_the_kept_part_of_a_cut_body_is_its_beginning(lines: list[bytes], length: int) -> None:
    body = b"\n".join(lines)[:length]
    kept = whole_lines(body, cut=True)
    assert body.startswith((b"\xff\xfe", b"\xfe\xff")) or (body.startswith(kept) and kept[-1:] in (b"", b"\n", b"\r"))


def seconds_to_judge(body: bytes, url: str) -> float:
    return seconds_of(lambda: Rules.parse(body).allowed("FooBot", url))


@pytest.mark.parametrize(
    "body",
    [
        b"User-agent: *\n" + b"".join(b"Disallow: /path/%d\n" % n for n in range(scaled(200_000))),
        b"".join(b"User-agent: bot%d\n" % n for n in range(scaled(200_000))) + b"Disallow: /\n" * 10,
        b"User-agent: FooBot\nDisallow: /\n" * scaled(100_000),
        b"User-agent: *\n" + b"Disallow: *a\n" * 100_000,
        b"User-agent: *\nDisallow: /" + b"*a" * 100_000 + b"\n",
        b"User-agent: *\nDisallow: /" + b"*" * 400_000 + b"x$\n",
        b"User-agent " * 40_000,
        b":" * 500_000,
        b" " * 500_000,
        b"\r" * 500_000,
    ],
    ids=["rules", "agents", "groups", "stars", "pattern", "many-stars", "words", "colons", "blanks", "ends"],
)
def test_hostile_bodies_are_read_in_bounded_time(body: bytes) -> None:
    assert seconds_to_judge(body, SITE + "/" + "a" * 8_000) < 5


def test_agents_and_rules_do_not_multiply() -> None:
    """Ten thousand agents with twenty thousand common rules would be 200 million entries if each had its own."""
    agents = b"".join(b"User-agent: b%d\n" % n for n in range(10_000))
    assert seconds_to_judge(agents + b"Disallow: /x\n" * 24_000, SITE + "/x") < 5


def test_too_many_wildcards_count_as_closed() -> None:
    many = b"".join(b"Disallow: /many%d*x\n" % n for n in range(ROBOTS_WILDCARD_RULES_MAX))
    rules = Rules.parse(b"User-agent: *\n" + many + b"Disallow: /a*b\nAllow: /a*c\nDisallow: /d\n")
    paths = ["/many7", "/many7x", "/a", "/ac", "/d", "/e"]
    assert [True, False, False, False, False, True] == [rules.allowed("FooBot", SITE + path) for path in paths]


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, "rules"),
        (204, "rules"),
        (301, "redirect"),
        (308, "redirect"),
        (400, "allow"),
        (401, "allow"),
        (403, "allow"),
        (404, "allow"),
        (410, "allow"),
        (429, "unreachable"),
        (500, "unreachable"),
        (503, "unreachable"),
        (None, "unreachable"),
        (100, "unreachable"),
        (999, "unreachable"),
    ],
)
def test_each_status_of_robots_txt_has_its_verdict(status: int | None, verdict: str) -> None:
    assert verdict == verdict_of_status(status)


def test_the_ready_made_rules_allow_all_or_no_urls() -> None:
    assert [True, False] == [rules.allowed("FooBot", SITE + "/x") for rules in (ALLOW_ALL, REFUSE_ALL)]
    assert REFUSE_ALL.allowed("FooBot", SITE + "/robots.txt")
