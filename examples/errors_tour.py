"""The errors that a program meets, and what it does about each: python examples/errors_tour.py"""

from __future__ import annotations

import tempfile
from pathlib import Path

import outrider
from outrider import DamagedStoreError, Frontier, InvalidUrlError, OutriderError, StoreFullError, StoreInUseError


def opened(place: Path) -> Frontier | None:
    try:
        return Frontier.open(place, robots="caller")
    except StoreInUseError as error:
        print("another process has it; ask that one, or wait:", error)
    except DamagedStoreError as error:
        print("nothing was changed; `outrider repair` keeps what is whole:", error)
    return None


def told(frontier: Frontier, urls: list[str]) -> None:
    try:
        print(frontier.discover(urls))
    except StoreFullError as error:
        print("make room and call again:", error.retryable)
    except OutriderError as error:
        print("the call made no sense:", error)


if __name__ == "__main__":
    print(outrider.__version__)
    place = Path(tempfile.mkdtemp()) / "store"
    with Frontier.open(place, robots="caller") as frontier:
        told(frontier, ["https://a.example/"])
        told(frontier, [None])
        opened(place)
    log = next(place.glob("log-*.seg"))
    log.write_bytes(b"x" * log.stat().st_size)
    opened(place)
    try:
        outrider.normalize("mailto:me")
    except InvalidUrlError as error:
        print("no URL of the web:", error)
