"""The kept output of a crawl: WARC files, the line files that repeat its log, indexes of both, and WACZ."""

from __future__ import annotations

from outrider.archive.projection import Projection
from outrider.archive.warc import (
    Exchange,
    Records,
    WarcPlace,
    WarcRecord,
    WarcWriter,
    Watermark,
    payload_digest,
    read_fields,
    read_record,
    record_in,
    repeated,
    shown_digest,
)

__all__ = [
    "Exchange",
    "Projection",
    "Records",
    "WarcPlace",
    "WarcRecord",
    "WarcWriter",
    "Watermark",
    "payload_digest",
    "read_fields",
    "read_record",
    "record_in",
    "repeated",
    "shown_digest",
]
