"""`outrider politeness --proof` and `--check`: a stranger verifies a part of the record, and finds each change."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fake_web import FakeNames
from outrider.archive.projection import Projection
from outrider.cli.main import run
from outrider.crawl.local_run import CrawlRun
from outrider.crawl.output.output import POLITENESS, TREE, tree_at
from outrider.crawl.output.progress import NoProgress
from outrider.crawl.questions import record_proof
from outrider.crawl.questions.politeness_proof import Judge, Proof, host_of_line
from outrider.crawl.questions.record_proof import check_proof
from outrider.crawl.setup.options import CrawlOptions
from outrider.engine import Frontier
from outrider.errors import NamedPathError
from outrider.fetch.downloader import Request, Response
from outrider.identity.signed_note import head_of
from outrider.storage.files import Directory
from unit.test_crawl_loop import HOSTS, SEEDS, Site

DEEP = "[" * 5_000 + "]" * 5_000
"""JSON that is nested deeper than the reader of JSON follows."""


@pytest.fixture
def me(tmp_path: Path) -> str:
    folder = str(tmp_path / "me")
    assert 0 == run(["identity", "init", folder, "--url", "https://bot.example", "--contact", "a@b.test"])
    return folder


def crawled(tmp_path: Path, me: str | None, site: type[Site] = Site, **more: Any) -> Path:
    """A crawl over fake hosts. A second call continues it."""
    output = tmp_path / "out"
    made = CrawlRun(
        CrawlOptions(output=str(output), delay=0, delay_factor=0, identity=me, sitemaps=False, **more),
        *(SEEDS, ()),
        hosts=HOSTS,
        progress=NoProgress(io.StringIO()),
        make_downloader=lambda _, clock: site(clock),
        make_names=lambda: FakeNames(HOSTS),
    )
    asyncio.run(made.run())
    return output


def sizes(output: Path) -> list[int]:
    return sorted(int(path.stem) for path in (output / "heads").iterdir())


@pytest.mark.parametrize("host", ["h3.test", None])
def test_a_stranger_checks_the_file_alone(tmp_path, me, host, capsys):
    output, file = crawled(tmp_path, me), tmp_path / "record.proof"
    words = ["politeness", str(output), *([host] if host else [])]
    assert 0 == run([*words, "--proof", str(file)])
    file = file.rename(tmp_path / "moved")
    capsys.readouterr()
    assert 0 == run(["politeness", "--check", str(file)])
    told = capsys.readouterr().out
    lines = (output / "politeness.jsonl").read_text().count("\n")
    assert f"of {lines} are in the record that bot.example/outrider/" in told
    assert "no delay violated" in told
    assert 2 == run([*words, "--proof", str(file)])


class Ruled(Site):
    """A site with rules for crawlers."""

    async def fetch(self, request: Request) -> Response:
        found = await super().fetch(request)
        if not request.url.endswith("/robots.txt"):
            return found
        rules = b"User-agent: *\nDisallow: /no\n"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(rules)}\r\n\r\n".encode()
        return replace(found, status=200, head=head, body=rules, content=rules)


def test_robots_files_are_in_the_file_and_a_changed_one_is_found(tmp_path, me):
    output, file = crawled(tmp_path, me, Ruled), tmp_path / "record.proof"
    assert 0 == run(["politeness", str(output), "h1.test", "--proof", str(file)])
    found = check_proof(str(file))
    assert (True, 1, set()) == (found.ok, len(found.rules), found.missing)
    *lines, last = file.read_text().splitlines()
    assert b"Disallow: /no" in base64.b64decode(json.loads(last)["robots"])
    file.write_text("\n".join([*lines, json.dumps({"robots": base64.b64encode(b"User-agent: *").decode()})]) + "\n")
    assert not check_proof(str(file)).ok
    file.write_text("\n".join([*lines, '{"robots":"%"}']) + "\n")
    assert not check_proof(str(file)).ok


def test_each_change_of_the_file_is_found(tmp_path, me):
    output, file = crawled(tmp_path, me), tmp_path / "record.proof"
    assert 0 == run(["politeness", str(output), "--proof", str(file)])
    header, *lines = file.read_text().splitlines()
    assert check_proof(str(file)).ok
    other = {"head": json.loads(header)["head"].replace("bot", "bat", 1)}
    first = json.loads(lines[3])
    edited = first["line"].replace("200", "201").replace("404", "405")
    changes = {
        "changed": [*lines[:3], json.dumps({**first, "line": edited})],
        "renumbered": [*lines[:3], json.dumps({**first, "index": 4})],
        "without a proof": [*lines[:3], json.dumps({**first, "proof": []})],
        "no base64": [*lines[:3], json.dumps({**first, "proof": ["\u20ac"]})],
        "dropped": lines[:3],
        "moved": [*lines[:2], lines[3], lines[2]],
        "no JSON": [*lines[:3], "{"],
        "deep": [*lines[:3], lines[3][:-1] + f', "more": {DEEP}}}'],
        "a deep robots.txt": [*lines[:4], f'{{"robots":"","more": {DEEP}}}'],
    }
    for name, changed in changes.items():
        file.write_text("\n".join([header, *changed, *lines[4:]]) + "\n")
        assert not check_proof(str(file)).ok, name
        assert 9 == run(["politeness", "--check", str(file)])
    file.write_text("\n".join([json.dumps({**json.loads(header), **other}), *lines]) + "\n")
    assert not check_proof(str(file)).ok
    for broken in ("", "{}\n", "x" * 100, header[:-1] + f', "more": {DEEP}}}'):
        file.write_text(broken)
        with pytest.raises(NamedPathError, match="--proof"):
            check_proof(str(file))


def test_a_line_of_deep_json_is_no_record_of_a_request():
    line, proof = b'{"more": %b}' % DEEP.encode(), Proof()
    assert (None, None, "") == (Judge(proof).take(1, line), host_of_line(line), record_proof._digest_of(line))
    assert {"record"} == {one.rule for one in proof.violations}


def test_another_key_has_another_thumbprint(tmp_path, me, capsys):
    output, file = crawled(tmp_path, me), tmp_path / "record.proof"
    other = str(tmp_path / "other")
    run(["identity", "init", other, "--url", "https://bot.example", "--contact", "a@b.test"])
    run(["politeness", str(output), "--proof", str(file)])
    run(["politeness", str(output), "--proof", str(tmp_path / "b"), "--identity", other])
    assert check_proof(str(file)).key != check_proof(str(tmp_path / "b")).key
    header, *lines = file.read_text().splitlines()
    key = json.loads((tmp_path / "b").read_text().splitlines()[0])["key"]
    file.write_text("\n".join([json.dumps({**json.loads(header), "key": key}), *lines]) + "\n")
    assert "another key" in check_proof(str(file)).faults[0]


def test_each_run_writes_a_head_and_all_heads_are_of_one_tree(tmp_path, me, capsys):
    crawled(tmp_path, me, max_pages=5)
    output = crawled(tmp_path, me, max_pages=20)
    crawled(tmp_path, me)
    assert 3 == len(sizes(output))
    assert 0 == run(["politeness", str(output), "--proof", str(tmp_path / "proof")])
    lines = (output / "politeness.jsonl").read_bytes().splitlines()
    assert sizes(output)[-1] == len(lines)
    names = {head_of(path.read_text().rpartition("\nbot")[0] + "\n").name for path in (output / "heads").iterdir()}
    assert 1 == len(names)
    (output / "politeness.jsonl").write_bytes(b"\n".join([lines[1], lines[0], *lines[2:]]) + b"\n")
    capsys.readouterr()
    assert 2 == run(["politeness", str(output), "--proof", str(tmp_path / "again")])
    assert "lines were changed" in capsys.readouterr().err
    (output / "politeness.jsonl").write_bytes(b"\n".join(lines[:-1]) + b"\n")
    assert 2 == run(["politeness", str(output), "--proof", str(tmp_path / "again")])
    assert "lines were removed" in capsys.readouterr().err


def test_the_log_has_the_tree_of_the_record(tmp_path):
    """A record of an earlier version has no tree in its log: it is read once."""
    output = crawled(tmp_path, None)
    assert not (output / "heads").exists()
    frontier = Frontier.look(str(output / "frontier"))
    length, _ = frontier.projection(POLITENESS)
    noted = tree_at(length, frontier.watermarks()[TREE])
    frontier.close()
    files = Directory(output)
    record = Projection(files, "politeness.jsonl", has_tree=True)
    record.open_at(length)
    assert noted is not None
    assert noted.state == record.tree.state
    record.close()
    files.close()


def test_a_crawl_without_an_identity_names_the_option(tmp_path, capsys, me):
    output = crawled(tmp_path, None)
    assert 2 == run(["politeness", str(output), "--proof", str(tmp_path / "proof")])
    assert "--identity DIR" in capsys.readouterr().err
    assert 0 == run(["politeness", str(output), "--proof", str(tmp_path / "proof"), "--identity", me])
    assert check_proof(str(tmp_path / "proof")).ok
    assert 2 == run(["politeness", str(output), "nosuch.test", "--proof", str(tmp_path / "x"), "--identity", me])
    assert "nosuch.test" in capsys.readouterr().err
    assert 2 == run(["politeness"])
    assert 2 == run(["politeness", str(output), "--check", str(tmp_path / "proof")])
