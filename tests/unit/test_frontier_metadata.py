"""Metadata of a URL: all accepted metadata can be leased, listed and restored."""

from __future__ import annotations

import io
import json

import msgspec
import pytest

from outrider import Frontier
from outrider.crawl.orders.exchange import import_files
from outrider.errors import SettingsError
from outrider.frontier.format.metadata import packed, unpacked
from outrider.journey import Link, Outcome, Verdict
from outrider.limits import JSON_DEPTH_MAX, METADATA_BYTES_MAX
from served import API, A, B, Served

PARCEL = (0, 1, 0, "crawl", "", -1, 0.5, 0, 0, 0, "", b"{}", A)


def nested(levels, of="mapping"):
    """Returns metadata with this number of levels, the outermost included."""
    value = []
    for _ in range(levels - 2):
        value = {"a": value} if of == "mapping" else [value]
    return {"a": value}


def octets(levels):
    return b'{"a":' * levels + b"1" + b"}" * levels


@pytest.mark.parametrize("of", ["mapping", "list"])
def test_metadata_with_the_maximum_depth_is_returned_with_the_lease(of):
    with Frontier.memory(robots="caller") as frontier:
        assert ["new"] == frontier.discover([Link(A, metadata=nested(JSON_DEPTH_MAX, of))])
        assert [nested(JSON_DEPTH_MAX, of)] == [one.metadata for one in frontier.lease(1)]


@pytest.mark.parametrize("levels", [JSON_DEPTH_MAX + 1, 500, 960, 970, 980, 990, 1_100, 50_000])
def test_deeper_metadata_is_refused_by_every_call(levels):
    deep = nested(levels)
    with Frontier.memory(robots="caller") as frontier:
        frontier.discover([B])
        lease = frontier.lease(1)[0]
        ways = (
            lambda: frontier.discover([Link(A, metadata=deep)]),
            lambda: frontier.restore([{"url": A, "state": "queued", "metadata": deep}]),
            lambda: frontier.report([lease.done(links=[Link(A, metadata=deep)])]),
            lambda: frontier.report([Outcome(lease.token, Verdict.DONE, metadata=deep)]),
            lambda: frontier.receive([(*PARCEL[:11], octets(levels) if levels < 2_500 else b'{"a":' * 2_500, A)]),
        )
        for way in ways:
            with pytest.raises(SettingsError, match="metadata"):
                way()
        assert [B] == [record["url"] for record in frontier.records()]


def test_brackets_in_texts_are_not_levels():
    told = {"a": "[{" * 500 + '\\"', "b": ["]"] * 500, '"[\\': [[]]}
    assert told == unpacked(packed(told))
    rows = {"rows": [{"n": [n]} for n in range(500)]}
    assert rows == unpacked(packed(rows))


@pytest.mark.parametrize("raw", [b"not json", b"1e999", b"[1,", b"\xff"])
def test_octets_that_are_not_json_are_refused_as_metadata(raw):
    with pytest.raises(SettingsError, match="metadata"):
        packed({"a": msgspec.Raw(raw)})


def test_a_parcel_whose_metadata_is_not_a_mapping_is_refused():
    with Frontier.memory(robots="caller") as frontier, pytest.raises(SettingsError, match="metadata of a parcel"):
        frontier.receive([(*PARCEL[:11], b"[1]", A)])


def test_too_long_metadata_is_over_the_limit_at_any_depth():
    with Frontier.memory(robots="caller") as frontier:
        assert ["over_limit"] == frontier.discover([Link(A, metadata={"a": [[[]]] * METADATA_BYTES_MAX})])


