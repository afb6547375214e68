"""The service over HTTP: the answer of each path, and each kind of bad input with its status and problem type."""

from __future__ import annotations

import asyncio
import json
import os
import re
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_web import answer
from limiting import set_limits
from outrider import Frontier
from outrider.cli import store_commands
from outrider.crawl.run.visit import Visit
from outrider.engine import messages
from outrider.engine.process_queries import HOST_ORDERS
from outrider.errors import NamedPathError, SettingsError, StoreFullError, StoreStoppedError
from outrider.fetch.failures import FetchError
from outrider.limits import DEPTH_MAX, SERVICE_BODY_BYTES_MAX
from outrider.service import http_server, routes
from outrider.service.access import Listening, Role, TokenRoles, listening
from outrider.service.audit import Audit
from outrider.service.connection import Connection
from outrider.service.openapi import document
from outrider.service.problems import TYPES, Problem
from outrider.service.server_errands import ServerErrands
from served import API, NOW, A, B, Served


def test_urls_are_counted_as_accepted_rejected_and_duplicate():
    served = Served()
    codes = ["new", "known", "invalid", "new"]
    assert {"accepted": 2, "rejected": 1, "duplicates": 1, "codes": codes, "refused": []} == served.add(
        A, "HTTP://a.com", "ftp://a.com/", {"url": B, "priority": 0.9, "depth": 3, "source_url": A}
    )
    assert 3 == served.frontier.explain(B).status.depth


def test_links_of_the_deepest_possible_page_are_accepted():
    served = Served()
    served.add({"url": A, "depth": DEPTH_MAX})
    lease = served.next()
    assert 200 == served.results(lease["lease_id"], {"url": A, "http_status": 200, "links": [B]})[0]
    assert DEPTH_MAX == served.frontier.explain(B).status.depth


def test_a_lease_is_fetched_and_reported_and_its_links_are_next():
    served = Served()
    served.add(A)
    lease = served.next()
    (record,) = lease["urls"]
    assert (A, "page", "a.com", "default", 1) == tuple(
        record[name] for name in ("url", "kind", "host", "crawl_id", "attempt")
    )
    assert (60_000, lease["lease_id"]) == (lease["lease_expires_in_ms"], record["token"])
    status, _, taken = served.results(
        lease["lease_id"],
        {"url": A, "http_status": 200, "fetch_time_ms": 120, "content_hash": "sha1:X", "links": [B, {"url": A + "2"}]},
    )
    assert (200, 1, 0, ["ok"], 2) == (
        status, taken["accepted"], taken["stale"], taken["codes"], taken["links"]["accepted"]
    )  # fmt: skip
    assert "done" == served.frontier.status(A).state
    assert (1, A) == (served.frontier.status(B).depth, served.frontier.status(B).referrer)


@pytest.mark.parametrize(
    ("result", "state", "error"),
    [
        ({"http_status": 404}, "gone", None),
        ({"http_status": 301, "location": B}, "done", None),
        ({"http_status": 301}, "gone", "bad_location"),
        ({"http_status": 304}, "gone", None),  # its request had no validators
        ({"http_status": 204}, "done", None),
        ({"status": "error", "http_status": 503, "retry_after": 20}, "waiting", "http_503"),
        ({"status": "error", "error": "connect_timeout"}, "waiting", "connect_timeout"),
        ({"status": "error", "error": "dns_unknown"}, "gone", "dns_unknown"),
        ({"status": "error", "error": "my_own_word"}, "waiting", "my_own_word"),
    ],
)
def test_a_result_means_the_same_as_in_a_crawl(result, state, error):
    served = Served()
    served.add(A)
    lease = served.next()
    assert 200 == served.results(lease["lease_id"], {"url": A, **result})[0]
    assert (state, error) == (served.frontier.status(A).state, served.frontier.status(A).error)


def test_a_worker_reports_challenges_and_their_host_is_parked_after_two():
    served = Served()
    left = {A, A + "2", A + "3"}
    served.add(*left)
    for _ in range(2):
        lease = served.next()
        (record,) = lease["urls"]
        left.discard(record["url"])
        result = {"url": record["url"], "http_status": 403, "challenged": True, "fetch_time_ms": 0}
        assert 200 == served.results(lease["lease_id"], result)[0]
        served.now += 3_600_000_000
    assert ([], "not_welcome") == (served.next()["urls"], served.frontier.explain(left.pop()).reason_now)


def test_a_worker_reports_the_time_of_the_first_byte_and_its_host_is_slowed():
    served = Served()
    served.add(*(f"{A}{number}" for number in range(4)))
    rests = []
    for waited in (100, 100, 1_000):
        lease = served.next()
        result = {"token": lease["urls"][0]["token"], "first_byte_ms": waited, "fetch_time_ms": 0, "http_status": 200}
        assert 200 == served.results(lease["lease_id"], result)[0]
        rests.append(served.frontier.next_ready_seconds())
        served.now += 60_000_000
    assert rests[0] == rests[1] < rests[2]


def test_a_site_that_requires_a_wait_gets_it_from_all_workers():
    served = Served()
    served.add(A, A + "2")
    lease = served.next()
    served.results(
        lease["lease_id"], {"url": lease["urls"][0]["url"], "status": "error", "http_status": 429, "retry_after": 90}
    )
    served.now += 80_000_000
    assert [] == served.next()["urls"]
    served.now += 11_000_000
    assert 1 == len(served.next()["urls"])


def test_robots_files_are_fetched_by_the_worker_and_decide_about_the_following_urls():
    served = Served(robots="errands")
    served.add(A, A + "no/1")
    lease = served.next()
    (errand,) = lease["urls"]
    assert ("robots", "http://a.com/robots.txt") == (errand["kind"], errand["url"])
    body = "User-agent: *\nCrawl-delay: 3\nDisallow: /no/\n"
    served.results(lease["lease_id"], {"token": errand["token"], "http_status": 200, "body": body})
    served.now += 4_000_000
    (page,) = served.next()["urls"]
    assert (A, {"allowed": True, "crawl_delay": 3.0}) == (page["url"], page["robots_rules"])


