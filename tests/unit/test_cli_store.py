"""`verify`, `retry`, `export`, `import`: their output, their changes, and their exit codes."""

from __future__ import annotations

import json

import pytest

from model.inside import inspect
from outrider.cli import main as cli
from outrider.engine import Frontier
from outrider.errors import StoreInUseError
from outrider.journey import Verification


@pytest.fixture
def store(tmp_path):
    """A crawl's directory with a frontier of three URLs."""
    with Frontier.open(tmp_path / "crawl" / "frontier", robots="errands") as frontier:
        frontier.discover(["http://a.com/", "http://a.com/1", "http://b.com/"])
    return tmp_path / "crawl"


def test_verify_says_that_all_is_true(store, capsys):
    assert 0 == cli.run(["verify", str(store)])
    assert capsys.readouterr().out.startswith("all is correct: 3 accepted")


def test_verify_in_json_is_one_object(store, capsys):
    assert 0 == cli.run(["verify", str(store), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert (True, [], 3) == (said["ok"], said["problems"], said["counts"]["accepted"])


def test_verify_ends_with_9_where_a_count_is_wrong(store, capsys, monkeypatch):
    wrong = Verification(False, ("queued: the counter says 4, the rows say 3",), {"accepted": 3})
    monkeypatch.setattr(Frontier, "verify", lambda self: wrong)
    assert 9 == cli.run(["verify", str(store)])
    assert "the counter says 4" in capsys.readouterr().out


def test_verify_ends_with_5_where_a_file_is_damaged(store, capsys):
    log = next((store / "frontier").glob("log-*"))
    data = bytearray(log.read_bytes())
    data[200] ^= 0xFF
    log.write_bytes(data)
    assert 5 == cli.run(["verify", str(store)])
    said = capsys.readouterr()
    assert (True, True) == (log.name in said.out, "outrider repair" in said.err)


def test_verify_reads_a_store_without_a_crawl(store, capsys):
    assert 0 == cli.run(["verify", str(store / "frontier")])


@pytest.mark.parametrize("command", [["verify"], ["retry"], ["export", "--to", "x.jsonl"], ["import", "x.txt"]])
def test_a_store_in_use_is_left_to_its_owner(store, tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("http://c.com/\n")
    with Frontier.open(store / "frontier", robots="caller"):
        assert StoreInUseError.exit_code == cli.run([command[0], str(store), *command[1:]])
    assert "open in this process already" in capsys.readouterr().err


def test_pages_are_exported_while_their_crawl_runs(store, tmp_path, capsys):
    (store / "pages.jsonl").write_text('{"url":"http://a.com/","status":200}\n{"url":"http://b.c')
    with Frontier.open(store / "frontier", robots="caller"):
        assert 0 == cli.run(["export", str(store), "--what", "pages", "--to", str(tmp_path / "p.csv")])
    assert 2 == len((tmp_path / "p.csv").read_text().splitlines())
    assert "exported 1 record to" in capsys.readouterr().err


def test_a_list_of_urls_makes_a_missing_frontier(tmp_path, capsys):
    (tmp_path / "x.txt").write_text("http://a.com/\nHTTP://A.com\nmailto:me@a.com\nhttp://b.com/\n")
    assert 0 == cli.run(["import", str(tmp_path / "new"), str(tmp_path / "x.txt")])
    said = capsys.readouterr()
    assert "2 imported, 1 known, 1 skipped\n" == said.out
    assert "x.txt, line 3" in said.err
    assert 0 == cli.run(["verify", str(tmp_path / "new")])


def test_an_import_of_bad_lines_alone_is_wrong_usage(tmp_path, capsys):
    (tmp_path / "x.txt").write_text("mailto:me@a.com\n")
    assert 2 == cli.run(["import", str(tmp_path / "new"), str(tmp_path / "x.txt")])
    said = capsys.readouterr()
    assert ("0 imported, 1 skipped\n", True) == (said.out, "x.txt, line 1: 'mailto:" in said.err)


@pytest.mark.parametrize("name", ["missing.jsonl", "x.xls", ""])
def test_a_file_that_cannot_be_imported_changes_no_state(tmp_path, name):
    assert 2 == cli.run(["import", str(tmp_path / "new"), str(tmp_path / name)])
    assert not (tmp_path / "new").exists()


def test_an_import_uses_the_settings_of_its_crawl(store, tmp_path, capsys):
    """URLs from a person are seeds: they widen the scope of outrider.toml, like those of `crawl`."""
    (store / "outrider.toml").write_text('scope = "host"\n')
    (tmp_path / "x.txt").write_text("http://c.com/\n")
    assert 0 == cli.run(["import", str(store), str(tmp_path / "x.txt")])
    with Frontier.look(store / "frontier") as frontier:
        assert "queued" == frontier.status("http://c.com/").state
        assert ["http://c.com/"] == list(inspect(frontier).tables.crawls.scope[0])


def test_importing_into_a_folder_with_other_content_is_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    (tmp_path / "x.txt").write_text("http://a.com/\n")
    assert 5 == cli.run(["import", str(tmp_path / "mine"), str(tmp_path / "x.txt")])


def test_why_idle_names_the_paused_hosts_of_a_stopped_crawl_and_the_order_that_resumes_them(store, capsys):
    (store / "outrider.toml").write_text("")
    for host in ("a.com", "b.com"):
        assert 0 == cli.run(["host", str(store), host, "pause"])
    capsys.readouterr()
    assert 0 == cli.run(["why-idle", str(store)])
    told = capsys.readouterr().out
    assert all(f"outrider host {store} {host} resume" in told for host in ("a.com", "b.com"))
    assert "silent" not in told


def test_orders_to_a_stopped_crawl_name_the_command_that_fetches(store, capsys):
    resume = f"outrider resume {store}"
    assert 0 == cli.run(["add", str(store), "http://127.0.0.1:9/"])
    assert resume in capsys.readouterr().err
    assert 0 == cli.run(["add", str(store), "http://127.0.0.1:9/"])
    assert resume not in capsys.readouterr().err  # no new URL
    with Frontier.open(store / "frontier", robots="caller") as frontier:
        (lease,) = frontier.lease(1)
        frontier.report([lease.gone(status=404)])
    assert 0 == cli.run(["retry", str(store)])
    assert resume in capsys.readouterr().err
    assert 0 == cli.run(["add", str(store / "frontier"), "http://127.0.0.1:9/2"])
    assert "resume" not in capsys.readouterr().err  # the store of a program


def test_retry_names_the_order_for_pages_whose_robots_txt_cannot_be_read(store, capsys):
    assert 0 == cli.run(["retry", str(store)])
    assert f"outrider host {store} HOST recheck" in capsys.readouterr().err
