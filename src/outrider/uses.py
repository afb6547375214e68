"""What a site says about the uses of a page, as values: statements by source, and the strictest answer by use.

`robots/preferences.py` makes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from outrider.errors import SettingsError

Use = Literal["train-ai", "ai-use", "search"]
USES: Final[tuple[Use, ...]] = ("train-ai", "ai-use", "search")
"""The categories of draft-ietf-aipref-vocab-08 (14 September 2026). Labels of older drafts are unknown."""
Uses = dict[str, str]
"""The answer by use: "y" or "n". A use without an answer is left out: it is unknown."""
UseLine = tuple[int, str, str]
"""A line of a robots.txt about uses: its number from 1, the name of its field in lower case, its value as written."""
USE_UNKNOWN: Final = ("allow", "refuse")
"""What a use without an answer is for `--use`."""
USE_REFUSED: Final = "use"
"""The reason of a page that is not requested or not kept, because its site refuses a use of `--use`."""


def uses_of(value: object) -> tuple[Use, ...]:
    """Returns the uses in texts, which are separated by commas, each once. Raises SettingsError."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise SettingsError(f"use {value!r:.80}: pass names of uses as texts")
    named = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    for name in named:
        if name not in USES:
            raise SettingsError(f"unknown use {name!r:.80}: use {', '.join(USES[:-1])} or {USES[-1]}")
    return tuple(use for use in USES if use in named)


class Statement(msgspec.Struct, frozen=True, omit_defaults=True):
    """One statement of a site. source: where it was found, a name of `SOURCES` in robots/preferences.py. line: its
    number in the robots.txt. text: as written. uses: what it stands for. policy: the URL that TDMRep names. fault: why
    the text says nothing."""

    source: str
    text: str
    uses: Uses = {}
    line: int | None = None
    policy: str | None = None
    fault: str | None = None


class Preferences(msgspec.Struct, frozen=True):
    """What a site says about the uses of one page: the strictest answer by use, and all statements."""

    uses: Uses
    said: list[Statement]

    def refused(self, wanted: Iterable[str], *, unknown: bool = False) -> str | None:
        """Returns the first of these uses that the site refuses, None if it refuses none of them. unknown: a use
        without an answer is refused, too."""
        refusing = ("n", None) if unknown else ("n",)
        return next((use for use in wanted if self.uses.get(use) in refusing), None)


NOTHING_SAID: Final = Preferences({}, [])
