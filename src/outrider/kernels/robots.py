"""The lines of a robots.txt, and the rules of one agent matched against URLs: the plain twin of the kernel.

A text is read once, line by line: `RobotsText` has the lines that are records, and the product tokens of each group
(RFC 9309 section 2.2). `RobotsText.rules` prepares the rules of one token, `RobotsRules`, which are small and do not
refer to other groups. A site's text never becomes a regular expression, and a rule needs time linear in the URL.

Lines of a group that say something else than a rule, as Content-Usage, are returned with their numbers. Of these, only
Content-Usage and Content-Signal end a list of agents (docs/decisions/robots.md).

Both sides of a comparison are spelled alike (section 2.2.2):

    %7E, %3B     an escaped octet that is unreserved, or reserved but not one of / ? # & = %, becomes the octet itself
    %2f          other escapes have upper-case digits
    space, ü, <  octets that no URI may contain are escaped
    ?u=%2F       after a "?" the escapes of / and ? also become these octets: a URL is compared in that spelling too

The lenient reading is that of Google's parser: it decodes no escape and keeps the text as printed, and only "Allow" and
"Disallow" end a list of agents. Where an allowed "/dir/index.html" allows /dir/ too, in the lenient reading each page
there whose name begins with "index.htm" does so.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence

from outrider.kernels.framing import Bytes, as_octets

ANYBODY = b"*"
"""The token of the group for agents that have no group of their own."""
LINE_OCTETS_MAX = 16_664
"""Octets of a line that are read, eight times 2,083: where Google's parser cuts."""

_AGENT, _ALLOW, _DISALLOW, _DELAY, _SITEMAP, _USAGE, _SIGNAL, _RATE, _VISIT, _OTHER = range(10)
_FIELDS = {
    **dict.fromkeys((b"user-agent", b"useragent", b"user agent"), _AGENT),
    b"allow": _ALLOW,
    **dict.fromkeys((b"disallow", b"dissallow", b"dissalow", b"disalow", b"diasllow", b"disallaw"), _DISALLOW),
    **dict.fromkeys((b"crawl-delay", b"crawldelay", b"crawl delay"), _DELAY),
    **dict.fromkeys((b"sitemap", b"sitemaps", b"site-map"), _SITEMAP),
    **dict.fromkeys((b"request-rate", b"request rate"), _RATE),
    **dict.fromkeys((b"visit-time", b"visit time"), _VISIT),
    b"noindex": _OTHER,
    b"content-usage": _USAGE,
    b"content-signal": _SIGNAL,
}
_REMARKED = {"content-usage": _USAGE, "content-signal": _SIGNAL, "request-rate": _RATE, "visit-time": _VISIT}
_END_AGENTS = frozenset({_USAGE, _SIGNAL})  # as "Allow" and "Disallow" do
_BLANK = b" \t\v\f"
_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_")
_DIGITS = frozenset(b"0123456789")
_HEX = frozenset(b"0123456789ABCDEFabcdef")
_TOKEN = _LETTERS | _DIGITS
_UNRESERVED = _LETTERS | _DIGITS | frozenset(b".~")
_RESERVED = frozenset(b":@!$'()*+,;[]")
_IN_QUERY = frozenset(b"/?")
_PLAIN = _UNRESERVED | _RESERVED | frozenset(b"/?#&=%")
_PRINTED = frozenset(range(0x21, 0x7F))
_STAR = 0  # a wildcard in a pattern; this octet is escaped in a URL


