"""The report log of a crawl whose frontier is on a server: which outcomes the frontier accepted.

`DIR/work/reports.jsonl`, a line each: | crc32c, 8 hex digits | space | JSON |.

    {"state": …}                  lengths of the line files, and the end of the archive: all lines before count
    {"report": n, "key": …, "outcomes": […], "lines": […], "mark": …}     synced before it is sent
    {"answer": n, "codes": […], "new": […]}                               synced before its lines are written

A report without an answer is sent again under its key, by this process or the next one in the directory, and gets the
first answer. So a line file contains a line if and only if the frontier accepted its token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

import msgspec

from outrider.clock import Instant
from outrider.crawl.setup.directory import WORKER_FOLDER
from outrider.engine import messages as m
from outrider.engine.remote import RemoteFrontier, outcome_body
from outrider.errors import DamagedStoreError, SettingsError, UnreachableError
from outrider.frontier.format.page_lines import completed
from outrider.journey import (
    Code,
    LeaseBatch,
    Line,
    Link,
    Outcome,
    OutcomeBatch,
    Report,
    RequestId,
    Settled,
    UrlStatus,
)
from outrider.kernels import crc32c
from outrider.limits import REPORTS_BYTES_KEPT, REPORTS_FILE_BYTES_MAX
from outrider.storage.files import File, Files, read_whole, replace

FOLDER: Final = WORKER_FOLDER
REPORTS_FILE: Final = "reports.jsonl"
_STREAMS: Final = ("pages", "politeness")


class OutputState(msgspec.Struct):
    """The length and the last report of each line file, and the noted places of the writers."""

    projections: dict[str, tuple[int, int]] = {}
    watermarks: dict[str, bytes] = {}
    last: int = 0


class PendingReport(msgspec.Struct):
    """A report that is being sent. lines: for each outcome its line of each stream."""

    report: int
    key: str
    outcomes: list[m.OutcomeBody]
    lines: list[tuple[str | None, str | None]]
    mark: tuple[str, bytes] | None = None


class ReportCodes(msgspec.Struct):
    """The codes of a report's outcomes; empty if the frontier refused it as a whole. new: the number of new links of
    each outcome; empty in a file of an earlier version, whose lines do not contain it."""

    answer: int
    codes: list[str]
    new: list[int] = []


@dataclass(slots=True)
class LogContent:
    """The content of the file: its whole lines, and where they end."""

    state: OutputState = field(default_factory=OutputState)
    sent: list[PendingReport] = field(default_factory=list)
    answers: dict[int, ReportCodes] = field(default_factory=dict)
    length: int = 0

    @property
    def unanswered(self) -> list[PendingReport]:
        """The reports without an answer: whether they count is not known here."""
        return [one for one in self.sent if one.report not in self.answers]

    def lines(self, stream: str, after: int, *, unanswered: bool = False) -> Iterator[tuple[int, bytes]]:
        """Yields the lines of accepted outcomes in reports after `after`. unanswered: those of the rest, too."""
        place = _STREAMS.index(stream)
        for one in self.sent:
            if one.report <= after:
                continue
            answer = self.answers.get(one.report, ReportCodes(one.report, []))
            for lines, code, new in zip_longest(one.lines, answer.codes, answer.new):
                line = lines[place]
                if line is not None and (code == Settled.OK or unanswered):
                    yield one.report, _completed(stream, line.encode(), new)

    def marks(self) -> dict[str, bytes]:
        """Returns the places of the writers, as of the last report."""
        return {**self.state.watermarks, **dict(one.mark for one in self.sent if one.mark is not None)}


def read_reports(files: Files, damage: list[int] | None = None) -> LogContent:
    """Returns the content of the file. A line that a crash tore is its end. Raises DamagedStoreError for damage before.
    damage: collects the places of damaged lines in place of the error. Then the whole lines after them count."""
    kept = LogContent()
    try:
        content = read_whole(files, REPORTS_FILE, bytes_max=REPORTS_FILE_BYTES_MAX)
    except FileNotFoundError:
        return kept
    for line in content.splitlines(keepends=True):
        body = line[9:-1]
        if not line.endswith(b"\n") or line[:9] != _mark(body):
            if damage is not None:
                damage.append(kept.length)
                kept.length += len(line)
                continue
            if content.find(b"\n", kept.length + len(line)) >= 0:
                raise DamagedStoreError(f"{files.describe(REPORTS_FILE)} at byte {kept.length}")
            break
        told = msgspec.json.decode(body)
        if "state" in told:
            kept.state = msgspec.convert(told["state"], OutputState, str_keys=True)
        elif "report" in told:
            kept.sent.append(msgspec.convert(told, PendingReport))
        else:
            found = msgspec.convert(told, ReportCodes)
            kept.answers[found.answer] = found
        kept.length += len(line)
    return kept


def packed(kept: LogContent) -> bytes:
    """Returns the file with this state, and with the reports and answers after it."""
    entries: list[PendingReport | ReportCodes | dict[str, OutputState]] = [{"state": kept.state}]
    for one in kept.sent:
        entries.append(one)
        if one.report in kept.answers:
            entries.append(kept.answers[one.report])
    return b"".join(map(_line_of, entries))


def _line_of(entry: PendingReport | ReportCodes | dict[str, OutputState]) -> bytes:
    body = msgspec.json.encode(entry)
    return _mark(body) + body + b"\n"


def _mark(body: bytes) -> bytes:
    return b"%08x " % crc32c(body)


class ReportLog:
    """Takes the place of the frontier for a crawl's output: verbs are sent to the server, lines stay here. One
    thread."""

    def __init__(self, remote: RemoteFrontier, files: Files) -> None:
        """Requests the answers to reports without one. Raises StoreError and UnreachableError."""
        self._remote, self._files = remote, files
        self._kept = read_reports(files)
        self._file: File = files.open(REPORTS_FILE, create=True)
        self._file.truncate(self._kept.length)
        files.sync_directory()
        state = self._kept.state
        self._number = max([state.last, *(one.report for one in self._kept.sent)])
        self._told: dict[int, tuple[Settled, tuple[Code, ...]]] = {}
        """Answers to outcomes whose caller did not receive them: by token."""
        self.settled_again = len(self._kept.unanswered)
        for one in self._kept.unanswered:
            self._send(one)
        self._told.clear()

    # -- the verbs ----------------------------------------------------------------------------------------------------

    def discover(self, links: Iterable[str | Link], *, request_id: RequestId | None = None) -> list[Code]:
        """As the frontier's."""
        return self._remote.discover(links, request_id=request_id)

    def lease(self, want: int, **how: Any) -> LeaseBatch:
        """As the frontier's."""
        return self._remote.lease(want, **how)

    def report(
        self,
        outcomes: Sequence[Outcome] | OutcomeBatch,
        links: Sequence[tuple[int, str | Link]] = (),
        *,
        request_id: RequestId | None = None,
        watermark: tuple[str, bytes] | None = None,
    ) -> Report:
        """As the frontier's. The answer has the lines of the accepted outcomes. Raises UnreachableError: then the same
        outcomes may be reported again, also in another group of outcomes."""
        assert not isinstance(outcomes, OutcomeBatch)
        for before in self._kept.unanswered:
            self._send(before)
        new = [one for one in outcomes if one.token not in self._told]
        if new:
            self._number += 1
            lines = [(_text(one.line), _text(one.politeness)) for one in new]
            sending = PendingReport(
                self._number, self._remote.key(), [outcome_body(one) for one in new], lines, watermark
            )
            self._write(sending)
            self._kept.sent.append(sending)
            self._send(sending)
        found = [self._told.pop(one.token) for one in outcomes]
        accepted: list[Line] = []
        for one, (code, row) in zip(outcomes, found, strict=True):
            if code is Settled.OK:
                for name, line in zip(_STREAMS, (one.line, one.politeness), strict=True):
                    if line:
                        accepted.append((name, _completed(name, line, row.count(Code.NEW))))
        return Report(tuple(code for code, _ in found), tuple(row for _, row in found), tuple(accepted), self._number)

    def _send(self, sending: PendingReport) -> None:
        """Sends a report until it is answered, and keeps the answer."""
        try:
            told = self._remote.report_bodies(sending.outcomes, sending.key)
        except SettingsError:
            self._answered(sending, ReportCodes(sending.report, []))
            raise
        self._answered(sending, ReportCodes(sending.report, told.codes, [row.count(Code.NEW) for row in told.links]))
        for one, code, row in zip(sending.outcomes, told.codes, told.links, strict=True):
            self._told[one.token] = (Settled(code), tuple(map(Code, row)))

    def _answered(self, sending: PendingReport, answer: ReportCodes) -> None:
        self._write(answer)
        self._kept.answers[sending.report] = answer

    def _write(self, entry: PendingReport | ReportCodes) -> None:
        line = _line_of(entry)
        self._file.write_at(self._kept.length, line)
        self._file.sync()
        self._kept.length += len(line)

    # -- the output's places ------------------------------------------------------------------------------------------

    def projection(self, stream: str) -> tuple[int, int]:
        """As the frontier's."""
        return self._kept.state.projections.get(stream, (0, 0))

    def watermarks(self) -> dict[str, bytes]:
        """As the frontier's."""
        return self._kept.marks()

    def lines(self, stream: str, after: int) -> Iterator[tuple[int, bytes]]:
        """As the frontier's."""
        return self._kept.lines(stream, after)

    def note_projection(self, stream: str, length: int, lsn: int) -> None:
        """As the frontier's; `keep` writes it."""
        self._kept.state.projections[stream] = (length, lsn)

    def note_watermark(self, writer: str, value: bytes) -> None:
        """As the frontier's; `keep` writes it."""
        self._kept.state.watermarks[writer] = value

    @property
    def is_long(self) -> bool:
        """Whether it is time for `keep`."""
        return self._kept.length > REPORTS_BYTES_KEPT

    def keep(self) -> None:
        """Writes the file again with the noted places, after the line files have all lines and are synced."""
        if self._kept.unanswered:
            return
        state = self._kept.state
        state.watermarks = self._kept.marks()
        state.last = self._number
        line = _line_of({"state": state})
        self._file.close()
        replace(self._files, REPORTS_FILE, line)
        self._file = self._files.open(REPORTS_FILE)
        self._kept = LogContent(state, length=len(line))

    @property
    def owes(self) -> bool:
        """Whether a report has no answer yet."""
        return bool(self._kept.unanswered)

    def reported(self) -> Iterator[int]:
        """Yields the tokens of all reports in the file."""
        return (one.token for sent in self._kept.sent for one in sent.outcomes)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    # -- the rest is the server's -------------------------------------------------------------------------------------

    def now(self) -> Instant:
        """As the frontier's."""
        return self._remote.now()

    def extend(self, tokens: Sequence[int], ttl_seconds: float) -> list[Settled]:
        """As the frontier's. If the server is away, the leases end at their deadlines."""
        try:
            return self._remote.extend(tokens, ttl_seconds)
        except UnreachableError:
            return [Settled.STALE] * len(tokens)

    def release(self, tokens: Sequence[int]) -> list[Settled]:
        """As the frontier's."""
        return self._remote.release(tokens)

    def next_ready_seconds(self) -> float | None:
        """As the frontier's."""
        return self._remote.next_ready_seconds()

    def set_delay(self, delay_seconds: float | None, key: str) -> int:
        """As the frontier's."""
        return self._remote.set_delay(delay_seconds, key)

    def set_limit(self, limit: int | None, key: str) -> int:
        """As the frontier's."""
        return self._remote.set_limit(limit, key)

    def set_addresses(self, addresses: Mapping[str, str | None]) -> int:
        """As the frontier's."""
        return self._remote.set_addresses(addresses)

    def seen_content(self, digests: Sequence[bytes]) -> list[bool]:
        """As the frontier's."""
        return self._remote.seen_content(digests)

    def status(self, url: str) -> UrlStatus:
        """As the frontier's."""
        return self._remote.status(url)

    def queue_errands(self, kind: str, urls: str | Sequence[str]) -> list[Code]:
        """As the frontier's."""
        return self._remote.queue_errands(kind, urls)

    def robots_allow(self, urls: Sequence[str]) -> list[bool | None]:
        """As the frontier's."""
        return self._remote.robots_allow(urls)


def _text(line: bytes | None) -> str | None:
    return line.decode() if line is not None else None


def _completed(stream: str, line: bytes, new: int | None) -> bytes:
    """Returns a line as in a crawl's file: the line of a page has the number of its new links."""
    return line if new is None or stream != _STREAMS[0] else completed(line, new)