def test_a_waiting_request_is_answered_when_a_link_arrives():
    served = Served()

    async def live():
        waiting = asyncio.ensure_future(served.asked("GET", f"{API}/frontier/next?worker_id=w&timeout_ms=20000"))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await served.asked("POST", f"{API}/frontier/urls", {"urls": [A]})
        return (await waiting)[2]

    assert [A] == [one["url"] for one in asyncio.run(live())["urls"]]


def test_a_disconnected_client_gets_no_lease():
    served = Served()

    async def live():
        gone = asyncio.Event()
        asking = served.asked("GET", f"{API}/frontier/next?worker_id=w&timeout_ms=20000", gone=gone)
        waiting = asyncio.ensure_future(asking)
        await asyncio.sleep(0.02)
        gone.set()
        await waiting
        await served.asked("POST", f"{API}/frontier/urls", {"urls": [A]})
        return served.desk.frontier.waiting_leases

    assert 0 == asyncio.run(live())
    assert "queued" == served.frontier.status(A).state


def test_a_closing_server_answers_waiting_requests_and_accepts_results():
    served = Served()
    served.add(A)
    lease = served.next()

    async def live():
        waiting = asyncio.ensure_future(served.asked("GET", f"{API}/frontier/next?worker_id=w&timeout_ms=20000"))
        await asyncio.sleep(0.02)
        served.desk.closing.set()
        return await waiting

    status, headers, found = asyncio.run(live())
    assert (503, "urn:outrider:problem:closing", "1") == (status, found["type"], headers["retry-after"])
    assert (503, "closing") == served.problem("GET", f"{API}/frontier/next?worker_id=w")
    assert (503, "closing") == served.problem("GET", "/readyz")
    assert {"state": "closing"} == served.answer("GET", "/healthz")
    assert 200 == served.results(lease["lease_id"], {"url": A})[0]


def test_a_lease_whose_request_is_over_still_takes_results():
    served = Served()
    served.add(A)
    given = served.next()
    token = given["urls"][0]["token"]
    assert {"answer": ["ok"]} == served.answer("POST", f"{API}/verbs/rest", {"tokens": [token], "seconds": 0.2})
    assert ["ok"] == served.answer("POST", f"{API}/verbs/rest", {"tokens": [token], "ended_at": [NOW]})["answer"]
    assert (400, "invalid-argument") == served.problem(
        "POST", f"{API}/verbs/rest", {"tokens": [token], "seconds": [1, 2]}
    )
    assert 1 == len(served.desk.registry)
    assert 200 == served.results(given["lease_id"], {"url": A})[0]
    assert ["stale"] == served.answer("POST", f"{API}/verbs/rest", {"tokens": [token]})["answer"]


def test_a_lease_is_extended_and_returned():
    served = Served()
    served.add(A)
    lease = served.next("worker_id=w&ttl_ms=5000")
    path = f"{API}/frontier/leases/{lease['lease_id']}"
    served.now += 4_000_000
    assert (1, 30_000) == tuple(served.answer("POST", f"{path}/extend", {"ttl_ms": 30_000}).values())[::2]
    served.now += 20_000_000
    assert {"returned": 1} == served.answer("POST", f"{path}/return")
    assert "queued" == served.frontier.status(A).state
    assert (409, "lease-ended") == served.problem("POST", f"{path}/return")
    assert (409, "lease-ended") == served.problem("POST", f"{path}/extend", {"ttl_ms": 1000})


def test_a_late_result_changes_no_state_and_says_so():
    served = Served()
    served.add(A)
    lease = served.next("worker_id=w&ttl_ms=5000")
    served.now += 6_000_000
    status, _, found = served.results(lease["lease_id"], {"url": A, "links": [B]})
    assert (409, "urn:outrider:problem:lease-ended", ["stale"]) == (status, found["type"], found["codes"])
    assert ("queued", "unknown") == (served.frontier.status(A).state, served.frontier.status(B).state)


def test_a_repeated_request_with_a_key_has_the_first_answer():
    served = Served()
    key = {"idempotency-key": "one"}
    body = {"urls": [A]}
    first = served.answer("POST", f"{API}/frontier/urls", body, headers=key)
    assert first == served.answer("POST", f"{API}/frontier/urls", body, headers=key)
    lease = served.ask("GET", f"{API}/frontier/next?worker_id=w", headers=key)[2]
    again = served.ask("GET", f"{API}/frontier/next?worker_id=w", headers=key)[2]
    assert lease == {**again, "waited_ms": lease["waited_ms"]}
    told = served.results(lease["lease_id"], {"url": A}, headers=key)
    assert 200 == told[0]
    assert told[2] == served.results(lease["lease_id"], {"url": A}, headers=key)[2]
    assert 409 == served.results(lease["lease_id"], {"url": A}, headers={"idempotency-key": "two"})[0]


def test_a_lease_survives_a_restart_of_the_server(tmp_path):
    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        served = Served(frontier=frontier)
        served.add(A, B)
        lease = served.next()
    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        served = Served(frontier=frontier)
        status, _, taken = served.results(lease["lease_id"], {"url": A}, {"url": B})
        assert (200, ["ok", "ok"]) == (status, taken["codes"])


def test_the_remaining_urls_of_a_lease_are_found_by_its_tokens_after_a_restart(tmp_path):
    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        served = Served(frontier=frontier)
        served.add(A, B)
        lease = served.next()
        first, second = lease["urls"]
        served.results(lease["lease_id"], {"url": first["url"]})
    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        served = Served(frontier=frontier)
        assert 409 == served.results(lease["lease_id"], {"token": first["token"]})[0]
        assert 200 == served.results(lease["lease_id"], {"token": second["token"]})[0]


def test_the_socket_names_its_protocol_so_that_no_answer_waits_for_an_acknowledgement():
    import socket

    with http_server.bound(Listening("127.0.0.1", 0)) as listener:
        assert socket.IPPROTO_TCP == listener.proto


