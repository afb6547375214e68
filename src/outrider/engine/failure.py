"""The error that stopped a frontier, for the next caller: only a replay can find what was half done."""

from __future__ import annotations

import threading

from outrider.errors import InterruptedCallError, LostLockError, StoreError, StoreFailedError, StoreStoppedError


class Failure:
    """Nothing yet, or the first exception that left the tables uncertain."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._within = ""
        self._told = True  # whether a caller was
        self._lock = threading.Lock()

    def stop(self, error: BaseException, within: str) -> None:
        """Records an exception inside a verb that its caller receives as it is."""
        self._first(error, within, told=True)

    def stop_beside(self, error: BaseException, within: str) -> None:
        """Records an exception that no caller received: the next caller gets it."""
        self._first(error, within, told=False)

    def _first(self, error: BaseException, within: str, *, told: bool) -> None:
        """Keeps the first failure: a caller and a second thread may fail at once, on one disk."""
        with self._lock:
            if self.error is None:
                self._within, self._told, self.error = within, told, error

    def check(self) -> None:
        """Raises StoreFailedError for a frontier that was stopped: by the disk, or (StoreStoppedError) otherwise."""
        told = self.next_error()
        if told is not None:
            raise told from self.error

    def next_error(self) -> StoreFailedError | None:
        """The error that `check` raises."""
        if self.error is None:
            return None
        self._told = True
        return _stopped_error(self.error, self._within)

    def tell(self) -> None:
        """Raises, once, an error that no caller has met yet."""
        if not self._told:
            if isinstance(self.error, StoreFailedError):
                self._told = True
                raise self.error
            self.check()


def _stopped_error(error: BaseException, within: str) -> StoreFailedError:
    if isinstance(error, StoreFailedError):
        kind = LostLockError if isinstance(error, LostLockError) else StoreFailedError
        return kind(f"an earlier call failed ({error.facts}); open the store again")
    if isinstance(error, StoreError):
        return StoreStoppedError(f"inside {within}: {error}", exit_code=error.exit_code)
    what = type(error).__name__ + (f": {error}" if str(error) else "")
    if not isinstance(error, Exception):
        return StoreStoppedError(f"an interruption inside {within} ({what})", exit_code=InterruptedCallError.exit_code)
    if isinstance(error, MemoryError):
        return StoreStoppedError(f"no memory was left inside {within} ({what})")
    return StoreStoppedError(f"a bug inside {within} ({what}); please report it")
