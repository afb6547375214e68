"""The command `settings`: the value of every setting, its source and its meaning; and the flags made from the rows."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from outrider.cli.help import HelpfulCommand, TopicOption
from outrider.cli.layout import machine_text
from outrider.crawl.output.terminal import safe
from outrider.crawl.setup.options import (
    SETTINGS,
    SETTINGS_FILE,
    CrawlOptions,
    default_of,
    explained,
    flag_of,
    hidden,
    typed_text,
    value_text,
)

Command = TypeVar("Command", bound=Callable[..., Any])

FLAG, DEFAULT = "flag", "default"


def default_shown(name: str) -> str:
    """Returns the default in brackets for a flag's help."""
    value = default_of(name)
    if isinstance(value, bool):
        return f"  [default: {'yes' if value else 'no'}]"
    if name == "output":
        return ""  # the meaning contains it
    return f"  [default: {'none' if value is None or value == () else typed_text(value)}]"


def setting_options(*left_out: str) -> Callable[[Command], Command]:
    """Adds an option for every setting of a crawl. Values stay text, because the settings check them themselves."""

    def decorate(command: Command) -> Command:
        for name, setting in reversed(SETTINGS.items()):
            if name in left_out or setting.file_only:
                continue
            flag = flag_of(name)
            text = setting.meaning + default_shown(name)
            if setting.switch:
                off = setting.off or f"no-{flag[2:]}"
                option = click.option(
                    f"{flag}/--{off}", name, cls=TopicOption, topic=setting.topic, default=None, help=text
                )
            else:
                names = (setting.short, flag) if setting.short else (flag,)
                option = click.option(
                    *names,
                    name,
                    cls=TopicOption,
                    topic=setting.topic,
                    choices=setting.choices,
                    path=setting.path,
                    default=None,
                    multiple=setting.many,
                    metavar=setting.metavar,
                    help=text,
                )
            command = option(command)
        return command

    return decorate


def typed_flags(flags: dict[str, Any]) -> dict[str, object]:
    """Returns the flags that were typed."""
    return {name: value for name, value in flags.items() if value is not None and value != ()}


def asked_twice(flags: dict[str, object]) -> dict[str, object]:
    """Adds the confirmation for --ignore-robots to the flags, if a user at a terminal confirms it now."""
    stdin = sys.stdin
    if flags.get("obey_robots") is not False or flags.get("own_sites") or stdin is None or not stdin.isatty():
        return flags
    own = click.confirm("robots.txt will be ignored. Are all sites of this crawl your own?", default=False, err=True)
    return {**flags, "own_sites": own}


@click.command(cls=HelpfulCommand)
@click.argument("directory", metavar="[DIR]", required=False)
@click.option("--explain", "at_length", is_flag=True, help="Also show the source and the meaning of each value.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@setting_options("output", "anew")
def settings(directory: str | None, at_length: bool, as_json: bool, **flags: Any) -> int:
    """Print the settings of the crawl in DIR, or of a new crawl.

    A flag overrides an OUTRIDER_… variable. A variable overrides DIR/outrider.toml, and that file overrides the
    default. Values of header fields and credentials are hidden.
    """
    from outrider.crawl.setup.directory import kept_settings
    from outrider.crawl.setup.options import SettingsFile, from_environment

    path = os.path.abspath(os.path.expanduser(directory)) if directory is not None else ""
    kept = kept_settings(path) if path else SettingsFile({})
    options, sources = explained(typed_flags(flags), from_environment(os.environ), kept.options, path)
    options = hidden(options)
    rows = {name: _source(name, sources) for name in SETTINGS if name != "output" and not SETTINGS[name].once}
    if as_json:
        told = {
            name: {"value": getattr(options, name), "source": source, "meaning": SETTINGS[name].meaning}
            for name, source in rows.items()
        }
        click.echo(machine_text(told))
        return 0
    for line in _lines(options, rows, at_length):
        click.echo(safe(line))
    return 0


def _source(name: str, sources: dict[str, str]) -> str:
    source = sources.get(name)
    if source is None:
        return DEFAULT
    return os.path.relpath(source) if os.path.basename(source) == SETTINGS_FILE else source or FLAG


def _lines(options: CrawlOptions, rows: dict[str, str], at_length: bool) -> Iterator[str]:
    topic = None
    for name, source in rows.items():
        if at_length and SETTINGS[name].topic is not topic:
            topic = SETTINGS[name].topic
            yield f"# {topic}"
        text = value_text(getattr(options, name)).splitlines()
        yield f"{name} = {' '.join(part.strip() for part in text)}"
        if at_length:
            setting = SETTINGS[name]
            yield f"    from   {source}"
            yield f"    means  {setting.meaning}"
            yield f"    takes  {setting.accepted}"


@click.command(
    cls=HelpfulCommand,
    examples=(
        ("mkdir -p ~/.local/share/bash-completion/completions", "For bash, make the folder once"),
        ("outrider completion bash > ~/.local/share/bash-completion/completions/outrider", "then save the script"),
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the script that completes commands, options and their values in a shell.

    Save its output as a file and open a new shell. bash: ~/.local/share/bash-completion/completions/outrider. zsh:
    _outrider in a folder of $fpath. fish: ~/.config/fish/completions/outrider.fish.
    """
    click.echo(completion_text(shell), nl=False)
    return 0


def completion_text(shell: str) -> str:
    """Returns the script that completes the commands in a shell. It runs the command, so it is never out of date."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    # For bash a check in the class requests its version; the script alone needs no shell.
    variables = made(click.Command("outrider"), {}, "outrider", "_OUTRIDER_COMPLETE").source_vars()
    return f"{made.source_template % variables}\n"
