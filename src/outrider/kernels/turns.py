"""One look at many hosts: their queues are offered, or the hosts are booked, or neither; and how many leases of each
are open. The plain twin."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from outrider.kernels.backlog import Backlog
from outrider.kernels.cards import NO_CLASS
from outrider.kernels.columns import NONE, Column, number, packed, rows
from outrider.kernels.framing import Bytes
from outrider.kernels.host_cells import HOST
from outrider.kernels.ready import Ready
from outrider.kernels.timetable import Timetable

_ROW = np.dtype("<u4")


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
    """Hosts (u32 rows) that have one queue, and nothing but their clock to go by, get the place that is theirs now; in
    the order of their rows, each once however often it is named.

    cells: by row of hosts (`host_cells.HOST`); crawl: by row of queues (u32). A host whose queue holds nothing, or that
    is being visited, stands neither in the rings nor in the timetable; one that rests beyond `now` is booked, and its
    queue stands nowhere; the queue of any other is offered under the class of its best card, its booking stays. The
    kernel first takes out the hosts that leave, then offers queues, then books hosts, each in the order of the rows.

    Hosts without a queue (NONE), or with one of `odd_flags`, are given back (u32), and then nothing was done for any.
    Raises IndexError for a row that no column has, ValueError for an instant before 1970.
    """
    named, now = sorted(set(rows(hosts, "hosts"))), number(now, "i64", "now")
    known, crawls = _items(cells, HOST, "cells"), _items(crawl, _ROW, "crawl")
    looks, odd = [], []
    for host in named:
        _there(known, host, "cells")
        queue, until = int(known["first_queue"][host]), int(known["rest_until"][host])
        if queue == NONE or known["flags"][host] & odd_flags:
            odd.append(host)
        elif until < 0:
            raise ValueError(f"rest_until: {until} lies before 1970")
        looks.append((host, queue, until))
    if odd:
        return packed(odd, "<u4")
    best = backlog.best(np.array([queue for _, queue, _ in looks], np.uint32))
    out, due, later = [], [], []
    for (host, queue, until), klass in zip(looks, best, strict=True):
        if klass == NO_CLASS or known["in_flight"][host]:
            out.append((host, queue))
        elif until > now:
            later.append((host, queue, until))
        else:
            _there(crawls, queue, "crawl")
            due.append((queue, int(crawls[queue]), klass))
    ready.withdraw(packed([queue for _, queue in out], "<u4"))
    timetable.cancel(packed([host for host, _ in out], "<u4"))
    ready.offer(
        packed([queue for queue, _, _ in due], "<u4"),
        packed([of for _, of, _ in due], "<u4"),
        bytes(klass for _, _, klass in due),
    )
    ready.withdraw(packed([queue for _, queue, _ in later], "<u4"))
    timetable.rest(packed([host for host, _, _ in later], "<u4"), packed([until for _, _, until in later], "<i8"))
    return b""


def count_leases(queues: Column, opened: bool, hosts: Column, cells: Column) -> bytes:
    """A lease of each of these queues (u32 rows) was opened, or ended: the host of each counts one more, or one less.

    hosts: by row of queues (u32); cells: bytes of records by row of hosts (`host_cells.HOST`), which are written to.
    The hosts (u32) in the order of the queues; of opened leases only those that have any flag. Raises IndexError for a
    row that a column does not have; then nothing is counted.
    """
    named, homes, known = rows(queues, "queues"), _items(hosts, _ROW, "hosts"), _items(cells, HOST, "cells")
    if not known.flags.writeable:
        raise BufferError("cells: bytes to be written to are asked for")
    changed = []
    for queue in named:
        _there(homes, queue, "hosts")
        changed.append(int(homes[queue]))
        _there(known, changed[-1], "cells")
    for host in changed:
        known["in_flight"][host] = (int(known["in_flight"][host]) + (1 if opened else -1)) % 2**16
    return packed([host for host in changed if not opened or known["flags"][host]], "<u4")


def _items(column: Column, dtype: np.dtype[Any], name: str) -> npt.NDArray[Any]:
    """The whole items of a buffer; bytes behind the last of them are none."""
    view = memoryview(cast("Bytes", column))
    if not view.c_contiguous:
        raise BufferError("the buffer must be contiguous")
    if view.itemsize not in (1, dtype.itemsize):
        raise ValueError(f"{name} are numbers of {dtype.itemsize} bytes, not {view.itemsize}")
    octets = np.frombuffer(view, np.uint8)
    return octets[: len(octets) // dtype.itemsize * dtype.itemsize].view(dtype)


def _there(column: npt.NDArray[Any], row: int, name: str) -> None:
    if row >= len(column):
        raise IndexError(f"row {row} lies outside the column {name}")
