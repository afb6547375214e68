"""docs/api.md, made from the docstrings of what users import, for the site: `python scripts/api.py > docs/api.md`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin

ROOMS = ("url", "robots", "page", "fetch", "archive")
"""The rooms whose `__all__` is public."""
NOUNS = (
    "Lease",
    "LeaseBatch",
    "OutcomeBatch",
    "Report",
    "Explanation",
    "Ranking",
    "PriorityPart",
    "ArchivePlace",
    "Idle",
    "UrlStatus",
    "HostStatus",
    "QueueStatus",
)
"""The arguments and results of the verbs, from `outrider.journey`."""
SIGNATURE_WIDTH_MAX = 72
"""Columns of a signature in one line: wider lines do not fit next to the navigation."""
MADE_BY_DATACLASS = re.compile(r"^\w+\(.*\)$", re.DOTALL)


def page() -> str:
    """Returns the whole page, in Markdown."""
    outrider = import_module("outrider")
    parts = [
        "# Python reference",
        "",
        "Made from the docstrings by `scripts/api.py`. Instants are microseconds since 1970, times seconds.",
    ]
    parts += ["", "## outrider", ""]
    for name in outrider.__all__:
        parts += entry(f"outrider.{name}", getattr(outrider, name), "### ")
    for name in ("Frontier", "AsyncFrontier"):
        of = getattr(outrider, name)
        parts += [f"## {name}: every method", ""]
        if name == "AsyncFrontier":
            parts += ["The methods of `Frontier`, of the same meaning; the ones shown with `await` may wait.", ""]
        for method in public(of):
            parts += entry(f"{name}.{method}", inspect.getattr_static(of, method), "### ", like=outrider.Frontier)
    parts += ["## What the verbs give and take", ""]
    journey = import_module("outrider.journey")
    for name in NOUNS:
        parts += entry(f"outrider.journey.{name}", getattr(journey, name), "### ")
    priority = import_module("outrider.frontier.priority")
    for name in ("weighted", "by_domain_page_freshness"):
        parts += entry(f"outrider.frontier.priority.{name}", getattr(priority, name), "### ")
    for room in ROOMS:
        module = import_module(f"outrider.{room}")
        parts += [f"## outrider.{room}", "", prose(module.__doc__), ""]
        for name in module.__all__:
            parts += entry(f"outrider.{room}.{name}", getattr(module, name), "### ")
    parts += ["## Errors", "", *errors()]
    return "\n".join(parts).rstrip() + "\n"


def public(of: type) -> list[str]:
    """Returns the names of a class that users may call."""
    return [name for name in dir(of) if not name.startswith("_")]


def entry(name: str, what: Any, heading: str, like: type | None = None) -> Iterator[str]:
    """Returns a heading, the call, and the docstring."""
    if isinstance(what, ModuleType):  # `outrider.crawl` is both, the function and its room
        what = getattr(what, name.rpartition(".")[2])
    of = (
        what.__func__
        if isinstance(what, classmethod | staticmethod)
        else what.fget
        if isinstance(what, property)
        else what
    )
    yield f"{heading}{name}"
    yield ""
    short = name.rpartition(".")[2]
    if callable(of) and not hasattr(of, "open"):  # a frontier is made by its `open`
        yield "```python"
        yield f"{'await ' if inspect.iscoroutinefunction(of) else ''}{short}{signature(of, what)}"
        yield "```"
        yield ""
    elif not callable(of) and not isinstance(what, property):
        yield f"A {type(of).__name__}."
        yield ""
    text = of.__doc__ if callable(of) or isinstance(what, property) else None
    if not text and like is not None and hasattr(like, short):
        text = getattr(like, short).__doc__
    if text and not (inspect.isclass(of) and MADE_BY_DATACLASS.match(text)):
        yield prose(text)
        yield ""


def signature(of: Any, what: Any) -> str:
    """Returns the arguments as written, without `self`. A default that is an object becomes three dots."""
    if isinstance(what, property):
        return ""
    try:
        found = inspect.signature(of)
    except (TypeError, ValueError):
        return "(…)"
    told, before = [], inspect.Parameter.POSITIONAL_OR_KEYWORD
    for one in found.parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and before not in (one.KEYWORD_ONLY, one.VAR_POSITIONAL):
            told.append("*")
        before = one.kind
        text = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "") + one.name
        if one.annotation is not one.empty:
            text += f": {annotation(one.annotation)}"
        if one.default is not one.empty:
            plain = one.default is None or isinstance(one.default, bool | int | float | str | bytes | tuple)
            text += f" = {one.default!r}" if plain and not isinstance(one.default, Enum) else " = …"
        told.append(text)
    answer = found.return_annotation
    gives = "" if answer in (found.empty, None, "None") or isinstance(of, type) else f" -> {annotation(answer)}"
    line = f"({', '.join(told)}){gives}"
    if len(line) <= SIGNATURE_WIDTH_MAX:
        return line
    return "(\n" + "".join(f"    {one},\n" for one in told) + f"){gives}"  # a line for each argument


def annotation(what: Any) -> str:
    """Returns a type as it is written in the source."""
    if get_origin(what) is Annotated:  # what is added is for the checks, not for readers
        what = get_args(what)[0]
    text = what if isinstance(what, str) else getattr(what, "__name__", None) or repr(what)
    if not isinstance(what, str | type):
        text = repr(what)
    return re.sub(r"\b(?:outrider|collections|typing)(?:\.\w+)*\.(?=\w)", "", text)


def prose(text: str | None) -> str:
    """A docstring as Markdown: its drawings and tables, which are indented, are code."""
    lines = inspect.cleandoc(text or "").splitlines()
    return "\n".join(line.replace("<", "&lt;") if not line.startswith("    ") else line for line in lines)


def errors() -> Iterator[str]:
    """A table of the errors: their names, exit codes and meaning."""
    module = import_module("outrider.errors")
    yield "| error | exit code | means |"
    yield "|---|---|---|"
    for name, kind in vars(module).items():
        if inspect.isclass(kind) and issubclass(kind, module.OutriderError):
            words = " ".join((kind.__doc__ or "").split()).replace("|", "\\|")
            yield f"| `{name}` | {kind.exit_code} | {words} |"


if __name__ == "__main__":
    sys.stdout.write(page())
