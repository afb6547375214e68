"""The answers of all partitions of a cluster to one question, as one answer of the shape that one store gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from outrider.cluster.words import VERIFY
from outrider.crawl.output.summary import counted
from outrider.journey import State, Verification

Answers = Mapping[int, Mapping[str, Any]]
"""The answer of each partition."""

_REASONS: Final = ("ready", "leased", "resting", "network", "waiting", "blocked", "paused", "limit", "finished")
"""Reasons of `why-idle`: the first one that a partition has is that of the cluster."""


def joined_count(answers: Answers) -> dict[str, int]:
    """Returns how many were changed, or are there, in all partitions."""
    return {"count": sum(int(next(iter(one.values()))) for one in answers.values())}


def joined_idle(answers: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns why the whole cluster has nothing to lease: what its partitions say, added up."""
    all_ = [*answers.values()]
    reasons = [str(one["reason"]) for one in all_]
    reason = next((one for one in _REASONS if one in reasons), reasons[0])
    alike = [one for one in all_ if one["reason"] == reason]
    said = alike[0] if len(alike) == 1 else max(alike, key=lambda one: sum(one["urls"].values()))
    next_ = min((one for one in all_ if one["next_at"] is not None), key=lambda one: one["next_at"], default=said)
    tail = max(all_, key=lambda one: one["tail_seconds"] or 0.0)
    text = f"{counted(len(alike), 'partition')} of {len(all_)}: {said['text']}"
    return {
        "reason": reason,
        "text": text if len(all_) > 1 else said["text"],
        "known": sum(one["known"] for one in all_),
        **{name: _added([one[name] for one in all_]) for name in ("hosts", "urls")},
        "errands": sum(one["errands"] for one in all_),
        "next_at": next_["next_at"],
        "next_seconds": next_["next_seconds"],
        **{name: tail[name] for name in ("tail_host", "tail_urls", "tail_seconds")},
    }


def _added(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total


def joined_verification(answers: Mapping[int, Mapping[str, Any]]) -> Verification:
    problems = tuple(f"partition {number}: {one}" for number, told in answers.items() for one in told["problems"])
    ok = all(told["ok"] for told in answers.values())
    return Verification(ok, problems, _added([told["counts"] for told in answers.values()]))


def _known(answers: Answers) -> Mapping[str, Any]:
    """Returns the answer of the partition that knows a URL."""
    known = [one for one in answers.values() if one["state"] != State.UNKNOWN]
    return (known or [*answers.values()])[0]


def _each(answers: Answers) -> list[Any]:
    return [one["answer"] for one in answers.values()]


def joined_sums(answers: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
    """Returns the sums of numbers by their names, and dictionaries of such sums. The first one counts if they are other
    values."""
    names = dict.fromkeys(name for one in answers for name in one)
    return {name: _sum([one[name] for one in answers if one.get(name) is not None]) for name in names}


def _sum(values: Sequence[Any]) -> Any:
    if not values:
        return None
    if isinstance(values[0], Mapping):
        return joined_sums(values)
    is_number = all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
    return sum(values) if is_number else values[0]


def joined_workers(answers: Answers) -> dict[str, Any]:
    """Returns each worker once, with its leases in all partitions."""
    found: dict[str, dict[str, Any]] = {}
    for row in (row for rows in _each(answers) for row in rows):
        one = found.setdefault(row["name"], {**row, "pages": 0, "errands": 0})
        one |= {name: one[name] + row[name] for name in ("pages", "errands")}
        for name, choose in (("first_deadline", min), ("last_deadline", max)):
            one[name] = choose((at for at in (one[name], row[name]) if at is not None), default=None)
    return {"answer": [found[name] for name in sorted(found)]}


def _waits(answers: Answers) -> dict[str, Any]:
    soonest = sorted((row for one in answers.values() for row in one["soonest"]), key=lambda row: row["until"])
    most = max(len(one["soonest"]) for one in answers.values())
    return {
        "hosts": sum(one["hosts"] for one in answers.values()),
        "longest_seconds": max(one["longest_seconds"] for one in answers.values()),
        "soonest": soonest[:most],
    }


def joined_domains(answers: Answers) -> dict[str, Any]:
    """Returns the domains with the most queued URLs. Each domain is in one partition only."""
    rows = [row for one in answers.values() for row in one["rows"]]
    return {"rows": sorted(rows, key=lambda row: (-row["queued"], row["domain"]))}


JOINED: Final[Mapping[str, Callable[[Answers], Any]]] = {
    "explain": _known,
    "status": _known,
    "why-idle": joined_idle,
    VERIFY: joined_verification,
    "statistics": lambda answers: joined_sums([*answers.values()]),
    "workers": joined_workers,
    "domains": joined_domains,
    "waits": _waits,
    "finished": lambda answers: {"answer": all(_each(answers))},
    "at_limit": lambda answers: {"answer": all(_each(answers))},
    "pressure": lambda answers: {"answer": max(_each(answers))},
    "next_ready_seconds": lambda answers: {
        "answer": min((one for one in _each(answers) if one is not None), default=None)
    },
}
"""How the answers to a question are joined; those of others are counts."""
