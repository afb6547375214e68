"""Writes the manual page and completion scripts of an install: `python -m outrider.cli.manual PREFIX`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import click

from outrider.cli.main import EXIT_CODES, outrider
from outrider.cli.reference import commands_of
from outrider.cli.settings import completion_text
from outrider.crawl.setup.version import version

PAGE = "share/man/man1/outrider.1"
COMPLETIONS = {
    "bash": "share/bash-completion/completions/outrider",
    "zsh": "share/zsh/site-functions/_outrider",
    "fish": "share/fish/vendor_completions.d/outrider.fish",
}
_FILES = (
    ("DIR/outrider.toml", "the settings of the crawl"),
    ("DIR/frontier/", "the store"),
    ("DIR/pages.jsonl", "one line per finished attempt"),
    ("DIR/archive/*.warc.gz", "the answers as received"),
    ("DIR/politeness.jsonl", "one line per request"),
    ("DIR/crawl.log", "what happened"),
    ("DIR/report.html", "the crawl in pictures"),
)


def manual() -> str:
    """Returns the page, for man(7)."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield '.\\" made by python -m outrider.cli.manual'
    yield f'.TH OUTRIDER 1 "" "Outrider {version()}" "User Commands"'
    yield from (".SH NAME", "outrider \\- a polite crawler that survives every crash")
    yield from (
        ".SH SYNOPSIS",
        ".B outrider",
        ".I COMMAND",
        "[\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]...",
        ".SH COMMANDS",
    )
    for name, command in commands_of("", outrider):
        if not name or isinstance(command, click.Group):
            continue
        context = click.Context(command, info_name=f"outrider {name}")
        yield f".SS outrider {name} {_escaped(' '.join(command.collect_usage_pieces(context)))}"
        yield _escaped(" ".join((command.help or "").split()))
        for parameter in command.get_params(context):
            told = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
            if told is not None:
                yield from (".TP", f"\\fB{_escaped(told[0])}\\fR", _escaped(" ".join(told[1].split())))
    yield ".SH EXIT STATUS"
    for code, meaning in EXIT_CODES:
        yield from (".TP", f"\\fB{code}\\fR", _escaped(meaning))
    yield from (
        ".SH ENVIRONMENT",
        "Each option of a crawl has a variable: OUTRIDER_MAX_PAGES for \\-\\-max\\-pages. A flag overrides it.",
    )
    yield ".SH FILES"
    for path, meaning in _FILES:
        yield from (".TP", f"\\fI{_escaped(path)}\\fR", _escaped(meaning))


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text


def files() -> dict[str, str]:
    """Returns the text of each file, by its path below the prefix of an install."""
    return {PAGE: manual(), **{path: completion_text(shell) for shell, path in COMPLETIONS.items()}}


if __name__ == "__main__":
    for path, text in files().items():
        where = os.path.join(sys.argv[1], path)
        os.makedirs(os.path.dirname(where), exist_ok=True)
        with open(where, "w", encoding="utf-8") as file:
            file.write(text)
