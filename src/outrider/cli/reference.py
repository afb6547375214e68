"""docs/cli.md, made from the commands themselves: `python -m outrider.cli.reference > docs/cli.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from outrider.cli.main import EXIT_CODES, outrider
from outrider.cli.settings import flag_of
from outrider.crawl.options import SETTINGS, default_of, typed_text

WIDTH = 100


def reference() -> str:
    """The whole page, in Markdown."""
    parts = ["# The command line", "", "Made from `outrider --help` by `python -m outrider.cli.reference`.", ""]
    for name, command in commands_of("", outrider):
        shown = f"outrider {name}".strip()
        names = ["-h", "--help"]
        context = click.Context(
            command, info_name=shown, max_content_width=WIDTH, terminal_width=WIDTH, help_option_names=names
        )
        parts += [f"## {shown}", "", "```text", command.get_help(context), "```", ""]
    parts += ["## Exit codes", "", "| code | means |", "|---|---|"]
    parts += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES]
    parts += ["", "## Settings", "", "Flags come before `OUTRIDER_…` variables, those before `DIR/outrider.toml`."]
    parts += ["A variable holds a list with spaces between its values. Header fields and credentials may hold spaces"]
    parts += ["themselves: each stands on a line of its own there.", ""]
    parts += ["| flag | variable | in outrider.toml | takes | default | meaning |", "|---|---|---|---|---|---|"]
    for name, setting in SETTINGS.items():
        cells = [
            f"`{flag_of(name)}`" if not setting.file_only else "",
            f"`OUTRIDER_{name.upper()}`" if not setting.file_only else "",
            f"`{name}`" if name != "output" and not setting.once else "",
            setting.accepted.replace("|", "\\|"),
            typed_text(default_of(name)),
            setting.meaning,
        ]
        parts.append("| " + " | ".join(cells) + " |")
    return "\n".join(line.rstrip() for line in "\n".join(parts).splitlines()) + "\n"


def commands_of(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and those below it, each with the words that call it."""
    yield name, command
    if isinstance(command, click.Group):
        for below, subcommand in command.commands.items():
            yield from commands_of(f"{name} {below}".strip(), subcommand)


if __name__ == "__main__":
    sys.stdout.write(reference())
