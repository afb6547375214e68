"""The command line itself: commands, help, exit codes, and a reference that cannot go stale."""

from __future__ import annotations

import pytest

from outrider.cli import main as cli
from outrider.cli.reference import reference
from outrider.crawl.options import SETTINGS
from outrider.errors import DamagedStoreError, SettingsError, StoreFullError, StoreInUseError


def test_the_reference_is_what_the_commands_say(project):
    """`python -m outrider.cli.reference > docs/cli.md` makes it anew."""
    assert (project / "docs" / "cli.md").read_text() == reference()


def test_there_are_exactly_the_commands_that_do_something():
    looks = ["explain", "hosts", "status", "urls", "why-idle"]
    assert sorted(
        ["crawl", "export", "import", *looks, "repair", "resume", "retry", "sim", "url", "verify", "version"]
    ) == sorted(cli.outrider.commands)


def test_every_setting_is_an_option_of_crawl():
    options = {option.name for option in cli.outrider.commands["crawl"].params}
    assert set(SETTINGS) | {"seeds"} == options


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SettingsError("x"), 2),
        (DamagedStoreError("x"), 5),
        (StoreInUseError("x"), 6),
        (StoreFullError("x"), 7),
        (KeyboardInterrupt(), 4),
        (ValueError("x"), 1),
    ],
)
def test_what_goes_wrong_becomes_its_exit_code(monkeypatch, capsys, error, code):
    def fail(*_args, **_more):
        raise error

    monkeypatch.setattr(cli.outrider, "main", fail)
    assert code == cli.run(["version"])
    assert 1 == capsys.readouterr().err.count("\n")


def test_a_bug_is_told_with_what_to_report(monkeypatch, capsys):
    def fail(*_args, **_more):
        raise ValueError("\x1b[2Jboo")

    monkeypatch.delenv("OUTRIDER_DEBUG", raising=False)
    monkeypatch.setattr(cli.outrider, "main", fail)
    cli.run(["version"])
    told = capsys.readouterr().err
    assert "this is a bug in Outrider" in told
    assert "\x1b" not in told


def test_help_ends_well(capsys):
    assert 0 == cli.run(["--help"])
    assert "crawl" in capsys.readouterr().out
