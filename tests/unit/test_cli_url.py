"""`outrider url`: results and messages on separate streams, exit code 2 for what cannot be crawled, no control
characters."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.cli import main as cli
from outrider.url import PUBLIC_SUFFIX_DATE, fingerprints


class Said(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    def run(*arguments: str, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = cli.run(["url", *arguments])
        told = capsys.readouterr()
        return Said(code, told.out, told.err)

    return run


def objects(said: Said) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.out.splitlines()]


def test_normalize_prints_one_line_per_url(command: Command) -> None:
    said = command("normalize", "HTTP://Example.ORG:80/a/../b?x=%7e#top", "http://example.org")
    assert (0, "http://example.org/b?x=~\nhttp://example.org/\n", "") == said


def test_normalize_applies_the_requested_rules(command: Command) -> None:
    url = "http://www.example.org/?b=1&a=2&gclid=3"
    assert f"{url}\n" == command("normalize", url).out
    assert "http://www.example.org/?a=2&b=1\n" == command("normalize", "--rules", "sort-query,tracking", url).out


def test_normalize_explains_what_each_rule_did(command: Command) -> None:
    said = command("normalize", "--rules", "tracking,trailing_slash", "--explain", "HTTP://example.org/a/?gclid=3&b")
    assert (
        "HTTP://example.org/a/?gclid=3&b\n"
        "  spelling        http://example.org/a/?gclid=3&b\n"
        "  trailing_slash  http://example.org/a?gclid=3&b\n"
        "  tracking        http://example.org/a?b\n"
    ) == said.out


def test_normalize_explains_in_json_too(command: Command) -> None:
    assert [
        {
            "given": "HTTP://u@example.org/a/",
            "url": "http://example.org/a",
            "dropped": ["user"],
            "steps": [
                {"rule": "spelling", "before": "HTTP://u@example.org/a/", "after": "http://example.org/a/"},
                {"rule": "trailing_slash", "before": "http://example.org/a/", "after": "http://example.org/a"},
            ],
        }
    ] == objects(command("normalize", "--rules=trailing_slash", "--explain", "--json", "HTTP://u@example.org/a/"))


def test_relative_urls_are_resolved_against_the_named_page(command: Command) -> None:
    assert "http://example.org/b\n" == command("normalize", "--base", "http://example.org/a", "b").out


def test_a_scheme_is_only_assumed_on_request(command: Command) -> None:
    assert 2 == command("normalize", "example.org").code
    assert "https://example.org/\n" == command("normalize", "--default-scheme", "https", "example.org").out


def test_a_url_that_cannot_be_crawled_is_named_with_its_reason_and_the_other_urls_continue(command: Command) -> None:
    said = command("normalize", "http://exa mple.org/", "http://example.org/")
    assert (2, "http://example.org/\n") == (said.code, said.out)
    assert said.err.endswith("'http://exa mple.org/': the character at position 10 may not stand in a host name\n")


def test_in_json_an_invalid_url_has_a_line_of_its_own(command: Command) -> None:
    said = command("normalize", "--json", "http://exa mple.org/", "http://example.org/")
    reason = "the character at position 10 may not stand in a host name"
    assert [
        {"given": "http://exa mple.org/", "error": reason, "position": 10},
        {"given": "http://example.org/", "url": "http://example.org/"},
    ] == objects(said)


def test_urls_are_also_read_from_standard_input(command: Command) -> None:
    said = command("normalize", "http://a.example", "-", stdin=b"http://b.example\r\n\n  http://c.example  ")
    assert (0, "http://a.example/\nhttp://b.example/\nhttp://c.example/\n") == (said.code, said.out)


def test_a_line_of_standard_input_is_named_by_its_number(command: Command) -> None:
    long = b"http://example.org/" + b"a" * 100_000
    said = command("normalize", "-", stdin=b"http://a.example\n\xff\n" + long + b"\nnowhere\nhttp://b.example\n")
    assert (2, "http://a.example/\nhttp://b.example/\n") == (said.code, said.out)
    lines = said.err.splitlines()
    assert [2, 3, 4] == [
        number for line, number in zip(lines, (2, 3, 4), strict=True) if f"input, line {number}: " in line
    ]
    assert ["it is not UTF-8", "it is longer than 16384 bytes"] == [line.rpartition(": ")[2] for line in lines[:2]]


def test_an_unknown_rule_is_refused_with_all_known_rules(command: Command) -> None:
    said = command("normalize", "--rules", "trakking", "http://example.org/")
    assert (2, "") == (said.code, said.out)
    assert "did you mean tracking?" in said.err


def test_no_url_is_wrong_usage(command: Command) -> None:
    assert 2 == command("normalize").code


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "a.someone.github.io"),
        (("--by", "host"), "a.someone.github.io"),
        (("--by", "domain"), "someone.github.io"),
        (("--by", "domain", "--no-private"), "github.io"),
        (("--by", "origin"), "http://a.someone.github.io:8080"),
        (("--by", "address"), "a.someone.github.io"),
    ],
)
def test_key_prints_the_key_of_politeness(command: Command, options: tuple[str, ...], expected: str) -> None:
    assert (0, f"{expected}\n", "") == command("key", *options, "http://a.someone.github.io:8080/x")


def test_key_has_json_output(command: Command) -> None:
    assert [{"given": "http://[::1]/a/..", "url": "http://[::1]/", "by": "address", "key": "::1"}] == objects(
        command("key", "--json", "--by", "address", "http://[::1]/a/..")
    )


def test_people_see_no_secret_and_programs_see_their_own_input(command: Command) -> None:
    url = "http://u:secret@example.org/"
    said = [command(*words, url).out for words in (("normalize", "--explain"), ("explain",))]
    assert [False, False] == ["secret" in out for out in said]
    assert url == json.loads(command("normalize", "--json", url).out)["given"]


def test_explain_shows_everything_about_a_url(command: Command) -> None:
    key = bytes(range(16))
    fingerprint = int(fingerprints(["http://www.example.org:81/a"], key=key)[0])
    said = command(
        "explain", "--rules", "tracking", "--fingerprint-key", key.hex(), "http://u@WWW.example.org:81/a?gclid=1#x"
    )
    assert 0 == said.code
    assert (
        f"""\
