"""Exports and imports of an archive: time and memory, compared with `cdxj-indexer` and `wacz create` on the same files.

The pages are made: words of a small vocabulary, each page different, in the files that a crawl would leave. A figure is
of a whole program, with its start. The peers are in `.venv-judges`; without them, their rows are left out.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from pathlib import Path

import msgspec

from bench.measuring import ROOT, Measured, run
from bench.tables import Table, ratio
from outrider.archive.warc import Exchange, WarcWriter
from outrider.clock import rfc3339
from outrider.storage.files import Directory

PAGES = 100_000
WORDS_PER_PAGE = 400
WORDS = 5_000
AT = 1_767_323_045_000_000
ROLL_BYTES = 64 << 20
JUDGES = ROOT / ".venv-judges" / "bin"
MEMORY_BYTES_MAX = 256 << 20


def make_crawl(place: Path, pages: int) -> None:
    """Writes archive and line files of this number of pages."""
    made = random.Random(1)
    words = [made.randbytes(3 + made.randrange(5)).hex() for _ in range(WORDS)]
    (place / "frontier").mkdir(parents=True)
    archive = Directory(place / "archive")
    writer = WarcWriter(archive, prefix="crawl", software="bench", random_bytes=made.randbytes, roll_bytes=ROLL_BYTES)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
    encode = msgspec.json.Encoder().encode
    with (place / "pages.jsonl").open("wb") as lines, (place / "politeness.jsonl").open("wb") as requests:
        for token in range(1, pages + 1):
            url = f"http://host-{token % 1_000}.test/{token}"
            body = f"<title>page {token}</title><p>{' '.join(made.choices(words, k=WORDS_PER_PAGE))}".encode()
            request = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % token
            records = writer.records(Exchange(url, "192.0.2.1", AT + token, request, head, body, token=token))
            where = writer.add(records)
            place_of = {"file": where.file, "offset": where.offset, "length": where.length}
            line = {"url": url, "outcome": "done", "status": 200, "fetched_at": rfc3339(AT + token), "depth": 1}
            line |= {"content_type": "text/html; charset=utf-8", "digest": records.payload_digest, "token": token}
            lines.write(encode({**line, "title": f"page {token}", "warc": place_of}) + b"\n")
            requests.write(encode({"host": "x", "kind": "page", "token": token}) + b"\n")
    writer.sync()
    writer.close()
    archive.close()


def _row(name: str, form: str, found: Measured, theirs: Measured | None = None) -> tuple[object, ...]:
    per_page = 1e6 / PAGES
    times = ratio(theirs.cpu_seconds, found.cpu_seconds) if theirs is not None else None
    return name, form, found.wall_seconds, found.cpu_seconds * per_page, found.peak_bytes / (1 << 20), times


def tables() -> list[Table]:
    """Makes a crawl, exports it in both forms, and imports each of them."""
    rows: list[tuple[object, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_crawl(place / "crawl", PAGES)
        size = sum(one.stat().st_size for one in (place / "crawl/archive").iterdir())
        program = [sys.executable, "-m", "outrider"]
        within = True
        theirs: dict[str, Measured] = {}
        warcs = sorted((place / "crawl/archive").iterdir())
        if JUDGES.is_dir():
            theirs["cdxj"] = run([JUDGES / "cdxj-indexer", "-s", "-o", place / "their.cdxj", place / "crawl/archive"])
            theirs["wacz"] = run([JUDGES / "wacz", "create", "-o", place / "their.wacz", *warcs])
        for form in ("cdxj", "wacz"):
            target = place / f"x.{form}"
            ours = run([*program, "export", place / "crawl", "--to", target])
            rows.append(_row("outrider export", form, ours, theirs.get(form)))
            within = within and ours.peak_bytes <= MEMORY_BYTES_MAX
            if form in theirs:
                rows.append(_row({"cdxj": "cdxj-indexer", "wacz": "wacz create"}[form], form, theirs[form]))
        for target in (place / "x.cdxj", place / "x.wacz"):
            kept = place / f"new-{target.suffix[1:]}"
            rows.append(_row("outrider import", target.suffix[1:], run([*program, "import", kept, target])))
        os.unlink(place / "x.wacz")
    columns = ("program", "file", "s", "CPU µs a page", "peak MB", "their CPU by ours")
    notes = (
        f"{PAGES:,} pages in {size / 1e6:,.0f} MB of WARC, files of {ROLL_BYTES >> 20} MB; one run of each.",
        f"Exports are within {MEMORY_BYTES_MAX >> 20} MB." if within else "EXPORTS NEED MORE THAN 256 MB.",
        "`wacz create` writes an index and a copy of the files, without a list of pages.",
    )
    return [Table("archives", "An archive for other tools", columns, tuple(rows), notes)]
