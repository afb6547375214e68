"""Registrable domains of host names in batches, by the rules of a public suffix list: the plain twin of the kernel.

The longest rule that fits a host's last labels decides (publicsuffix.org/list, "Algorithm"):

    co.uk       these labels are a public suffix
    *.ck        so are these and one label before them; the labels after the star alone are one too
    !www.ck     these are not, but the labels after their first dot are
    no rule     the last label is

The registrable domain is the public suffix and one label before it. These hosts have no registrable domain: a public
suffix or a single label; a host with an empty label (one dot at the end is removed first); and a possible address, with
a colon, with "[" at its start, or with a number as its last label. The case of letters does not matter.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from outrider.kernels.framing import Bytes, as_octets
from outrider.kernels.urls import Numbers, spans_of

NO_DOMAIN, ODD = -1, -2
"""In place of the start of a domain: the host has none; the host is not ASCII, which needs IDNA."""

_RULE = re.compile(rb"!?+[!-\-/-@\[-~]+(?:\.[!-\-/-@\[-~]+)*")
_RULE_BYTES_MAX = 0xFFFF


class PublicSuffixes:
    """The rules of one list, looked up for many hosts at once.

    rules  bytes: in lower-case ASCII, A-labels for international ones, one per line; no bytes for no rules

    Raises ValueError for a line that is not a rule, with its number from 0.
    """

    def __init__(self, rules: Bytes) -> None:
        octets = bytes(as_octets(rules))
        lines = octets.split(b"\n") if octets else []
        for number, line in enumerate(lines):
            if not _RULE.fullmatch(line) or len(line) > _RULE_BYTES_MAX:
                raise ValueError(f"line {number} is no rule in lower-case ASCII")
        self._rules = frozenset(lines)
        self._labels_max = max((line.count(b".") + 1 for line in lines), default=0)

    def domains(self, arena: Bytes, starts: Numbers, ends: Numbers) -> bytes:
        """Returns the start in the arena of the registrable domain of each host; little-endian i64.

        It ends where the host ends, before a dot there. NO_DOMAIN for a host without one, ODD for a host beyond ASCII.
        Raises ValueError naming the row of a span outside the arena.
        """
        found: list[int] = []
        for start, host in zip(starts, spans_of(arena, starts, ends), strict=True):
            place = self._start(host)
            found.append(place if place < 0 else int(start) + place)
        return struct.pack(f"<{len(found)}q", *found)

    def texts(self, hosts: Sequence[str]) -> tuple[list[str | None], list[int]]:
        """Returns the registrable domain of each host in lower case, None for those without one; and the odd rows.

        Raises TypeError when `hosts` is one string, or contains a non-string.
        """
        if isinstance(hosts, str):
            raise TypeError("hosts must be a sequence of strings, not one string")
        domains: list[str | None] = []
        odd: list[int] = []
        for row, host in enumerate(hosts):
            if not isinstance(host, str):
                raise TypeError(f"row {row}: a host must be a str, not {type(host).__name__}")
            start = self._start(host.encode("utf-8", "surrogatepass"))
            domains.append(host[start:].removesuffix(".").lower() if start >= 0 else None)
            if start == ODD:
                odd.append(row)
        return domains, odd

    def _start(self, host: bytes) -> int:
        if not host.isascii():
            return ODD
        name = host.lower().removesuffix(b".")
        labels = name.split(b".")
        if len(labels) == 1 or b"" in labels or b":" in name or name[:1] == b"[" or labels[-1].isdigit():
            return NO_DOMAIN
        public = self._public_labels(labels)
        if not 0 < public < len(labels):
            return NO_DOMAIN
        return len(name) - len(b".".join(labels[-public - 1 :]))

    def _public_labels(self, labels: list[bytes]) -> int:
        count = len(labels)
        for first in range(max(0, count - self._labels_max), count):  # the longest first
            name = b".".join(labels[first:])
            if b"!" + name in self._rules:
                return count - first - 1
            if b"*." + name in self._rules:
                return count - first + (1 if first > 0 else 0)
            if name in self._rules:
                return count - first
        return 1
