"""The lives of a URL, of a lease and of a host, as tables: state, event, next state, and the file that decides.

`explain` uses these words for states. A draft refuses a move of a URL that no row allows, before it is logged. Tests
walk every row with a real frontier. `scripts/lives.py` makes docs/lives.md and its drawings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from outrider.errors import TransitionError
from outrider.journey import State

Uint8s = npt.NDArray[np.uint8]


class Move(NamedTuple):
    """One row of a life. decides: the file below `src/outrider/frontier` that decides it."""

    state: str
    event: str
    then: str
    decides: str


@dataclass(frozen=True)
class Life:
    """The life of one kind of thing. states: the meaning of each state, in the order of their numbers."""

    name: str
    states: Mapping[str, str]
    moves: tuple[Move, ...]

    def after(self, state: str, event: str) -> set[str]:
        """Returns the states that this event may lead to; an empty set if it cannot happen."""
        return {move.then for move in self.moves if (move.state, move.event) == (state, event)}


_DISCOVER, _CARRIED, _DRAW = "verbs/discovering.py", "verbs/transfer.py", "verbs/drawing.py"
_LEASE, _SETTLE, _REPORT = "verbs/leasing.py", "verbs/settling.py", "verbs/reporting.py"
_LOSE, _STOP, _ORDER, _ASK = "verbs/deciding.py", "verbs/lifecycle.py", "verbs/operations.py", "verbs/robots_files.py"
_URLS = "verbs/single_urls.py"
_REST = "verbs/resting.py"
_WAKE, _CENSUS = "state/url_table.py", "verbs/census.py"

PUT: Final = "put"
"""The event of a caller's record, which may move a URL to any state. A draft without such records refuses that."""

URL: Final = Life(
    "URL",
    {
        State.UNKNOWN: "the frontier has not accepted it",
        State.QUEUED: "it is queued: its host decides when it is leased",
        State.LEASED: "it is leased: a holder is fetching it",
        State.WAITING: "it waits",
        State.PARKED: "it is parked",
        State.DONE: "it was fetched, and no revisit is scheduled",
        State.GONE: "it is gone",
    },
    (
        Move("unknown", "discovered", "queued", _DISCOVER),
        Move("unknown", "discovered", "waiting", _DISCOVER),
        Move("unknown", "discovered", "parked", _DISCOVER),
        *(Move("unknown", "imported", state, _CARRIED) for state in ("queued", "waiting", "parked", "done", "gone")),
        Move("queued", "leased", "leased", _LEASE),
        Move("queued", "changed in place", "queued", _URLS),
        Move("queued", "requeued", "queued", _URLS),
        Move("queued", "requeued", "waiting", _URLS),
        Move("queued", "drawn and refused", "parked", _DRAW),
        Move("queued", "drawn and refused", "gone", _ASK),
        Move("queued", "dropped", "gone", _DISCOVER),
        Move("leased", "reported done", "done", _SETTLE),
        Move("leased", "redirected to itself", "gone", _SETTLE),
        Move("leased", "reported gone", "gone", _SETTLE),
        Move("leased", "reported again", "queued", _SETTLE),
        Move("leased", "reported again", "waiting", _SETTLE),
        Move("leased", "failed", "queued", _SETTLE),
        Move("leased", "failed", "waiting", _SETTLE),
        Move("leased", "failed", "gone", _SETTLE),
        Move("leased", "bad answer, scheduled", "queued", _SETTLE),
        Move("leased", "bad answer, scheduled", "waiting", _SETTLE),
        Move("leased", "lease ended, requeued before", "queued", _SETTLE),
        Move("leased", "lease ended, requeued before", "waiting", _SETTLE),
        Move("leased", "released", "queued", _REPORT),
        Move("leased", "deferred", "queued", _REPORT),
        Move("leased", "deferred", "waiting", _REPORT),
        Move("leased", "lost", "queued", _LOSE),
        Move("leased", "lost", "gone", _LOSE),
        Move("leased", "stopped", "queued", _STOP),
        Move("waiting", "due", "queued", _WAKE),
        Move("waiting", "changed in place", "waiting", _URLS),
        Move("waiting", "requeued", "queued", _URLS),
        Move("waiting", "requeued", "waiting", _URLS),
        Move("parked", "allowed again", "queued", _ASK),
        Move("parked", "allowed again", "waiting", _ASK),
        Move("parked", "retried", "queued", _URLS),
        Move("parked", "changed in place", "parked", _URLS),
        *(
            Move(state, "requeued", then, _URLS)
            for state in ("parked", "done", "gone")
            for then in ("queued", "waiting")
        ),
        Move("gone", "retried", "queued", _URLS),
        *(
            Move(state, PUT, then, _CARRIED)
            for state in ("queued", "leased", "waiting", "parked", "done", "gone")
            for then in ("queued", "waiting", "parked", "done", "gone")
        ),
        *(
            Move(state, event, "unknown", decides)
            for event, decides in (("deleted", _ORDER), ("deleted by its name", _URLS))
            for state in ("queued", "leased", "waiting", "parked", "done", "gone")
        ),
    ),
)

