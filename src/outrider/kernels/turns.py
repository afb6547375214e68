"""One look at many hosts: their queues are offered, or the hosts are booked, or neither; and how many leases of each
are open. The plain twin."""

from __future__ import annotations

import numpy as np

from outrider.kernels.backlog import Backlog
from outrider.kernels.card_layout import NO_CLASS, ORDERED, ORDERED_CLASS
from outrider.kernels.columns import NONE, Column, Records, must_have, number, packed, records, rows
from outrider.kernels.groups import Groups
from outrider.kernels.host_cells import HOST
from outrider.kernels.ready import Ready
from outrider.kernels.timetable import Timetable

_ROW = np.dtype("<u4")
_INSTANT = np.dtype("<i8")
_Offer = tuple[int, int, int, tuple[int, int]]
"""Queue, crawl, class, and the due and order of its best card."""
_Look = tuple[int, int, int]
"""Host, queue, and the end of the host's rest."""


def settle_turns(
    hosts: Column,
    now: int,
    odd_flags: int,
    cells: Column,
    crawl: Column,
    backlog: Backlog,
    ready: Ready,
    timetable: Timetable,
) -> bytes:
    """Puts hosts (u32 rows) with one queue and no clock but their own into their current place, in the order of their
    rows, each once.

    cells: by row of hosts (`host_cells.HOST`); crawl: by row of queues (u32). A host with an empty queue or an open
    request is in neither the rings nor the timetable. A host that rests beyond `now` is booked, and its
    queue is in no ring. The queue of any other host is offered under the class of its best card, and its booking
    remains. The kernel first removes the hosts that leave, then offers queues, then books hosts, each in row order.

    Returns hosts without a queue (NONE), or with one of `odd_flags` (u32); then nothing was done for any host.
    Raises IndexError for a row that no column has, ValueError for an instant before 1970.
    """
    named, now = sorted(set(rows(hosts, "hosts"))), number(now, "i64", "now")
    known, crawls = records(cells, HOST, "cells"), records(crawl, _ROW, "crawl")
    odd, looks = _looks(named, odd_flags, known)
    if odd:
        return packed(odd, "<u4")
    out, due, later = _sorted_out(looks, now, known, backlog)
    _place(out, _offers_of(due, crawls, backlog), later, ready, timetable)
    return b""


def settle_shared_turns(
    hosts: Column,
    now: int,
    odd_flags: int,
    cells: Column,
    crawl: Column,
    located: Column,
    backlog: Backlog,
    groups: Groups,
    ready: Ready,
    timetable: Timetable,
) -> tuple[bytes, bytes, bytes]:
    """As `settle_turns`, for hosts that share clocks, in the order in which they are first named: due hosts request
    the turns of their groups in this order; hosts without groups need no turn.

    Groups forget a host that leaves or rests. Due hosts with their turns are offered; refused ones wait at a group,
    and are nowhere else. located (i64 by row of hosts): the end of the validity of a host's address, empty if addresses
    are not needed. A due host without a valid address steps aside and is nowhere, and its booking remains. Queues of
    hosts that lost their turns leave the rings.

    Returns three columns (u32): the odd hosts, which were not changed, as there; odd hosts that lost their turns and
    must leave the rings; and due hosts that first need an address.
    """
    named, now = list(dict.fromkeys(rows(hosts, "hosts"))), number(now, "i64", "now")
    known, crawls = records(cells, HOST, "cells"), records(crawl, _ROW, "crawl")
    untils = records(located, _INSTANT, "located")
    odd, looks = _looks(named, odd_flags, known)
    if odd:
        return packed(odd, "<u4"), b"", b""
    out, due, later = _sorted_out(looks, now, known, backlog)
    seeking: list[_Look] = []
    if len(untils):
        for host, *_ in due:
            must_have(untils, host, "located")
        seeking = [look for look in due if untils[look[0]] <= now]
        due = [look for look in due if untils[look[0]] > now]
    offers = _offers_of(due, crawls, backlog)
    groups.step_aside(packed([host for host, *_ in seeking], "<u4"))
    ready.withdraw(packed([queue for _, queue, _ in seeking], "<u4"))
    groups.forget(packed([host for host, *_ in out + later], "<u4"))
    asking = packed([host for host, *_ in due], "<u4")
    went, gone = groups.admit(
        asking, bytes(_class_of(klass) for _, _, klass, _ in offers), packed([of for _, of, *_ in offers], "<u4"), now
    )
    lost = [host for host, stands in zip(rows(gone, "gone"), groups.stands(gone), strict=True) if not stands]
    alone = [host for host in lost if not known["flags"][host] & odd_flags]
    ready.withdraw(packed([int(known["first_queue"][host]) for host in alone], "<u4"))
    out += [look for look, stands in zip(due, went, strict=True) if not stands]
    offered = [offer for offer, stands in zip(offers, went, strict=True) if stands]
    _place(out, offered, later, ready, timetable)
    several = [host for host in lost if known["flags"][host] & odd_flags]
    return b"", packed(several, "<u4"), packed([host for host, *_ in seeking], "<u4")


