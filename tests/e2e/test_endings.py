"""How crawls end: each row of docs/endings.md, run as a command, and the first commands that a newcomer types."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.crawling import ROOT, environment
from e2e.loopback import MISSING, Answer, site
from e2e.name_server import Stub, served_beside
from outrider.cli import main as cli
from outrider.crawl import start
from unit.test_worker import House

PAGE = ROOT / "docs" / "endings.md"
NAMES = ("one.test", "slow.test", "127.0.0.1")
"""The hosts that commands name."""

SITES = {
    "one.test": {
        "/": "<title>one</title>a home <a href=/a>a</a> <a href=/b>b</a>",
        "/a": "<title>a</title>first",
        "/b": "<title>b</title>second",
    },
    "lost.test": {"/": "<title>lost</title>a page <a href=/lost>l</a>"},
    "trap.test": {"/": "<title>trap</title>a calendar <a href=/2099/01/>l</a>"},
    "closing.test": {
        "/": "<title>c</title>closing <a href=/closed>l</a>",
        "/robots.txt": "User-agent: *\nDisallow: /closed\n",
    },
    "closed.test": {"/": "<title>c</title>", "/robots.txt": "User-agent: *\nDisallow: /\n"},
    "leaving.test": {"/": "<title>l</title>links <a href=http://one.test/>l</a>"},
    "busy.test": {},
}


def answer(name: str, target: str) -> Answer:
    """From `SITES`, by the name of the host; any other name has the site of one.test."""
    if name == "slow.test":
        time.sleep(2)  # the answer arrives after the time that the command allows
    if name == "busy.test" and target == "/":
        return Answer(status=503, fields={"Retry-After": "300000"})
    body = SITES.get(name, SITES["one.test"]).get(target)
    kind = "text/plain" if target.endswith(".txt") else "text/html"
    return MISSING if body is None else Answer(body, content_type=kind)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with site(answer) as server:
        yield server.server_port


@dataclass
class Shell:
    """An empty folder with the commands of Outrider at hand."""

    folder: Path
    port: int

    @property
    def directory(self) -> str:
        return str(self.folder / "out")

    def url(self, name: str, path: str = "/") -> str:
        return f"http://{name}:{self.port}{path}"

    def command(self, *words: object, hasty: bool = False) -> list[str]:
        program = [str(ROOT / "tests" / "e2e" / "hasty_outrider.py")] if hasty else ["-m", "outrider"]
        return [sys.executable, *program, *map(str, words)]

    def run(self, *words: object, hasty: bool = False, **more: object) -> subprocess.CompletedProcess[str]:
        """Runs one command to its end: in this process where possible, which saves a start of Python."""
        if not hasty and not more:
            return self._here([str(word) for word in words])
        options = {"capture_output": True, "text": True, "timeout": 60, "cwd": self.folder, "check": False, **more}
        return subprocess.run(self.command(*words, hasty=hasty), env=environment(PYTHONPATH=f"{ROOT}/src"), **options)

    def _here(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        out, told = io.StringIO(), io.StringIO()
        before, pace = Path.cwd(), gc.get_threshold()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
                code = cli.run(words)
        finally:
            os.chdir(before)
            gc.unfreeze()
            gc.set_threshold(*pace)
        return subprocess.CompletedProcess(words, code, out.getvalue(), told.getvalue())

    def typed(self, name: str, *more: object, path: str = "/") -> list[object]:
        """The words of a crawl of one of the sites, without gaps."""
        (self.folder / "hosts").write_text("127.0.0.1 " + " ".join([*SITES, "slow.test"]) + "\n")
        quick = ("--hosts", self.folder / "hosts", "--delay", "0", "--delay-factor", "0", "--no-sitemaps")
        return ["crawl", self.url(name, path), "-o", self.directory, *quick, *more]

    def crawl(self, name: str, *more: object, hasty: bool = False, path: str = "/", **how: object):
        """A crawl of one of the sites."""
        return self.run(*self.typed(name, *more, path=path), hasty=hasty, **how)

    @contextlib.contextmanager
    def begun(self, *more: object, wait_for: str = "pages.jsonl") -> Iterator[subprocess.Popen[str]]:
        """A crawl that lasts some seconds, and has begun to write."""
        words = self.typed("one.test", "--delay", "1", *more)
        process = subprocess.Popen(
            self.command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
            env=environment(PYTHONPATH=f"{ROOT}/src"),
        )  # fmt: skip
        try:
            until = time.monotonic() + 30
            while not any(path.stat().st_size for path in Path(self.directory).glob(wait_for)):
                assert time.monotonic() < until, process.communicate()
                time.sleep(0.02)
            yield process
        finally:
            process.kill()
            process.communicate()


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    out, told = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, told)


Situation = Callable[[Shell], "subprocess.CompletedProcess[str]"]
SITUATIONS: dict[str, Situation] = {}


def situation(name: str) -> Callable[[Situation], Situation]:
    def keep(function: Situation) -> Situation:
        SITUATIONS[name] = function
        return function

    return keep


# -- before the first connection ---------------------------------------------------------------------------------------

SITUATIONS |= {
    "No seed is given": lambda shell: shell.run("crawl"),
    "The seed has no scheme": lambda shell: shell.run("crawl", "example.org"),
    "The seed is too long": lambda shell: shell.run("crawl", shell.url("localhost", "/" + "x" * 9_000)),
    "The contact is missing": lambda shell: shell.run("crawl", "https://example.org/"),
    "An option is misspelt": lambda shell: shell.run("crawl", shell.url("localhost"), "--max-page", "3"),
    "An option has an invalid value": lambda shell: shell.run("crawl", "http://x.test/", "--delay", "soon"),
    "The file of seeds does not exist": lambda shell: shell.run("crawl", "@nowhere"),
    "A hook cannot be loaded": lambda shell: shell.crawl("one.test", "--on-page", "nowhere:function"),
    "`resume` finds no crawl": lambda shell: shell.run("resume", shell.directory),
}  # fmt: skip


@situation("The directory is not a crawl")
def foreign(shell: Shell):
    Path(shell.directory).mkdir()
    (Path(shell.directory) / "letter.txt").write_text("dear")
    return shell.crawl("one.test")


@situation("The store is damaged")
def damaged(shell: Shell):
    shell.crawl("lost.test")
    for path in (Path(shell.directory) / "frontier").rglob("*"):
        if path.is_file() and "manifest" in path.name.lower():
            path.write_bytes(b"\0" * path.stat().st_size)
    return shell.run("resume", shell.directory)


@situation("The frontier of the crawl is missing")
def frontier_gone(shell: Shell):
    shell.crawl("lost.test")
    (Path(shell.directory) / "frontier").rename(shell.folder / "elsewhere")
    return shell.crawl("lost.test")


@situation("Another process owns the crawl")
def owned(shell: Shell):
    with shell.begun():
        return shell.run("resume", shell.directory)


# -- no page could be fetched ------------------------------------------------------------------------------------------


@situation("No server listens on that port")
def wrong_port(shell: Shell):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
        return shell.run("crawl", url, "-o", shell.directory, "--delay", "0", hasty=True)


@situation("The server does not answer in time")
def silent(shell: Shell):
    return shell.crawl("slow.test", "--timeout", "first-byte=0.1", hasty=True)


@situation("The server closes the connection")
def closing(shell: Shell):
    server = socket.create_server(("127.0.0.1", 0))

    def close_all() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                connection.recv(4_096)
                connection.close()

    threading.Thread(target=close_all, daemon=True).start()
    with server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        return shell.run("crawl", url, "-o", shell.directory, "--delay", "0", "--delay-factor", "0", hasty=True)


@situation("The name does not exist")
def nameless(shell: Shell):
    with served_beside(Stub({})) as address:
        words = ("--resolver", address, "--contact", "me@example.org", "--delay", "0")
        return shell.run("crawl", "http://nosuch.example/", "-o", shell.directory, *words, hasty=True)


@situation("TLS fails")
def no_tls(shell: Shell):
    words = ("-o", shell.directory, "--delay", "0", "--delay-factor", "0")
    return shell.run("crawl", f"https://127.0.0.1:{shell.port}/", *words, hasty=True)


@situation("The address is not public")
def blocked(shell: Shell):
    return shell.run("crawl", "http://10.1.2.3/", "-o", shell.directory, "--contact", "me@example.org")


@situation("The seed is answered with 404")
def missing(shell: Shell):
    return shell.crawl("one.test", path="/missing")


@situation("robots.txt closes the seed")
def closed(shell: Shell):
    return shell.crawl("closed.test")


# -- work is left ------------------------------------------------------------------------------------------------------


@situation("A limit of pages is reached")
def few_pages(shell: Shell):
    return shell.crawl("one.test", "--max-pages", "1")


@situation("A limit of time is reached")
def little_time(shell: Shell):
    return shell.crawl("one.test", "--max-seconds", "0.3", "--delay", "1")


@situation("A site requests a long pause")
def left_alone(shell: Shell):
    return shell.crawl("busy.test")


@situation("A host is paused")
def paused(shell: Shell):
    shell.crawl("one.test", "--max-pages", "1")
    shell.run("host", shell.directory, "one.test", "pause")
    return shell.run("resume", shell.directory, "--max-pages", "100")


@situation("You press Ctrl-C")
def interrupted(shell: Shell):
    with shell.begun() as process:
        process.send_signal(signal.SIGINT)
        return ended(process)


@situation("The process is killed")
def killed(shell: Shell):
    with shell.begun() as process:
        process.kill()
        process.wait()
    asked = shell.run("status", shell.directory)
    again = shell.run("resume", shell.directory, "--max-pages", "1")
    return subprocess.CompletedProcess((), 128 - process.returncode, asked.stdout, again.stderr)


# -- while it runs -----------------------------------------------------------------------------------------------------


@situation("A hook fails on most pages")
def hook_on_most(shell: Shell):
    (shell.folder / "mine_most.py").write_text("def on_page(page):\n    return 1 / 0\n")
    return shell.crawl("one.test", shell.url("one.test", "/a"), "--on-page", "mine_most:on_page")


@situation("A hook fails on few pages")
def hook_on_few(shell: Shell):
    (shell.folder / "mine_few.py").write_text("def on_page(page):\n    page.url.endswith('/a') and 1 / 0\n")
    return shell.crawl("one.test", "--on-page", "mine_few:on_page")


@situation("`pages.jsonl` is removed")
def pages_removed(shell: Shell):
    with shell.begun() as process:
        (Path(shell.directory) / "pages.jsonl").unlink()
        return ended(process)


@situation("The archive is removed")
def archive_removed(shell: Shell):
    with shell.begun() as process:
        for path in (Path(shell.directory) / "archive").iterdir():
            path.unlink()
        return ended(process)


@situation("The disk is full")
def full(shell: Shell):
    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    shell.crawl("one.test", "--max-pages", "1")
    return shell.run("resume", shell.directory, "--max-pages", "9", hasty=True, preexec_fn=limited)


@situation("The disk of standard output is full")
def output_full(shell: Shell):
    shell.crawl("lost.test")
    with open("/dev/full", "w") as nowhere:
        return shell.run("urls", shell.directory, capture_output=False, stdout=nowhere, stderr=subprocess.PIPE)


# -- it finished, and left something out -------------------------------------------------------------------------------


@situation("Links are broken")
def broken_links(shell: Shell):
    return shell.crawl("lost.test")


@situation("URLs look like traps")
def trapped(shell: Shell):
    return shell.crawl("trap.test")


@situation("robots.txt closes pages")
def partly_closed(shell: Shell):
    return shell.crawl("closing.test")


@situation("A host has more pages than its limit")
def over_budget(shell: Shell):
    return shell.crawl("one.test", "--max-pages-per-host", "1")


@situation("Links lead outside the scope")
def outside(shell: Shell):
    return shell.crawl("leaving.test")


@situation("Some seeds are not URLs")
def bad_seed(shell: Shell):
    return shell.crawl("one.test", "no-url")


@situation("The crawl was finished before")
def second_run(shell: Shell):
    shell.crawl("lost.test")
    return shell.crawl("lost.test")


# -- other commands ----------------------------------------------------------------------------------------------------


@situation("Outrider has a bug")
def bug(shell: Shell):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a fault that nobody foresaw")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "start", broken)
        return shell.crawl("one.test")


@situation("The record of the requests was edited")
def edited(shell: Shell):
    shell.crawl("lost.test")
    record = Path(shell.directory) / "politeness.jsonl"
    record.write_bytes(re.sub(rb'("url":"[^"]*)/",', rb'\1/x",', record.read_bytes(), count=1))
    return shell.run("politeness", shell.directory)


@situation("A worker may not connect to the addresses")
def worker_guard(shell: Shell):
    with contextlib.closing(House(shell.folder)) as house:
        house.frontier.discover(["http://10.1.2.3/"])
        return shell.run("work", house.address, "-o", shell.directory, "--contact", "me@example.org")


# -- the table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One row of the document."""

    situation: str
    read: tuple[str, ...]
    code: int
    helps: tuple[str, ...]


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 4 and cells[2].isdigit():
            words = [tuple(re.findall("`([^`]+)`", cells[place])) for place in (1, 3)]
            found.append(Row(cells[0], words[0], int(cells[2]), words[1]))
    return found


