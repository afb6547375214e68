"""The rules of a robots.txt, by RFC 9309: which text is read, and whose rules count. The kernel reads and matches.

Any bytes can be parsed and nothing raises: a line that is not a rule is skipped. Work is bounded by
`ROBOTS_BYTES_MAX`.
"""

from __future__ import annotations

import codecs
import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from outrider.kernels import RobotsRules, RobotsText, robots_verdicts
from outrider.limits import (
    CRAWL_DELAY_SECONDS_MAX,
    PREFERENCE_LINES_MAX,
    PREFERENCE_TEXT_CHARACTERS_MAX,
    ROBOTS_BYTES_MAX,
    ROBOTS_IGNORED_LINES_MAX,
    ROBOTS_WILDCARD_RULES_MAX,
    VISIT_LINES_MAX,
)
from outrider.robots.hours import Rate, VisitWindow, slowest, windows_of
from outrider.robots.preferences import UseLines, preferences_of, said_in_line
from outrider.uses import Preferences, UseLine

Answer = Literal["rules", "redirect", "allow", "unreachable"]

ANYBODY = "*"
"""The token of the group for agents that have no group of their own."""

# RFC 9309 has letters, "_" and "-" only; tokens with digits are common, and cut there bot1 and bot2 would be one.
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_AGENT_PARTS = re.compile(r"[\s;(),]+")
_AGENT_CHARACTERS_MAX = 1_000
_NOBODYS_TOKENS = frozenset({"mozilla", "compatible"})


class RuleLine(str):
    """A line of a robots.txt that decides, as written without its comment. number: its number from 1."""

    __slots__ = ("number",)

    number: int

    def __new__(cls, text: str, number: int) -> RuleLine:
        """A line and its number."""
        made = super().__new__(cls, text)
        made.number = number
        return made


class AgentRules:
    """The rules of one authority for one agent: all that is stored of a file between two verdicts. Never changes.

    crawl_delay: seconds between requests, by Crawl-delay and Request-rate, None without both. count: the number of
    rules. uses: the lines about uses, None without any. hours: the windows of Visit-time.
    """

    __slots__ = ("_matcher", "count", "crawl_delay", "hours", "uses")

    def __init__(
        self,
        matcher: RobotsRules,
        crawl_delay: float | None,
        uses: UseLines | None,
        hours: tuple[VisitWindow, ...] = (),
    ) -> None:
        self._matcher = matcher
        self.crawl_delay = crawl_delay
        self.hours = hours
        self.uses = uses
        self.count = len(matcher)

    @property
    def memory_bytes(self) -> int:
        """The bytes that the rules use."""
        uses = self.uses.memory_bytes if self.uses is not None else 0
        return sys.getsizeof(self) + self._matcher.memory_bytes + uses

    def allowed(self, url: str) -> bool:
        """Whether the agent may fetch an absolute URL; see `Rules.allowed`."""
        return self._matcher.verdict(url) >= 0

    def verdict(self, url: str) -> int:
        """The number of the line that decides about an absolute URL, negative where it forbids; 0 if no line does."""
        return self._matcher.verdict(url)

    def about_uses(self, url: str) -> tuple[UseLine, ...]:
        """Returns the lines that say what an absolute URL may be used for; none for a URL that may not be fetched."""
        return self.uses.about(url) if self.uses is not None and self.allowed(url) else ()

    def __repr__(self) -> str:
        return f"<AgentRules {self.count} rules, {self.memory_bytes} bytes>"


def verdicts(rules: Iterable[AgentRules], urls: Sequence[str]) -> list[int]:
    """Returns `AgentRules.verdict` for many URLs, each with its own rules."""
    found: list[int] = np.frombuffer(robots_verdicts([one._matcher for one in rules], urls), np.int64).tolist()
    return found


