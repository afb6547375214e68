"""control.sock of a store of a program: commands query the program while it runs, and the files afterwards."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import socket
import stat
import subprocess
import sys

import pytest

from outrider import Frontier
from outrider.cli import main as cli
from outrider.crawl.questions.control import ask
from outrider.engine import AsyncFrontier, store_socket
from outrider.engine.store_socket import SOCKET_NAME
from outrider.errors import UnreachableError

A, B = "http://a.test/", "http://b.test/"


@pytest.fixture
def said(capsys):
    def run(*words, code=0):
        capsys.readouterr()
        assert code == cli.run([str(word) for word in words]), capsys.readouterr().err
        return capsys.readouterr().out

    return run


@pytest.fixture(params=["store", "crawl/frontier"])
def places(tmp_path, request):
    """The directory of a store, and the directory that the commands name."""
    return tmp_path / request.param, tmp_path / request.param.split("/")[0]


def test_commands_query_the_program_that_owns_the_store(places, said, capsys):
    store, named = places
    store.parent.mkdir(exist_ok=True)
    with Frontier.open(store, robots="caller") as frontier:
        frontier.discover([A, B])
        (lease,) = frontier.lease(1)
        status = json.loads(said("status", named, "--json"))
        assert ("running", 2, 1) == (status["state"], status["accepted"], status["urls"]["leased"])
        assert {"a.test", "b.test"} == {
            json.loads(line)["name"] for line in said("hosts", named, "--json").splitlines()
        }
        assert "this process fetches it" in said("explain", lease.url, "-o", named)
        assert "1 host is ready" in said("why-idle", named)
        assert 2 == len(said("urls", named, "--json").splitlines())
        for order in (("retry",), ("add", A), ("host", "a.test", "pause")):  # only the program may send orders
            assert 6 == cli.run([order[0], str(named), *order[1:]])
            told = capsys.readouterr().err
            assert ("takes no orders" in told, "did not answer" in told) == (True, False)
        assert "leased" == frontier.explain(lease.url).reason_now
    assert SOCKET_NAME not in os.listdir(store)
    assert 2 == json.loads(said("status", named, "--json"))["accepted"]


def test_status_works_on_the_store_of_a_program(tmp_path, said):
    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        frontier.discover([A])
    assert "state       stopped" in said("status", tmp_path / "store")
    assert "1 URL" in said("status", tmp_path / "store")


@pytest.mark.parametrize(
    "words",
    [("resume", "{0}"), ("crawl", A, "-o", "{0}"), ("skipped", "{0}"), ("duplicates", "{0}"), ("show", A, "-o", "{0}")],
)
def test_commands_that_need_pages_say_that_the_store_is_a_program_s(tmp_path, words, capsys):
    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        frontier.discover([A])
    assert 5 == cli.run([word.format(tmp_path / "store") for word in words])
    told = capsys.readouterr().err
    assert ("Frontier.open" in told, "log-" in told) == (True, False)


def test_a_store_without_a_record_is_not_called_polite(tmp_path, said):
    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        frontier.discover([A])
    told = said("politeness", tmp_path / "store")
    assert ("nothing to prove" in told, "no delay violated" in told) == (True, False)


def test_bad_queries_are_answered_with_the_reason(tmp_path):
    with Frontier.open(tmp_path / "store", robots="caller"):
        for words, told in ((b"nonsense\n", "no JSON object"), (b'{"ask":"dance"}\n', "this can be asked")):
            with socket.socket(socket.AF_UNIX) as asking:
                asking.connect(str(tmp_path / "store" / SOCKET_NAME))
                asking.sendall(words)
                assert told in json.loads(asking.recv(65_536))["error"]
        with pytest.raises(Exception, match="cursor"):
            ask(str(tmp_path / "store"), "urls", after="nonsense")


def test_only_the_owner_can_use_the_socket_and_a_socket_left_by_a_crash_is_replaced(tmp_path):
    store = tmp_path / "store"
    Frontier.open(store, robots="caller").close()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(store / SOCKET_NAME))
    with Frontier.open(store, robots="caller"):
        assert 0o600 == stat.S_IMODE(os.lstat(store / SOCKET_NAME).st_mode)
        assert 0 == ask(str(store), "totals")["statistics"]["accepted"]
    with pytest.raises(UnreachableError):
        ask(str(store), "totals")


def test_a_file_with_the_name_of_the_socket_is_left_alone_and_the_store_opens(tmp_path):
    store = tmp_path / "store"
    Frontier.open(store, robots="caller").close()
    (store / SOCKET_NAME).write_text("mine")
    with Frontier.open(store, robots="caller") as frontier:
        frontier.discover([A])
    assert "mine" == (store / SOCKET_NAME).read_text()


def test_a_store_can_be_opened_without_a_socket_and_a_store_in_memory_has_no_socket(tmp_path):
    with Frontier.open(tmp_path / "store", control=False, robots="caller"), Frontier.memory(robots="caller"):
        assert SOCKET_NAME not in os.listdir(tmp_path / "store")


def test_a_deleted_frontier_object_removes_its_socket(tmp_path):
    frontier = Frontier.open(tmp_path / "store", robots="caller")
    del frontier
    gc.collect()
    assert SOCKET_NAME not in os.listdir(tmp_path / "store")


def test_a_child_of_a_fork_leaves_the_socket_of_its_parent(tmp_path):
    program = (
        "import os, sys\n"
        "from outrider import Frontier\n"
        "frontier = Frontier.open(sys.argv[1], robots='caller')\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    frontier.close()\n"
        "    sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(os.path.exists(sys.argv[1] + '/control.sock'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "store"], capture_output=True, text=True, check=True
    )
    assert "True\n" == done.stdout, done.stderr
    assert not (tmp_path / "store" / SOCKET_NAME).exists()


def test_an_async_frontier_answers_too(tmp_path):
    async def asked():
        async with AsyncFrontier.open(tmp_path / "store", robots="caller") as frontier:
            await frontier.discover([A])
            return await asyncio.to_thread(ask, str(tmp_path / "store"), "totals")

    assert 1 == asyncio.run(asked())["statistics"]["accepted"]


class Listener:
    """Fails, then has one query, then is closed."""

    def __init__(self, connection):
        self._steps = [OSError(errno.EMFILE, "too many open files"), connection, OSError(errno.EBADF, "closed")]

    def accept(self):
        step = self._steps.pop(0)
        if isinstance(step, OSError):
            raise step
        return step, ""


def test_a_temporary_lack_of_descriptors_does_not_end_the_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(store_socket, "CONTROL_PAUSE_SECONDS", 0)
    asking, answering = socket.socketpair()
    with Frontier.open(tmp_path / "store", robots="caller") as frontier, asking:
        asking.sendall(b'{"ask": "totals"}\n')
        frontier._socket._serve(Listener(answering))
        assert json.loads(asking.makefile().readline())["ok"]


@pytest.mark.parametrize("line", [b"[" * 60_000, b'{"ask":' * 9_000, b"7", b"\xff"])
def test_a_query_that_is_not_an_object_is_refused(tmp_path, line):
    with Frontier.open(tmp_path / "store", robots="caller"), socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(tmp_path / "store" / SOCKET_NAME))
        asking.sendall(line + b"\n")
        assert "no JSON object" in json.loads(asking.makefile().readline())["error"]
