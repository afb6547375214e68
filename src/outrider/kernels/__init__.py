"""Batch loops: native where they were built, their plain twins otherwise.

`OUTRIDER_KERNELS=python` forces the twins, `OUTRIDER_KERNELS=native` forbids them. Unset or empty uses the native
kernels if they were built. `in_use()` says which kernels are used.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from outrider.errors import OutriderError


class KernelsError(OutriderError, ImportError):
    """The kernels that OUTRIDER_KERNELS selects cannot be used."""

    exit_code = 2


def _choose(wish: str) -> Literal["native", "python"]:
    if wish not in ("", "native", "python"):
        raise KernelsError(f"OUTRIDER_KERNELS is {wish!r}; it may be 'native', 'python' or unset")
    if wish == "python":
        return _plain()
    try:
        from outrider import _native
    except ImportError as error:
        if wish == "native":
            raise KernelsError(
                f"OUTRIDER_KERNELS is 'native' but there is no native build ({error}); "
                "run `make install` with a Rust toolchain at hand, or unset the variable"
            ) from error
        return _plain()
    missing = [name for name in _FUNCTIONS if not hasattr(_native, name)]
    missing += [f"Groups.{name}" for name in _OF_GROUPS if not hasattr(getattr(_native, "Groups", None), name)]
    if not missing and getattr(_native, "INTERFACE", 0) != _INTERFACE:
        missing = [f"interface {_INTERFACE}"]
    if missing:
        raise KernelsError(
            f"the native build is older than its sources (it has no {missing[0]}); "
            "run `make install` again, or set OUTRIDER_KERNELS=python"
        )
    return "native"


def _plain() -> Literal["python"]:
    """Returns the twins, if their libraries are installed: wheels omit libraries without a build for their platform."""
    missing = [name for name in _OF_TWINS if find_spec(name) is None]
    if missing:
        raise KernelsError(
            f"the plain kernels take {' and '.join(missing)}, which this environment has not; "
            f"`pip install {' '.join(missing)}`, or take the native kernels"
        )
    return "python"


_OF_TWINS = ("pycurl", "turbohtml")
_INTERFACE = 7
"""Grows with each change of the arguments or results of a native function, here and in crates/kernels-py/src/lib.rs."""
_FUNCTIONS = (
    *("crc32c", "find_frame", "pack_frames", "scan_frames", "fingerprints", "simhash_of_text", "text_digest"),
    *("spell_urls", "spell_arena", "spell_texts"),
    *("hash_spans", "distinct_spans", "gather_spans", "texts_of_spans", "unique_spans"),
    *("Backlog", "BlockedBloom", "FingerprintSet", "Groups", "Index", "Leases", "PublicSuffixes", "Ready", "Timetable"),
    *("SameBodies", "SimHashIndex"),
    *("answer_requests", "find_keys", "pack_keys", "rank_keys", "sort_keys", "unpack_keys"),
    *("FetchEngine", "FetchLimits"),
    *("RobotsRules", "RobotsText", "RobotsUsages", "robots_verdicts", "shapes_of"),
    *("decode_text", "read_html", "read_pages", "read_sitemap_xml"),
    *("count_leases", "kinds_of", "pack_heads", "settle_shared_turns", "settle_turns"),
    *("shuffle_columns", "unpack_heads"),
    *("head_fields", "head_index", "holds_all", "warc_records", "with_extras"),
)
_OF_GROUPS = ("claim", "follow", "hold", "step_aside")  # without them, other verbs have other arguments
_IN_USE = _choose(os.environ.get("OUTRIDER_KERNELS", ""))

if TYPE_CHECKING or _IN_USE == "python":
    from outrider.kernels.backlog import Backlog
    from outrider.kernels.blocked_bloom import BlockedBloom
    from outrider.kernels.caseless import holds_all
    from outrider.kernels.digest import text_digest
    from outrider.kernels.extras import with_extras
    from outrider.kernels.fields import head_fields, head_index
    from outrider.kernels.fingerprint_set import FingerprintSet
    from outrider.kernels.framing import crc32c, find_frame, pack_frames, scan_frames
    from outrider.kernels.groups import Groups
    from outrider.kernels.html import decode_text, read_html
    from outrider.kernels.index import Index
    from outrider.kernels.key_pages import find_keys, pack_keys, rank_keys, sort_keys, unpack_keys
    from outrider.kernels.key_requests import answer_requests
    from outrider.kernels.leases import Leases
    from outrider.kernels.pages import PagesRead, read_pages
    from outrider.kernels.planes import pack_heads, shuffle_columns, unpack_heads
    from outrider.kernels.ready import Ready
    from outrider.kernels.robots import RobotsRules, RobotsText, RobotsUsages, robots_verdicts
    from outrider.kernels.same_bodies import SameBodies
    from outrider.kernels.shapes import shapes_of
    from outrider.kernels.simhash import SimHashIndex, simhash_of_text
    from outrider.kernels.siphash import fingerprints
    from outrider.kernels.sitemap import read_sitemap_xml
    from outrider.kernels.suffixes import PublicSuffixes
    from outrider.kernels.timetable import Timetable
    from outrider.kernels.turns import count_leases, settle_shared_turns, settle_turns
    from outrider.kernels.urls import (
        distinct_spans,
        gather_spans,
        hash_spans,
        spell_arena,
        spell_texts,
        spell_urls,
        texts_of_spans,
        unique_spans,
    )
    from outrider.kernels.values import kinds_of
    from outrider.kernels.warc import warc_records
else:
    from outrider._native import (
        Backlog,
        BlockedBloom,
        FingerprintSet,
        Groups,
        Index,
        Leases,
        PagesRead,
        PublicSuffixes,
        Ready,
        RobotsRules,
        RobotsText,
        RobotsUsages,
        SameBodies,
        SimHashIndex,
        Timetable,
        answer_requests,
        count_leases,
        crc32c,
        decode_text,
        distinct_spans,
        find_frame,
        find_keys,
        fingerprints,
        gather_spans,
        hash_spans,
        head_fields,
        head_index,
        holds_all,
        kinds_of,
        pack_frames,
        pack_heads,
        pack_keys,
        rank_keys,
        read_html,
        read_pages,
        read_sitemap_xml,
        robots_verdicts,
        scan_frames,
        settle_shared_turns,
        settle_turns,
        shapes_of,
        shuffle_columns,
        simhash_of_text,
        sort_keys,
        spell_arena,
        spell_texts,
        spell_urls,
        text_digest,
        texts_of_spans,
        unique_spans,
        unpack_heads,
        unpack_keys,
        warc_records,
        with_extras,
    )

FRAME_HEADER_BYTES = 31
"""Bytes of a frame before its payload."""
FRAME_BYTES_MAX = 256 * 1024 * 1024
"""The largest frame, header included."""
FINGERPRINT_KEY_BYTES = 16
"""Bytes of a key for `fingerprints`."""
END, ZEROS, SHORT, BAD, LIMIT = 0, 1, 2, 3, 4
"""Why a scan of frames ended: exhausted, unused space, runs past the buffer, damage, enough frames."""


def in_use() -> Literal["native", "python"]:
    """Which kernels this process runs on."""
    return _IN_USE


__all__ = [
    "BAD",
    "END",
    "FINGERPRINT_KEY_BYTES",
    "FRAME_BYTES_MAX",
    "FRAME_HEADER_BYTES",
    "LIMIT",
    "SHORT",
    "ZEROS",
    "Backlog",
    "BlockedBloom",
    "FingerprintSet",
    "Groups",
    "Index",
    "KernelsError",
    "Leases",
    "PagesRead",
    "PublicSuffixes",
    "Ready",
    "SameBodies",
    "SimHashIndex",
    "RobotsRules",
    "RobotsText",
    "RobotsUsages",
    "Timetable",
    "answer_requests",
    "count_leases",
    "crc32c",
    "decode_text",
    "distinct_spans",
    "find_frame",
    "find_keys",
    "fingerprints",
    "gather_spans",
    "hash_spans",
    "head_fields",
    "head_index",
    "holds_all",
    "in_use",
    "kinds_of",
    "pack_frames",
    "pack_heads",
    "pack_keys",
    "rank_keys",
    "read_html",
    "read_pages",
    "read_sitemap_xml",
    "robots_verdicts",
    "scan_frames",
    "settle_shared_turns",
    "settle_turns",
    "shuffle_columns",
    "shapes_of",
    "simhash_of_text",
    "sort_keys",
    "spell_arena",
    "spell_texts",
    "spell_urls",
    "text_digest",
    "texts_of_spans",
    "unique_spans",
    "unpack_heads",
    "unpack_keys",
    "warc_records",
    "with_extras",
]
