"""A PostgreSQL server for tests: on a Unix socket, in a folder of its own, as an unprivileged user."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from servers.programs import MISSING, PACKAGES

PASSWORD = "hunter2-secret"
SECONDS_MAX = 60


def _program(name: str) -> str:
    """Returns a program of the server, which Debian does not put on PATH; skips the test without it."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    path = shutil.which(name, path=os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")]))
    if path is None:
        MISSING[name] = PACKAGES["pg_ctl"]
        pytest.skip(f"{name} is missing: apt install {PACKAGES['pg_ctl']}")
    return path


class PostgresServer:
    """One server. `stop` and `start` keep its data."""

    def __init__(self, folder: Path, user: str | None) -> None:
        self.folder, self._user = folder, user
        self._data = folder / "data"

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS_MAX,
            user=self._user,
            cwd=self.folder,
            check=False,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )
        assert done.returncode == 0, done.stdout

    def make(self) -> None:
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        encoding = ("--encoding", "UTF8", "--no-locale", "--no-sync")
        access = ("--auth", "scram-sha-256", "--username", "owner", "--pwfile", str(secret))
        self._run(_program("initdb"), "-D", str(self._data), *encoding, *access)

    def start(self) -> None:
        # The tests stop processes and never the machine, so no file needs a sync: a recovery takes seconds less.
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder} -c max_connections=20 -c fsync=off"
        log = str(self.folder / "log")
        self._run(_program("pg_ctl"), "-D", str(self._data), "-w", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self._run(_program("pg_ctl"), "-D", str(self._data), "-w", "-m", mode, "stop")

    def end(self) -> None:
        """Stops the server by its own pid, whatever its state."""
        try:
            pid = int((self._data / "postmaster.pid").read_text().split()[0])
        except (FileNotFoundError, IndexError, ValueError):
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGQUIT)

    def address(self, database: str, user: str = "owner", password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@/{database}?host={self.folder}"

    def database(self, name: str, options: str = "") -> str:
        """Makes a database. Returns its address."""
        self.execute(self.address("postgres"), f"CREATE DATABASE {name} {options}")
        return self.address(name)

    def execute(self, address: str, statement: str) -> None:
        import asyncpg

        async def done() -> None:
            connection = await asyncpg.connect(address)
            await connection.execute(statement)
            await connection.close()

        asyncio.run(done())

    def rows(self, address: str, query: str) -> list[dict[str, Any]]:
        import asyncpg

        async def found() -> list[dict[str, Any]]:
            connection = await asyncpg.connect(address)
            rows = [dict(row) for row in await connection.fetch(query)]
            await connection.close()
            return rows

        return asyncio.run(found())

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


def _unprivileged() -> str | None:
    """Returns the user of the server; None if this process is not root. A server refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in names:
            return name
    raise LookupError("PostgreSQL needs an unprivileged user; make one with the name postgres")


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server that runs until the block ends."""
    _program("pg_ctl")
    user = _unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="outrider-pg-"))
    server = PostgresServer(folder, user)
    try:
        if user is not None:
            shutil.chown(folder, user)
        folder.chmod(0o755)
        server.make()
        server.start()
        yield server
    finally:
        server.end()
        shutil.rmtree(folder, ignore_errors=True)
