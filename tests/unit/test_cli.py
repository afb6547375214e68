"""The command line itself: commands, help, exit codes, and a reference that is always current."""

from __future__ import annotations

import errno
import io
import json
import sys

import pytest

from outrider import Frontier
from outrider.cli import main as cli
from outrider.cli.reference import reference
from outrider.cli.settings import asked_twice
from outrider.crawl.setup.options import SETTINGS, from_environment
from outrider.errors import DamagedStoreError, SettingsError, StoreFullError, StoreInUseError


def test_the_reference_is_the_output_of_the_commands(project):
    """`python -m outrider.cli.reference > docs/cli.md` writes it again."""
    assert (project / "docs" / "cli.md").read_text() == reference()


def test_the_list_of_commands_cuts_no_sentence(capsys):
    assert 0 == cli.run(["--help"])
    listed = capsys.readouterr().out.partition("Crawl:")[2].partition("Exit codes")[0]
    assert "..." not in listed
    assert listed.count("\n  ") >= 26


def test_the_commands_are_exactly_those_with_a_function():
    known = {
        "add",
        "catalog",
        "cluster",
        "completion",
        "crawl",
        "explain",
        "export",
        "duplicates",
        "fetch",
        "host",
        "hosts",
        "identity",
        "import",
        "judge",
        "politeness",
        "replay",
        "repair",
        "resume",
        "retry",
        "robots",
        "serve",
        "settings",
        "show",
        "skipped",
        "sim",
        "status",
        "top",
        "url",
        "urls",
        "verify",
        "version",
        "why-idle",
        "work",
    }
    assert known == set(cli.outrider.commands)


def test_every_setting_is_an_option_of_crawl():
    options = {option.name for option in cli.outrider.commands["crawl"].params}
    flags = {name for name, setting in SETTINGS.items() if not setting.file_only}
    assert flags | {"seeds", "cluster_file", "http", "tls_cert", "tls_key", "tokens", "names", "otlp"} == options


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_completes(capsys, shell):
    assert 0 == cli.run(["completion", shell])
    assert "_OUTRIDER_COMPLETE" in capsys.readouterr().out


def test_settings_names_the_source_of_each_value(tmp_path, monkeypatch, capsys):
    (tmp_path / "outrider.toml").write_text('delay = 3\nconcurrency = 3\nhosts = "names"\n')
    (tmp_path / "names").write_text("")
    monkeypatch.setenv("OUTRIDER_DELAY", "2")
    monkeypatch.chdir(tmp_path)
    assert 0 == cli.run(["settings", ".", "--json", "--max-depth", "4"])
    found = json.loads(capsys.readouterr().out)
    told = {name: (found[name]["value"], found[name]["source"]) for name in ("delay", "concurrency", "max_depth")}
    assert {"delay": (2.0, "OUTRIDER_DELAY"), "concurrency": (3, "outrider.toml"), "max_depth": (4, "flag")} == told
    assert (str(tmp_path / "names"), "default") == (found["hosts"]["value"], found["warc"]["source"])


def test_settings_are_explained_in_words(capsys):
    assert 0 == cli.run(["settings", "--explain"])
    told = capsys.readouterr().out
    assert all(setting.meaning in told for name, setting in SETTINGS.items() if name not in ("output", "anew"))


def test_settings_show_no_value_of_a_header_field(tmp_path, capsys):
    (tmp_path / "outrider.toml").write_text(
        'header = ["X-Key=s3cret"]\n[[host]]\nname = "*"\nheader = ["Auth=s3cret"]\n'
    )
    for more in ([], ["--json"], ["--explain"]):
        assert 0 == cli.run(["settings", str(tmp_path), *more])
        told = capsys.readouterr().out
        assert (True, True, False) == ("X-Key" in told, "Auth" in told, "s3cret" in told)


def test_settings_of_a_faulty_value_are_refused(capsys):
    assert 2 == cli.run(["settings", "--delay", "soon"])
    assert "delay is 'soon'" in capsys.readouterr().err


