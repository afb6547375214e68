"""The page that draws runs of the ledger agrees with the code, and a run of the first format opens for ever."""

from __future__ import annotations

import base64
import re
import struct
import sys
from pathlib import Path

import numpy as np

from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.card_records import KEPT_FIELDS
from outrider.frontier.stores.ledger import Ledger
from outrider.kernels import crc32c, pack_heads
from outrider.kernels.card_layout import HEAD
from outrider.limits import RUN_BLOCK_BYTES, RUN_BLOCK_ROWS
from outrider.sim.disk import FaultyFiles
from outrider.storage.runs import run_name

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "runs.md").read_text()
STORE = bytes(range(16))

GOLDEN = (
    "Pf~JqZVd_=0RR9100000009C61O)~M2nh-c3=Iws00000000000000000000000000000000000W2mPu00000C;$KedjkLf!vFvPRRjP4QrK"
    "<8^6}BnD77#BV37rl8vs@=u}P3zaSlWj5I~wopMMNT*2(*5mLB9j_)h^KU1sS_%kLSE>ptV8j1JyG$2pM7r_xq(_1@oVlXG2@Tei3g0@@CUy"
    "=_UPlqm(D0IL9_061I-9FB%mE0v?=+LqSB+O|d8(%QC#?{+`CofHx%2_c^liu%wiD4GIAeJGm3lagvACFKyN!r)ObO^?zTX$nl!qcjEjY!;i"
    "%G%%S=uhDCoM&=IF6q=@yX$oCQNrjS<jhB6UwjRsc*a<AV#IiP)UGiKmNG=xuM~MR}2&ycDN+4w!EX$y>47vv|@(#|y^?UaBKN8_H9OfSe7="
    "&aEg-9Z&$pDNWRTPFL5^MogEn&ffP{aYea6+1@fYWf~g@VdcgH%ZEDjMNryn+Dz@s>iZv(B)co|g{KxMi^+nm0IWO&oEn&5z9-uHa*-5$ZH>"
    "vR0QIpc{WZ<BZ>Net(?(advN7vaulhhI$lOK_Ly2j|JDnZvc`RupuC<WE6S8)By;BCQ>foK(X=scGGdYRUjIP7}OYyV{JSzj^sGj#*y?xj`a"
    "h+T3f%DD~pU%m@6e+sLoXRBE?HpQ`D9E<TK+=m3gwGveL71N!3+JS5;M4JylozJY82MNtbj|N3J?2&vPYp>*}PRt8P74U;R9Fx|Jk#q?0~;j"
    "358|yZ`VNP)2PD3Y<W=Ie}&$2arUVLd3h!ROF)ThHMCp36CEl4x-dbT)h}(kny$~<bxHU9$i1@6dgSWNE?jAjGS;uFe7=(u&8@p|AM^^-qAc"
    "_kLKAgkG)PFV|XWz;+Da7#v=aLdgq<<&U<GOV-bt`wf-kS0O-{Mp2^z!nc>13^AtrU%WkTS?u*Owap_e#L4~>MB4wq;i<m87sIX|ydE>`g#G"
    "gg1_lvIgJJz2?$9iYc_h*0X`89sWkG0MizrX9OGtS!I15>Dh9W#(fAR-b<Fu~Hc0f2&ICrt+uAcrl25Cs$eGr`Ox=2jb{7GO}DAEIuv=IVlT"
    "*(upnmtU-(=Y{9L3hSFnm?R~U!6`sG4?a$I(2-$8?@?=rYBN-~r1dGO(&@W6Ctoma9a$F#4~*Fl`H2&xB)rtpKdQXou&KCe-llz}kbh!Z+hA"
    "c*_LG>_8d#W={w22cMhhe5pTuZ10av$%Cxw%C)1k^JwJ-f(RRhfh0Ahv{7m%kqU~MY<5BL?fyDz{kcT34Gc6SUicYm!++qUgqC8EA3OILqxj"
    "M+XR{`CH`c-5tt>XJQlcz0)72x~?mkYI&@3EE*m2moOm2O%jSP(riBc;nd+yZ`~_umzEOGXM$2XqMX>kiiKfrV4KmgF_54Kg3%bqr=7nEu&j"
    "7_l=Q&Sjb>kH}f)VpWR9=4S#8<9d&EK4qrRKp!Q%1uhz!S1q;k(YM0gmTXkdV22ew`R(Jpa000000000000000002M$00000003rhZ*<%z`<"
    "|Kv000000003100000001Ze00000003140000000000000000000000000000000000100IE-H!tZ=f}qKbBdP"
)
"""The cards below, written by the release that introduced the format; base 85."""


def crc(data: bytes) -> bytes:
    return struct.pack("<I", crc32c(data))