http://www.example.org:81/a
  given               http://…@WWW.example.org:81/a?gclid=1#x
  scheme              http
  host                www.example.org
  port                81
  path                /a
  query               none
  dropped             user, fragment
  origin              http://www.example.org:81
  registrable domain  example.org
  public suffix list  {PUBLIC_SUFFIX_DATE}
  surt                http://(org,example,www,:81)/a
  fingerprint         {fingerprint:016x}
  steps
    spelling          http://www.example.org:81/a?gclid=1
    tracking          http://www.example.org:81/a
"""
        == said.out
    )


def test_explain_has_json_output(command: Command) -> None:
    (found,) = objects(command("explain", "--json", "http://example.org/"))
    assert ("http://example.org/", None, "example.org", []) == (
        found["url"],
        found["query"],
        found["registrable_domain"],
        found["steps"],
    )


@pytest.mark.parametrize("key", ["00", "xyz", "0" * 31, "g" * 32])
def test_a_malformed_fingerprint_key_is_refused_and_not_repeated(command: Command, key: str) -> None:
    said = command("explain", "--fingerprint-key", key, "http://example.org/")
    assert (2, "") == (said.code, said.out)
    assert "use 32 hex digits" in said.err
    assert f" {key}" not in said.err


@given(st.text(alphabet="ab:/?#@[]%\x00\x07\x1b\x9b\u202e\u2028\ud800\xe9", max_size=20), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_control_character_reaches_the_terminal(command: Command, tail: str, as_json: bool) -> None:
    options = ("--rules=aggressive", *(["--json"] if as_json else []), "--")
    said = command("explain", *options, f"http://example.org/{tail}", f"http://{tail}")
    text = (said.out + said.err).replace("\n", "")
    assert text.isprintable()
    assert said.code in (0, 2)