URLS, LEASE = b'{"urls":[{"url":"http://a.com/",', b'{"lease_id":'
ONE = b',"results":[{"url":"u","status":"success"'
BAD = [
    ("POST", "/frontier/urls", b"{", None, 400, "malformed-body"),
    ("POST", "/frontier/urls", b'{"urls":[NaN]}', None, 400, "malformed-body"),
    ("POST", "/frontier/urls", b'{"urls":["\xff"]}', None, 400, "malformed-body"),
    ("POST", "/frontier/urls", b'{"urls":["\\ud800"]}', None, 400, "malformed-body"),
    ("POST", "/frontier/urls", b"[" * 5_000, None, 422, "invalid-body"),
    ("POST", "/frontier/urls", b'{"urls":' + b"[" * 50_000, None, 422, "invalid-body"),
    ("POST", "/frontier/urls", b"", None, 422, "invalid-body"),
    ("POST", "/frontier/urls", b'{"urls":[],"crawl":"x"}', None, 422, "invalid-body"),
    ("POST", "/frontier/urls", b'{"urls":[{"url":"http://a.com/","priority":2}]}', None, 400, "invalid-argument"),
    ("POST", "/frontier/urls", b'{"urls":[{"url":"http://a.com/","priority":1e16}]}', None, 422, "invalid-body"),
    ("POST", "/frontier/urls", b'{"urls":[{"url":"http://a.com/","priority":1e999}]}', None, 422, "invalid-body"),
    ("POST", "/frontier/urls", URLS + b'"depth":99999999999999999999}]}', None, 422, "invalid-body"),
    ("POST", "/frontier/urls", b'{"urls":[' + b'"",' * 10_000 + b'""]}', None, 422, "too-many-rows"),
    ("POST", "/frontier/urls", b"x" * (SERVICE_BODY_BYTES_MAX + 1), None, 413, "body-too-large"),
    ("POST", "/frontier/urls", b"{}", {"content-type": "text/plain"}, 415, "media-type"),
    ("POST", "/frontier/urls", b'{"urls":["http://a.com/"]}', {"idempotency-key": "x" * 256}, 400, "invalid-query"),
    ("POST", "/frontier/urls", b'{"urls":[]}', {"idempotency-key": "two words"}, 400, "invalid-query"),
    ("POST", "/frontier/urls", b'{"urls":[]}', {"idempotency-key": ""}, 400, "invalid-query"),
    ("POST", "/frontier/urls", b'{"urls":[]}', {"idempotency-key": "\u00e9"}, 400, "invalid-query"),
    ("GET", "/frontier/next", None, None, 400, "invalid-query"),
    ("GET", "/frontier/next?worker_id=", None, None, 400, "invalid-query"),
    ("GET", "/frontier/next?worker_id=w&batch_size=0", None, None, 400, "invalid-query"),
    ("GET", "/frontier/next?worker_id=w&batch_size=x", None, None, 400, "invalid-query"),
    ("GET", "/frontier/next?worker_id=w&timeout_ms=99999999", None, None, 400, "invalid-query"),
    ("GET", "/frontier/next?worker_id=w&robots=nobody", None, None, 400, "invalid-query"),
    ("GET", "/frontier/next?worker_id=w&worker_id=v", None, None, 400, "invalid-query"),
    ("GET", "/frontier/next?worker_id=w&what=1", None, None, 400, "invalid-query"),
    ("POST", "/frontier/results", LEASE + b"77777777777777777" + ONE + b"}]}", None, 404, "unknown-lease"),
    ("POST", "/frontier/results", LEASE + b"0" + ONE + b"}]}", None, 422, "invalid-body"),
    ("POST", "/frontier/results", b'{"lease_id":1,"results":[]}', None, 422, "invalid-body"),
    ("POST", "/frontier/results", b'{"lease_id":1,"results":[{"url":"u","status":"fine"}]}', None, 422, "invalid-body"),
    ("POST", "/frontier/results", LEASE + b"1" + ONE + b',"retry_after":1e308}]}', None, 422, "invalid-body"),
    ("POST", "/frontier/leases/x/extend", b'{"ttl_ms":1}', None, 404, "unknown-lease"),
    ("POST", "/frontier/leases/77777777777777777/return", None, None, 404, "unknown-lease"),
    ("POST", "/frontier/urls", b'{"urls":[' + b'"a",' * 999_999 + b'"a"]}', None, 422, "too-many-rows"),
    ("POST", "/frontier/urls", b'{"urls":[' + b'"http://a.com/%",' * 1_000_000 + b'""]}', None, 413, "body-too-large"),
    ("POST", "/frontier/urls", URLS + b'"depth":1.5}]}', None, 422, "invalid-body"),
    ("POST", "/frontier/urls", URLS + b'"depth":1e300}]}', None, 422, "invalid-body"),
    ("POST", "/frontier/urls", URLS + b'"priority":Infinity}]}', None, 400, "malformed-body"),
    ("GET", "/frontier/next?worker_id=w&batch_size=1.5", None, None, 400, "invalid-query"),
    ("GET", "/frontier/next?worker_id=w&ttl_ms=" + "9" * 400, None, None, 400, "invalid-query"),
    ("GET", "/frontier/next?worker_id=" + "w" * 2_000, None, None, 400, "invalid-query"),
    ("POST", "/frontier/release", b'{"tokens":[-1]}', None, 422, "invalid-body"),
    ("POST", "/frontier/release", b'{"tokens":[1e30]}', None, 422, "invalid-body"),
    ("POST", "/frontier/content", b'{"digests":["no base64"]}', None, 422, "invalid-body"),
    ("POST", "/frontier/addresses", b'{"addresses":{"a.com":"999.1.1.1"}}', None, 400, "invalid-argument"),
    ("POST", "/frontier/errands", b'{"kind":"robots","urls":[]}', None, 400, "invalid-argument"),
    ("GET", "/urls?after=h0000000000000000", None, None, 400, "invalid-argument"),
    ("GET", "/urls?after=0.70000.0", None, None, 400, "invalid-argument"),
    ("GET", "/hosts?after=0.0.00", None, None, 400, "invalid-argument"),
    ("GET", "/hosts?after=" + "9" * 30, None, None, 400, "invalid-argument"),
    ("GET", "/urls?limit=1000000", None, None, 400, "invalid-query"),
    ("GET", "/urls?host=%00", None, None, 400, "invalid-argument"),
    ("GET", "/urls?after=nonsense", None, None, 400, "invalid-argument"),
    ("GET", "/hosts?after=1.2.3", None, None, 400, "invalid-argument"),
    ("GET", "/urls?state=lost", None, None, 400, "invalid-query"),
    ("GET", "/hosts/nobody.test", None, None, 404, "unknown-host"),
    ("GET", "/explain?url=nonsense", None, None, 400, "invalid-url"),
    ("POST", "/hosts/a.com/burn", None, None, 404, "unknown-path"),
    ("POST", "/hosts/a.com/block", None, None, 400, "invalid-argument"),
    ("POST", "/hosts/a.com/block", b'{"value":0}', None, 400, "invalid-argument"),
    ("POST", "/hosts/a.com/pause", b'{"value":1}', None, 400, "invalid-argument"),
    ("POST", "/hosts/a.com/delay", b'{"value":900000000}', None, 400, "invalid-argument"),
    ("POST", "/hosts/a.com/limit", b'{"value":1.5}', None, 400, "invalid-argument"),
    ("POST", "/hosts/a.com/limit", b'{"value":0}', None, 400, "invalid-argument"),
    ("GET", "/nothing", None, None, 404, "unknown-path"),
    ("DELETE", "/stats", None, None, 405, "wrong-method"),
    ("GET", "/stats", None, {"host": "evil.example"}, 421, "wrong-host"),
    ("GET", "/stats", None, {"host": "10.0.0.1"}, 421, "wrong-host"),
    ("GET", "/nothing", None, {"host": "evil.example"}, 421, "wrong-host"),
    ("POST", "/retry", None, {"origin": "http://evil.example"}, 403, "cross-origin"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "name"),
    BAD,
    ids=[f"{row[5]}-{place}" for place, row in enumerate(BAD)],
)
def test_bad_input_has_a_status_and_a_type(method, path, body, headers, status, name):
    served = Served()
    assert (status, name) == served.problem(method, API + path, body, headers=headers)
    assert 0 == served.frontier.count()


