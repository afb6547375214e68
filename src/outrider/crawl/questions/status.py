"""The status of a crawl, from the running crawl, or from the files if no process owns them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from outrider.catalog.catalog_notes import missing_lines, read_notes
from outrider.crawl.output.object_list import ObjectList
from outrider.crawl.output.omissions import omission_counts, rows_of
from outrider.crawl.output.output import FILES, PAGES
from outrider.crawl.output.output_recovery import archive_files
from outrider.crawl.output.progress import eta_text
from outrider.crawl.output.rates import Rates, status_fields
from outrider.crawl.output.summary import bytes_text, counted, disk_lines, omission_lines, payment_lines
from outrider.crawl.questions.control import ask
from outrider.crawl.questions.crawl_queries import Shell, ask_owner
from outrider.crawl.questions.remote_queries import Access, asking
from outrider.crawl.setup.directory import last_run, store_of
from outrider.engine import Frontier
from outrider.engine.http_requests import is_address
from outrider.errors import StoreInUseError, UnreachableError


def status_of(path: str, access: Access | None = None) -> dict[str, Any]:
    """Returns the fields of `status --json` for the crawl in `path`, or at the address of a server. Raises
    SettingsError, StoreError, UnreachableError."""
    if is_address(path):
        with asking(path, access) as ask_server:
            found_there: dict[str, Any] = ask_server("status", {})
            return found_there
    return _status_of(path, store_of(path)) | {"catalogs": _catalogs(path), "uploads": _uploads(path)}


def _status_of(path: str, store: str) -> dict[str, Any]:
    if store != path:
        with suppress(UnreachableError):
            answer: dict[str, Any] = ask(path, "status")
            return answer
    try:
        return _from_files(path, store)
    except StoreInUseError as owned:
        told = ask_owner(path, owned, "totals")
        return _fields(path, "running", told["statistics"], told["tail_seconds"], told["parked"])


def _uploads(path: str) -> dict[str, Any] | None:
    """Returns the object storage of the archive, with the number of uploaded files and of those that are only here,
    among them the file that is written now; None without uploads."""
    listed = ObjectList(path)
    if not listed.id:
        return None
    waiting = sum(name not in listed.objects for _, name in archive_files(path))
    return {"to": listed.store, "uploaded_files": len(listed.objects), "files_only_here": waiting}


def _catalogs(path: str) -> list[dict[str, Any]]:
    """Returns the position of each catalog of the crawl, with the lines and bytes of `pages.jsonl` that it lacks."""
    found = []
    for note in read_notes(path):
        lines, length = missing_lines(os.path.join(path, FILES[PAGES]), note.length)
        found.append({**msgspec.to_builtins(note), "missing_lines": lines, "missing_bytes": length})
    return found


def _from_files(path: str, store: str) -> dict[str, Any]:
    whole = store != path
    settings = Shell(path).frontier_settings() if whole else None
    frontier = Frontier.look(store, settings=settings, robots="errands" if whole else "caller")
    try:
        statistics, parked = frontier.statistics(), frontier._parked()
        state = frontier.opening.previous_state
        tail = frontier.explain_idle().tail_seconds
    finally:
        frontier.close()
    return _fields(path, state, statistics, tail, parked)


def _fields(
    path: str, state: str, statistics: Mapping[str, Any], tail: float | None, parked: Mapping[str, int]
) -> dict[str, Any]:
    """Returns the fields of a store without a running crawl, with the facts that the last run of its crawl saved."""
    run = last_run(path)
    tail = None if (statistics.get("revisits") or {}).get("rule") is not None else tail  # it does not end by itself
    left_out = omission_counts(statistics, parked, run.not_followed, run.bad_seeds)
    return status_fields(statistics, Rates(0.0, run.average, run.peak), state, tail, run.not_followed, left_out)


def status_lines(status: Mapping[str, Any], directory: str = "DIR") -> list[str]:
    """Returns the status as text. directory: the directory in the commands."""
    urls, hosts, rates = status["urls"], status["hosts"], status["pages_per_second"]
    errors = ", ".join(f"{name} {count:,}" for name, count in sorted(status["errors"].items()))
    passed = ", ".join(f"{name} {count:,}" for name, count in sorted(status.get("not_followed", {}).items()))
    gone = ""
    if urls["gone"]:
        gone = f"{counted(urls['gone'], 'URL')} gone (outrider urls {shlex.quote(directory)} --state gone)"
    lines = [
        f"state       {status['state']}",
        f"accepted    {counted(status['accepted'], 'URL')}",
        *(f"  {name:<9} {urls[name]:,}" for name in urls),
        "hosts       " + ", ".join(f"{count:,} {name}" for name, count in hosts.items()),
        f"pages       {status['answered']:,} answered, {counted(status['duplicates'], 'duplicate')}, "
        + bytes_text(status["bytes"]),
        f"pages/s     {rates['now']:.1f} now, {rates['average']:.1f} on average, {rates['peak']:.1f} at most",
        f"errors      {', '.join(part for part in (errors, gone) if part) or 'none'}",
        f"skipped     {f'links: {passed}' if passed else 'no links'}",
    ]
    if "disk" in status:  # servers of older builds do not send it
        lines += disk_lines(status["disk"], "the server" if is_address(directory) else directory)
    lines += payment_lines(status, directory)
    lines += _revisit_lines(status.get("revisits") or {})
    lines += _catalog_lines(status.get("catalogs") or [], directory)
    if uploads := status.get("uploads"):
        files = counted(uploads["uploaded_files"], "file")
        lines.append(f"archive     {uploads['to']}: {files} uploaded, {uploads['files_only_here']:,} only here")
    lines += omission_lines(rows_of(status.get("left_out", {}), directory))
    left = nothing_left(status) or eta_text(status["eta_seconds"])
    return [*lines, f"left        {left}"] if left else lines


def _catalog_lines(catalogs: Sequence[Mapping[str, Any]], directory: str) -> list[str]:
    found = []
    for one in catalogs:
        words = "complete"
        if one["missing_lines"] or one["problem"]:
            missing = f"lacks {counted(one['missing_lines'], 'line')} ({bytes_text(one['missing_bytes'])})"
            words = missing if one["missing_lines"] else "not complete"
            words += f" ({one['problem']})" if one["problem"] else ""
            words += f": outrider catalog {shlex.quote(directory)} --to {shlex.quote(one['to'])}"
        found.append(f"catalog     {one['to']}: {words}; URLs as of {one['urls_as_of'] or 'never'}")
    return found


def _revisit_lines(revisits: Mapping[str, Any]) -> list[str]:
    """Returns the line about the revisit rule and the rate; no line without them."""
    if not revisits:
        return []
    rule, rate, fresh = (revisits[name] for name in ("rule", "rate", "freshness"))
    words = [f"rule {rule}" if rule else "no rule", f"{rate:g} fetches/s at most" if rate else "no rate"]
    words.append(f"{counted(revisits['planned'], 'page')} planned")
    words.append(f"{revisits['fetches']:,} fetched again and {revisits['discoveries']:,} new in this run")
    if fresh is not None:
        words.append(f"{100 * fresh:.1f} % of the copies are expected to be fresh")
    return [f"revisits    {', '.join(words)}"]


def nothing_left(status: Mapping[str, Any]) -> str:
    """Returns words for a frontier with nothing to fetch; "" otherwise. A served frontier continues without work."""
    urls = status["urls"]
    if urls["queued"] + urls["leased"] + urls["waiting"] + status.get("held", 0) + status.get("errands", 0):
        return ""
    parked = f"; {counted(urls['parked'], 'URL is', 'URLs are')} parked" if urls["parked"] else ""
    return f"nothing to fetch{parked}"