ROWS = rows()


def test_the_table_and_the_situations_are_the_same():
    assert sorted(SITUATIONS) == sorted(row.situation for row in ROWS)
    assert all(row.read and row.helps for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row.situation for row in ROWS])
def test_a_crawl_ends_as_the_table_says(row, tmp_path, port):
    shell = Shell(tmp_path, port)
    done = SITUATIONS[row.situation](shell)
    told = f"{done.stdout or ''}\n{done.stderr or ''}"
    place = shlex.quote(shell.directory)
    helps = [words.replace("DIR", place) for words in row.helps]
    missing = [words for words in row.read if words not in told]
    missing += [words for words in helps if not any(words.replace("HOST", name) in told for name in NAMES)]
    assert (row.code, []) == (done.returncode, missing), told
    assert not re.search(r"Traceback|this is a bug", told.replace("  Traceback", "") if row.code != 1 else ""), told


# -- as a newcomer types it --------------------------------------------------------------------------------------------

SHOP = {
    "/": "<title>shop</title>welcome <a href=/category/2050>new</a> <a href=/gone>old</a>",
    "/category/2050": "<title>category</title>things of a kind <a href=/?city=2100>city</a>",
    "/?city=2100": "<title>city</title>things in a city",
}


@pytest.fixture
def newcomer(tmp_path, port, monkeypatch):
    monkeypatch.setitem(SITES, "localhost", SHOP)
    return Shell(tmp_path, port)


