"""The meaning of an answer: outcome, verdict, lines. A table, without a socket."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest

from fake_web import answer
from outrider.clock import rfc3339_exact
from outrider.crawl.run.lease_kinds import stopped_outcome
from outrider.crawl.run.visit import (
    Judgement,
    Visit,
    content_digest,
    judged,
    page_outcome,
    politeness_line,
    robots_outcome,
)
from outrider.fetch.downloader import Decoding, Headers, Response
from outrider.fetch.failures import FetchError
from outrider.fetch.judging import location_of
from outrider.frontier.verbs.outcome_columns import outcomes_of
from outrider.journey import Kind, Lease, Verdict, Word
from outrider.url import UrlBatch

AT = 1_767_225_600_000_000  # 2026-01-01


def lease(attempt: int = 1, kind: Kind = Kind.PAGE, **more) -> Lease:
    fields = {"ended_before": AT - 2_000_000, "gap_seconds": 1.5, "referrer": "http://a.test/", "depth": 1} | more
    return Lease(
        url="http://a.test/page",
        key="a.test",
        kind=kind,
        authority="http://a.test",
        host="a.test",
        token=7,
        deadline=AT + 90_000_000,
        priority=0.5,
        attempt=attempt,
        not_before=AT,
        **fields,
    )


def response(
    status: int | None = 200,
    *,
    error=None,
    body=b"hello",
    truncated=None,
    content=None,
    decoding=Decoding.WHOLE,
    **headers,
) -> Response:
    fields = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    times = {"started_at": AT, "ended_at": AT + 250_000, "seconds": 0.25}
    content = body if content is None else content
    parts = {"error": error, "truncated": truncated, "content": content, "decoding": decoding, **times}
    return answer("http://a.test/page", status, body, fields, **parts)


def visit(answer: Response | None = None, attempt: int = 1, **more) -> Visit:
    return Visit(lease(attempt), AT, AT + 300_000, answer, **more)


@pytest.mark.parametrize(
    ("status", "word", "verdict"),
    [
        (200, "done", Verdict.DONE),
        (204, "done", Verdict.DONE),
        (206, "done", Verdict.DONE),
        (300, "gone", Verdict.GONE),
        (304, "gone", Verdict.GONE),
        (101, "gone", Verdict.GONE),
        (404, "gone", Verdict.GONE),
        (410, "gone", Verdict.GONE),
        (401, "gone", Verdict.GONE),
        (451, "gone", Verdict.GONE),
        (408, "retry", Verdict.RETRY),
        (425, "retry", Verdict.RETRY),
        (429, "retry", Verdict.RETRY),
        (500, "retry", Verdict.RETRY),
        (503, "retry", Verdict.RETRY),
        (599, "retry", Verdict.RETRY),
        (600, "retry", Verdict.RETRY),
        (999, "retry", Verdict.RETRY),
    ],
)
def test_a_status_decides_the_outcome(status, word, verdict):
    found = judged(visit(response(status)))
    assert (word, verdict) == (found.word, found.verdict)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_leads_to_the_canonical_target(status):
    found = judged(visit(response(status, location="../b?x=%7e#top")))
    assert Judgement("redirect", Verdict.DONE, None, "http://a.test/b?x=~") == found


@pytest.mark.parametrize("location", ["mailto:a@b", "http://[", "javascript:1"])
def test_a_redirect_to_no_url_is_gone(location):
    found = judged(visit(response(302, location=location)))
    assert ("gone", Verdict.GONE, "bad_location") == (found.word, found.verdict, found.error)


@pytest.mark.parametrize(
    ("octets", "expected"),
    [
        ("/é".encode(), "http://a.test/%C3%A9"),
        ("/é".encode("latin-1"), "http://a.test/%E9"),
        ("/s?q=é#é".encode("latin-1"), "http://a.test/s?q=%E9"),
        ("/中".encode("gbk"), "http://a.test/%D6%D0"),
        (b"/\xc0\xa0", "http://a.test/%C0%A0"),
        (b"/\x85", "http://a.test/%85"),
        ("http://bücher.test/é".encode(), "http://xn--bcher-kva.test/%C3%A9"),
    ],
)
def test_octets_of_a_location_beyond_ascii_are_encoded_unchanged(octets, expected):
    headers = Headers.parse(b"HTTP/1.1 301 Moved\r\nLocation: " + octets + b"\r\n\r\n")
    assert expected == location_of(replace(response(301), headers=headers))


@pytest.mark.parametrize(("status", "refused"), [(429, True), (503, True), (500, False), (408, False)])
def test_an_overloaded_site_refuses(status, refused):
    assert refused == judged(visit(response(status))).refused


def test_retry_after_is_read_from_refusals_and_redirects_only():
    found = [judged(visit(response(s, retry_after="120", location="/x"))).retry_after for s in (200, 301, 404, 503)]
    assert [None, 120.0, 120.0, 120.0] == found


def test_the_last_failing_attempt_is_an_error():
    assert ["retry", "retry", "retry", "error"] == [judged(visit(response(500), n)).word for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("error", list(FetchError))
def test_an_error_is_retried_where_it_may_be_temporary(error):
    found = judged(visit(None, error=error))
    expected = ("retry", Verdict.RETRY) if error.retryable else ("error", Verdict.GONE)
    assert (*expected, str(error)) == (found.word, found.verdict, found.error)


def test_a_page_that_was_cut_is_kept_as_truncated():
    assert "truncated" == judged(visit(response(truncated="length"))).word


def test_a_copy_of_a_whole_page_is_a_duplicate_but_not_a_copy_of_a_cut_page():
    words = [Judgement(word, Verdict.DONE).as_known(Word.DUPLICATE).word for word in ("done", "truncated")]
    assert ["duplicate", "truncated"] == words


def outcome_of(seen: Visit, **more):
    given = {"page": None, "links": ["http://a.test/x"], "digest": b"d", "digest_shown": "sha1:D", "warc": None} | more
    return page_outcome(seen, judged(seen), **given)


def test_the_frontier_gets_all_facts_that_it_needs():
    outcome = outcome_of(visit(response(etag='"e"', last_modified="Thu, 01 Jan 2026 00:00:00 GMT")))
    told = (outcome.token, outcome.seconds, outcome.ended_at, outcome.answered, outcome.bytes_read, outcome.etag)
    assert (7, 0.25, AT + 250_000, True, 5, '"e"') == told


def test_a_visit_without_a_request_delays_no_host_and_counts_as_no_answer():
    outcome = outcome_of(visit(None, error=FetchError.DNS_UNKNOWN))
    assert (None, False, None) == (outcome.seconds, outcome.answered, outcome.politeness)


def test_a_failed_connection_was_a_request_to_the_site():
    seen = visit(response(None, error=FetchError.CONNECT_REFUSED, body=b""))
    assert "connect_refused" == json.loads(politeness_line(seen) or b"")["error"]


def test_the_politeness_line_contains_the_kept_and_the_required_gap():
    line = json.loads(politeness_line(visit(response())) or b"")
    assert (2.0, 1.5, "2026-01-01T00:00:00.000000Z") == (line["gap"], line["gap_required"], line["started_at"])


def test_the_politeness_line_names_the_rules_that_allowed_its_page():
    told = lease(ruled_by=("sha256:ab", 7), about_uses=((9, "content-signal", "ai-train=no"),))
    line = json.loads(politeness_line(Visit(told, AT, AT, response())) or b"")
    assert ("sha256:ab", 7, {"train-ai": "n"}) == (line["robots_digest"], line["robots_line"], line["preferences"])
    line = json.loads(politeness_line(Visit(lease(ruled_by=("sha256:ab", 0)), AT, AT, response())) or b"")
    assert (True, False, False) == tuple(name in line for name in ("robots_digest", "robots_line", "preferences"))


def test_the_first_request_to_a_host_has_no_gap():
    first = Visit(lease(ended_before=None), AT, AT, response())
    line = json.loads(politeness_line(first) or b"")
    assert (None, None) == (line["gap"], line["gap_required"])


def test_the_page_line_has_an_error_only_after_an_error():
    lines = [json.loads(outcome_of(visit(answer)).line) for answer in (response(), response(503))]
    assert [False, True] == ["error" in line for line in lines]


def test_an_overlong_header_is_cut_in_the_line():
    assert 1_000 == len(json.loads(outcome_of(visit(response(etag="x" * 9_000))).line)["etag"])


def test_digests_of_content_and_of_bytes_differ_for_a_packed_body():
    plain, packed = (
        content_digest(response()),
        content_digest(response(body=b"5\r\nhello\r\n0\r\n\r\n", content=b"hello")),
    )
    assert plain[0] == packed[0]
    assert plain[1] != packed[1]


def test_a_robots_answer_is_handled_hop_by_hop():
    seen = Visit(lease(kind=Kind.ROBOTS), AT, AT, response(302, location="http://b.test/robots.txt"))
    answer = robots_outcome(seen).robots
    assert (302, "http://b.test/robots.txt") == (answer.status, answer.location)


def test_robots_files_that_ended_early_count_as_unreachable():
    seen = Visit(lease(kind=Kind.ROBOTS), AT, AT, response(200, error=FetchError.IDLE_TIMEOUT))
    assert None is robots_outcome(seen).robots.status


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"truncated": "disconnect"}, "truncated"),
        ({"truncated": "time"}, "truncated"),
        ({"truncated": "unspecified"}, "truncated"),
        ({"decoding": Decoding.BROKEN}, "decode"),
        ({"decoding": Decoding.UNKNOWN, "content": b"PK\x03\x04"}, "decode"),
        ({"decoding": Decoding.CUT}, "decode"),
        ({"decoding": Decoding.UNKNOWN, "truncated": "length", "content": b"\x00"}, "decode"),
        ({"decoding": Decoding.BROKEN, "truncated": "length", "content": b""}, "decode"),
    ],
)
def test_an_incomplete_robots_txt_counts_as_no_file_and_says_why(how, error):
    seen = Visit(lease(kind=Kind.ROBOTS), AT, AT, response(200, body=b"User-agent: *\nDisallow: /", **how))
    outcome = robots_outcome(seen)
    assert (None, b"", error) == (outcome.robots.status, outcome.robots.body, outcome.error)


@pytest.mark.parametrize("status", [302, 404, 503])
def test_a_missing_robots_txt_is_known_by_its_status_however_its_body_ends(status):
    """A body without rules may end early."""
    seen = Visit(lease(kind=Kind.ROBOTS), AT, AT, response(status, truncated="disconnect", location="/r"))
    outcome = robots_outcome(seen)
    assert (status, b"", None) == (outcome.robots.status, outcome.robots.body, outcome.error)


@pytest.mark.parametrize("decoding", [Decoding.WHOLE, Decoding.BROKEN])
def test_a_robots_txt_that_our_limit_cut_counts_up_to_its_last_line(decoding):
    how = {"truncated": "length", "decoding": decoding, "content": b"User-agent: *\nDisallow: /a\nDisallow: /"}
    outcome = robots_outcome(Visit(lease(kind=Kind.ROBOTS), AT, AT, response(200, **how)))
    assert (200, b"User-agent: *\nDisallow: /a\n") == (outcome.robots.status, outcome.robots.body)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"decoding": Decoding.CUT}, Judgement("truncated", Verdict.DONE)),
        ({"decoding": Decoding.CUT, "content": b""}, Judgement("truncated", Verdict.DONE)),
        ({"decoding": Decoding.UNKNOWN, "content": b"\x00"}, Judgement("error", Verdict.GONE, "decode")),
        ({"decoding": Decoding.UNKNOWN, "truncated": "length"}, Judgement("truncated", Verdict.DONE)),
        ({"decoding": Decoding.BROKEN, "content": b""}, Judgement("error", Verdict.GONE, "decode")),
        ({"decoding": Decoding.BROKEN, "content": b"", "truncated": "length"}, Judgement("truncated", Verdict.DONE)),
    ],
)
def test_a_content_that_was_cut_or_cannot_be_decoded_is_not_done(how, expected):
    assert expected == judged(visit(response(**how)))


@pytest.mark.parametrize(
    ("content_type", "word"),
    [
        ("text/html", "error"),
        ("*/*, text/html", "error"),
        ("nonsense, application/xhtml+xml;charset=utf-8", "error"),
        ("", "error"),
        ("text/html, application/pdf", "done"),
        ("application/zip", "done"),
    ],
)
def test_the_last_valid_type_says_whether_bytes_in_an_unknown_coding_are_text(content_type, word):
    answer = response(content_type=content_type, decoding=Decoding.UNKNOWN, content=b"PK\x03\x04\x00")
    assert word == judged(visit(answer)).word


def test_a_cancelled_request_is_repeated_and_recorded():
    outcome = stopped_outcome(visit(None, stopped=True, began=AT + 100_000))
    line = json.loads(outcome.politeness)
    assert (Verdict.AGAIN, 0.2, "stopped", None) == (outcome.verdict, outcome.seconds, line["error"], outcome.line)


def test_instants_keep_their_microseconds():
    assert "2026-01-01T00:00:01.000042Z" == rfc3339_exact(AT + 1_000_042)


def test_a_sitemap_that_is_a_packed_file_needs_no_known_coding():
    packed = response(content=gzip.compress(b"<urlset/>"), decoding=Decoding.UNKNOWN)
    sitemap = Visit(lease(kind=Kind.SITEMAP), AT, AT, packed)
    assert Judgement("done", Verdict.DONE) == judged(sitemap, may_be_packed=True)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"<p>the first ha", Judgement("truncated", Verdict.DONE, "decode")),
        (b"", Judgement("error", Verdict.GONE, "decode")),
    ],
)
def test_a_broken_content_coding_is_reported_by_the_readable_part_of_the_page(content, expected):
    assert expected == judged(visit(response(body=b"\x1f\x8bcut", content=content, decoding=Decoding.BROKEN)))


@pytest.mark.parametrize("letter", ["a", "\xff", "\x01", '"'])
def test_no_page_and_no_answer_makes_an_outcome_that_the_frontier_refuses(letter):
    """Headers and pages of any size: validators that are too long are left out, and lines stay within their limit."""
    long = letter * 262_144

    class Page:
        title = description = language = long
        canonical = "http://a.test/" + "a" * 2_000_000
        charset, simhash, shingles, text_digest, left_out, octets, robots = (
            "utf-8",
            1,
            1,
            1,
            1,
            b"text",
            frozenset({long}),
        )
        image = None

    found = visit(response(etag=long, last_modified=long, content_type=long, date=long, location=long))
    told = {"page": Page(), "links": UrlBatch.of([]), "digest": b"x" * 20, "digest_shown": "sha1:x", "warc": None}
    for judgement in (judged(found), Judgement("redirect", Verdict.DONE, location="http://b.test/" + "b" * 786_432)):
        outcome = page_outcome(found, judgement, **told)
        outcomes_of([outcome])
        assert (None, None) == (outcome.etag, outcome.last_modified)
        assert json.loads(outcome.line)["etag"] == letter * 1_000
    outcomes_of([robots_outcome(found), stopped_outcome(found)])


def test_a_validator_that_is_kept_is_complete():
    """A part of a validator would save no download."""
    found = visit(response(etag="x" * 1_000, last_modified="y" * 1_001))
    outcome = page_outcome(
        found, judged(found), page=None, links=UrlBatch.of([]), digest=None, digest_shown=None, warc=None
    )
    assert ("x" * 1_000, None) == (outcome.etag, outcome.last_modified)
