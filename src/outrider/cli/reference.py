"""docs/cli.md, made from the commands themselves: `python -m outrider.cli.reference > docs/cli.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from outrider.cli.main import EXIT_CODES, outrider
from outrider.crawl.setup.options import SETTINGS, default_of, flag_of, typed_text

WIDTH = 80  # of a terminal, as in `outrider --help`


def reference() -> str:
    """Returns the whole page, in Markdown."""
    parts = ["# The command line", "", "Made from `outrider --help` by `python -m outrider.cli.reference`.", ""]
    parts += ["Your shell completes commands, options and their values once its script is installed. For bash:", ""]
    parts += ["```text", "mkdir -p ~/.local/share/bash-completion/completions"]
    parts += ["outrider completion bash > ~/.local/share/bash-completion/completions/outrider", "```", ""]
    parts += ["[`outrider completion`](#outrider-completion) has the places for zsh and fish.", ""]
    for name, command in commands_of("", outrider):
        shown = f"outrider {name}".strip()
        names = ["-h", "--help"]
        context = click.Context(
            command, info_name=shown, max_content_width=WIDTH, terminal_width=WIDTH, help_option_names=names
        )
        parts += [f"## {shown}", "", "```text", command.get_help(context), "```", ""]
    parts += ["## Exit codes", "", "| code | means |", "|---|---|"]
    parts += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES]
    parts += ["", "## Settings", "", "Flags override `OUTRIDER_…` variables, and these override `DIR/outrider.toml`."]
    parts += ["In a variable, spaces separate the values of a list. Header fields and credentials may contain"]
    parts += ["spaces, so a variable has one on each line."]
    head = ["| flag | variable | in outrider.toml | values | default | meaning |", "|---|---|---|---|---|---|"]
    topic = None
    for name, setting in SETTINGS.items():
        if setting.topic is not topic:
            topic = setting.topic
            parts += ["", f"### {topic}", "", *head]
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
    """Yields a command and those below it, each with the words that call it."""
    yield name, command
    if isinstance(command, click.Group):
        for below, subcommand in command.commands.items():
            yield from commands_of(f"{name} {below}".strip(), subcommand)


if __name__ == "__main__":
    sys.stdout.write(reference())
