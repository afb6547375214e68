"""What a robots.txt allows, by RFC 9309: groups are read here, the paths of one group are matched by Protego.

Any bytes can be parsed and nothing raises: what is no rule is passed over. Work is bounded by `ROBOTS_BYTES_MAX`.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from dataclasses import dataclass, field
from typing import Literal

from protego import Protego

from outrider.limits import CRAWL_DELAY_SECONDS_MAX, ROBOTS_BYTES_MAX

Answer = Literal["rules", "redirect", "allow", "unreachable"]

ANYBODY = "*"
"""The token of the group for agents that have no group of their own."""

_LINE_BYTES_MAX = 16_664  # where Google's parser cuts a line; no URL that is crawled is as long
_AGENT_FIELDS = frozenset({"user-agent", "useragent", "user agent"})
_DISALLOW_FIELDS = frozenset({"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"})
_ALLOW_FIELDS = frozenset({"allow"})
_DELAY_FIELDS = frozenset({"crawl-delay", "crawldelay", "crawl delay"})
_SITEMAP_FIELDS = frozenset({"sitemap", "sitemaps", "site-map"})
# Records that nobody but some crawlers read, yet stand inside groups: like a rule they end the list of agents.
_OTHER_GROUP_FIELDS = frozenset({"request-rate", "request rate", "visit-time", "visit time", "noindex"})
_FIELDS = _AGENT_FIELDS | _DISALLOW_FIELDS | _ALLOW_FIELDS | _DELAY_FIELDS | _SITEMAP_FIELDS | _OTHER_GROUP_FIELDS

# RFC 9309 has letters, "_" and "-" only; tokens with digits are common, and cut there bot1 and bot2 would be one.
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_WITHOUT_COLON = re.compile(r"(?i)(user[ -]?agent|[a-z-]+|(?:crawl|request) (?:delay|rate)|visit time)[ \t]+(.*)")
_SECONDS = re.compile(r"[0-9]{0,12}(?:[.,][0-9]{1,12})?")
_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


@dataclass(slots=True)
class _Group:
    """What the lines for one token say, all its groups merged (RFC 9309 section 2.2.1)."""

    rules: list[str] = field(default_factory=list)
    crawl_delay: float | None = None


class Rules:
    """The rules of one authority. Made by `parse`; never changes."""

    __slots__ = ("_digest", "_groups", "_matchers", "_sitemaps")

    def __init__(self, groups: dict[str, _Group], sitemaps: list[str], digest: int) -> None:
        self._groups = groups
        self._sitemaps = sitemaps
        self._digest = digest
        self._matchers: dict[str, Protego] = {}

    @classmethod
    def parse(cls, body: bytes) -> Rules:
        """The rules that a robots.txt states: any bytes, of which the first `ROBOTS_BYTES_MAX` count."""
        groups: dict[str, _Group] = {}
        sitemaps: list[str] = []
        current: list[_Group] = []
        agents_go_on = False
        for line in _lines(body):
            name, value = _record(line)
            if name in _AGENT_FIELDS:
                if not agents_go_on:
                    current = []
                agents_go_on = True
                token = _token_of_line(value)
                if token is not None:
                    group = groups.setdefault(token, _Group())
                    if not any(group is other for other in current):
                        current.append(group)
            elif name in _DISALLOW_FIELDS or name in _ALLOW_FIELDS:
                agents_go_on = False
                if value:
                    rule = f"{'Allow' if name in _ALLOW_FIELDS else 'Disallow'}: {_escaped(value)}"
                    for group in current:
                        group.rules.append(rule)
            elif name in _DELAY_FIELDS:
                agents_go_on = False
                delay = _delay(value)
                if delay is not None:
                    for group in current:
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

        `agent` is its product token; what follows the token, as in "FooBot/2.1", is passed over. The longest rule that
        matches decides, "allow" among equals (RFC 9309 section 2.2.2). /robots.txt itself is always allowed.
        """
        matcher = self._matcher(agent)
        return matcher is None or bool(matcher.can_fetch(_without_authority(url), ANYBODY))

    def crawl_delay(self, agent: str) -> float | None:
        """Seconds between requests as the agent's group asks for, the largest if several, at most a day; or None."""
        group = self._groups.get(self._token(agent))
        return None if group is None else group.crawl_delay

    def _token(self, agent: str) -> str:
        """The token of the group that counts for an agent: its own, or the one for anybody."""
        match = _TOKEN.match(agent)
        token = match[0].lower() if match is not None else ANYBODY
        return token if token in self._groups else ANYBODY

    def _matcher(self, agent: str) -> Protego | None:
        """Protego over the one group that counts, given to it as the group for anybody.

        Left alone it matches tokens by prefix ("Foo" for FooBot) and misses agent lines with a version.
        """
        token = self._token(agent)
        group = self._groups.get(token)
        if group is None or not group.rules:
            return None
        matcher = self._matchers.get(token)
        if matcher is None:
            matcher = Protego.parse(f"User-agent: {ANYBODY}\n" + "\n".join(group.rules))
            self._matchers[token] = matcher
        return matcher

    def __repr__(self) -> str:
        rules = sum(len(group.rules) for group in self._groups.values())
        return f"<Rules {len(self._groups)} groups, {rules} rules, {len(self._sitemaps)} sitemaps>"


def _lines(body: bytes) -> list[str]:
    """The lines of a robots.txt without comments, bytes that are no UTF-8 kept as lone surrogates."""
    if len(body) > ROBOTS_BYTES_MAX:
        # What was cut through is dropped: half a path would forbid, or allow, more than was said.
        head = body[:ROBOTS_BYTES_MAX]
        end = max(head.rfind(b"\n"), head.rfind(b"\r"))
        body = head[: end + 1] if end >= 0 else head
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
    return [line[:_LINE_BYTES_MAX].partition("#")[0].strip(" \t\v\f") for line in text.split("\n")]


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


def _escaped(value: str) -> str:
    """A path pattern in printable ASCII, the rest percent-encoded (RFC 9309 section 2.2.2)."""
    if value.isascii() and value.isprintable() and " " not in value:
        return value
    octets = value.encode("utf-8", "surrogateescape" if not value.isascii() else "strict")
    return "".join(chr(octet) if 0x21 <= octet <= 0x7E else f"%{octet:02X}" for octet in octets)


def _delay(value: str) -> float | None:
    match = _SECONDS.match(value)
    if match is None or not match[0]:
        return None
    return min(float(match[0].replace(",", ".")), CRAWL_DELAY_SECONDS_MAX)


def _without_authority(url: str) -> str:
    """The URL with an authority that no parser can stumble over: rules are about what follows it."""
    match = _PATH.match(url)
    rest = url[match.end() :] if match is not None else url
    return f"http://host{rest}" if rest[:1] == "/" else f"http://host/{rest}"


def verdict_of_status(status: int | None) -> Answer:
    """What the status of an answer for robots.txt means (RFC 9309 section 2.3.1).

    "rules": parse the body; "redirect": ask there; "allow": there are no rules; "unreachable": stay out for now.
    None is no answer at all. 429 is "unreachable" although it is a 4xx, as Google reads it too: who asks for fewer requests has
    not allowed everything.
    """
    if status is None or status == 429:
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
