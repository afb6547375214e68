"""A server's address whose scheme was forgotten: it never becomes a directory, and the message names both spellings."""

from __future__ import annotations

import io

import pytest

from outrider.crawl.orders.exchange import import_files
from outrider.crawl.setup.directory import DirectoryContent, no_crawl
from outrider.engine.http_requests import directory_or_address
from outrider.errors import NamedPathError, SettingsError


@pytest.mark.parametrize("place", ["127.0.0.1:7070", "localhost:7070", "[::1]:7070", "frontier.example:7070/"])
def test_an_address_without_a_scheme_is_refused(place):
    with pytest.raises(SettingsError, match="it has no scheme; write http://"):
        directory_or_address(place)


@pytest.mark.parametrize("place", ["jobs", "./127.0.0.1:7070", "a/b:7", "jobs:x", "2026-11-29T10:30:00"])
def test_other_words_are_directories(place):
    assert directory_or_address(place) == (place, None)


@pytest.mark.parametrize("place", ["http://127.0.0.1:7070", "grpc://[::1]:7071"])
def test_an_address_with_its_scheme_is_an_address(place):
    assert directory_or_address(place) == (None, place)


def test_a_command_names_the_address_that_was_meant():
    assert "write http://127.0.0.1:7070 if" in str(no_crawl("127.0.0.1:7070", DirectoryContent.NOTHING))


def test_a_directory_is_no_file_to_import(tmp_path):
    with pytest.raises(NamedPathError, match="is a directory; name a file, or a JOBDIR"):
        import_files(str(tmp_path / "new"), [str(tmp_path)], io.StringIO())
    assert not (tmp_path / "new").exists()