def test_a_wrong_method_is_answered_with_the_allowed_ones():
    _, headers, _ = Served().ask("OPTIONS", f"{API}/workers")
    assert "GET, HEAD, POST" == headers["allow"]


def test_links_of_a_result_count_from_its_page():
    served = Served()
    served.add(A + "deep/page")
    lease = served.next()
    links = ["/top", "beside?a=b", "#here", "//b.com/", "HTTP://A.com/%7Ex", "mailto:x@y", "http://["]
    _, _, taken = served.results(lease["lease_id"], {"url": A + "deep/page", "links": links})
    codes = ["new", "new", "known", "new", "new", "invalid", "invalid"]
    assert codes == taken["links"]["codes"]
    assert {B, A + "top", A + "deep/beside?a=b", A + "deep/page", A + "~x"} == {
        one.url for one in served.frontier.urls()
    }


def test_a_whole_number_may_be_written_with_a_decimal_point():
    served = Served()
    served.add(A)
    lease = served.next()
    body = b'{"ttl_ms":9e3}'
    assert (
        9_000 == served.answer("POST", f"{API}/frontier/leases/{lease['lease_id']}/extend", body)["lease_expires_in_ms"]
    )
    body = json.dumps(
        {"lease_id": lease["lease_id"], "results": [{"url": A, "status": "success", "http_status": 200.0}]}
    )
    assert 1 == served.answer("POST", f"{API}/frontier/results", body.encode())["accepted"]


def test_a_result_of_a_url_outside_the_lease_changes_no_state():
    served = Served()
    served.add(A, B)
    lease = served.next("worker_id=w&batch_size=1")
    other = B if lease["urls"][0]["url"] == A else A
    status, _, found = served.results(lease["lease_id"], {"url": lease["urls"][0]["url"]}, {"url": other})
    assert (422, "urn:outrider:problem:url-not-in-lease") == (status, found["type"])
    assert "results[1]" in found["detail"]
    assert "leased" == served.frontier.status(lease["urls"][0]["url"]).state


def test_waiting_requests_and_leased_urls_have_their_limits(monkeypatch):
    served = Served()
    served.add(A, B)
    set_limits(monkeypatch, SERVICE_WAITERS_MAX=0)
    assert (503, "too-many-waiters") == served.problem("GET", f"{API}/frontier/next?worker_id=w&timeout_ms=1000")
    set_limits(monkeypatch, SERVICE_LEASED_URLS_MAX=1)
    assert (503, "too-many-leases") == served.problem("GET", f"{API}/frontier/next?worker_id=w&batch_size=2")


def test_a_closed_store_is_reported_as_503():
    served = Served()
    served.frontier.close()
    assert (503, "closing") == served.problem("POST", f"{API}/frontier/urls", {"urls": [A]})
    assert (503, "closing") == served.problem("GET", "/readyz")


def test_operators_control_hosts_and_each_order_is_logged(tmp_path):
    served = Served(directory=tmp_path)
    served.add(A)
    assert {"count": 1} == served.answer("POST", f"{API}/hosts/a.com/pause")
    assert [] == served.next()["urls"]
    assert served.answer("GET", f"{API}/hosts/a.com")["paused"]
    served.answer("POST", f"{API}/hosts/a.com/delay", {"value": 9})
    served.answer("POST", f"{API}/hosts/a.com/limit", {"value": 2})
    served.answer("POST", f"{API}/hosts/a.com/block", {"value": 5})
    served.answer("POST", f"{API}/hosts/a.com/resume")
    assert {"count": 0} == served.answer("POST", f"{API}/retry", {"host": "a.com"})
    assert [] == served.next()["urls"]
    served.now += 6_000_000
    assert 1 == len(served.next()["urls"])
    told = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert ["pause", "delay", "limit", "block", "resume", None] == [line.get("rule") for line in told]
    assert {"local"} == {line["who"] for line in told}


