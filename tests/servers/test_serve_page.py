"""docs/howto/serve.md: every block runs as it is printed, in order, in a network of its own (Linux alone)."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from e2e.crawling import environment, pages
from servers.programs import MISSING, program

# A network namespace of this test alone: the page's ports and addresses are free there, and nothing leaves it.
_ALONE = (
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "sh",
    "-c",
    "ip link set lo up && ip addr add 192.168.1.7/32 dev lo",
)


def need_network_of_its_own():
    """Skips the test where a program is missing, or the kernel refuses this user a network namespace."""
    for name in ("unshare", "ip", "curl", "openssl"):
        program(name)
    if subprocess.run(_ALONE, capture_output=True, timeout=20, check=False).returncode != 0:
        MISSING["network namespaces"] = "util-linux"
        pytest.skip("the system gives this user no network namespace")


def blocks(text):
    """The blocks of a page in order: (kind, text); kind is the word after the fence, "shell" for indented ones."""
    found = re.finditer(r"^```(\w[^\n]*)\n(.*?)^```|((?:^    [^\n]+\n)+)", text, re.MULTILINE | re.DOTALL)
    return [("shell", re.sub(r"^    ", "", m[3], flags=re.MULTILINE)) if m[3] else (m[1], m[2]) for m in found]


HELPERS = r"""
trap 'kill $(jobs -p) 2>/dev/null' EXIT
ip link set lo up && ip addr add 192.168.1.7/32 dev lo
answers() {
    for _ in $(seq 200); do curl -ksf "$1" >/dev/null && return 0; sleep 0.1; done
    echo "NOBODY at $1"; exit 1
}
ends() { kill -TERM "$1"; wait "$1"; echo "ended with $?"; }
python3 -m http.server 8000 --bind 127.0.0.1 --directory site 2>/dev/null &
answers http://127.0.0.1:8000/
openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=frontier.example 2>/dev/null
echo "admin a-token-of-16-characters" >tokens; chmod 600 tokens
"""


@pytest.mark.timeout(240)
def test_every_block_of_the_page_runs_as_it_is_printed(project, tmp_path):
    need_network_of_its_own()
    found = blocks((project / "docs" / "howto" / "serve.md").read_text("utf-8"))
    served, add, worker, workers, export, python, looks, curls, beside, elsewhere = found
    assert ("sh", "sh worker", "python") == (add[0], worker[0], python[0])
    site, commands = tmp_path / "site", tmp_path / "bin"
    site.mkdir()
    commands.mkdir()
    (site / "index.html").write_text('<a href="b.html">b</a> <a href="c.html">c</a>')
    (site / "b.html").write_text("<title>B</title>")
    (site / "c.html").write_text("<title>C</title>")
    (tmp_path / "worker.sh").write_text(worker[1])
    fetch = "class Page:\n    links = ()\n\n\ndef my_fetch(url):\n    return Page\n\n\n"
    (tmp_path / "program.py").write_text(fetch + python[1])
    for name, more in (("python3", ""), ("outrider", " -m outrider")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable}{more} "$@"\n')
        (commands / name).chmod(0o755)
    script = "\n".join(
        (
            HELPERS,
            f"{served[1].rstrip()} & server=$!",
            "answers http://127.0.0.1:7070/healthz",
            add[1],
            "export WAIT=2500",
            "sh worker.sh http://127.0.0.1:7070 one & one=$!; sh worker.sh http://127.0.0.1:7070 two && wait $one",
            'echo "curl workers ended with $?"',
            # The curl workers have left nothing, so the other ones get a URL more.
            "outrider add example http://127.0.0.1:8000/b.html?again",
            workers[1],
            'echo "workers ended with $?"; wait %?ann',
            export[1],
            'echo "export ended with $?"',
            "python3 program.py",
            'echo "program ended with $?"',
            *(f'{line}\necho; echo "look ended with $?"' for line in (looks[1] + curls[1]).splitlines()),
            "ends $server",
            f"{beside[1].rstrip()} --max-seconds 20 & crawl=$!",
            "answers http://127.0.0.1:7070/healthz && echo 'beside a crawl'",
            "ends $crawl",
            f"{elsewhere[1].rstrip()} & server=$!",
            "answers https://192.168.1.7:7070/healthz && echo 'on another address'",
            "ends $server",
        )
    )
    ran = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "bash", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=220,
        cwd=tmp_path,
        env={**environment(), "PATH": f"{commands}:{environment()['PATH']}"},
        check=False,
    )
    said = ran.stdout
    assert "Traceback" not in said, said
    for words in ("curl workers", "workers", "export", "program"):
        assert f"{words} ended with 0" in said, said
    assert 9 == said.count("look ended with 0"), said
    assert "NOBODY" not in said, said
    assert ("beside a crawl" in said, "on another address" in said) == (True, True), said
    assert '"accepted":1' in said
    fetched = {line["url"] for name in ("ann", "bob") for line in pages(tmp_path / name) if line["status"] == 200}
    assert {"http://127.0.0.1:8000/b.html?again"} == fetched, said
    assert len(fetched) == len(pages(tmp_path))
