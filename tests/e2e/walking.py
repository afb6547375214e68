"""Runs the shell blocks of a page unchanged, one after the other, in an empty folder with the commands at hand."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from e2e.crawling import environment

PORT = "8123"
_PORTS = (PORT, "7070")
_BETWEEN = "----- end of a block"


def blocks(page: Path) -> list[str]:
    """The text of each block of shell."""
    return re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def walk(
    page: Path, folder: Path, addresses: tuple[str, ...] = ("127.0.0.1",), python: str = sys.executable
) -> list[str]:
    """The words that each block wrote. The first one starts servers, at these addresses; free ports replace the
    page's. python: runs the scripts of the blocks, and scrapy."""
    commands = folder / "bin"
    commands.mkdir()
    programs = {"python3": python, "outrider": f"{sys.executable} -m outrider", "scrapy": f"{python} -m scrapy"}
    for name, program in programs.items():
        (commands / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        (commands / name).chmod(0o755)
    with contextlib.ExitStack() as sockets:
        free = [sockets.enter_context(socket.socket()) for _ in _PORTS]
        for one in free:
            one.bind(("127.0.0.1", 0))
        ports = dict(zip(_PORTS, (str(one.getsockname()[1]) for one in free), strict=True))
    waits = "".join(f"\nuntil : 2>/dev/null </dev/tcp/{address}/{PORT}; do sleep 0.05; done\n" for address in addresses)
    first, *others = blocks(page)  # a reader needs longer to type than a server to start
    script = "trap 'kill $(jobs -p)' EXIT\n" + f"\necho; echo '{_BETWEEN}'\n".join([first + waits, *others])
    script = _replaced(script, ports)
    made = environment()
    ran = subprocess.run(
        [shutil.which("bash") or "bash", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        cwd=folder,
        env={**made, "PATH": f"{commands}:{made['PATH']}"},
        check=False,
    )
    assert "Traceback" not in ran.stdout, ran.stdout
    return _replaced(ran.stdout, {used: port for port, used in ports.items()}).split(_BETWEEN)


def _replaced(text: str, ports: dict[str, str]) -> str:
    return re.sub("|".join(ports), lambda found: ports[found[0]], text)
