"""Groups as people write them: `domain`, `address`, or files of tables (docs/groups.md); read here, where there are
paths."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from outrider.errors import SettingsError
from outrider.frontier.policy.grouping import Grouping
from outrider.limits import GROUPING_FILE_BYTES_MAX

GROUP_WORDS = ("domain", "address")


def read_groups(told: Iterable[str]) -> Grouping | None:
    """The grouping that words and files make together; None for no group. Raises SettingsError naming the file."""
    parts: list[str | Mapping[str, Any]] = []
    for text in told:
        if text in GROUP_WORDS:
            parts.append(text)
            continue
        parts.append(_table(text))
        _in_file(text, parts[-1])  # alone first, so that the error for a wrong file names the file
    return Grouping.of(parts)


def _table(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            octets = file.read(GROUPING_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"{path!r} cannot be read ({error.strerror})") from None
    if len(octets) > GROUPING_FILE_BYTES_MAX:
        raise SettingsError(f"{path!r} is larger than {GROUPING_FILE_BYTES_MAX} bytes")
    try:
        return tomllib.loads(octets.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path!r} is no TOML: {error}") from None


def _in_file(path: str, table: str | Mapping[str, Any]) -> None:
    try:
        Grouping.of(table)
    except SettingsError as error:
        raise SettingsError(f"{path!r}: {error.facts}") from None
