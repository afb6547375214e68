"""Patterns that people write, as RE2 expressions: linear time, bounded memory, errors in words."""

from __future__ import annotations

from typing import Any

from outrider.errors import SettingsError
from outrider.limits import PATTERN_CHARACTERS_MAX
from outrider.url.refusal import shown

_MEMORY_BYTES = 8 << 20  # RE2's own default: its automaton never grows beyond it, however hostile the text


def compiled(what: str, pattern: str, *, groups: bool) -> Any:
    """The expression for texts as bytes, with or without the groups of a match.

    Raises SettingsError naming `what` it is ("exclude pattern"), the pattern and the reason.
    """
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise SettingsError(f"{what} {shown(pattern)} is longer than {PATTERN_CHARACTERS_MAX} characters")
    try:
        import re2  # here, not above: it has no wheel for musl, where everything but patterns works without it
    except ImportError:
        raise SettingsError(
            f"{what} {shown(pattern)}: patterns take google-re2, which is not installed; `pip install google-re2` "
            "where a C++ compiler is and the headers of RE2 and Abseil are"
        ) from None
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    options.never_capture = not groups
    try:
        return re2.compile(pattern.encode(), options)
    except UnicodeEncodeError:
        raise SettingsError(f"{what} {shown(pattern)}: it contains half a character") from None
    except re2.error as error:
        raise SettingsError(f"{what} {shown(pattern)}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    fact = error.args[0] if error.args else ""
    text = fact.decode("utf-8", "replace") if isinstance(fact, bytes) else str(fact)
    return text or "it is not an RE2 expression (RE2 has no look-around and no back references)"