LEASE: Final = Life(
    "lease",
    {"none": "its token is not issued yet", "open": "its holder may fetch and report", "ended": "its token is stale"},
    (
        Move("none", "leased", "open", _LEASE),
        Move("open", "extended", "open", _REPORT),
        Move("open", "rested", "open", _REST),
        Move("open", "its queue deleted", "open", _ORDER),
        Move("open", "reported", "ended", _SETTLE),
        Move("open", "released", "ended", _REPORT),
        Move("open", "deferred", "ended", _REPORT),
        Move("open", "expired", "ended", _LOSE),
        Move("open", "its process died", "ended", _STOP),
        Move("open", "stopped", "ended", _STOP),
        Move("open", PUT, "ended", _CARRIED),
        Move("open", "its URL deleted", "ended", _URLS),
        Move("ended", "reported", "ended", _SETTLE),
    ),
)

HOST: Final = Life(
    "host",
    {
        "empty": "it has nothing to lease",
        "ready": "a lease is possible now",
        "resting": "it is in its delay, a request is open, or other hosts of its group are first",
        "blocked": "an operator paused or blocked it, or it backs off",
    },
    (
        Move("empty", "URL added", "ready", _CENSUS),
        Move("empty", "URL added", "resting", _CENSUS),
        Move("empty", "URL added", "blocked", _CENSUS),
        Move("ready", "leased", "resting", _CENSUS),
        Move("ready", "blocked", "blocked", _CENSUS),
        Move("ready", "emptied", "empty", _CENSUS),
        Move("resting", "rest over", "ready", _CENSUS),
        Move("resting", "blocked", "blocked", _CENSUS),
        Move("resting", "emptied", "empty", _CENSUS),
        Move("resting", "refused a request", "blocked", _CENSUS),
        Move("blocked", "unblocked", "ready", _CENSUS),
        Move("blocked", "unblocked", "resting", _CENSUS),
        Move("blocked", "back-off over", "ready", _CENSUS),
        Move("blocked", "emptied", "empty", _CENSUS),
    ),
)

LIVES: Final = (URL, LEASE, HOST)

_NUMBERS: Final = {state: number for number, state in enumerate(URL.states)}
_ALLOWED: Final = bytes(
    sorted({_NUMBERS[State(one.state)] << 3 | _NUMBERS[State(one.then)] for one in URL.moves if one.event != PUT})
)
"""The moves of URLs that an event allows, a byte for each: the old state and, in the last three bits, the new one."""


def check_moves(old: Uint8s, new: Uint8s) -> None:
    """Raises TransitionError if a URL would move to a state that no event allows after its old one."""
    # Deleting the allowed bytes costs a microsecond; a look at each row would cost many.
    others = (old << 3 | new).tobytes().translate(None, _ALLOWED)
    if others:
        names = list(URL.states)
        raise TransitionError(
            f"a URL cannot move from {names[others[0] >> 3]} to {names[others[0] & 7]}: no event allows it"
        )
