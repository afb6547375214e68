"""The file tdmrep.json of TDMRep (W3C Community Group Final Report, 10 May 2024): bytes in, statements out.

It is a JSON array of rules, each with a `location`, a pattern as in robots.txt. The first rule that matches a URL
counts, not the longest one. If the file is not valid, it says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from outrider.errors import SettingsError
from outrider.limits import TDMREP_BYTES_MAX, TDMREP_RULES_MAX
from outrider.robots.preferences import said_in_reservation
from outrider.robots.rules import AgentRules, Rules, verdicts
from outrider.uses import Statement

TDMREP_PATH: Final = "/.well-known/tdmrep.json"
SOURCE: Final = "file tdm-reservation"
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_AGENT: Final = "tdm"  # any name: each rule becomes a robots.txt of one line


class TdmFile:
    """The rules of a tdmrep.json that name a location, as written and in order. Never changes."""

    __slots__ = ("_matchers", "_statements", "rules")

    def __init__(self, rules: Sequence[str]) -> None:
        found = [(text, rule) for text in rules if (rule := _rule_of(text)) is not None]
        self.rules = tuple(text for text, _ in found)
        self._matchers = [matcher for _, (matcher, _) in found]
        self._statements = [statement for _, (_, statement) in found]

    @classmethod
    def parse(cls, body: bytes) -> tuple[TdmFile, int]:
        """Reads a file. Returns it, and how many rules are ignored. Raises SettingsError, with the reason alone, if the
        body is another content."""
        if len(body) > TDMREP_BYTES_MAX:
            raise SettingsError(f"it is longer than {TDMREP_BYTES_MAX:,} bytes")
        try:
            rules = [bytes(one).decode() for one in _ARRAY.decode(body.removeprefix(b"\xef\xbb\xbf"))]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise SettingsError("it is not a JSON array") from None
        made = cls(rules[:TDMREP_RULES_MAX])
        return made, len(rules) - len(made.rules)

    def about(self, url: str) -> Statement | None:
        """Returns the statement of the first rule that matches an absolute URL, None without one."""
        if not self._matchers:
            return None
        found = verdicts(self._matchers, [url] * len(self._matchers))
        return next((said for said, verdict in zip(self._statements, found, strict=True) if verdict < 0), None)


def _rule_of(text: str) -> tuple[AgentRules, Statement] | None:
    """Returns the matcher and the statement of a rule, None if it names no location."""
    try:
        rule: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    location = rule.get("location") if isinstance(rule, dict) else None
    if not isinstance(location, str) or not location.startswith(("/", "*")) or not location.isprintable():
        return None
    line = f"User-agent: {_AGENT}\nDisallow: {location.replace('#', '%23')}\n"
    value, policy = rule.get("tdm-reservation"), rule.get("tdm-policy")
    value = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    said = said_in_reservation(SOURCE, value, policy if isinstance(policy, str) else None, shown=text)
    return Rules.parse(line.encode()).of(_AGENT), said
