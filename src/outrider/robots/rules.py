"""The rules of a robots.txt, by RFC 9309: this module reads the groups, Protego matches the paths of one group.

Any bytes can be parsed and nothing raises: a line that is no rule is passed over. Work is bounded by
`ROBOTS_BYTES_MAX`.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from dataclasses import dataclass, field
from typing import Literal

from protego import Protego

from outrider.limits import (
    CRAWL_DELAY_SECONDS_MAX,
    ROBOTS_BYTES_MAX,
    ROBOTS_LINE_CHARACTERS_MAX,
    ROBOTS_WILDCARD_RULES_MAX,
)

Answer = Literal["rules", "redirect", "allow", "unreachable"]

ANYBODY = "*"
"""The token of the group for agents that have no group of their own."""

_AGENT_FIELDS = frozenset({"user-agent", "useragent", "user agent"})
_DISALLOW_FIELDS = frozenset({"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"})
_ALLOW_FIELDS = frozenset({"allow"})
_DELAY_FIELDS = frozenset({"crawl-delay", "crawldelay", "crawl delay"})
_SITEMAP_FIELDS = frozenset({"sitemap", "sitemaps", "site-map"})
# Records that only some crawlers read, yet stand inside groups: like a rule they end the list of agents.
_OTHER_GROUP_FIELDS = frozenset({"request-rate", "request rate", "visit-time", "visit time", "noindex"})
_FIELDS = _AGENT_FIELDS | _DISALLOW_FIELDS | _ALLOW_FIELDS | _DELAY_FIELDS | _SITEMAP_FIELDS | _OTHER_GROUP_FIELDS

# RFC 9309 has letters, "_" and "-" only; tokens with digits are common, and cut there bot1 and bot2 would be one.
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_AGENT_PARTS = re.compile(r"[\s;(),]+")
_AGENT_CHARACTERS_MAX = 1_000
_AGENT_RULES_BYTES = 2_000  # bytes that Protego takes beside its rules
_NOBODYS_TOKENS = frozenset({"mozilla", "compatible"})
_WITHOUT_COLON = re.compile(r"(?i)(user[ -]?agent|[a-z-]+|(?:crawl|request) (?:delay|rate)|visit time)[ \t]+(.*)")
_SECONDS = re.compile(r"[0-9]{0,12}(?:[.,][0-9]{1,12})?")
_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


@dataclass(slots=True)
class _Group:
    """The rules behind a list of agents. The agents share them: a thousand agents and a thousand rules must not
    multiply."""

    rules: list[str] = field(default_factory=list)
    crawl_delay: float | None = None


class AgentRules:
    """The rules of one authority for one agent: all that is kept of a file between two verdicts. Never changes.

    crawl_delay: seconds, None if none is asked for. count: the number of rules, each of which a verdict may have to
    look at.
    memory_bytes: about the memory that it takes, rather more than less.
    """

    __slots__ = ("_matcher", "count", "crawl_delay", "memory_bytes")

    def __init__(self, rules: list[str], crawl_delay: float | None) -> None:
        """rules: as "Allow: /path" and "Disallow: /path", bounded. Protego gets them as the rules for any agent ("*").

        Left alone it matches tokens by prefix ("Foo" for FooBot) and misses agent lines with a version.
        """
        self.crawl_delay = crawl_delay
        self.count = len(rules)
        self.memory_bytes = _AGENT_RULES_BYTES + sum(map(_memory_bytes, rules))
        self._matcher = Protego.parse(f"User-agent: {ANYBODY}\n" + "\n".join(rules)) if rules else None
        self.allowed("/")  # the matcher sorts its rules at the first question

    def allowed(self, url: str) -> bool:
        """Whether the agent may fetch an absolute URL; see `Rules.allowed`."""
        return self._matcher is None or bool(self._matcher.can_fetch(_without_authority(url), ANYBODY))

    def __repr__(self) -> str:
        return f"<AgentRules {self.count} rules, {self.memory_bytes} bytes>"


class Rules:
    """The rules of one authority. Made by `parse`; never changes."""

    __slots__ = ("_digest", "_groups", "_of_tokens", "_sitemaps")

    def __init__(self, groups: dict[str, list[_Group]], sitemaps: list[str], digest: int) -> None:
        self._groups = groups
        self._sitemaps = sitemaps
        self._digest = digest
        self._of_tokens: dict[str, AgentRules] = {}

    @classmethod
    def parse(cls, body: bytes) -> Rules:
        """The rules that a robots.txt states: any bytes, of which the first `ROBOTS_BYTES_MAX` count."""
        groups: dict[str, list[_Group]] = {}
        sitemaps: list[str] = []
        group = _Group()  # rules before the first agent, which count for no agent
        agents_go_on = False
        for line in _lines(body):
            name, value = _record(line)
            if name in _AGENT_FIELDS:
                if not agents_go_on:
                    group = _Group()
                agents_go_on = True
                token = _token_of_line(value)
                if token is not None:
                    groups_of_token = groups.setdefault(token, [])
                    if not groups_of_token or groups_of_token[-1] is not group:
                        groups_of_token.append(group)
            elif name in _DISALLOW_FIELDS or name in _ALLOW_FIELDS:
                agents_go_on = False
                if value:
                    group.rules.append(f"{'Allow' if name in _ALLOW_FIELDS else 'Disallow'}: {_escaped(value)}")
            elif name in _DELAY_FIELDS:
                agents_go_on = False
                delay = _delay(value)
                if delay is not None:
                    group.crawl_delay = max(delay, group.crawl_delay or 0.0)
            elif name in _SITEMAP_FIELDS:
                if value:
                    sitemaps.append(value.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
            elif name:
                agents_go_on = False
        digest = int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), "little")
        return cls(groups, sitemaps, digest)

    @property
    def sitemaps(self) -> list[str]:
        """The sitemaps named, in order, as written: a relative one is to be joined to the robots.txt's own URL."""
        return list(self._sitemaps)

    @property
    def digest(self) -> int:
        """64 bits of the body these rules were parsed from: the same body, the same digest, in every process."""
        return self._digest

    def allowed(self, agent: str, url: str) -> bool:
        """Whether a crawler may fetch an absolute URL.

        `agent` is its product token, a version after it is passed over; a whole User-Agent header will do. The longest
        rule that matches decides, "allow" among equals (RFC 9309 section 2.2.2). /robots.txt itself is always allowed.
        """
        return self.of(agent).allowed(url)

    def crawl_delay(self, agent: str) -> float | None:
        """Seconds between requests that the agent's group asks for: the largest, at most a day; None if none."""
        delays = (group.crawl_delay for group in self._groups_of(agent))
        return max((delay for delay in delays if delay is not None), default=None)

    def of(self, agent: str) -> AgentRules:
        """The rules for one agent: the groups that count for it, merged (RFC 9309 section 2.2.1)."""
        token = self._token(agent)
        found = self._of_tokens.get(token)
        if found is None:
            # Said twice is said once; half a megabyte of one line is one rule.
            rules = dict.fromkeys(rule for group in self._groups_of(agent) for rule in group.rules)
            found = self._of_tokens[token] = AgentRules(_bounded(list(rules)), self.crawl_delay(agent))
        return found

    def _groups_of(self, agent: str) -> list[_Group]:
        return self._groups.get(self._token(agent), [])

    def _token(self, agent: str) -> str:
        """The token of the group that counts for an agent: its own, or "*"."""
        return next((token for token in _tokens_of_agent(agent) if token in self._groups), ANYBODY)

    def __repr__(self) -> str:
        return f"<Rules for {len(self._groups)} agents, {len(self._sitemaps)} sitemaps>"