def test_a_store_with_unreadable_deep_metadata_opens_and_continues(tmp_path, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr("outrider.frontier.verbs.discovering.packed", lambda value: octets(2_000) if value else b"")
        with Frontier.open(tmp_path / "store", robots="caller") as frontier:
            frontier.discover([B, Link(A, metadata={"deep": True})])
    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        assert {A, B} == {record["url"] for record in frontier.records()}
        served = Served(frontier=frontier)
        leased = {one["url"]: one["metadata"] for one in served.next()["urls"]}
    assert {A, B} == set(leased)
    assert None is leased[B]
    depth, value = 0, leased[A]
    while value is not None:
        depth, value = depth + 1, value["a"]
    assert JSON_DEPTH_MAX == depth


def test_an_answer_that_cannot_be_written_returns_its_leases(monkeypatch):
    served = Served()
    served.add(A, B)
    with monkeypatch.context() as broken:

        def failing(_):
            raise RecursionError

        broken.setattr("outrider.service.routes.encode", failing)
        assert (500, "bug") == served.problem("GET", f"{API}/frontier/next?worker_id=w&batch_size=10")
    assert 0 == len(served.desk.registry)
    assert {A, B} == {one["url"] for one in served.next()["urls"]}


HALF = "\ud800x"  # half a surrogate pair: no character, so that neither UTF-8 nor JSON has it


@pytest.mark.parametrize(
    "way",
    [
        lambda frontier, lease: frontier.discover([Link(A, key=HALF)]),
        lambda frontier, lease: frontier.discover([Link(A, crawl=HALF)]),
        lambda frontier, lease: frontier.discover([Link(A, referrer="http://b.com/" + HALF)]),
        lambda frontier, lease: frontier.discover([Link(A, metadata={HALF: 1})]),
        lambda frontier, lease: frontier.restore([{"url": A, "state": "queued", "key": HALF}]),
        lambda frontier, lease: frontier.restore([{"url": A, "state": "queued", "referrer": HALF}]),
        lambda frontier, lease: frontier.restore([{"url": A, "state": "gone", "error": HALF}]),
        lambda frontier, lease: frontier.report([lease.gone(error=HALF)]),
        lambda frontier, lease: frontier.report([lease.done(links=[Link(A, referrer=HALF)])]),
        lambda frontier, lease: frontier.receive([(*PARCEL[:4], HALF, *PARCEL[5:])]),
        lambda frontier, lease: frontier.receive([(*PARCEL[:10], HALF, *PARCEL[11:])]),
        lambda frontier, lease: frontier.lease(1, worker=HALF),
    ],
)
def test_texts_that_cannot_be_written_in_an_answer_are_refused(way):
    with Frontier.memory(robots="caller") as frontier:
        frontier.discover([B])
        lease = frontier.lease(1)[0]
        with pytest.raises(SettingsError):
            way(frontier, lease)
        assert [B] == [record["url"] for record in frontier.records()]


def test_unwritable_texts_of_older_stores_are_written_with_a_replacement(monkeypatch):
    served = Served()
    with monkeypatch.context() as before:
        before.setattr("outrider.frontier.verbs.arguments.unicode", lambda what, value: None)
        served.frontier.discover([Link(A, key=HALF, referrer="http://b.com/" + HALF, crawl=HALF), Link(B, key=HALF)])
        served.frontier.report([served.frontier.lease(1, crawl="default", worker=HALF)[0].gone(error=HALF)])
    (leased,) = served.next()["urls"]
    assert (A, "?x", "http://b.com/?x") == (leased["url"], leased["key"], leased["referrer"])
    for path in ("/status", "/stats", "/workers", "/hosts", "/urls?limit=10", f"/explain?url={B}", "/why-idle"):
        assert 200 == served.ask("GET", API + path)[0], path
    assert 200 == served.ask("GET", "/metrics")[0]


class Gone:
    """A connection whose client has disconnected."""

    lost = True


@pytest.mark.parametrize(("key", "left"), [(None, {A, B}), ("one", set())])
def test_leases_of_a_disconnected_client_are_returned_unless_it_may_repeat_the_request(key, left):
    served = Served()
    served.add(A, B)
    headers = {} if key is None else {"idempotency-key": key}
    served.ask("GET", f"{API}/frontier/next?worker_id=w&batch_size=10", headers=headers, connection=Gone())
    assert left == {one["url"] for one in served.next("worker_id=v&batch_size=10")["urls"]}
    if key is not None:
        again = served.ask("GET", f"{API}/frontier/next?worker_id=w&batch_size=10", headers=headers)[2]
        assert {A, B} == {one["url"] for one in again["urls"]}


@pytest.mark.parametrize("levels", [65, 500, 940, 970, 1_500])
def test_a_body_with_deep_metadata_is_refused_and_leases_no_url(levels):
    served = Served()
    served.add(A)
    body = b'{"urls":[{"url":"http://b.com/","metadata":' + octets(levels) + b"}]}"
    status, name = served.problem("POST", f"{API}/frontier/urls", body)
    assert (400, True) == (status, name in ("invalid-argument", "malformed-body"))
    assert [A] == [one["url"] for one in served.next()["urls"]]


def test_a_row_with_deep_metadata_is_named_and_the_other_rows_are_imported(tmp_path):
    rows = [{"url": url, "state": "queued", "metadata": nested(levels)} for url, levels in ((A, 500), (B, 5))]
    (tmp_path / "urls.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = import_files(str(tmp_path / "crawl"), [str(tmp_path / "urls.jsonl")], io.StringIO())
    assert (2, 1) == (found.rows, found.skipped)
    assert [1] == [line for _, line, words in found.faults if "metadata" in words]


@pytest.mark.parametrize("text", [b'"' + b"a" * 10_000, b'\\"' * 5_000, b'"' * 9_999, b'"\\'])
def test_octets_that_are_not_json_are_refused_at_once(text):
    """A text without an end once doubled its time with each further octet."""
    with Frontier.memory(robots="caller") as frontier, pytest.raises(SettingsError, match="metadata"):
        frontier.receive([(*PARCEL[:-2], b"[" * (JSON_DEPTH_MAX + 1) + text, A)])