def test_the_version_is_also_an_option(capsys):
    assert 0 == cli.run(["--version"])
    told = capsys.readouterr().out
    assert 0 == cli.run(["version"])
    assert capsys.readouterr().out == told


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
def test_each_failure_has_its_exit_code(monkeypatch, capsys, error, code):
    def fail(*_args, **_more):
        raise error

    monkeypatch.setattr(cli.outrider, "main", fail)
    assert code == cli.run(["version"])
    assert 1 == capsys.readouterr().err.count("\n")


def test_a_bug_is_reported_with_what_to_send(monkeypatch, capsys):
    def fail(*_args, **_more):
        raise ValueError("\x1b[2Jboo")

    monkeypatch.delenv("OUTRIDER_DEBUG", raising=False)
    monkeypatch.setattr(cli.outrider, "main", fail)
    cli.run(["version"])
    told = capsys.readouterr().err
    assert "this is a bug in Outrider" in told
    assert "\x1b" not in told


def test_help_exits_with_0(capsys):
    assert 0 == cli.run(["--help"])
    assert "crawl" in capsys.readouterr().out


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A folder with a crawl's store, a store that a program keeps, a file, and a folder of something else."""
    monkeypatch.chdir(tmp_path)
    for name in ("crawl/frontier", "store"):
        with Frontier.open(tmp_path / name, robots="caller") as frontier:
            frontier.discover(["https://example.org/a", "https://example.org/b"])
            (lease,) = frontier.lease(1)
            frontier.report([lease.gone(error="timeout")])
    (tmp_path / "file.txt").write_text("nonsense\n")
    (tmp_path / "bad.parquet").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")


