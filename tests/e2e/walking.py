"""Runs the shell blocks of a page unchanged, one after the other, in an empty folder with the commands at hand."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from e2e.crawling import environment

PORT = "8123"
_BETWEEN = "----- end of a block"


def blocks(page: Path) -> list[str]:
    """The text of each block of shell."""
    return re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def walk(page: Path, folder: Path, addresses: tuple[str, ...] = ("127.0.0.1",)) -> list[str]:
    """The words that each block wrote. The first one starts servers, at these addresses; a free port replaces the
    page's."""
    commands = folder / "bin"
    commands.mkdir()
    for name, more in (("python3", ""), ("outrider", " -m outrider")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable}{more} "$@"\n')
        (commands / name).chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    waits = "".join(f"\nuntil : 2>/dev/null </dev/tcp/{address}/{PORT}; do sleep 0.05; done\n" for address in addresses)
    first, *others = blocks(page)  # a reader needs longer to type than a server to start
    script = "trap 'kill $(jobs -p)' EXIT\n" + f"\necho; echo '{_BETWEEN}'\n".join([first + waits, *others])
    made = environment()
    ran = subprocess.run(
        [shutil.which("bash") or "bash", "-c", script.replace(PORT, port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        cwd=folder,
        env={**made, "PATH": f"{commands}:{made['PATH']}"},
        check=False,
    )
    assert "Traceback" not in ran.stdout, ran.stdout
    return ran.stdout.replace(port, PORT).split(_BETWEEN)
