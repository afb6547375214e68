"""Archived answers as whole records: a revisit of the same payload gets the payload of the response that it names."""

from __future__ import annotations

from collections.abc import Callable

from outrider.archive import WarcPlace, WarcRecord
from outrider.archive.warc import SAME_PAYLOAD_PROFILE
from outrider.errors import DamagedStoreError
from outrider.fetch.codings import codings_of, unchunk
from outrider.fetch.downloader import Headers

_DIGEST = "warc-payload-digest"
_END = b"\r\n\r\n"


def whole_record(read: Callable[[WarcPlace], WarcRecord], place: WarcPlace) -> WarcRecord:
    """Reads the record at a place. A revisit of the same payload has the block that the server sent, except for the
    lengths of its chunks.

    read: reads one record. Raises as it does, and DamagedStoreError if the response has another payload.
    """
    record = read(place)
    if place.payload is None:
        return record
    original = read(place.payload)
    digest = record.fields.get(_DIGEST)
    if record.fields.get("warc-profile") != SAME_PAYLOAD_PROFILE or digest != original.fields.get(_DIGEST):
        raise DamagedStoreError(
            f"{place.file} at byte {place.offset}: it does not have the payload of {place.payload.file} at byte "
            f"{place.payload.offset}"
        )
    head, _, _ = record.block.partition(_END)
    original_head, _, payload = original.block.partition(_END)
    if _is_chunked(original_head):
        unchunked = unchunk(payload)
        payload = unchunked.content if unchunked.content or unchunked.complete else payload
    if _is_chunked(head):
        payload = b"%x\r\n%b\r\n0\r\n\r\n" % (len(payload), payload)
    return WarcRecord(record.fields, head + _END + payload)


def _is_chunked(head: bytes) -> bool:
    return "chunked" in codings_of(Headers.parse(head).get_all("transfer-encoding"))