class RobotsText:
    """The records of one robots.txt.

    text     bytes: without a byte order mark and NUL; lines end with CR, LF or both, and are cut at `LINE_OCTETS_MAX`
    lenient  reads as Google's parser does
    """

    def __init__(self, text: Bytes, lenient: bool = False) -> None:
        self._lenient = lenient
        self._lines = bytes(as_octets(text)).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._groups: list[list[tuple[int, bool, bytes]]] = [[]]  # rules before the first agent count for no agent
        self._delays: list[float | None] = [None]
        self._tokens: dict[bytes, list[int]] = {}
        self._sitemaps: list[bytes] = []
        self._remarks: list[tuple[int, int, int, bytes]] = []  # group, field, number of the line, value
        self._records = 0
        agents_go_on = False
        for number in range(len(self._lines)):
            found = _record(self._line(number))
            if found is None:
                continue
            self._records += 1
            field, value = found
            if field == _AGENT:
                if not agents_go_on:
                    self._groups.append([])
                    self._delays.append(None)
                agents_go_on = True
                self._name(value)
            elif field in (_ALLOW, _DISALLOW):
                agents_go_on = False
                if value:
                    self._groups[-1].append((number + 1, field == _ALLOW, value))
            elif field == _SITEMAP:
                if value:
                    self._sitemaps.append(value)
            elif field == _DELAY:
                delay = _delay(value)
                if delay is not None:
                    self._delays[-1] = max(delay, self._delays[-1] or 0.0)
            elif field != _OTHER:
                agents_go_on = agents_go_on and (lenient or field not in _END_AGENTS)
                self._remarks.append((len(self._groups) - 1, field, number + 1, value))

    def _line(self, number: int) -> bytes:
        return self._lines[number][:LINE_OCTETS_MAX].partition(b"#")[0].strip(_BLANK)

    def _name(self, value: bytes) -> None:
        """Notes that an agent line names a token: "FooBot" of "FooBot 1.0"."""
        length = next((at for at, octet in enumerate(value) if octet not in _TOKEN), len(value))
        token = value[:length].lower()
        if not token:
            if value[:1] != ANYBODY or value[1:2] not in (b"", b" ", b"\t"):
                return
            token = ANYBODY
        groups = self._tokens.setdefault(token, [])
        if not groups or groups[-1] != len(self._groups) - 1:
            groups.append(len(self._groups) - 1)

    @property
    def records(self) -> int:
        """The number of lines that are records; 0 for bytes without a rule."""
        return self._records

    @property
    def agents(self) -> int:
        """The number of product tokens that have a group."""
        return len(self._tokens)

    def has(self, token: str) -> bool:
        """Whether a group names this product token, given in lower case."""
        return token.encode("utf-8", "surrogatepass") in self._tokens

    def delay(self, token: str) -> float | None:
        """Returns the largest Crawl-delay of a token's groups in seconds, as written; None without one."""
        delays = (self._delays[group] for group in self._tokens.get(token.encode("utf-8", "surrogatepass"), ()))
        return max((delay for delay in delays if delay is not None), default=None)

    def sitemaps(self) -> list[bytes]:
        """The values of the sitemap lines, in order."""
        return list(self._sitemaps)

    def line(self, number: int) -> bytes:
        """Returns a line by its number from 1, without its comment and surrounding blanks. Raises ValueError."""
        if not 0 < number <= len(self._lines):
            raise ValueError(f"there is no line {number}, only {len(self._lines)}")
        return self._line(number - 1)

    def rules(self, token: str, globs_max: int) -> RobotsRules:
        """Returns the rules of a token's groups, merged; no rules for a token that no group names.

        globs_max: this number of rules with a wildcard before their end apply as they are. Of further ones, a
        "disallow" applies to all URLs with the same beginning, and an "allow" is dropped. So a verdict remains cheap,
        and errors only forbid.
        """
        groups = self._tokens.get(token.encode("utf-8", "surrogatepass"), ())
        lines = [rule for group in groups for rule in self._groups[group]]
        return RobotsRules(lines, self._lenient, globs_max)

    def remarks(self, token: str, name: str, lines_max: int) -> list[tuple[int, bytes]]:
        """Returns number and value of the first `lines_max` lines "content-usage", "content-signal", "request-rate" or
        "visit-time" of a token's groups. A Content-Signal line before the first agent counts for all tokens."""
        return self._remarks_of(token, _REMARKED.get(name, -1))[:lines_max]

    def usages(self, token: str, lines_max: int) -> RobotsUsages:
        """Returns the Content-Usage lines of a token's groups, the first `lines_max` of them."""
        return RobotsUsages(self._remarks_of(token, _USAGE)[:lines_max], self._lenient)

    def _remarks_of(self, token: str, field: int) -> list[tuple[int, bytes]]:
        groups = set(self._tokens.get(token.encode("utf-8", "surrogatepass"), ()))
        if field == _SIGNAL:
            groups.add(0)
        return [(number, value) for group, its, number, value in self._remarks if its == field and group in groups]


