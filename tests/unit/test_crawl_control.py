"""DIR/control.sock: queries and answers, private, and never an obstacle for the crawl."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from outrider.crawl.questions.control import Control, ask
from outrider.errors import InvalidUrlError, SettingsError, UnreachableError


async def answer(question):
    if question.get("url") == "mailto:a@b":
        raise InvalidUrlError("no such thing")
    return {"pages": 3} | ({"of": question["url"]} if "url" in question else {})


def asked(directory, question, before=None, **arguments):
    async def both():
        control = Control(str(directory), {"status": answer})
        await control.open()
        try:
            mode = os.stat(directory / "control.sock").st_mode & 0o777
            if before is not None:
                before(directory)
            return mode, await asyncio.to_thread(ask, str(directory), question, seconds_max=2, **arguments)
        finally:
            await control.close()

    return asyncio.run(both())


def test_a_query_is_answered_over_a_private_socket(tmp_path):
    assert (0o600, {"pages": 3}) == asked(tmp_path, "status")


def test_a_directory_with_the_longest_path_has_a_socket_too(tmp_path):
    deep = tmp_path.joinpath(*["d" * 100] * 5)
    deep.mkdir(parents=True)
    assert {"pages": 3} == asked(deep, "status")[1]


def test_the_socket_of_a_dead_process_is_replaced(tmp_path):
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "control.sock"))
    dead.close()
    assert {"pages": 3} == asked(tmp_path, "status")[1]


def test_the_socket_is_removed_at_the_end(tmp_path):
    asked(tmp_path, "status")
    assert [] == os.listdir(tmp_path)


def test_an_unknown_query_is_answered_with_the_known_ones(tmp_path):
    with pytest.raises(UnreachableError, match="unknown question; use one of status"):
        asked(tmp_path, "secrets")


def test_a_query_may_have_arguments(tmp_path):
    assert {"pages": 3, "of": "http://a.com/"} == asked(tmp_path, "status", url="http://a.com/")[1]


def test_invalid_arguments_are_reported(tmp_path):
    with pytest.raises(SettingsError, match="no such thing"):
        asked(tmp_path, "status", url="mailto:a@b")


def test_noise_does_not_stop_the_next_caller(tmp_path):
    def noise(directory):
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(str(directory / "control.sock"))
            rude.sendall(b"\xff" * 100_000)

    assert {"pages": 3} == asked(tmp_path, "status", noise)[1]


def test_where_no_crawl_runs_the_call_fails(tmp_path):
    with pytest.raises(UnreachableError):
        ask(str(tmp_path), "status")
