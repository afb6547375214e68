"""The form of answers: tables and named values, or JSON. Text from the web is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from outrider.crawl.output.terminal import safe
from outrider.crawl.setup.instants import is_instant, moment

_GAP = "  "


def machine_text(value: object) -> str:
    """Returns one line of JSON in ASCII. A delete character, which JSON allows, is escaped."""
    return json.dumps(value, ensure_ascii=True).replace("\x7f", "\\u007f")


def shown(name: str, value: object) -> str:
    """Returns one value as text: instants as dates, lengths of time with their unit, numbers with separators."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and is_instant(name):
        return moment(value)
    if isinstance(value, int):
        return f"{value:,}" if name != "token" else str(value)
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".") + (" s" if name.endswith("seconds") else "")
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return ", ".join(shown(name, one) for one in value) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown(str(key), one)}" for key, one in value.items()) or "-"
    return safe(value)


def table(rows: Sequence[Mapping[str, object]], columns: Mapping[str, str]) -> Iterator[str]:
    """Yields the rows below their heads, aligned: numbers to the right, the last column without padding.

    columns: the field of each column → its head.
    """
    cells = [[shown(name, row.get(name)) for name in columns] for row in rows]
    right = [
        all(isinstance(row.get(name), int | float | None) for row in rows) and not is_instant(name) for name in columns
    ]
    heads = list(columns.values())
    widths = [max(len(line[place]) for line in [heads, *cells]) for place in range(len(heads))]
    for line in [heads, *cells]:
        parts = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        yield _GAP.join(parts).rstrip()


def named(values: Mapping[str, object], indent: str = "") -> Iterator[str]:
    """Yields name and value, one line each. A value with parts is below its name, a list of rows is a table."""
    width = max((len(str(name)) for name in values), default=0)
    for name, value in values.items():
        label = safe(str(name).replace("_", " "))
        if isinstance(value, Mapping) and value:
            yield f"{indent}{label}"
            yield from named({str(key): one for key, one in value.items()}, indent + "  ")
        elif _is_rows(value):
            yield f"{indent}{label}"
            assert isinstance(value, Sequence)
            columns = {key: key.replace("_", " ") for row in value for key in row}
            yield from (f"{indent}  {line}" for line in table(value, columns))
        else:
            yield f"{indent}{label:<{width}}  {shown(str(name), value)}"


def preference_lines(preferences: Mapping[str, Any] | None) -> Iterator[str]:
    """Yields what a site says about the uses of a page: the strictest answers, and each statement with its source."""
    if not preferences:
        return
    answers = ", ".join(f"{use}={answer}" for use, answer in preferences["uses"].items())
    yield from named({"uses": answers or "no answer"})
    for one in preferences["said"]:
        place = f"{one['source']}, line {one['line']}" if one.get("line") else one["source"]
        fault = f" (says nothing: {one['fault']})" if one.get("fault") else ""
        policy = f" (policy {one['policy']})" if one.get("policy") else ""
        yield from named({"stated by": f"{place}: {one['text']}{policy}{fault}"})


def _is_rows(value: object) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str | bytes)
        and bool(value)
        and all(isinstance(row, Mapping) for row in value)
    )
