"""A site that is a tree of pages, and the times of the requests that it got."""

from __future__ import annotations

import itertools

from e2e.loopback import MISSING, Answer

ARRIVAL_SECONDS = 0.02
"""From the start of a request to its arrival, on a busy machine. If one request needs this time and the next one needs
none, the server sees a gap that is shorter by it than that of the client."""


def tree(pages):
    """A site whose page n links to 2n + 1, 2n + 2 and the first page."""

    def answer(host, target):
        number = int(target.strip("/") or 0) if target.strip("/").isdigit() or target == "/" else pages
        if number >= pages:
            return MISSING
        links = [0, *(child for child in (2 * number + 1, 2 * number + 2) if child < pages)]
        return Answer("".join(f'<a href="/{link or ""}">x</a>' for link in links))

    return answer


def asked(web):
    return [target for target, _ in web.requests]


def gaps(web):
    times = [at for _, at in web.requests]
    return [later - sooner for sooner, later in itertools.pairwise(times)]
