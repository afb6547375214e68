"""Type and size of an image from its first bytes: PNG, GIF, JPEG, WebP, BMP. The pixels are never decoded."""

from __future__ import annotations

import struct
from typing import NamedTuple

from outrider.limits import JPEG_SEGMENTS_MAX


class Image(NamedTuple):
    """The properties of an image from its bytes, whatever its Content-Type; width and height in pixels."""

    type: str
    width: int
    height: int


def image_of(body: bytes) -> Image | None:
    """The image that a body begins with; None for another form, or one that is cut off before its size."""
    try:
        if body[:8] == b"\x89PNG\r\n\x1a\n" and body[12:16] == b"IHDR":
            return Image("image/png", *struct.unpack_from(">II", body, 16))
        if body[:6] in (b"GIF87a", b"GIF89a"):
            return Image("image/gif", *struct.unpack_from("<HH", body, 6))
        if body[:2] == b"BM":
            width, height = struct.unpack_from("<ii", body, 18)
            return Image("image/bmp", abs(width), abs(height))
        if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
            return _webp(body)
        if body[:3] == b"\xff\xd8\xff":
            return _jpeg(body)
    except struct.error:
        pass
    return None


def _webp(body: bytes) -> Image | None:
    form = body[12:16]
    if form == b"VP8X":
        width, height = (int.from_bytes(body[at : at + 3], "little") + 1 for at in (24, 27))
        return Image("image/webp", width, height) if len(body) >= 30 else None
    if form == b"VP8L" and body[20:21] == b"\x2f":
        (bits,) = struct.unpack_from("<I", body, 21)
        return Image("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if form == b"VP8 " and body[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", body, 26)
        return Image("image/webp", width & 0x3FFF, height & 0x3FFF)
    return None


def _jpeg(body: bytes) -> Image | None:
    """Reads the size in the first start-of-frame segment; DHT, JPG and DAC have numbers among them."""
    at = 2
    for _ in range(JPEG_SEGMENTS_MAX):
        while body[at : at + 1] == b"\xff" and body[at + 1 : at + 2] == b"\xff":
            at += 1
        mark, kind, length = struct.unpack_from(">BBH", body, at)
        if mark != 0xFF or length < 2:
            return None
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", body, at + 5)
            return Image("image/jpeg", width, height)
        at += 2 + length
    return None