def _lines(body: bytes) -> list[str]:
    """The lines of a robots.txt without comments, bytes that are no UTF-8 kept as lone surrogates."""
    body = whole_lines(body)
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = body.decode("utf-16", "replace")
    else:
        # A whole byte order mark or the beginning of one, as broken editors leave it.
        for mark in (codecs.BOM_UTF8, codecs.BOM_UTF8[:2], codecs.BOM_UTF8[:1]):
            if body.startswith(mark):
                body = body[len(mark) :]
                break
        text = body.decode("utf-8", "surrogateescape")
    text = text.replace("\0", "").replace("\r", "\n")
    return [line[:ROBOTS_LINE_CHARACTERS_MAX].partition("#")[0].strip(" \t\v\f") for line in text.split("\n")]


def whole_lines(body: bytes, *, cut: bool = False) -> bytes:
    """As many lines of a robots.txt as stand whole in its first `ROBOTS_BYTES_MAX` (RFC 9309 section 2.5). cut: its end
    is missing, so that its last line is a part of one wherever it ends.

    Half a path would forbid, or allow, more than was said.
    """
    if not cut and len(body) <= ROBOTS_BYTES_MAX:
        return body
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # Half a character there looks like the end of a line: the lines are found in the text.
        text = body[: ROBOTS_BYTES_MAX & ~1].decode("utf-16", "ignore")
        head = text[: max(text.rfind("\n"), text.rfind("\r")) + 1].encode("utf-8", "replace")
        return head[: max(head.rfind(b"\n", 0, ROBOTS_BYTES_MAX), head.rfind(b"\r", 0, ROBOTS_BYTES_MAX)) + 1]
    # A line that ends just at the limit is whole: its line end may stand behind the limit.
    end = max(body.rfind(b"\n", 0, ROBOTS_BYTES_MAX + 1), body.rfind(b"\r", 0, ROBOTS_BYTES_MAX + 1))
    return body[: min(end + 1, ROBOTS_BYTES_MAX)]


