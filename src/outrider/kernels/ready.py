"""Ready queues: a ring of queues per crawl and class, drawn by chance weighted by class."""

from __future__ import annotations

import bisect
from collections import OrderedDict

from outrider.kernels.card_layout import ORDERED_CLASS
from outrider.kernels.columns import Column, classes_of, column, number, packed, rows, same_length
from outrider.limits import CLASSES, OLDEST_DRAW_EVERY

_MASK = (1 << 64) - 1


def mixed(seed: int, number: int) -> int:
    """64 well-mixed bits of (seed, number): SplitMix64 (Steele, Lea, Flood 2014)."""
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class _View:
    """The queues that a draw looks at: those of all crawls together, or of one."""

    def __init__(self, seed: int) -> None:
        self.seed, self.draws = seed, 0
        self.ages: OrderedDict[int, None] = OrderedDict()  # queues, ready longest first
        self.line: list[tuple[int, int, int]] = []  # (due, order, queue) in a crawl with an exact order, the best first
        self.keys: dict[int, tuple[int, int, int]] = {}  # the same by queue

    def number_of_draw(self) -> int:
        self.draws += 1
        return self.draws


class Ready:
    """Rings of ready queues (u32 rows), one ring per crawl (u32) and class (u8, 0 to 15, the best last).

    There are two kinds of views to draw from: all crawls, and each crawl. Draw number n of a view (1, 2, …) returns the
    queue of the view that has been ready longest if 8 divides n, so that with m queues no queue waits more than 8 m
    draws. Otherwise it chooses a class i with probability proportional to 2^i among the classes with a queue, by
    `mixed(seed of the view, n)`, and then the first of its ring. If several crawls have a queue in the class, they
    alternate: a crawl whose ring was drawn from, or has a queue again, is last. A draw that finds no queue has no
    number. The seed of a crawl's view is `mixed(seed, crawl)`.

    The native kernel needs 4 B per row and 32 for each ready queue; the cost of a step does not depend on their number.
    """

    def __init__(self, seed: int) -> None:
        """The seed is a u64."""
        self._seed = number(seed, "u64", "seed")
        self._all = _View(self._seed)
        self._crawls: dict[int, _View] = {}
        self._place: dict[int, tuple[int, int]] = {}  # queue: (crawl, class)
        self._rings: list[OrderedDict[int, OrderedDict[int, None]]] = [OrderedDict() for _ in range(CLASSES)]
        """Per class the crawls that have a queue, the next one first; per crawl its queues."""

    def offer(self, queues: Column, crawls: Column, classes: Column) -> None:
        """Appends each queue (u32) to the ring of its crawl (u32) and class (u8).

        A queue that is in a ring of the same crawl moves only to a better class, and keeps its age. A queue in another
        crawl's ring leaves that. Raises ValueError, and offers no queue, when the columns differ in length, a row is
        NONE or a class exceeds 15.
        """
        numbers, of_crawls, of_classes = rows(queues, "queues"), rows(crawls, "crawls"), classes_of(classes)
        same_length("queues", len(numbers), "crawls", len(of_crawls))
        same_length("queues", len(numbers), "classes", len(of_classes))
        for queue, crawl, klass in zip(numbers, of_crawls, of_classes, strict=True):
            stands = self._place.get(queue)
            if stands is not None and stands[0] == crawl:
                if stands[1] < klass:
                    self._leave_ring(queue)
                    self._enter_ring(queue, crawl, klass)
                continue
            self._take_out(queue)
            view = self._crawls.setdefault(crawl, _View(mixed(self._seed, crawl)))
            view.ages[queue] = self._all.ages[queue] = None
            self._enter_ring(queue, crawl, klass)

    def offer_in_order(self, queues: Column, crawls: Column, dues: Column, orders: Column) -> None:
        """Offers queues of crawls with an exact order under ORDERED_CLASS: as the kernel's backlog has them, the queue
        with the lowest due (i64), then with the lowest order (u64), is drawn first. A draw that chooses such a crawl
        takes its first queue, and neither chance nor age changes that. A queue that was offered before gets its new
        place. Raises ValueError as `offer`."""
        numbers, of_crawls = rows(queues, "queues"), rows(crawls, "crawls")
        times, places = column(dues, "<i8", "dues").tolist(), column(orders, "<u8", "orders").tolist()
        for name, others in (("crawls", of_crawls), ("dues", times), ("orders", places)):
            same_length("queues", len(numbers), name, len(others))
        for queue, crawl, due, order in zip(numbers, of_crawls, times, places, strict=True):
            self.offer(packed([queue], "<u4"), packed([crawl], "<u4"), bytes([ORDERED_CLASS]))
            view = self._crawls[crawl]
            _leave_line(view, queue)
            view.keys[queue] = (due, order, queue)
            bisect.insort(view.line, view.keys[queue])

    def withdraw(self, queues: Column) -> None:
        """Removes the queues (u32) from the rings; queues outside the rings are ignored."""
        for queue in rows(queues, "queues"):
            self._take_out(queue)

    def draw(self, want: int, crawl: int | None = None) -> bytes:
        """Removes and returns up to `want` queues (u32) of all crawls or of one."""
        want = number(want, "u64", "want")
        view: _View | None = self._all
        if crawl is not None:
            view = self._crawls.get(number(crawl, "u32", "crawl"))
        drawn: list[int] = []
        while view is not None and view.ages and len(drawn) < want:
            queue = self._next(view, crawl) if not view.line else view.line[0][2]
            line = self._crawls[self._place[queue][0]].line
            drawn.append(line[0][2] if line else queue)
            self._take_out(drawn[-1])
        return packed(drawn, "<u4")

    def _next(self, view: _View, crawl: int | None) -> int:
        n = view.number_of_draw()
        if n % OLDEST_DRAW_EVERY == 0:
            return next(iter(view.ages))
        filled = sum(1 << i for i, ring in enumerate(self._rings) if (ring if crawl is None else crawl in ring))
        rings = self._rings[_class_at(filled, 1 + mixed(view.seed, n) % filled)]
        if crawl is None:
            crawl = next(iter(rings))
            rings.move_to_end(crawl)
        return next(iter(rings[crawl]))

    def standing(self, queues: Column) -> bytes:
        """Returns 1 (u8) for each queue in a ring, otherwise 0."""
        return bytes(queue in self._place for queue in rows(queues, "queues"))

    def __len__(self) -> int:
        return len(self._place)

    def _take_out(self, queue: int) -> None:
        if queue in self._place:
            del self._all.ages[queue]
            view = self._crawls[self._place[queue][0]]
            del view.ages[queue]
            _leave_line(view, queue)
            self._leave_ring(queue)

    def _enter_ring(self, queue: int, crawl: int, klass: int) -> None:
        self._place[queue] = (crawl, klass)
        self._rings[klass].setdefault(crawl, OrderedDict())[queue] = None

    def _leave_ring(self, queue: int) -> None:
        crawl, klass = self._place.pop(queue)
        ring = self._rings[klass][crawl]
        del ring[queue]
        if not ring:
            del self._rings[klass][crawl]


def _leave_line(view: _View, queue: int) -> None:
    if (key := view.keys.pop(queue, None)) is not None:
        del view.line[bisect.bisect_left(view.line, key)]


def _class_at(filled: int, ticket: int) -> int:
    """The class whose share the ticket (1 … filled) falls into: the weights add up to `filled`, bit i weighing 2^i."""
    for klass in reversed(range(CLASSES)):
        weight = filled & (1 << klass)
        if weight and ticket <= weight:
            return klass
        ticket -= weight
    raise AssertionError((filled, ticket))
