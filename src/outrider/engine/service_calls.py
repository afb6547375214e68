"""The calls of `outrider.v1.Frontier`: each carries one request of REST, and has the same JSON document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from outrider.engine.http_requests import API
from outrider.engine.owner import Frontier
from outrider.engine.verbs import served_of

SERVICE: Final = "/outrider.v1.Frontier/"
"""The paths of all calls begin so."""
PROBLEM: Final = "outrider-problem-bin"
"""The trailer with the problem document of a call that was refused."""


def _name(words: str) -> str:
    return "".join(map(str.title, re.split("[_-]", words)))


_VERBS: Final = served_of(Frontier)
CALLS: Final[Mapping[tuple[str, str], str]] = {
    ("POST", f"{API}/frontier/urls"): "Discover",
    ("GET", f"{API}/frontier/next"): "Lease",
    ("POST", f"{API}/frontier/results"): "ReportResults",
    ("POST", f"{API}/frontier/leases/{{lease_id}}/extend"): "ExtendLease",
    ("POST", f"{API}/frontier/leases/{{lease_id}}/return"): "ReturnLease",
    ("POST", f"{API}/frontier/report"): "Report",
    ("POST", f"{API}/frontier/extend"): "Extend",
    ("GET", f"{API}/frontier/ready"): "Ready",
    ("POST", f"{API}/workers"): "Register",
    ("GET", f"{API}/status"): "Statistics",
    ("GET", f"{API}/records"): "Records",
    ("POST", f"{API}/hosts/{{host}}/{{order}}"): "CommandHost",
    **{("POST", f"{API}/verbs/{name}"): _name(name) for name in _VERBS},
    **{
        ("POST" if verb.order else "GET", f"{API}/{verb.word}"): f"Command{_name(verb.word)}"
        for verb, _ in _VERBS.values()
        if verb.word
    },
}
"""The name of each call, by method and path of its request. A name with `Command` is of a command of `outrider`."""