A_CRAWL = "name the directory of a crawl"
MISTAKES = [
    ("stauts crawl", 2, "no command 'stauts': did you mean `outrider status`?"),
    ("url normalise http://a.com/", 2, "no command 'normalise': did you mean `outrider url normalize`?"),
    ("harvest", 2, "no command 'harvest': `outrider --help` lists them"),
    ("sim prices", 2, "no command 'prices': `outrider sim --help` lists them"),
    ("crawl http://127.0.0.1/ --delay 5min", 2, "delay is '5min': not a number; use a number from 0"),
    ("crawl http://127.0.0.1/ --scope site", 2, "scope is 'site': "),
    ("crawl http://127.0.0.1/ --on-pages m:f", 2, "No such option '--on-pages'"),
    ("completion tcsh", 2, "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    ("judge --delay long -- true", 2, "'--delay': 'long' is not a valid float"),
    ("crawl", 2, "seeds are missing: name at least one URL"),
    ("crawl https://example.org/ --max-page 9", 2, "No such option '--max-page'"),
    ("crawl https://example.org/ --contact", 2, "requires an argument; `outrider crawl --help`"),
    ("crawl example.org -o new", 2, "did you mean https://example.org/ ?"),
    ("crawl htps://example.org/", 2, "its scheme is 'htps', only http and https"),
    ("crawl https://example.org/ -o new", 2, "--contact you@example.org"),
    ("crawl http://127.0.0.1/ --max-pages many", 2, "max-pages is 'many': not a whole number; use"),
    ("crawl http://127.0.0.1/ --include (", 2, "include is '(': "),
    ("crawl http://127.0.0.1/ --group planets", 2, "group is 'planets': it cannot be read"),
    ("crawl http://127.0.0.1/ --progress bars", 2, "did you mean 'bar'?"),
    ("crawl @seeds.txt", 2, "name a text file with one URL per line"),
    ("crawl @file.txt", 2, "file.txt, line 1: 'nonsense': it has no scheme"),
    ("crawl http://127.0.0.1/ -o file.txt", 2, "file.txt' is not a directory; choose another name with -o"),
    (
        "crawl http://127.0.0.1/ -o other",
        5,
        "other is not a crawl (it contains notes.txt); choose another name with -o",
    ),
    ("crawll", 2, "no command 'crawll': did you mean `outrider crawl`?"),
    ("status new", 2, "outrider: There is no crawl here: new does not exist; "),
    ("hosts file.txt", 2, "outrider: Wrong path: 'file.txt' is not a directory"),
    ("resume file.txt", 2, f"file.txt' is not a directory; {A_CRAWL}"),
    ("import file.txt seeds.jsonl", 2, "outrider: Wrong path: 'seeds.jsonl'"),
    ("resume new", 2, "new does not exist; `outrider crawl URL -o "),
    ("resume crawl", 2, "has no outrider.toml, so the settings"),
    *((f"{command} new", 2, "`outrider crawl URL -o new` begins one") for command in ("status", "why-idle", "hosts")),
    *((f"{command} file.txt", 2, f"not a directory; {A_CRAWL}") for command in ("status", "urls", "verify", "repair")),
    *(
        (f"{command} other", 5, f"(it contains notes.txt); {A_CRAWL}")
        for command in ("status", "hosts", "retry", "repair")
    ),
    ("hosts crawl --jsn", 2, "Did you mean '--json'?"),
    ("hosts crawl --state sleeping", 2, "is not one of 'ready', 'resting', 'blocked', 'empty'"),
    ("hosts crawl --after x", 2, "use the cursor of an earlier list of hosts"),
    ("urls crawl --limit many", 2, "'--limit': 'many' is not a valid integer"),
    ("urls crawl --host no_such.org", 0, "no urls of host no_such.org; `outrider hosts`"),
    ("urls crawl --host a/b", 2, "host 'a/b': it must be a host name as in a URL"),
    ("explain nonsense -o crawl", 2, "it has no scheme; write http:// or https:// before it"),
    ("explain https://example.org/", 2, "Missing option '-o'"),
    ("retry crawl --error timeut", 0, "`outrider urls crawl --state gone` lists"),
    ("export crawl --to out.xls", 2, "use a name that ends in .jsonl, .csv, .parquet"),
    ("export crawl --to new/out.csv", 2, "choose another place"),
    ("import copy out.jsonl", 2, "'out.jsonl' cannot be read (No such file or directory); name a readable file"),
    ("import copy bad.parquet", 2, "use a file that `outrider export` wrote"),
    ("url normalize a.com", 2, "it has no scheme"),
    ("url normalize http://a.com/ --rules agressive", 2, "did you mean aggressive?"),
    ("url key http://a.com/ --by hots", 2, "is not one of 'host', 'domain', 'origin', 'address'"),
    ("sim utilisation --svg new/plot.svg", 2, "choose another place"),
    ("crawl http://127.0.0.1/ --on-page mine", 2, "on-page is 'mine': not a function; use module:function"),
    ("crawl http://127.0.0.1/ --on-page no_such_5473:f", 2, "on-page is 'no_such_5473:f': it cannot be loaded"),
    ("crawl http://127.0.0.1/ --header X", 2, "header: a part of it has no =; use NAME=VALUE"),
    ("crawl http://127.0.0.1/ --exclude (", 2, "exclude is '(': exclude pattern '('"),
    ("crawl http://127.0.0.1/ --include (", 2, "include is '(': include pattern '('"),
    ("crawl http://127.0.0.1/ --timeout first=3", 2, "timeout is 'first=3': 'first' is not one of connect, first-byte"),
    ("crawl http://127.0.0.1/ --truncate pdf=3", 2, "truncate is 'pdf=3': 'pdf' is not a content type"),
    ("crawl http://127.0.0.1/ --retries 9", 2, "retries is '9': it is too large; use a whole number from 0 to 3"),
    ("crawl http://127.0.0.1/ mailto:x@y --strict-seeds", 2, "outrider: Wrong URL: seed: 'mailto:…@y': its scheme"),
    ("settings --delay soon", 2, "delay is 'soon': not a number; use a number from 0"),
    ("settings file.txt", 2, "file.txt"),
    ("fetch example.org", 2, "it has no scheme; write http:// or https:// before it"),
    ("fetch https://example.org/", 2, "--contact you@example.org"),
    ("show https://example.org/ -o new", 2, "`outrider crawl URL -o new` begins one"),
    ("show https://example.org/ -o crawl", 2, "`outrider explain https://example.org/ -o crawl`"),
    ("add crawl", 2, "Missing argument 'URL...'"),
    ("add new http://a.test/", 2, "`outrider crawl URL -o new` begins one"),
    ("add crawl a.test", 2, "did you mean https://a.test/ ?"),
    ("host crawl example.org stop", 2, "unknown order 'stop'; use pause, resume, block, delay, limit, recheck"),
    ("host crawl example.org delay soon", 2, "delay is 'soon'; use seconds, or none"),
    ("host crawl nobody.test pause", 2, "this crawl has no host 'nobody.test'; `outrider hosts DIR` lists"),
]


@pytest.mark.parametrize(("typed", "code", "words"), MISTAKES, ids=[typed for typed, _, _ in MISTAKES])
def test_a_mistake_is_answered_with_its_value_and_the_way_out(stranger, capsys, typed, code, words):
    assert code == cli.run(typed.split())
    told = capsys.readouterr().err
    assert words in told.splitlines()[0], told
    assert "Traceback" not in told


def test_the_table_has_at_least_thirty_six_mistakes():
    assert len({typed for typed, _, _ in MISTAKES}) >= 36


@pytest.mark.parametrize("seed", ["http://~/", "http://~root/", "http://../", "http://./", "http://-o/"])
def test_a_seed_makes_no_directory_outside_the_current_one(stranger, tmp_path, monkeypatch, capsys, seed):
    """The crawl of http://~/ was once written to the home directory, and that of http://../ to the parent directory."""
    home, here = tmp_path / "home", tmp_path / "above" / "here"
    home.mkdir()
    here.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    before = sorted(tmp_path.rglob("*"))
    assert 2 == cli.run(["crawl", seed, "--contact", "me@example.org"])
    assert "cannot name a directory; choose one with -o" in capsys.readouterr().err
    assert before == sorted(tmp_path.rglob("*"))


def test_a_host_may_be_typed_in_any_case(stranger, capsys):
    assert 0 == cli.run(["urls", "crawl", "--host", "Example.ORG"])
    assert "2 urls" in capsys.readouterr().err
    assert 0 == cli.run(["retry", "store", "--host", "EXAMPLE.org."])
    assert "1 URL is queued again\n" == capsys.readouterr().out


def test_a_misspelt_variable_is_reported_and_unrelated_variables_are_ignored():
    with pytest.raises(SettingsError, match=r"MAX_PAGE \(in the environment\) .* did you mean OUTRIDER_MAX_PAGES\?"):
        from_environment({"OUTRIDER_MAX_PAGE": "3"})
    others = {"OUTRIDER_KERNELS": "python", "OUTRIDER_DEBUG": "1", "OUTRIDER_MODEL_EXAMPLES": "9", "MAX_PAGE": "3"}
    assert {} == from_environment(others)


def test_a_closed_reader_of_results_is_not_a_failure(stranger, monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("sys.stdout", Closed())
    assert 0 == cli.run(["urls", "crawl"])


@pytest.mark.parametrize(("typed", "own"), [("y\n", True), ("\n", False), ("no\n", False)])
def test_a_terminal_must_confirm_the_owner_of_the_sites_before_robots_txt_is_ignored(monkeypatch, capsys, typed, own):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    assert {"obey_robots": False, "own_sites": own} == asked_twice({"obey_robots": False})
    assert "your own?" in capsys.readouterr().err
    assert [{"obey_robots": True}, {}] == [asked_twice({"obey_robots": True}), asked_twice({})]


@pytest.mark.parametrize("size", ["63M", "1", "much", "1.5G"])
def test_memory_that_does_not_suffice_is_refused_with_the_least_that_does(capsys, tmp_path, size):
    """Before any request: the folder of the crawl is not made."""
    output = tmp_path / "out"
    assert 2 == cli.run(["crawl", "http://nowhere.invalid/", "-o", str(output), "--memory", size])
    told = capsys.readouterr().err
    assert (True, True, False) == ("memory" in told, "at least 64M" in told, output.exists())
