"""Help of the commands: options by topic, examples, commands by purpose, and near names for a misspelt command.

An option has its heading (`topic`) where it is declared. Options without a topic are listed first.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

HELP_COLUMNS = 80
_SENTENCE_MAX = 1_000  # characters; sentences of help are shorter
OTHER = "Other options"

Examples = Sequence[tuple[str, str]]
"""Command lines, each with its purpose."""


class TopicOption(click.Option):
    """An option with the heading of its group, and the words that a shell completes for its value."""

    def __init__(self, *names: Any, topic: str = "", choices: Sequence[str] = (), path: bool = False, **more: Any):
        super().__init__(*names, **more)
        self.topic, self.choices, self.path = topic, choices, path

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        words = completed(self.choices, incomplete)
        return (
            [*words, CompletionItem(incomplete, type="file")]
            if self.path
            else words or super().shell_complete(ctx, incomplete)
        )


def completed(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Returns the words that begin as typed."""
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


class HelpfulCommand(click.Command):
    """A command whose help has its options by topic, and its examples."""

    def __init__(self, *names: Any, examples: Examples = (), **more: Any) -> None:
        super().__init__(*names, **more)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes each topic as a section, in the order of the first option of each."""
        sections: dict[str, list[tuple[str, str]]] = {}
        last: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is None:
                continue  # arguments are in the usage line
            if "--help" in parameter.opts:
                last.append(record)
            else:
                sections.setdefault(getattr(parameter, "topic", ""), []).append(record)
        plain = sections.pop("", [])
        sections = {"Options": plain + last, **sections} if plain or not sections else {**sections, OTHER: last}
        for topic, records in sections.items():
            with formatter.section(topic):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples, then the epilog."""
        if self.examples:
            with formatter.section("Examples"):
                for line, purpose in self.examples:
                    formatter.write_text(f"# {purpose}")
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)


class HelpfulGroup(click.Group):
    """A group that lists its commands by purpose, and names the nearest command for a misspelt one."""

    command_class = HelpfulCommand

    def __init__(self, *names: Any, purposes: Sequence[tuple[str, Sequence[str]]] = (), **more: Any) -> None:
        super().__init__(*names, **more)
        self.purposes = purposes

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes each command with the whole first sentence of its help: click would cut it at the width of a line."""
        for heading, names in self.purposes or (("Commands", sorted(self.commands)),):
            with formatter.section(heading):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(limit=_SENTENCE_MAX)) for name in names]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises UsageError with the name as typed and the nearest one."""
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            near = difflib.get_close_matches(name, list(self.commands), 1)
            way = f"did you mean `{ctx.command_path} {near[0]}`?" if near else f"`{ctx.command_path} --help` lists them"
            raise click.UsageError(f"no command {name!r}: {way}", ctx)
        return super().resolve_command(ctx, args)