class Rules:
    """The rules of one authority. Made by `parse`; never changes."""

    __slots__ = ("_digest", "_of_tokens", "_text")

    def __init__(self, text: RobotsText, digest: int) -> None:
        self._text = text
        self._digest = digest
        self._of_tokens: dict[str, AgentRules] = {}

    @classmethod
    def parse(cls, body: bytes, *, lenient: bool = False) -> Rules:
        """Parses the rules of a robots.txt: any bytes, of which the first `ROBOTS_BYTES_MAX` count.

        lenient: reads as Google's parser does, which decodes no percent-encoding, among others
        (docs/decisions/robots.md).
        """
        digest = int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), "little")
        return cls(RobotsText(_text_of(body), lenient), digest)

    @property
    def sitemaps(self) -> list[str]:
        """The sitemaps named, in order, as written: a relative one is to be joined to the robots.txt's own URL."""
        return [value.decode("utf-8", "replace") for value in self._text.sitemaps()]

    @property
    def digest(self) -> int:
        """64 bits of the body these rules were parsed from: the same body, the same digest, in every process."""
        return self._digest

    @property
    def records(self) -> int:
        """The number of lines that are records of a robots.txt; 0 for bytes without a rule, which allow all."""
        return self._text.records

    def allowed(self, agent: str, url: str) -> bool:
        """Whether a crawler may fetch an absolute URL.

        `agent` is its product token, a version after it is passed over; a whole User-Agent header will do. The longest
        rule that matches decides, "allow" among equals (RFC 9309 section 2.2.2). /robots.txt itself is always allowed.
        """
        return self.of(agent).allowed(url)

    def explain(self, agent: str, url: str) -> RuleLine | None:
        """The line that decides whether a crawler may fetch an absolute URL; None if no line does: then it may."""
        number = abs(self.of(agent).verdict(url))
        return RuleLine(self._text.line(number).decode("utf-8", "replace"), number) if number else None

    def about_uses(self, agent: str, url: str) -> Preferences:
        """Returns what the file says about the uses of an absolute URL; nothing if the agent may not fetch it."""
        return preferences_of(self.of(agent).about_uses(url))

    def crawl_delay(self, agent: str) -> float | None:
        """Returns the seconds between requests of the agent's group: the largest, at most a day; None without one."""
        delay = self._text.delay(self._token(agent))
        return None if delay is None else min(delay, CRAWL_DELAY_SECONDS_MAX)

    def gap(self, agent: str) -> float | None:
        """Returns the seconds between requests that Crawl-delay and Request-rate of the agent's group require, the
        longer of both; None without both. A rate with a window is kept at any time."""
        delay, rate = self.crawl_delay(agent), slowest(self._remarks(agent, "request-rate"))
        return max(delay or 0.0, rate) or delay

    def hours(self, agent: str) -> tuple[VisitWindow, ...]:
        """Returns the windows of the Visit-time lines of the agent's group; none for any time."""
        return windows_of(self._remarks(agent, "visit-time"))

    def ignored(self, agent: str) -> list[str]:
        """Returns the lines about hours, rates and uses of the agent's group that cannot be read, each with its number
        and the reason: the first `ROBOTS_IGNORED_LINES_MAX`."""
        token, found = self._token(agent), []
        for name, reason_of in _REASONS.items():
            limit = PREFERENCE_LINES_MAX if name == _USAGE else VISIT_LINES_MAX
            for number, octets in self._text.remarks(token, name, limit):
                value = octets.decode("utf-8", "replace")
                if (reason := reason_of(number, value)) is not None:
                    found.append((number, f"line {number}: {name}: {_cut(value)} is ignored: {reason}"))
        return [text for _, text in sorted(found)[:ROBOTS_IGNORED_LINES_MAX]]

    def _remarks(self, agent: str, name: str) -> list[str]:
        found = self._text.remarks(self._token(agent), name, VISIT_LINES_MAX)
        return [value.decode("utf-8", "replace") for _, value in found]

    def of(self, agent: str) -> AgentRules:
        """The rules for one agent: the groups that count for it, merged (RFC 9309 section 2.2.1)."""
        token = self._token(agent)
        found = self._of_tokens.get(token)
        if found is None:
            matcher = self._text.rules(token, ROBOTS_WILDCARD_RULES_MAX)
            uses = UseLines.of(self._text, token)
            found = self._of_tokens[token] = AgentRules(matcher, self.gap(agent), uses, self.hours(agent))
        return found

    def _token(self, agent: str) -> str:
        """The token of the group that counts for an agent: its own, or "*"."""
        return next((token for token in _tokens_of_agent(agent) if self._text.has(token)), ANYBODY)

    def __repr__(self) -> str:
        return f"<Rules for {self._text.agents} agents, {len(self._text.sitemaps())} sitemaps>"


