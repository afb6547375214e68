"""The tree of errors: the first paragraph of each class's docstring begins its message, the argument adds the facts and
the way out."""

from __future__ import annotations


class OutriderError(Exception):
    """Outrider could not do this."""

    retryable = False
    exit_code = 1

    def __init__(self, facts: str = "") -> None:
        self.facts = facts
        super().__init__(facts)

    def __str__(self) -> str:
        first = " ".join((type(self).__doc__ or "").split("\n\n")[0].split())
        return f"{first.rstrip('.')}: {self.facts}" if self.facts else first


class SettingsError(OutriderError, ValueError):
    """Refused.

    A setting or argument is missing or cannot be used; the facts name it, its value, and what would be accepted.
    """

    exit_code = 2


class NestedCallError(SettingsError):
    """A function that the frontier called has called the frontier during that call; nothing was changed."""


class PagesNeedErrandsError(SettingsError):
    """Pages wait for their robots.txt, and this call leases pages alone.

    Use `lease(…, errands=True)`, fetch the leases of kind `robots` and report them with `lease.robots(status, body)`.
    If your program checks robots.txt itself, open the frontier with `robots="caller"`.
    """

    def __init__(self, facts: str = "") -> None:
        super().__init__(
            facts
            or "use lease(…, errands=True) and report leases of kind robots with lease.robots(status, body), or open"
            ' the frontier with robots="caller"'
        )


class NamedPathError(SettingsError):
    """Wrong path.

    A file or directory that was named cannot be used.
    """


class NoCrawlError(NamedPathError):
    """There is no crawl here."""


class InvalidUrlError(OutriderError, ValueError):
    """Wrong URL.

    This is not a URL that can be crawled.
    """

    exit_code = 2

    def __init__(self, facts: str = "", *, url: str = "", reason: str = "", position: int | None = None) -> None:
        super().__init__(facts)
        self.url = url
        """The text as it was given."""
        self.reason = reason
        """The fault in words; "" if it is unknown."""
        self.position = position
        """The position in `url` (from 0) of the wrong character, if it is one character."""


class SelectorError(OutriderError, ValueError):
    """Wrong selector.

    A page cannot be searched with this selector or expression; the facts name it, and what is wrong with it.
    """

    exit_code = 2


class StoreError(OutriderError):
    """The store cannot be used."""

    exit_code = 5


class DamagedStoreError(StoreError):
    """The store is damaged and was left untouched; `outrider repair` keeps what is whole and lists the rest."""


class ForeignStoreError(StoreError):
    """This directory is not a store that this version can open; nothing was changed."""


class NoStoreError(ForeignStoreError):
    """There is no store here."""


class UnknownOutputError(StoreError):
    """The store does not know this output of a crawl; nothing was changed, because opening would cut the output."""


class LostOutputError(StoreError):
    """A file of this crawl was removed while the crawl ran, so the crawl stopped; its frontier has every page."""


class StoreInUseError(StoreError):
    """This store is open elsewhere."""

    exit_code = 6


class StoreFullError(StoreError):
    """The disk is full; everything accepted is safe, and you may repeat the call when there is space again."""

    retryable = True
    exit_code = 7


class TooManyFilesError(StoreFullError):
    """Too many files are open; nothing was changed, and you may repeat the call when there is room for more.

    A lack of room like that of a full disk, and handled in the same way: accepted data is safe, and other calls
    continue.
    """

    exit_code = 5


class StoreFailedError(StoreError):
    """The disk refused a write or a sync, so this store was stopped; open it again and it replays what was
    acknowledged."""

    exit_code = 7


class LostLockError(StoreFailedError):
    """This process has lost the lock of this store, so another one may write here; this one stopped before it did. All
    acknowledged data is in the store."""

    exit_code = 6


class ClaimLostError(StoreFailedError):
    """Another node has claimed this partition, so this node stopped; what it had acknowledged counts."""

    exit_code = 6


class ClaimRefusedError(StoreError):
    """This claim of a partition does not count, because another node appended to its changelog; you may repeat it."""

    retryable = True
    exit_code = 6


class StoreStoppedError(StoreFailedError):
    """A call was interrupted halfway, so this store was stopped; all acknowledged data is safe: open the store again.

    The disk is not the cause: a bug, an interruption (Ctrl-C) or damage happened inside a verb. The error itself was
    raised in that call, and is the cause here.
    """

    exit_code = 1

    def __init__(self, facts: str = "", *, exit_code: int = 1) -> None:
        super().__init__(facts)
        self.exit_code = exit_code


class TransitionError(OutriderError):
    """A call would move a URL between states as no row of its life allows: a fault of the frontier. The call logged
    nothing."""


class InterruptedCallError(OutriderError):
    """The call was interrupted before it was made; nothing was changed, and it may be repeated."""

    retryable = True
    exit_code = 4


class ClosedError(OutriderError):
    """The call was made after the close."""


class UnreachableError(OutriderError):
    """The server or service is out of reach."""

    exit_code = 8


def shown(value: object, characters_max: int = 80) -> str:
    """Returns a value for an error, cut to a number of characters; the name of its class if it cannot be shown."""
    try:
        return repr(value)[:characters_max]
    except Exception:  # noqa: BLE001 - the caller's class may raise anything
        return f"of class {type(value).__name__:.80}"