def test_lists_explanations_workers_and_counts_are_answered():
    served = Served()
    served.add(A, B)
    served.next("worker_id=ann&batch_size=1")
    assert "leased" in {row["state"] for row in served.answer("GET", f"{API}/urls")["rows"]}
    page = served.answer("GET", f"{API}/urls?limit=1")
    assert 1 == len(served.answer("GET", f"{API}/urls?limit=5&after={page['cursor']}")["rows"])
    assert ["a.com", "b.com"] == sorted(row["name"] for row in served.answer("GET", f"{API}/hosts")["rows"])
    assert A == served.answer("GET", f"{API}/explain?url=HTTP://A.com")["url"]
    assert 2 == served.answer("GET", f"{API}/why-idle")["known"]
    (worker,) = served.answer("GET", f"{API}/workers")["workers"]
    assert ("ann", 1, 0) == (worker["worker_id"], worker["pages"], worker["errands"])
    assert worker["heard_ms_ago"] < 60_000
    served.desk._counted = None
    stats = served.answer("GET", f"{API}/stats")
    assert (2, 1, 0, 0) == tuple(stats[name] for name in ("discovered", "queued", "fetched", "failed"))
    assert {"current", "average", "peak"} == set(stats["throughput"])


def test_metrics_have_the_promised_names_and_leave_out_unknown_values():
    from prometheus_client.parser import text_string_to_metric_families

    served = Served()
    served.add(A)
    served.next()
    served.desk._counted = None
    page = served.answer("GET", "/metrics").decode()
    found = {one.name: one for one in text_string_to_metric_families(page)}
    names = ("urls_per_second", "queued_urls", "queued_hosts", "ready_hosts", "delayed_hosts", "duplicate_urls")
    names += ("frontier_depth", "host_concurrency", "fetch_failures", "retry_count", "frontier_latency_seconds")
    names += ("workers_heard", "disk_full", "process_resident_memory_bytes", "log_bytes", "ledger_bytes")
    assert {f"outrider_{name}" for name in names} <= set(found)
    assert {"fetched", "failed", "duplicate", "blocked"} == {
        one.labels["state"] for one in found["outrider_urls_per_second"].samples
    }
    assert 1.0 == found["outrider_leased_urls"].samples[0].value
    assert 1.0 == found["outrider_host_concurrency"].samples[0].value
    assert {"front", "back"} == {one.labels["queue"] for one in found["outrider_frontier_depth"].samples}
    assert {"lateness_seconds", "sync_latency_seconds", "retry_count", "robots_status_code", "per_host_queue_size"} <= {
        name.removeprefix("outrider_") for name in found
    }
    assert "outrider_robots_cache_age_p95_seconds" not in found
    assert not [name for name in found if "render" in name or "bloom" in name]


def test_metrics_show_queues_robots_files_and_waits():
    from prometheus_client.parser import text_string_to_metric_families

    served = Served()
    served.frontier.set_robots("http://a.com", 200, b"User-agent: *\nDisallow: /x\n")
    served.frontier.set_robots("http://b.com", 404, b"")
    served.frontier.set_robots("http://c.com", 404, b"")
    served.frontier.set_robots("http://d.com", None, b"")
    served.add(*(A + str(page) for page in range(5)), B)
    served.now += 4_000_000
    lease = served.next("worker_id=w&batch_size=2")
    served.now += 1_000_000
    served.results(lease["lease_id"], {"url": B, "http_status": 503}, {"url": A + "0", "status": "error"})
    served.desk._counted = None
    page = served.answer("GET", "/metrics").decode()
    samples = [one for family in text_string_to_metric_families(page) for one in family.samples]
    told = {(one.name.removeprefix("outrider_"), *one.labels.values()): one.value for one in samples}
    assert (5, 1) == tuple(told["per_host_queue_size", host] for host in ("a.com", "b.com"))
    assert (1, 2, 1) == tuple(told["robots_status_code", code] for code in ("200", "404", "none"))
    assert 5.0 == told["robots_cache_age_p95_seconds",]
    assert (1.0, 5.0) == (told["frontier_latency_seconds_count",], told["frontier_latency_seconds_sum",])
    assert (2.0, 8.0) == (told["lateness_seconds_count",], told["lateness_seconds_sum",])
    assert 2.0 == told["retry_count_total",]
    assert told["sync_latency_seconds_count",] > 0


def test_the_document_names_every_path_with_its_problems():
    found = document(routes.ROUTES)
    assert "3.1.0" == found["openapi"]
    assert {route.path for route in routes.ROUTES} == set(found["paths"])
    results = found["paths"][f"{API}/frontier/results"]["post"]
    assert {"200", "400", "401", "403", "404", "408", "409", "413", "415", "421", "422", "503"} == set(
        results["responses"]
    )
    names = {one["name"] for one in found["paths"][f"{API}/frontier/next"]["get"]["parameters"]}
    assert {"worker_id", "batch_size", "timeout_ms", "robots", "Idempotency-Key"} <= names
    text = json.dumps(found)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in found["components"]["schemas"]
    assert json.loads(text) == Served().answer("GET", "/openapi.json")  # a tuple is sent as a list


def test_the_paths_that_clients_know_are_there():
    """They follow from declarations, so that a changed word would drop them without an error."""
    known = {
        "POST": "frontier/urls frontier/results frontier/report frontier/extend frontier/release frontier/content "
        "frontier/errands frontier/allowed frontier/addresses frontier/leases/{lease_id}/extend "
        "frontier/leases/{lease_id}/return workers retry hosts/{host}/{order}",
        "GET": "frontier/next frontier/ready status stats why-idle explain hosts hosts/{host} urls records workers",
    }
    found = {(route.method, route.path) for route in routes.ROUTES}
    assert set() == {(method, f"{API}/{path}") for method in known for path in known[method].split()} - found
    assert ["pause", "resume", "block", "delay", "limit", "recheck"] == list(HOST_ORDERS)
    assert list(HOST_ORDERS) == list(store_commands._ORDERS)


