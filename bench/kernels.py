"""`kernels`: the native kernels compared with their plain Python twins, CPU time per URL, in one process."""

from __future__ import annotations

from random import Random

from bench.measuring import alternating
from bench.tables import Table, ratio
from bench.urls import sample
from outrider.kernels import framing, siphash
from outrider.kernels import urls as spelling

URLS = 2_000
KEY = bytes(range(16))
SYNCED_EVERY = 100  # rows per batch of frames


def tables() -> list[Table]:
    """Measures fingerprints and frames. Without a native build, the table says that a comparison is not possible."""
    try:
        from outrider import _native
    except ImportError:
        return [Table("kernels", "Kernels", ("kernel",), (), ("No native build here: make install with Rust.",))]
    urls = sample(URLS)
    chance = Random(1)
    rows = [(row + 1, row, 1, 1, 1, 0, chance.randbytes(120)) for row in range(URLS)]
    packed = framing.pack_frames(rows)
    contests = {
        "fingerprints": (lambda: _native.fingerprints(urls, KEY), lambda: siphash.fingerprints(urls, KEY)),
        "spell and hash URLs": (
            lambda: _native.spell_urls(urls, None, KEY),
            lambda: spelling.spell_urls(urls, None, KEY),
        ),
        "pack frames of 120 B": (lambda: _native.pack_frames(rows), lambda: framing.pack_frames(rows)),
        "scan frames of 120 B": (lambda: _native.scan_frames(packed), lambda: framing.scan_frames(packed)),
        "crc32c of 302 kB": (lambda: _native.crc32c(packed), lambda: framing.crc32c(packed)),
    }
    found = []
    for name, (native, plain) in contests.items():
        assert native() == plain(), name
        best = alternating({"native": native, "plain": plain}, rounds=7)
        native_us, plain_us = (best[kind] / URLS * 1e6 for kind in ("native", "plain"))
        found.append((name, native_us, plain_us, ratio(best["plain"], best["native"])))
    columns = ("kernel", "native µs", "plain µs", "plain / native")
    notes = (f"CPU time per URL or frame, batches of {URLS:,}, best of 7 rounds; both gave the same result.",)
    return [Table("kernels", "Kernels: native against their Python twins", columns, tuple(found), notes)]