def _looks(named: list[int], odd_flags: int, known: Records) -> tuple[list[int], list[_Look]]:
    """Returns the odd ones of these hosts, and the column values of the others."""
    looks, odd = [], []
    for host in named:
        must_have(known, host, "cells")
        queue, until = int(known["first_queue"][host]), int(known["rest_until"][host])
        if queue == NONE or known["flags"][host] & odd_flags:
            odd.append(host)
        elif until < 0:
            raise ValueError(f"rest_until: {until} lies before 1970")
        looks.append((host, queue, until))
    return odd, looks


def _sorted_out(
    looks: list[_Look], now: int, known: Records, backlog: Backlog
) -> tuple[list[_Look], list[_Look], list[_Look]]:
    """Divides hosts into those that leave, those that are due, and those that rest."""
    best = backlog.best(np.array([queue for _, queue, _ in looks], np.uint32))
    out: list[_Look] = []
    due: list[_Look] = []
    later: list[_Look] = []
    for look, klass in zip(looks, best, strict=True):
        if klass == NO_CLASS or known["in_flight"][look[0]]:
            out.append(look)
        else:
            (later if look[2] > now else due).append(look)
    return out, due, later


def _offers_of(due: list[_Look], crawls: Records, backlog: Backlog) -> list[_Offer]:
    """Returns what is offered of each host that is due."""
    for _, queue, _ in due:
        must_have(crawls, queue, "crawl")
    classes, dues, orders = backlog.best_keys(np.array([queue for _, queue, _ in due], np.uint32))
    keys = zip(np.frombuffer(dues, np.int64).tolist(), np.frombuffer(orders, np.uint64).tolist(), strict=True)
    return [
        (queue, int(crawls[queue]), klass, key) for (_, queue, _), klass, key in zip(due, classes, keys, strict=True)
    ]


def _class_of(klass: int) -> int:
    return klass if klass < ORDERED else ORDERED_CLASS


def _place(out: list[_Look], offers: list[_Offer], later: list[_Look], ready: Ready, timetable: Timetable) -> None:
    ready.withdraw(packed([queue for _, queue, _ in out], "<u4"))
    timetable.cancel(packed([host for host, *_ in out], "<u4"))
    for queue, crawl, klass, (due, order) in offers:
        row, of = packed([queue], "<u4"), packed([crawl], "<u4")
        if klass < ORDERED:
            ready.offer(row, of, bytes([klass]))
        else:
            ready.offer_in_order(row, of, packed([due], "<i8"), packed([order], "<u8"))
    ready.withdraw(packed([queue for _, queue, _ in later], "<u4"))
    timetable.rest(packed([host for host, *_ in later], "<u4"), packed([until for *_, until in later], "<i8"))


def count_leases(queues: Column, opened: bool, hosts: Column, cells: Column) -> bytes:
    """Counts a lease of each of these queues (u32 rows) as opened, or ended, at the host of each.

    hosts: by row of queues (u32); cells: bytes of records by row of hosts (`host_cells.HOST`), which are written to.
    Returns the hosts (u32) in the order of the queues; of opened leases only those with a flag. Raises IndexError for a
    row that a column does not have; then nothing is counted.
    """
    named, homes, known = rows(queues, "queues"), records(hosts, _ROW, "hosts"), records(cells, HOST, "cells")
    if not known.flags.writeable:
        raise BufferError("cells: bytes to be written to are asked for")
    changed = []
    for queue in named:
        must_have(homes, queue, "hosts")
        changed.append(int(homes[queue]))
        must_have(known, changed[-1], "cells")
    for host in changed:
        known["in_flight"][host] = (int(known["in_flight"][host]) + (1 if opened else -1)) % 2**16
    return packed([host for host in changed if not opened or known["flags"][host]], "<u4")
