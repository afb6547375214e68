"""The groups of a robots.txt as JSON values, for people and databases. Verdicts are made by the kernel (rules.py)."""

from __future__ import annotations

from typing import Any

from outrider.limits import ROBOTS_GROUP_LINES_MAX

_END_AGENTS = frozenset({"content-usage", "content-signal"})
"""Other lines of a group that end its list of agents, as a rule does (docs/decisions/robots.md)."""


def groups_of(text: str) -> list[dict[str, Any]]:
    """Returns the groups of a file in order: `agents`, `rules` as [verb, path] with the verb allow or disallow, and
    `crawl_delay` as written, if there is one (RFC 9309, section 2.2). Lines after the first `ROBOTS_GROUP_LINES_MAX`
    are left out."""
    found: list[dict[str, Any]] = []
    group: dict[str, Any] | None = None
    has_rules = True
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:ROBOTS_GROUP_LINES_MAX]:
        name, colon, value = line.partition("#")[0].partition(":")
        name, value = name.strip().lower(), value.strip()
        if not colon:
            continue
        if name == "user-agent":
            if has_rules or group is None:
                group = {"agents": [], "rules": []}
                found.append(group)
                has_rules = False
            group["agents"].append(value)
        elif name in ("allow", "disallow") and group is not None:
            group["rules"].append([name, value])
            has_rules = True
        elif name == "crawl-delay" and group is not None:
            group["crawl_delay"] = value
        elif name in _END_AGENTS and group is not None:
            has_rules = True
    return found
