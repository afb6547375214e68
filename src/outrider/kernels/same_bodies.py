"""Pages with one same body in a row, by host."""

from __future__ import annotations

from typing import Generic, TypeVar

from outrider.kernels.columns import Column, column, number, packed, same_length

Value = TypeVar("Value")
_NO_TOKEN = 2**64 - 1


class SameBodies:
    """Runs of pages with one body. most: the number of hosts, and of paths that are requested with queries, that are
    always remembered, and up to twice as many; enough: the length of a run that is a sign."""

    def __init__(self, most: int, enough: int) -> None:
        most, self._enough = number(most, "u64", "most"), number(enough, "u64", "enough")
        self._runs: _Recent[tuple[int, bool, int, int]] = _Recent(most)
        self._asked: _Recent[int | None] = _Recent(most)

    def take(self, hosts: Column, bodies: Column, tokens: Column, copies: Column, paths: Column) -> bytes:
        """Counts pages, and returns the places (u32) of those whose run is long enough to be a sign.

        hosts, bodies: hashes (u64); copies: 1 for a body that another URL had, else 0 (u8); paths: hashes of the URLs
        up to their queries (u64), 0 for one without a query. A host with only one body, such as an application that
        renders in the browser, is not a sign. Nor are URLs that differ only in the query while their path has only one
        body: it does not read its query, as `index.html?PAGE` of a page with frames.

        Raises ValueError, and counts nothing, when the columns differ in length.
        """
        names = column(hosts, "<u8", "hosts").tolist()
        given: list[list[int]] = []
        for name, other, dtype in (
            *(("bodies", bodies, "<u8"), ("tokens", tokens, "<u8")),
            *(("copies", copies, "u1"), ("paths", paths, "<u8")),
        ):
            given.append(column(other, dtype, name).tolist())
            same_length("hosts", len(names), name, len(given[-1]))
        found: list[int] = []
        for place, (host, body, token, copy, path) in enumerate(zip(names, *given, strict=True)):
            varies = not path or self._varies(path, body)
            last, others, run, ended = self._runs.get(host, (body, False, 0, _NO_TOKEN))
            if body != last:
                others, run = True, 0
            elif copy and varies and token != ended:  # a repeated report is one page
                run += 1
            self._runs.put(host, (body, others, run, token))
            if others and run >= self._enough:
                found.append(place)
        return packed(found, "<u4")

    def _varies(self, path: int, body: int) -> bool:
        """Whether a path had another body than this, now or before."""
        several = self._asked.get(path, body) != body
        self._asked.put(path, None if several else body)
        return several


class _Recent(Generic[Value]):
    """Values by key: the newest `most`, and up to as many older ones."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._young: dict[int, Value] = {}
        self._old: dict[int, Value] = {}

    def get(self, key: int, otherwise: Value) -> Value:
        return self._young.get(key, self._old.get(key, otherwise))

    def put(self, key: int, value: Value) -> None:
        self._young[key] = value
        if len(self._young) >= self._most:
            self._young, self._old = {}, self._young