def test_a_newcomer_crawls_a_shop(newcomer):
    done = newcomer.run("crawl", newcomer.url("localhost"))
    rows_told = {line.split()[0]: line for line in done.stderr.splitlines() if line and not line.startswith(" ")}
    assert (0, True) == (done.returncode, (newcomer.folder / "localhost" / "pages.jsonl").exists())
    assert "http        200 3 · 404 1" == rows_told["http"]
    assert ("none" in rows_told["errors"], "1 broken link" in rows_told["errors"]) == (False, True)
    assert "0 URLs" in rows_told["left"]
    again = newcomer.run("crawl", newcomer.url("localhost"))
    assert (0, True) == (again.returncode, "this crawl is finished (4 pages)" in again.stderr)
    assert f"outrider crawl -o {newcomer.folder}/localhost --anew" in again.stderr


def test_a_newcomer_mistypes_the_port(newcomer):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        words = newcomer.command("crawl", f"http://localhost:{free.getsockname()[1]}/")
        process = subprocess.Popen(
            *(words,), cwd=newcomer.folder, stderr=subprocess.PIPE, text=True, env=environment(PYTHONPATH=f"{ROOT}/src")
        )
        try:
            told = ""
            while "onnection refused" not in told:  # the first failed request is said at once
                told += process.stderr.readline() or pytest.fail(told)
            process.send_signal(signal.SIGINT)
            told += process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert (4, True, True) == (process.returncode, "/robots.txt" in told, "connect_refused 1" in told)


def test_a_newcomer_mistypes_the_path(newcomer):
    done = newcomer.run("crawl", newcomer.url("localhost", "/shopp"))
    assert (8, True, False) == (done.returncode, "404 Not Found" in done.stderr, "errors      none" in done.stderr)


def test_a_newcomer_names_an_address_of_the_own_network(newcomer):
    done = newcomer.run("crawl", "http://192.168.1.1/", "--contact", "me@example.org")
    assert (8, True) == (done.returncode, "--allow-address" in done.stderr)


@pytest.mark.parametrize("limit", ["--max-pages", "--max-pages-per-host"])
def test_the_command_that_continues_after_a_limit_of_pages_fetches_more(limit, tmp_path, port):
    shell = Shell(tmp_path, port)
    assert 3 == shell.crawl("one.test", limit, "1").returncode
    first = shell.run("status", shell.directory, "--json")
    told = shell.run("resume", shell.directory).stderr
    (command,) = re.findall(r"^continue +outrider (.+)$", told, re.MULTILINE)
    shell.run(*shlex.split(command))
    second = shell.run("status", shell.directory, "--json")
    assert json.loads(first.stdout)["answered"] < json.loads(second.stdout)["answered"]
