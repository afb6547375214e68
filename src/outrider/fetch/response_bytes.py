"""From the received bytes to a Response: framing and codings undone, the same for every downloader."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from outrider.clock import Instant
from outrider.fetch.codings import codings_of, decoded, unchunk, worse
from outrider.fetch.downloader import Decoding, Headers, Request, Response, Target
from outrider.fetch.failures import FetchError, safe_text
from outrider.limits import AWKWARD_ORIGINS_MAX, WARC_RECORD_BYTES_MAX


@dataclass(slots=True)  # not frozen: one is made for each answer, and this way it needs a third of the time
class TransferEnd:
    """The end of a transfer. `head` is empty unless it is whole; `body` has the bytes after it, perhaps a few more
    than the message has. `truncated` and `text` as in Response."""

    status: int | None
    error: FetchError | None
    truncated: str | None
    text: str
    sent: bool
    head: bytes
    body: bytes
    started_at: Instant
    ended_at: Instant
    seconds: float
    new_connection: bool
    first_byte_at: Instant | None


def response_of(request: Request, ended: TransferEnd) -> Response:
    """The response to a request whose transfer ended so."""
    error, truncated, text = ended.error, ended.truncated, ended.text
    body = content = ended.body
    headers = Headers.parse(ended.head)
    if "chunked" in codings_of(headers.get_all("transfer-encoding")):
        unchunked = unchunk(body)
        content = unchunked.content
        body = body[: unchunked.end]
        if body and not unchunked.complete and error is None and truncated is None:
            # A downloader accepts more than this module: otherwise the bytes after the fault would be missing without
            # a message.
            error, truncated, text = FetchError.MALFORMED, "unspecified", "a chunk that is none"
    most = request.bytes_max
    if request.type_bytes_max:
        _, most = request.room(len(ended.head), headers.get("content-type"))
    content, decoding = uncoded(headers, content, most)
    first = ended.first_byte_at
    return Response(
        url=request.url,
        address=request.address,
        status=ended.status if ended.head else None,
        error=error,
        error_text=safe_text(text),
        request_head=request.record() if ended.sent else b"",
        head=ended.head,
        body=body,
        content=content,
        truncated=truncated,
        decoding=decoding,
        headers=headers,
        started_at=ended.started_at,
        ended_at=ended.ended_at if ended.ended_at > ended.started_at else ended.started_at,
        seconds=ended.seconds,
        new_connection=ended.new_connection,
        first_byte_at=first if first is None or first < ended.ended_at else ended.ended_at,
        verified=request.verified,
    )


def payload_of(response: Response) -> bytes:
    """Returns the body without its transfer codings (RFC 9112 section 7), its content codings in place.

    Returns the body itself without a transfer coding, also if a user's downloader only claims that it is chunked.
    """
    fields = response.headers.get_all("transfer-encoding")
    names = codings_of(fields) if fields else []
    if not names:
        return response.body
    if response.decoding is Decoding.WHOLE and not codings_of(response.headers.get_all("content-encoding")):
        return response.content
    payload = response.body
    if "chunked" in names:
        unchunked = unchunk(payload)
        payload = unchunked.content if unchunked.content or unchunked.complete else payload
    transfer = [name for name in names if name != "chunked"]
    return decoded(payload, transfer, WARC_RECORD_BYTES_MAX)[0] if transfer else payload


def uncoded(headers: Headers, unchunked: bytes, bytes_max: int) -> tuple[bytes, Decoding]:
    """A body without chunks, with its transfer codings and then its content codings undone (as `decoded`)."""
    content = codings_of(headers.get_all("content-encoding"))
    transfer = [name for name in codings_of(headers.get_all("transfer-encoding")) if name != "chunked"]
    if not transfer:  # nearly always
        return decoded(unchunked, content, bytes_max)
    found, verdict = decoded(unchunked, transfer, bytes_max)
    if verdict is Decoding.UNKNOWN:
        return found, verdict
    found, layer = decoded(found, content, bytes_max)
    return found, worse(verdict, layer)


def unsent(request: Request, error: FetchError, text: str, now: Instant) -> Response:
    """The response to a request that was refused here."""
    return Response(
        url=request.url,
        address=request.address,
        status=None,
        error=error,
        error_text=safe_text(text),
        request_head=b"",
        head=b"",
        body=b"",
        content=b"",
        truncated=None,
        decoding=Decoding.WHOLE,
        headers=Headers(),
        started_at=now,
        ended_at=now,
        seconds=0.0,
        new_connection=False,
    )


def is_ambiguous(headers: Headers) -> bool:
    """Whether two readers may see different ends of this message: RFC 9112 section 6.3, points 3 to 5."""
    lengths = headers.get_all("content-length")
    transfer = headers.get_all("transfer-encoding")
    return (
        len(lengths) > 1 or len(transfer) > 1 or bool(lengths and transfer) or any("," in field for field in transfer)
    )


class AwkwardOrigins:
    """Origins whose connections are not kept: their answers have two readings, or they close them unannounced."""

    def __init__(self) -> None:
        self._origins: OrderedDict[tuple[str, str, int], None] = OrderedDict()

    def __contains__(self, target: Target) -> bool:
        return target.origin in self._origins

    def add(self, target: Target) -> None:
        """Remembers the origin of this target; of too many the oldest is forgotten."""
        self._origins[target.origin] = None
        if len(self._origins) > AWKWARD_ORIGINS_MAX:
            self._origins.popitem(last=False)