def test_errands_belong_to_the_crawl_that_the_body_names():
    served = Served()
    served.answer("POST", f"{API}/frontier/urls", {"urls": [A], "crawl_id": "news"})
    wish = {"kind": "sitemap", "urls": [A + "map.xml"], "crawl_id": "news"}
    assert {"codes": ["new"]} == served.answer("POST", f"{API}/frontier/errands", wish)
    served.answer("POST", f"{API}/verbs/pause", {"crawl": "news"})
    assert [] == served.next()["urls"]
    served.answer("POST", f"{API}/verbs/resume", {"crawl": "news"})
    assert {"news"} == {one["crawl_id"] for one in served.next()["urls"]}


@pytest.mark.parametrize(
    ("path", "more"), [("frontier/release", {}), ("verbs/release", {}), ("verbs/defer", {"until": 1})]
)
def test_a_verb_that_ends_leases_frees_their_places(path, more):
    served = Served()
    served.add(A, B)
    tokens = [one["token"] for one in served.next()["urls"]]
    assert len(tokens) == served.desk.registry.urls
    served.answer("POST", f"{API}/{path}", {"tokens": tokens, **more})
    assert 0 == served.desk.registry.urls


def test_the_document_has_the_schema_of_an_explanation_and_answers_keep_it():
    served = Served()
    served.add(A, A + "2")
    served.next("worker_id=ann&batch_size=1")
    whole = document(routes.ROUTES)
    content = whole["paths"][f"{API}/explain"]["get"]["responses"]["200"]["content"]
    schema = content["application/json"]["schema"]
    properties = whole["components"]["schemas"]["Explanation"]["properties"]
    assert "date-time" == properties["discovered_at"]["anyOf"][0]["format"]
    assert "1,000 or more" in properties["before"]["description"]
    for url in (A, A + "2", B):
        found = served.answer("GET", f"{API}/explain?url={url}")
        assert [] == list(misfits(found, schema, whole))
        assert set(properties) == set(found)
        assert list(misfits({**found, "fingerprint": 7}, schema, whole))


def test_every_problem_has_a_status_of_an_error_and_a_title():
    assert all(400 <= status < 600 and title.endswith(".") for status, title in TYPES.values())


@pytest.fixture
def tokens(tmp_path):
    file = tmp_path / "tokens"
    file.write_text("# for tests\nread readreadreadread\nwork workworkworkwork\noperate operateoperateoperate\n")
    file.chmod(0o600)
    return TokenRoles.read(str(file))


def test_a_token_allows_the_calls_of_its_role(tokens):
    served = Served(tokens=tokens)

    def problem(token, method, path):
        return served.problem(method, path, headers={"authorization": token})

    assert (401, "token-missing") == problem(None, "GET", f"{API}/stats")
    assert (401, "token-wrong") == problem("Bearer nonsensenonsense", "GET", f"{API}/stats")
    assert (403, "role-missing") == problem("Bearer readreadreadread", "GET", f"{API}/frontier/next?worker_id=w")
    assert (403, "role-missing") == problem("Bearer workworkworkwork", "POST", f"{API}/retry")
    assert "serving" == served.answer("GET", "/healthz")["state"]
    for token, method, path in (
        ("readreadreadread", "GET", f"{API}/stats"),
        ("workworkworkwork", "GET", f"{API}/stats"),
        ("workworkworkwork", "GET", f"{API}/frontier/next?worker_id=w"),
        ("operateoperateoperate", "POST", f"{API}/retry"),
    ):
        served.answer(method, path, headers={"authorization": f"bearer {token}"})


def test_a_file_of_tokens_that_other_users_may_read_is_refused(tmp_path):
    file = tmp_path / "tokens"
    file.write_text("read readreadreadread\n")
    file.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        TokenRoles.read(str(file))
    file.chmod(0o600)
    file.write_text("king readreadreadread\n")
    with pytest.raises(SettingsError, match="line 1") as told:
        TokenRoles.read(str(file))
    assert "readread" not in str(told.value)
    with pytest.raises(NamedPathError):
        TokenRoles.read(str(tmp_path / "none"))
    assert Role.READ < Role.ADMIN


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:80", "127.0.0.1", 80), ("localhost:0", "127.0.0.1", 0), ("[::1]:9", "::1", 9), (":7", "127.0.0.1", 7)],
)
def test_loopback_needs_neither_tls_nor_tokens(text, host, port):
    assert Listening(host, port) == listening(text, None, None, None)


@pytest.mark.parametrize("text", ["0.0.0.0:80", "192.168.1.7:80", "[::]:80"])
def test_another_address_is_refused_without_tls_and_tokens(text, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for certificate, tokens, missing in ((None, "t", "--tls-cert"), (str(file), None, "--tokens")):
        with pytest.raises(SettingsError, match=missing):
            listening(text, certificate, certificate, tokens)
    assert not listening(text, str(file), str(file), "t").loopback


@pytest.mark.parametrize("text", ["nonsense", "example.org:80", "127.0.0.1:x", "127.0.0.1:99999", "127.0.0.1:"])
def test_an_invalid_listening_address_is_refused(text):
    with pytest.raises(SettingsError, match="--http"):
        listening(text, None, None, None)


def test_a_port_in_use_is_refused_before_the_store_is_opened(tmp_path):
    import socket

    from outrider.service.http_server import serve

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SettingsError, match="in use"):
            serve(str(tmp_path / "d"), Listening("127.0.0.1", taken.getsockname()[1]), TokenRoles(), say=print)
    assert not (tmp_path / "d").exists()


