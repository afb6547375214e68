"""Links and outcomes as the library has them, from the bodies in which clients send them."""

from __future__ import annotations

from outrider.engine.messages import OUTCOME_AS_IT_IS, NewUrl, OutcomeBody
from outrider.journey import Link, Outcome, RobotsAnswer, Verdict


def link_of(given: str | NewUrl, *, crawl: str | None, referrer: str | None = None, depth: int = 0) -> Link:
    """Returns the link that a body names."""
    if isinstance(given, str):
        return Link(given, crawl=crawl, referrer=referrer, depth=depth)
    return Link(
        given.url,
        crawl=given.crawl_id or crawl,
        priority=given.priority,
        referrer=given.source_url or referrer,
        depth=given.depth or depth,
        key=given.key,
        hops=given.hops,
        not_before=given.not_before_us,
        metadata=given.metadata,
        unique_key=given.unique_key,
        modified=given.modified,
        change_seconds=given.change_seconds,
    )


def outcome_from_body(body: OutcomeBody) -> Outcome:
    """Returns the outcome that a body names, judged by its sender."""
    answer = body.robots
    return Outcome(
        **{name: getattr(body, there) for name, there in OUTCOME_AS_IT_IS.items()},
        verdict=Verdict(body.verdict),
        links=[one if isinstance(one, str) else link_of(one, crawl=None) for one in body.links],
        robots=RobotsAnswer(answer.status, answer.body, answer.location, answer.fresh_seconds)
        if answer is not None
        else None,
        metadata=body.metadata,
    )