class RobotsUsages:
    """The Content-Usage lines of one agent (draft-ietf-aipref-attach-05). Made by `RobotsText.usages`; never changes.

    A value that begins with "/" has a path up to its first blank. Any other value is about all URLs, with 0 octets.
    """

    def __init__(self, lines: list[tuple[int, bytes]], lenient: bool) -> None:
        self._lenient = lenient
        found: list[tuple[int, int, bytes, bool]] = []
        for number, value in lines:
            path = value.replace(b"\t", b" ").partition(b" ")[0] if value.startswith(b"/") else b""
            ((pattern, anchored, octets),) = _patterns(path, False, lenient)
            found.append((octets, number, pattern, anchored))
        self._patterns = found

    def __len__(self) -> int:
        return len(self._patterns)

    @property
    def memory_bytes(self) -> int:
        """The bytes that it uses."""
        return sys.getsizeof(self) + sum(sys.getsizeof(one) + sum(map(sys.getsizeof, one)) for one in self._patterns)

    def lines(self, url: str) -> list[int]:
        """Returns the numbers of the lines whose path matches an absolute URL with the most octets, in order."""
        path = _path(url.encode("utf-8", "surrogatepass"))
        spelled = {_spelled(path, self._lenient, in_query=False)}
        if not self._lenient:
            spelled.add(_spelled(path, False, in_query=True))
        fits = [
            (octets, number)
            for octets, number, pattern, anchored in self._patterns
            if any(_matches(pattern, anchored, one) for one in spelled)
        ]
        most = max((octets for octets, _ in fits), default=0)
        return [number for octets, number in fits if octets == most]

    def __repr__(self) -> str:
        return f"<RobotsUsages {len(self)} lines, {self.memory_bytes} bytes>"


