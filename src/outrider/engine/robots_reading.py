"""Robots rules read outside of the calls: half a megabyte needs a fifth of a second, and no other call should wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from outrider.frontier.stores.rulebook import crawl_delay_of
from outrider.frontier.verbs import arguments
from outrider.journey import OutcomeBatch, RobotsAnswer
from outrider.limits import RULES_READ_BYTES_AT_ONCE
from outrider.robots import AgentRules, Rules, verdict_of_status, whole_lines

Read = list[tuple[int, float, AgentRules | None]]
"""For each file its digest, the Crawl-delay, and the rules where they were read."""


def read_files(files: Iterable[tuple[int, bytes]], agent: str) -> Read:
    """Returns the rules of these files for an agent: always of the first file, of the next ones up to
    `RULES_READ_BYTES_AT_ONCE`. Rules need ten times the memory of their file, so the rest of them is read when a URL
    needs it."""
    read: Read = []
    room = RULES_READ_BYTES_AT_ONCE
    for digest, body in files:
        room -= len(body)
        if read and room < 0:
            read.append((digest, crawl_delay_of(body, agent), None))
            continue
        rules = Rules.parse(body).of(agent)
        read.append((digest, rules.crawl_delay or 0.0, rules))
    return read


def answers_of(outcomes: object) -> list[object]:
    """Returns the robots.txt answers in outcomes; no answers if the outcomes are invalid, which the call reports."""
    if isinstance(outcomes, OutcomeBatch):
        answers: object = outcomes.columns.get("robots")
        rows = answers.values() if isinstance(answers, Mapping) else answers
        rows = rows if isinstance(rows, Iterable) else [rows]
        return [one for one in rows if one is not None]
    if not isinstance(outcomes, list | tuple):
        return []
    return [answer for outcome in outcomes if (answer := getattr(outcome, "robots", None)) is not None]


def read_answers(answers: Iterable[object], agent: str, digest_of: Callable[[bytes], int]) -> Read:
    """Returns the rules in answers; no rules for invalid answers, which the call reports."""
    files: dict[int, bytes] = {}
    for given in answers:
        answer = arguments.plain(given)
        if not isinstance(answer, RobotsAnswer) or not isinstance(answer.body, bytes):
            continue
        if isinstance(answer.status, int) and verdict_of_status(answer.status) == "rules" and answer.body:
            body = whole_lines(answer.body)
            files[digest_of(body)] = body
    files.pop(0, None)
    return read_files(files.items(), agent)
