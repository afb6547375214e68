"""A command that starts where something is missing: a stream, a directory, open files, its settings."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess

import pytest

import outrider
from e2e import crawling
from outrider.errors import SettingsError


def in_a_shell(line: str, *arguments: object, **more: str) -> subprocess.CompletedProcess:
    """`line` in a shell, where "$@" is the command."""
    return subprocess.run(
        ["sh", "-c", line, "sh", *crawling.command(*map(str, arguments))],
        capture_output=True,
        text=True,
        timeout=90,
        env=crawling.environment(PYTHONPATH=f"{crawling.ROOT}/src", **more),
        check=False,
    )


def test_kernels_that_do_not_exist_are_reported_in_one_line():
    told = crawling.outrider("version", OUTRIDER_KERNELS="swift")
    assert (2, 1) == (told.returncode, told.stderr.count("\n"))
    assert "OUTRIDER_KERNELS is 'swift'" in told.stderr


def test_seeds_from_a_closed_standard_input_are_reported_as_missing(tmp_path):
    told = in_a_shell('exec "$@" <&-', "crawl", "-", "-o", tmp_path / "out")
    assert (2, True) == (told.returncode, "is closed" in told.stderr)


def test_a_crawl_needs_no_standard_streams(tmp_path):
    with crawling.web(tmp_path / "web", hosts=1, pages=3) as served:
        arguments = crawling.on(served, tmp_path / "out", "--delay", "0", "--progress", "log")
        assert 0 == in_a_shell('exec "$@" <&- >&- 2>&-', *arguments).returncode
    assert crawling.fetched(tmp_path / "out")


def test_a_removed_working_directory_is_reported_where_a_relative_path_needs_it(tmp_path):
    line = f'mkdir {tmp_path}/d && cd {tmp_path}/d && rmdir {tmp_path}/d && exec "$@"'
    told = in_a_shell(line, "crawl", "http://localhost/", "-o", "out")
    assert (2, True) == (told.returncode, "the directory you are in was removed" in told.stderr)


def test_resume_without_its_settings_is_refused_and_changes_nothing(tmp_path):
    output = tmp_path / "out"
    with crawling.web(tmp_path / "web", hosts=2, pages=20) as served:
        assert 3 == crawling.outrider(*crawling.on(served, output, "--max-pages", "3")).returncode
        (output / "outrider.toml").unlink()
        before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
        told = crawling.outrider("resume", output)
        assert (2, True) == (told.returncode, "has no outrider.toml" in told.stderr)
        assert before == {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits are set between fork and exec")
def test_few_open_files_slow_a_crawl_and_fail_no_host(tmp_path):
    with crawling.web(tmp_path / "web", hosts=20, pages=60) as served:
        ended = subprocess.run(
            crawling.command(*crawling.on(served, tmp_path / "out", "--delay", "0")),
            capture_output=True,
            text=True,
            timeout=90,
            cwd=crawling.ROOT,
            env=crawling.environment(),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
            check=False,
        )
    assert (0, "") == (ended.returncode, ended.stderr)
    assert [] == [page for page in crawling.pages(tmp_path / "out") if page.get("error") in ("internal", "unreachable")]
    assert " error=" not in (tmp_path / "out" / "crawl.log").read_text()


def test_a_crawl_inside_an_event_loop_makes_nothing_until_its_pages_are_read(tmp_path):
    async def caller() -> None:
        outrider.crawl(["http://localhost/"], output=tmp_path / "out")

    asyncio.run(caller())
    assert not (tmp_path / "out").exists()


def test_one_text_is_not_a_list_of_seeds(tmp_path):
    with pytest.raises(SettingsError, match="pass a list"):
        outrider.crawl("http://localhost/", output=tmp_path / "out")