_WORDS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20))
_FIELDS = [one.name for one in msgspec.structs.fields(messages.Result)]
_NAMES = st.sampled_from(["urls", "lease_id", "results", "ttl_ms", "value", "host", "depth", "priority", "x", *_FIELDS])
_JSON = st.recursive(
    st.one_of(_WORDS, st.sampled_from([A, "success", "error", 1, 1 << 40, "http://[::1", "a" * 3_000])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=5),
    max_leaves=12,
)
_TOKENS = st.integers(1 << 40, (1 << 40) + 9)  # the tokens of the first leases
_RESULT = st.fixed_dictionaries(
    {"status": st.sampled_from(["success", "error"]), "token": _TOKENS},
    optional={
        "http_status": st.integers(100, 999),
        "fetch_time_ms": st.floats(0, 1e7),
        "retry_after": st.floats(0, 3e7),
        "error": st.text(min_size=1, max_size=9) | st.sampled_from(list(FetchError)),
        "location": st.text(max_size=9) | st.just(B),
        "links": st.lists(st.text(max_size=9) | st.just(B), max_size=3),
        "content_hash": st.text(max_size=9),
        "etag": st.text(max_size=9),
        "is_duplicate": st.booleans(),
        "body": st.text(max_size=99),
    },
)
_RESULTS = st.fixed_dictionaries({"lease_id": _TOKENS, "results": st.lists(_RESULT, min_size=1, max_size=2)})
_PLACES = ["a.com", "1", "0", "-1", "w", str(1 << 40), "9" * 30, "http://[::1", "..", "pause", "block"]
_TEXTS = st.text(max_size=12) | st.sampled_from([A, *_PLACES])


DOCUMENT = document(routes.ROUTES)
_TYPES = {
    "object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
    "null": type(None),
}  # fmt: skip


def misfits(value, schema, whole):
    """Returns where a value of JSON breaks a schema, for the keywords that the document uses. Another keyword is an
    error."""
    if "$ref" in schema:
        yield from misfits(value, whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]], whole)
        return
    if "anyOf" in schema:
        if all(list(misfits(value, one, whole)) for one in schema["anyOf"]):
            yield f"{value!r:.80} is none of {schema['anyOf']}"
        return
    known = {"type", "properties", "required", "items", "additionalProperties", "title", "description", "default"}
    known |= {"minimum", "maximum", "minLength", "maxLength", "enum", "format", "contentEncoding", "pattern"}
    assert set(schema) <= known, schema
    kind = schema.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{value!r:.80} is no {kind}"
        return
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{value!r:.80} does not match {schema['pattern']}"
    if isinstance(value, dict):
        properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        yield from (f"{name} is missing" for name in schema.get("required", ()) if name not in value)
        for name, one in value.items():
            if name in properties or isinstance(more, dict):
                yield from misfits(one, properties.get(name, more), whole)
            elif not more:
                yield f"{name} is no property"
    elif isinstance(value, list):
        for one in value:
            yield from misfits(one, schema.get("items", {}), whole)
    elif isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{value} is out of bounds"
    elif isinstance(value, str) and not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        yield f"{value!r:.80} is too long or too short"
    if value not in schema.get("enum", (value,)):
        yield f"{value!r:.80} is none of {schema['enum']}"


def test_a_value_that_breaks_a_schema_is_found():
    right = {"url": A, "token": 1, "kind": "page"}
    schema = {"type": "object", "properties": {"token": {"type": "integer", "minimum": 1}}, "required": ["url"]}
    assert [] == list(misfits(right, schema, DOCUMENT))
    for wrong in ({}, {**right, "token": 0}, {**right, "token": "1"}, {**right, "token": True}, []):
        assert list(misfits(wrong, schema, DOCUMENT))
    assert list(misfits({"state": 1}, {"$ref": "#/components/schemas/Health"}, DOCUMENT))


