"""Puts the requests of a job directory of Scrapy into the store of a spider."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

from outrider.engine.owner import Frontier
from outrider.errors import NamedPathError, SettingsError
from outrider.integrations.job_directory import JobDirectory, StoredRequest, is_job_directory
from outrider.integrations.stored_requests import (
    FILTERED,
    SINGLE,
    UnstorableError,
    check_identity,
    crawl_of,
    link_of,
)
from outrider.journey import Link
from outrider.limits import JOB_FAULTS_LISTED_MAX, JOB_ROWS_PER_CALL


@dataclass
class JobImported:
    """codes: how many requests got each answer; seen: fingerprints that count as processed; skipped: requests that
    cannot be used, the first of them in `faults`, with place and reason. stopped: the spider was not killed."""

    codes: Counter[str] = field(default_factory=Counter)
    seen: int = 0
    skipped: int = 0
    faults: list[tuple[str, str]] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    stopped: bool = True


def import_job(directory: str, job: str, spider: str) -> JobImported:
    """Adds the waiting requests of a job directory to the store in a directory, as the crawl of a spider.

    If the spider had stopped, all requests that it had seen count as processed. If it was killed, requests that were
    sent and not processed are in no file. Then none counts as processed, so that all pages are found again.
    Raises NamedPathError without the directory, SettingsError for a directory that is no job directory, or the store
    of another spider, and the errors of a store.
    """
    if not is_job_directory(job):
        if not Path(job).is_dir():
            raise NamedPathError(f"JOBDIR {job} is not a directory; name the JOBDIR of the spider")
        raise SettingsError(f"{job} is not a JOBDIR of Scrapy: it has neither requests.queue nor requests.seen")
    found, source = JobImported(), JobDirectory(Path(job))
    with Frontier.open(directory, robots="caller") as frontier:
        check_identity(Path(directory), spider)
        crawl = crawl_of(spider)
        frontier.make_crawl(crawl, unique="caller", order="lifo")
        links = _links(source, crawl, found)
        while rows := list(islice(links, JOB_ROWS_PER_CALL)):
            found.codes.update(code.value for code in frontier.discover(rows))
        found.stopped, found.torn = source.stopped, source.torn
        if found.stopped:
            seen = source.seen()
            while some := list(islice(seen, JOB_ROWS_PER_CALL)):
                found.seen += frontier.restore(_processed(crawl, fingerprint) for fingerprint in some)
    return found


def _processed(crawl: str, fingerprint: bytes) -> dict[str, object]:
    """Returns the record of a request of which only the fingerprint is known."""
    key = (FILTERED + fingerprint).hex()
    return {"url": f"seen:{fingerprint.hex()}", "crawl": crawl, "unique_key": key, "state": "done"}


def _links(source: JobDirectory, crawl: str, found: JobImported) -> Iterator[Link]:
    starts = count(1)
    for one in source.requests():
        link = _link(one, crawl, starts)
        if isinstance(link, Link):
            yield link
            continue
        found.skipped += 1
        if len(found.faults) < JOB_FAULTS_LISTED_MAX:
            found.faults.append((one.place, link))


def _link(one: StoredRequest, crawl: str, starts: Iterator[int]) -> Link | str:
    """Returns the link of a request, or why it has none. Its key is its place, so that a repeated import adds none."""
    if one.values is None:
        return one.fault
    try:
        key = SINGLE + hashlib.blake2b(one.place.encode("utf-8", "surrogateescape"), digest_size=16).digest()
        meta = one.values.get("meta")
        start = next(starts) if isinstance(meta, dict) and meta.get("is_start_request") else 0
        return link_of(one.values, crawl, key, start=start)
    except (UnstorableError, ValueError, TypeError) as error:
        return str(error)