def _record(line: str) -> tuple[str, str]:
    """The field, in lower case, and the value of a line; ("", "") for an empty one.

    A missing colon is forgiven where the field is known, as both Google's parser and Protego do.
    """
    if not line:
        return "", ""
    name, colon, value = line.partition(":")
    if colon:
        name = " ".join(name.split()).lower()
        if name in _FIELDS:
            return name, value.strip()
    match = _WITHOUT_COLON.fullmatch(line)
    if match is not None and match[1].lower() in _FIELDS:
        return match[1].lower(), match[2].strip()
    return "", ""


def _token_of_line(value: str) -> str | None:
    """The product token that an agent line names, in lower case: "FooBot" for "FooBot 1.0"; None if it names none."""
    match = _TOKEN.match(value)
    if match is not None:
        return match[0].lower()
    return ANYBODY if value == ANYBODY or value[:2] in {"* ", "*\t"} else None


def _tokens_of_agent(agent: str) -> list[str]:
    """The product tokens of an agent, likeliest first: one as a rule, more if a whole User-Agent header is given.

    "Mozilla/5.0 (compatible; FooBot/1.0; +http://example.org/bot)" is FooBot, whose rules must not be missed.
    """
    if agent.isalnum():
        return [agent.lower()]
    products = [part for part in _AGENT_PARTS.split(agent[:_AGENT_CHARACTERS_MAX]) if "://" not in part]
    matches = [match[0].lower() for part in products if (match := _TOKEN.match(part)) is not None]
    tokens = matches[:1] + [token for token in matches[1:] if not token[0].isdigit()]
    return sorted(tokens, key=_NOBODYS_TOKENS.__contains__)


def _escaped(value: str) -> str:
    """A path pattern in printable ASCII, the rest percent-encoded (RFC 9309 section 2.2.2)."""
    if value.isascii() and value.isprintable() and " " not in value:
        return value
    octets = value.encode("utf-8", "surrogateescape" if not value.isascii() else "strict")
    return "".join(chr(octet) if 0x21 <= octet <= 0x7E else f"%{octet:02X}" for octet in octets)


def _bounded(rules: list[str]) -> list[str]:
    """The rules, with at most `ROBOTS_WILDCARD_RULES_MAX` wildcards to search URLs for.

    A "disallow" rule beyond them holds for all URLs that begin like it, an "allow" rule is dropped: judging stays
    cheap, and errs only by staying away.
    """
    bounded = []
    left = ROBOTS_WILDCARD_RULES_MAX
    for rule in rules:
        if "*" in rule:
            left -= 1
            if left < 0:
                if rule.startswith("Disallow"):
                    prefix = rule.partition("*")[0]
                    bounded.append(prefix if prefix != "Disallow: " else "Disallow: /")
                continue
        bounded.append(rule)
    return bounded


def _memory_bytes(rule: str) -> int:
    """The bytes that Protego takes for a rule, measured: a pattern and its place. Protego splits a pattern that can
    match within a URL, and keeps one with a "$", or one that names an index.html, in two forms."""
    plain = 260 + 5 * len(rule) // 2 + (350 if rule.endswith("index.html") else 0)
    if "*" not in rule and "$" not in rule:
        return plain
    return plain + 800 + 3 * len(rule) + 160 * rule.count("*")


def _delay(value: str) -> float | None:
    match = _SECONDS.match(value)
    if match is None or not match[0]:
        return None
    return min(float(match[0].replace(",", ".")), CRAWL_DELAY_SECONDS_MAX)


def _without_authority(url: str) -> str:
    """The URL with an authority that no parser can stumble over: rules are about the path behind it."""
    match = _PATH.match(url)
    rest = url[match.end() :] if match is not None else url
    return f"http://host{rest}" if rest[:1] == "/" else f"http://host/{rest}"


def verdict_of_status(status: int | None) -> Answer:
    """The meaning of the status of an answer for robots.txt (RFC 9309 section 2.3.1).

    "rules": parse the body; "redirect": ask there; "allow": there are no rules; "unreachable": stay out for now.
    None is no answer at all. 429 is "unreachable" although it is a 4xx, as Google reads it too: a site that asks for
    fewer requests has not allowed everything. So is 206: the request asked for the whole, and a part misses rules.
    """
    if status is None or status in (206, 429):
        return "unreachable"
    if 200 <= status < 300:
        return "rules"
    if 300 <= status < 400:
        return "redirect"
    if 400 <= status < 500:
        return "allow"
    return "unreachable"


ALLOW_ALL = Rules.parse(b"")
"""No rules at all: what a missing robots.txt means."""
REFUSE_ALL = Rules.parse(b"User-agent: *\nDisallow: /\n")
"""Nothing but /robots.txt: what an unreachable robots.txt means."""
