"""Help: groups of options, defaults, examples, purposes, completion, and 80 columns."""

from __future__ import annotations

import click
import pytest
from click.shell_completion import ShellComplete

from outrider.cli import main as cli
from outrider.cli.reference import commands_of
from outrider.crawl.setup.options import SETTINGS, OptionTopic, flag_of

COMMANDS = sorted(name for name, _ in commands_of("", cli.outrider))


def _help(capsys, *words: str) -> str:
    assert 0 == cli.run([*words, "--help"])
    return capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns_and_is_complete(capsys, name):
    told = _help(capsys, *name.split())
    assert 80 >= max(map(len, told.splitlines()))
    assert not any(line.endswith((" ...", "..")) for line in told.partition("\n\n")[2].splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_each_flag_with_a_value_shows_its_default(name):
    command = dict(commands_of("", cli.outrider))[name]
    with click.Context(command) as context:
        for option in command.params:
            if isinstance(option, click.Option) and not option.is_flag and not option.required:
                _, told = option.get_help_record(context)
                assert "[default:" in told or "Without it:" in told or option.name == "directory", option.name


def test_help_of_crawl_has_its_options_by_topic_and_three_examples(capsys):
    told = _help(capsys, "crawl")
    places = [told.index(f"\n{topic}:\n") for topic in OptionTopic]
    assert sorted(places) == places
    assert 3 <= told.partition("\nExamples:\n")[2].count("\n  outrider ")
    for topic, start, end in zip(OptionTopic, places, [*places[1:], len(told)], strict=True):
        names = [name for name, setting in SETTINGS.items() if setting.topic is topic and not setting.file_only]
        assert all(flag_of(name) in told[start:end] for name in names)


def test_every_command_has_a_purpose(capsys):
    listed = [name for _, names in cli.outrider.purposes for name in names]
    assert sorted(listed) == sorted(cli.outrider.commands)
    assert "\nCheck and repair:\n" in _help(capsys)


@pytest.mark.parametrize("words", [[], ["url"], ["robots"], ["sim"]])
def test_a_command_group_without_a_command_prints_its_help_with_line_breaks(capsys, words):
    assert 2 == cli.run(words)
    told = capsys.readouterr().err
    assert told.startswith("Usage: outrider")
    assert told.count("\n") > 5


@pytest.mark.parametrize(
    ("words", "typed", "expected"),
    [
        (["crawl", "--scope"], "d", ["domain"]),
        (["crawl", "--copies"], "", ["last", "drop"]),
        (["crawl", "--progress"], "b", ["bar"]),
        (["crawl", "--priority"], "w", ["weighted"]),
        (["host", "DIR", "example.org"], "re", ["resume", "recheck"]),
        (["urls", "DIR", "--state"], "pa", ["parked"]),
    ],
)
def test_a_shell_completes_values(words, typed, expected):
    found = ShellComplete(cli.outrider, {}, "outrider", "_OUTRIDER_COMPLETE").get_completions(words, typed)
    assert expected == [item.value for item in found]


def test_settings_and_the_reference_have_the_same_topics(capsys, project):
    assert 0 == cli.run(["settings", "--explain"])
    told, page = capsys.readouterr().out, (project / "docs" / "cli.md").read_text()
    assert all(f"# {topic}\n" in told and f"### {topic}\n" in page for topic in OptionTopic)
