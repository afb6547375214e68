"""Ways to a frontier elsewhere that the engine does not have: `Frontier.connect` asks here for the file of a cluster.

The package names them when it is imported, so that the engine does not import what is above it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_WAYS: list[tuple[Callable[[str], bool], Callable[..., Any]]] = []


def add_way(applies: Callable[[str], bool], connect: Callable[..., Any]) -> None:
    """Adds a way to connect. applies: whether it is the way to an address. connect: takes what `Frontier.connect`
    takes."""
    _WAYS.append((applies, connect))


def way_to(address: str) -> Callable[..., Any] | None:
    """Returns the way to connect to an address; None for that of a server."""
    return next((connect for applies, connect in _WAYS if applies(address)), None)
