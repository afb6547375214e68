"""The kept output of a crawl: WARC files, and the line files that repeat its log."""

from __future__ import annotations

from outrider.archive.projection import Projection
from outrider.archive.warc import Exchange, WarcPlace, WarcRecord, WarcWriter, Watermark, payload_digest, read_record

__all__ = [
    "Exchange",
    "Projection",
    "WarcPlace",
    "WarcRecord",
    "WarcWriter",
    "Watermark",
    "payload_digest",
    "read_record",
]