def some_cards() -> Cards:
    """Forty cards in two crawls, URL, referrer and extra of several lengths, all fields in use."""
    heads = np.zeros(40, HEAD)
    numbers = np.arange(40)
    heads["fingerprint"] = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    heads["crawl"], heads["slot"] = numbers // 30, numbers % 3
    heads["queue"], heads["order"], heads["due"] = 77 + numbers % 4, 1000 + numbers, numbers * 1_000_003 - 5
    heads["priority"], heads["depth"], heads["attempts"] = numbers / 40, numbers % 7, numbers % 2
    heads["status"], heads["state"], heads["reason"] = 200 + numbers, 1 + numbers % 6, numbers % 5
    heads["klass"], heads["hops"], heads["losses"], heads["flags"] = numbers % 16, 1, numbers % 3, 3
    bodies = [(b"https://golden.example/%d" % row, b"r" * (row % 3), bytes(row % 5)) for row in range(40)]
    for place, name in enumerate(("url_bytes", "referrer_bytes", "extra_bytes")):
        heads[name] = [len(body[place]) for body in bodies]
    whole = [b"".join(body) for body in bodies]
    return Cards(heads, b"".join(whole), np.array([0, *map(len, whole)]).cumsum())


def written(cards: Cards, *, older: Cards | None = None) -> bytes:
    """Returns the second run of a ledger if there is an older one, otherwise the first."""
    files = FaultyFiles()
    ledger = Ledger.open(files, store=STORE, names=[])
    for some in [cards] if older is None else [older, cards]:
        ledger.append(some)
        ledger.freeze()
        ledger.write_frozen()
    return files.contents()[ledger.names()[-1]]


def test_the_planes_on_the_page_are_the_written_ones() -> None:
    found = re.search(r"```planes\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    heads = np.zeros(3, HEAD)
    heads["fingerprint"], heads["state"] = [5, 7, 260], 1
    assert bytes.fromhex(found.group(1)) == pack_heads(heads.view(np.uint8), b"\1\1\1")


def test_a_run_is_drawn_as_it_is_written() -> None:
    heads = np.zeros(2, HEAD)
    heads["fingerprint"], heads["crawl"], heads["slot"], heads["state"] = [9 | 3 << 56, 8], 1, 2, 1
    heads["url_bytes"], heads["referrer_bytes"], heads["extra_bytes"] = [3, 2], [0, 1], [1, 0]
    first = cards = Cards(heads, b"url!" + b"xyz", np.array([0, 4, 7]))
    data = written(cards, older=first)
    header = b"ORrun\r\n\x1a" + struct.pack("<II", 2, 0) + STORE + struct.pack("<QQ", 1, 1) + bytes(12)
    assert header + crc(header) == data[:64]
    place, rows, heads_bytes, bodies_bytes, raw, bodies_crc, block_crc = struct.unpack_from("<7I", data, 64)
    packed_heads = data[92 : 92 + heads_bytes]
    packed_bodies = data[92 + heads_bytes : 92 + heads_bytes + bodies_bytes]
    assert (0, 2, 7) == (place, rows, raw)
    assert (crc32c(packed_bodies), crc32c(data[64:88] + packed_heads)) == (bodies_crc, block_crc)
    assert b"xyzurl!" == zstd.decompress(packed_bodies)
    assert pack_heads(heads[::-1].copy().view(np.uint8), b"\1\1") == zstd.decompress(packed_heads)
    smallest, largest = struct.pack(">QQ", 1 << 16 | 2, 8), struct.pack(">QQ", 1 << 16 | 2, 9)
    index_at = 92 + heads_bytes + bodies_bytes
    index = smallest + struct.pack("<Q", 64)
    footer = b"foot" + crc(index) + struct.pack("<4Q", index_at, 1, 2, 7) + smallest + largest
    assert index + footer + crc(footer) == data[index_at:]


def test_the_sizes_on_the_page_are_those_in_force() -> None:
    assert f"up to {RUN_BLOCK_ROWS:,} records; fewer if their bodies reach {RUN_BLOCK_BYTES >> 10} KiB" in PAGE


def test_the_head_on_the_page_is_the_head_of_a_card() -> None:
    drawn = re.search(r"Head:\n\n(.*?)\n\n", PAGE, re.DOTALL)
    assert drawn is not None
    cells = [cell.strip() for line in drawn.group(1).splitlines()[2:] for cell in line.strip("|").split("|")]
    places = {int(cells[at]): int(cells[at + 1]) for at in range(len(cells)) if is_place(cells, at)}
    assert HEAD.fields is not None
    fields = {offset: kind.itemsize for kind, offset in ((field[0], field[1]) for field in HEAD.fields.values())}
    merged = {**fields, 63: 3}
    del merged[64], merged[65]
    assert merged == places


def is_place(cells: list[str], at: int) -> bool:
    return at % 7 in (0, 4) and cells[at].isdigit()


def test_a_run_of_the_first_format_opens_for_ever() -> None:
    files = FaultyFiles()
    files.put(run_name(0), base64.b85decode(GOLDEN))
    scanned = Cards.concatenate(Ledger.open(files, store=STORE, names=[run_name(0)]).scan())
    cards = some_cards()
    expected = cards.take(np.lexsort((cards.heads["fingerprint"] << 8, cards.heads["slot"], cards.heads["crawl"])))
    assert HEAD.names is not None
    for name in HEAD.names:
        assert expected.heads[name].tolist() == scanned.heads[name].tolist(), name
    assert (expected.arena, expected.offsets.tolist()) == (scanned.arena, scanned.offsets.tolist())


def test_each_field_of_a_record_has_a_letter_of_its_own():
    letters = [field.kept for field in KEPT_FIELDS.values()]
    assert sorted(set(letters)) == sorted(letters)
