"""Tests that start real servers and browsers of this machine, on loopback: what `make test-servers` runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from e2e.crawling import command, environment
from servers.kafka import Kafka
from servers.programs import MISSING

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder are marked `servers`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.servers)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Names the programs that this machine lacks, in one line at the end. Other runs leave these tests out."""
    if config.option.markexpr.startswith("servers") and not config.option.collectonly:
        missing = ", ".join(f"{name} (Debian's package {package})" for name, package in sorted(MISSING.items()))
        print(f"Not available here, so not tested: {missing or 'nothing'}.")


@pytest.fixture
def python(project):
    """The Python of the environment that `make test-servers` makes for other crawlers."""
    path = project / ".venv-peers" / "bin" / "python"
    if not path.exists():
        pytest.fail(".venv-peers is missing: run `python3 scripts/install.py --servers`")
    return str(path)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    """Three brokers for the tests of a file."""
    with Kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def served(tmp_path):
    """Starts `serve`: its address, and its process."""
    running = []

    def begin():
        words = command("serve", tmp_path / "served", "--http", "127.0.0.1:0", "--delay", "0", "--delay-factor", "0")
        running.append(subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment()))
        line = running[-1].stderr.readline()
        assert "serving at" in line, line
        return line.split()[-1], running[-1]

    yield begin
    for process in running:
        process.kill()
        process.communicate()