_USAGE = "content-usage"
_REASONS: Mapping[str, Callable[[int, str], str | None]] = {
    "visit-time": lambda _, value: None if VisitWindow.of(value) else "use two different times in GMT, as 0600-0845",
    "request-rate": lambda _, value: None if Rate.of(value) else "use documents and their time, as 10/1m",
    _USAGE: lambda number, value: said_in_line((number, _USAGE, value)).fault,
}
"""Fields of lines that may be unreadable, and why a line with this number and value is."""
_IGNORABLE = tuple(name.encode() for name in _REASONS)


def _cut(value: str) -> str:
    return value if len(value) <= PREFERENCE_TEXT_CHARACTERS_MAX else f"{value[:PREFERENCE_TEXT_CHARACTERS_MAX]}…"


def ignored_lines(body: bytes, agent: str) -> str | None:
    """Returns the lines of a robots.txt that `Rules.ignored` names, as one text; None without any."""
    lowered = body.lower()
    if not any(name in lowered for name in _IGNORABLE):
        return None
    return "; ".join(Rules.parse(body).ignored(agent)) or None


def _text_of(body: bytes) -> bytes:
    """The readable text of a robots.txt: whole lines in UTF-8, without byte order mark and NUL."""
    body = whole_lines(body)
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        body = body.decode("utf-16", "replace").encode("utf-8", "replace")
    # A whole byte order mark or the beginning of one, as broken editors leave it.
    for mark in (codecs.BOM_UTF8, codecs.BOM_UTF8[:2], codecs.BOM_UTF8[:1]):
        if body.startswith(mark):
            body = body[len(mark) :]
            break
    return body.replace(b"\0", b"") if b"\0" in body else body


def whole_lines(body: bytes, *, cut: bool = False) -> bytes:
    """Returns the lines of a robots.txt that are whole in its first `ROBOTS_BYTES_MAX` (RFC 9309 section 2.5). cut: its
    end is missing, so its last line is always a part of one.

    Half a path would forbid, or allow, more than the file does.
    """
    if not cut and len(body) <= ROBOTS_BYTES_MAX:
        return body
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # Half a character there looks like the end of a line: the lines are found in the text.
        text = body[: ROBOTS_BYTES_MAX & ~1].decode("utf-16", "ignore")
        head = text[: max(text.rfind("\n"), text.rfind("\r")) + 1].encode("utf-8", "replace")
        return head[: max(head.rfind(b"\n", 0, ROBOTS_BYTES_MAX), head.rfind(b"\r", 0, ROBOTS_BYTES_MAX)) + 1]
    # A line that ends just at the limit is whole: its line end may be after the limit.
    end = max(body.rfind(b"\n", 0, ROBOTS_BYTES_MAX + 1), body.rfind(b"\r", 0, ROBOTS_BYTES_MAX + 1))
    return body[: min(end + 1, ROBOTS_BYTES_MAX)]


def _tokens_of_agent(agent: str) -> list[str]:
    """The product tokens of an agent, likeliest first: one as a rule, more if a whole User-Agent header is given.

    "Mozilla/5.0 (compatible; FooBot/1.0; +http://example.org/bot)" is FooBot, whose rules must not be missed.
    """
    if agent.isalpha():
        return [agent.lower()]
    products = [part for part in _AGENT_PARTS.split(agent[:_AGENT_CHARACTERS_MAX]) if "://" not in part]
    matches = [match[0].lower() for part in products if (match := _TOKEN.match(part)) is not None]
    tokens = matches[:1] + [token for token in matches[1:] if not token[0].isdigit()]
    return sorted(tokens, key=_NOBODYS_TOKENS.__contains__)


def verdict_of_status(status: int | None) -> Answer:
    """Returns the meaning of the status of an answer for robots.txt (RFC 9309 section 2.3.1).

    "rules": parse the body; "redirect": request the target; "allow": there are no rules; "unreachable": forbidden for
    now. None means no answer. 429 is "unreachable" although it is a 4xx, as Google reads it too: a site that wants
    fewer requests has not allowed everything. So is 206: the request was for the whole, and a part lacks rules.
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