class RobotsRules:
    """The rules of one agent. Made by `RobotsText.rules`; never changes."""

    def __init__(self, lines: list[tuple[int, bool, bytes]], lenient: bool, globs_max: int) -> None:
        self._lenient = lenient
        firsts: dict[tuple[bytes, bool, bool, int], int] = {}
        globs = 0
        for number, allow, value in lines:
            for pattern, anchored, octets in _patterns(value, allow, lenient):
                if (pattern, anchored, allow, octets) in firsts:
                    continue
                if _STAR in pattern:
                    globs += 1
                    if globs > globs_max:
                        if not allow:
                            prefix = pattern.partition(b"\0")[0] or b"/"
                            firsts.setdefault((prefix, False, False, len(prefix)), number)
                        continue
                firsts[(pattern, anchored, allow, octets)] = number
        # The first that matches decides: most octets, "allow" among equals, the first line among those.
        self._rules = sorted(
            (
                (-octets, not allow, number, pattern, anchored)
                for (pattern, anchored, allow, octets), number in firsts.items()
            )
        )
        self._memory = sys.getsizeof(self) + sys.getsizeof(self._rules)
        self._memory += sum(sys.getsizeof(rule) + sum(map(sys.getsizeof, rule)) for rule in self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    @property
    def memory_bytes(self) -> int:
        """The bytes that it uses."""
        return self._memory

    def verdict(self, url: str) -> int:
        """Returns the number of the line that decides about an absolute URL, negative if it forbids; 0 without a match.

        No line decides about /robots.txt itself.
        """
        path = _path(url.encode("utf-8", "surrogatepass"))
        spelled = _spelled(path, self._lenient, in_query=False)
        if not self._rules or spelled == b"/robots.txt":
            return 0
        in_query = spelled if self._lenient else _spelled(path, False, in_query=True)
        for _, forbids, number, pattern, anchored in self._rules:
            if _matches(pattern, anchored, spelled) or (in_query != spelled and _matches(pattern, anchored, in_query)):
                return -number if forbids else number
        return 0

    def __repr__(self) -> str:
        return f"<RobotsRules {len(self)} rules, {self.memory_bytes} bytes>"


def robots_verdicts(rules: Sequence[RobotsRules], urls: Sequence[str]) -> bytes:
    """Returns `RobotsRules.verdict` for many URLs, each with its own rules; little-endian i64.

    Raises ValueError if the numbers of rules and URLs differ.
    """
    if len(rules) != len(urls):
        raise ValueError(f"{len(rules)} rules for {len(urls)} URLs")
    return struct.pack(f"<{len(urls)}q", *(one.verdict(url) for one, url in zip(rules, urls, strict=True)))


def _record(line: bytes) -> tuple[int, bytes] | None:
    """Returns the field and the value of a line; None for a line that is not a record.

    A missing colon is accepted after a known field, as in Google's parser and Protego.
    """
    name, colon, value = line.partition(b":")
    if colon:
        field = _FIELDS.get(b" ".join(name.split()).lower())
        if field is not None:
            return field, value.strip(_BLANK)
    for words in (1, 2):
        parts = line.replace(b"\t", b" ").split(b" ", words)
        if len(parts) > words:
            name = b" ".join(parts[:words])
            field = _FIELDS.get(name.lower())
            if field is not None:
                return field, line[len(name) :].strip(_BLANK)
    return None


def _delay(value: bytes) -> float | None:
    """Returns the seconds at the start of a value: up to twelve digits, and as many after a point or comma."""
    whole = next((at for at, octet in enumerate(value) if octet not in _DIGITS), len(value))
    if whole > 12:
        value, whole = value[:12], 12
    rest = value[whole + 1 : whole + 13] if value[whole : whole + 1] in (b".", b",") else b""
    part = rest[: next((at for at, octet in enumerate(rest) if octet not in _DIGITS), len(rest))]
    if not whole and not part:
        return None
    return float((value[:whole] or b"0") + b"." + (part or b"0"))


def _patterns(value: bytes, allow: bool, lenient: bool) -> list[tuple[bytes, bool, int]]:
    """The pattern of a rule, whether the URL must end where it ends, and its octets; two for an index page that is
    allowed."""
    anchored = value.endswith(b"$")
    raw = value[:-1] if anchored else value
    pattern = bytearray()
    octets = int(anchored)
    in_query = False
    at = 0
    while at < len(raw):
        octet = raw[at]
        if octet == ord("*"):
            if pattern[-1:] != b"\0":
                pattern.append(_STAR)
            octets += 1
            at += 1
            continue
        spelled, taken = _octet(raw, at, lenient, in_query)
        pattern += spelled
        octets += 1 if (taken == 1 and len(spelled) == 1) or spelled[0] in _UNRESERVED else 3
        in_query = in_query or octet == ord("?")
        at += taken
    if pattern[-1:] == b"\0":  # a wildcard at the end says what the end says
        del pattern[-1]
        anchored = False
    patterns = [(bytes(pattern), anchored, octets)]
    last = raw.rfind(b"/") if allow else -1
    if last >= 0 and (raw[last:].startswith(b"/index.htm") if lenient else raw[last:] == b"/index.html"):
        patterns += _patterns(raw[: last + 1] + b"$", False, lenient)
    return patterns


def _octet(raw: bytes, at: int, lenient: bool, in_query: bool) -> tuple[bytes, int]:
    """Returns the octet at this place in its spelling for comparison, and the number of octets it occupies."""
    octet = raw[at]
    if octet == ord("%") and len(raw) >= at + 3 and raw[at + 1] in _HEX and raw[at + 2] in _HEX:
        code = int(raw[at + 1 : at + 3], 16)
        plain = code in _UNRESERVED or code in _RESERVED or (in_query and code in _IN_QUERY)
        return (bytes([code]) if plain and not lenient else b"%%%02X" % code), 3
    return (raw[at : at + 1] if octet in (_PRINTED if lenient else _PLAIN) else b"%%%02X" % octet), 1


def _path(url: bytes) -> bytes:
    """The path and the query of an absolute URL: what follows its authority, without a fragment."""
    scheme, mark, rest = url.partition(b"://")
    if mark and scheme[:1].isalpha() and all(octet in _UNRESERVED or octet == ord("+") for octet in scheme):
        ends = [place for sign in (b"/", b"?", b"#") if (place := rest.find(sign)) >= 0]
        url = rest[min(ends, default=len(rest)) :]
    url = url.partition(b"#")[0]
    return url if url[:1] == b"/" else b"/" + url


def _spelled(path: bytes, lenient: bool, *, in_query: bool) -> bytes:
    """Returns a path in its spelling for comparison. in_query: / and ? are decoded after the first "?"."""
    spelled = bytearray()
    behind = False
    at = 0
    while at < len(path):
        one, taken = _octet(path, at, lenient, behind and in_query)
        behind = behind or path[at] == ord("?")
        spelled += one
        at += taken
    return bytes(spelled)


def _matches(pattern: bytes, anchored: bool, path: bytes) -> bool:
    """Whether a pattern matches from the path's first octet; each part between wildcards matches at its first place."""
    first, *parts = pattern.split(b"\0")
    if not path.startswith(first):
        return False
    if not parts:
        return not anchored or len(path) == len(first)
    place = len(first)
    last = parts.pop() if anchored else b""
    for part in parts:
        found = path.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return not anchored or (path.endswith(last) and len(path) - len(last) >= place)