@pytest.mark.parametrize("route", routes.ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_request_is_answered_with_a_bug(route):
    served = Served(robots="errands")
    served.add(A, A + "2", B)
    names = [one.name for one in msgspec.structs.fields(route.query)] if route.query is not None else ["x"]
    query = st.dictionaries(st.sampled_from([*names, "x"]), _TEXTS, max_size=4)
    documented = DOCUMENT["paths"][route.path][route.method.lower()]["responses"]

    @settings(max_examples=40, deadline=None)
    @given(query, _JSON | _RESULTS | st.binary(max_size=60), st.lists(_TEXTS, min_size=2, max_size=2))
    def sent(query, body, places):
        query.pop("timeout_ms", None)
        served.now += 2_000_000
        served.next()
        path = route.path.replace("{lease_id}", places[0]).replace("{host}", places[0]).replace("{order}", places[1])
        status, headers, found = served.ask(route.method, f"{path.replace('?', '')}?{urlencode(query)}", body)
        assert status < 500, found
        assert str(status) in documented, (route.method, path, status, found)
        ((media, how),) = documented[str(status)]["content"].items()
        assert headers["content-type"].startswith(media)
        assert [] == list(misfits(found if media != "text/plain" else found.decode(), how["schema"], DOCUMENT))

    sent()


def test_an_order_is_written_completely_even_if_the_disk_writes_it_in_parts(tmp_path, monkeypatch):
    audit, write = Audit(str(tmp_path)), os.write
    monkeypatch.setattr("os.write", lambda descriptor, octets: write(descriptor, octets[:7]))
    audit.note("local", "host", host="a.test")
    audit.close()
    assert "a.test" == json.loads((tmp_path / "audit.jsonl").read_text())["host"]


def test_an_order_that_cannot_be_logged_is_not_carried_out(tmp_path, monkeypatch):
    served = Served(directory=tmp_path)
    served.add(A)

    def full(descriptor, line):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        assert (503, "store-stopped") == served.problem("POST", f"{API}/hosts/a.com/pause")
    assert not served.frontier.host("a.com").paused


def test_an_order_that_is_refused_has_a_second_line_with_the_error(tmp_path):
    served = Served(directory=tmp_path)
    assert (400, "invalid-argument") == served.problem("POST", f"{API}/retry", {"host": "[::"})
    first, second = (json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines())
    assert ("retry", None) == (first["order"], first.get("error"))
    assert "[::" in second["error"]


class Files:
    """Visits whose every robots.txt closes /no, once they may continue."""

    def __init__(self):
        self.asked, self.closed, self.go_on = [], False, asyncio.Event()

    async def visit(self, lease):
        self.asked.append(lease.url)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            return Visit(lease, NOW, NOW, stopped=True)
        body = b"User-agent: *\nDisallow: /no\nCrawl-delay: 3\n"
        return Visit(lease, NOW, NOW, answer(lease.url, 200, body, (), at=NOW))

    async def close(self):
        self.closed = True


def test_with_robots_server_the_server_requests_robots_txt_and_only_pages_are_leased():
    served = Served(robots="errands")
    served.add(A, A + "no", A + "yes")

    async def crawl():
        visits = Files()
        served.desk.errands = ServerErrands(served.desk.frontier, visits)
        _, _, first = await served.asked("GET", f"{API}/frontier/next?worker_id=w&robots=server&ttl_ms=1")
        assert [] == first["urls"]
        visits.go_on.set()
        await asyncio.gather(*served.desk.errands._under_way.values())
        served.now += 3_000_000
        _, _, lease = await served.asked("GET", f"{API}/frontier/next?worker_id=w&robots=server&timeout_ms=5000")
        await served.desk.errands.close()
        return visits, lease["urls"]

    visits, (record,) = asyncio.run(crawl())
    assert (["http://a.com/robots.txt"], True) == (visits.asked, visits.closed)
    assert ("page", {"allowed": True, "crawl_delay": 3.0}) == (record["kind"], record["robots_rules"])


def test_an_errand_that_the_server_cancels_is_leased_again():
    served = Served(robots="errands")
    served.add(A)

    async def crawl():
        visits = Files()
        served.desk.errands = ServerErrands(served.desk.frontier, visits)
        await served.asked("GET", f"{API}/frontier/next?worker_id=w&robots=server")
        await asyncio.sleep(0)
        assert 1 == len(served.desk.errands)
        await served.desk.errands.close()

    asyncio.run(crawl())
    assert ["robots"] == [one["kind"] for one in served.next()["urls"]]


class Transport:
    """Stores the bytes that a server's connection writes."""

    def __init__(self):
        self.told, self.closed = b"", False

    def write(self, octets):
        self.told += octets

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def get_extra_info(self, name, default=None):
        return default


@pytest.mark.parametrize(
    ("sent", "status", "kind"),
    [
        (b"GET /" + b"a" * (1 << 20), 431, "head-too-large"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (1 << 20), 431, "head-too-large"),
        (b"\x16\x03\x01\x02\x00\x01 TLS to a port without it\r\n\r\n", 400, "no-request"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "no-request"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400, "no-request"),
    ],
)
def test_an_invalid_http_request_is_a_problem_too(sent, status, kind):
    async def answered():
        served = Served()
        server = http_server.server_of(served.desk, Listening("127.0.0.1", 7070))
        server.config.load()
        connection = Connection(config=server.config, server_state=server.server_state, app_state={})
        transport = Transport()
        connection.connection_made(transport)
        for at in range(0, len(sent), 65_536):
            if not transport.closed:
                connection.data_received(sent[at : at + 65_536])
        return transport

    transport = asyncio.run(answered())
    head, _, body = transport.told.partition(b"\r\n\r\n")
    assert (True, True) == (head.startswith(b"HTTP/1.1 %d " % status), transport.closed)
    assert b"content-type: application/problem+json" in head.lower()
    assert (f"urn:outrider:problem:{kind}", status) == tuple(json.loads(body)[name] for name in ("type", "status"))


def test_every_answer_with_a_later_retry_says_when():
    """Each 503 by its name, and any future 429."""
    later = {name for name, (status, _) in TYPES.items() if status in (429, 503)}
    assert {"too-many-connections", "too-many-leases", "too-many-waiters", "store-full", "store-stopped"} <= later
    assert {True} == {int(Problem(name, "").headers()["retry-after"]) >= 1 for name in later}
    assert {None} == {Problem(name, "").headers().get("retry-after") for name in set(TYPES) - later}


@pytest.mark.parametrize(
    ("error", "name", "seconds"),
    [(StoreFullError("no room"), "store-full", "30"), (StoreStoppedError("a bug"), "store-stopped", "30")],
)
def test_a_store_that_accepts_no_data_says_when_to_retry(error, name, seconds):
    served = Served()

    async def refused(*_, **__):
        raise error

    served.desk.add = refused
    status, headers, found = served.ask("POST", f"{API}/frontier/urls", {"urls": [A]})
    assert (503, f"urn:outrider:problem:{name}", seconds) == (status, found["type"], headers["retry-after"])


@pytest.mark.parametrize("limit", ["SERVICE_WAITERS_MAX", "SERVICE_LEASED_URLS_MAX"])
def test_a_reached_limit_says_when_to_retry(limit, monkeypatch):
    served = Served()
    set_limits(monkeypatch, **{limit: 0})
    status, headers, _ = served.ask("GET", f"{API}/frontier/next?worker_id=w&timeout_ms=1000")
    assert (503, "1") == (status, headers["retry-after"])


@pytest.mark.parametrize(("most", "status"), [(1, 503), (2, 200)])
def test_more_connections_than_the_limit_are_refused_with_a_message(most, status, monkeypatch):
    set_limits(monkeypatch, SERVICE_CONNECTIONS_MAX=most)

    async def answered():
        served = Served()
        server = http_server.server_of(served.desk, Listening("127.0.0.1", 7070))
        server.config.load()
        connection = Connection(config=server.config, server_state=server.server_state, app_state={})
        transport = Transport()
        connection.connection_made(transport)
        connection.data_received(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:7070\r\nConnection: close\r\n\r\n")
        await asyncio.gather(*server.server_state.tasks)
        return transport.told

    head, _, body = asyncio.run(answered()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert (status == 503) == (b"retry-after: 1" in head.lower())
    assert (status == 503) == (b"too-many-connections" in body)
