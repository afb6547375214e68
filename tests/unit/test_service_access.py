"""Requests that a web page makes a browser send; Idempotency-Keys: their owner and their request."""

from __future__ import annotations

import msgspec
import pytest

from outrider import Frontier
from outrider.engine import messages
from outrider.service.access import TokenRoles
from served import API, A, B, Served

C = "http://c.com/"
NEXT = f"{API}/frontier/next?worker_id=w&batch_size=10"
ADD = f"{API}/frontier/urls"
OWN = "127.0.0.1:7070"


def tokened(tmp_path):
    file = tmp_path / "tokens"
    file.write_text("work 0123456789abcdef\nwork fedcba9876543210\n")
    file.chmod(0o600)
    return TokenRoles.read(str(file))


FOREIGN = [
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    {"sec-fetch-site": "Cross-Site"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
    {"sec-fetch-site": "same-origin, cross-site"},
    {"sec-fetch-site": ""},
    {"referer": "http://evil.test/"},
    {"referer": "http://evil.test/127.0.0.1:7070/"},
    {"referer": "http://evil.test?http://127.0.0.1:7070/"},
    {"referer": "http://127.0.0.1:7070.evil.test/"},
    {"referer": "http://127.0.0.1:7070@evil.test/"},
    {"referer": "http://127.0.0.1:3000/"},
    {"referer": "http://127.0.0.1/"},
    {"referer": "http://localhost:7070/"},
    {"referer": "https://evil.test"},
    {"referer": "about:blank"},
    {"referer": "android-app://127.0.0.1:7070"},
    {"referer": "http://evil.test/", "sec-fetch-site": "none"},
    {"origin": "http://evil.test"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:3000"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("with_token", [False, True])
def test_a_page_of_another_site_leases_no_url(headers, with_token, tmp_path):
    served = Served(tokens=tokened(tmp_path) if with_token else None)
    own = {"authorization": "Bearer 0123456789abcdef"} if with_token else {}
    assert 200 == served.ask("POST", ADD, {"urls": [A]}, headers=own)[0]
    for method, path in (("GET", NEXT), ("GET", "/healthz"), ("GET", "/api/v1/nothing"), ("DELETE", NEXT)):
        assert (403, "cross-origin") == served.problem(method, path, headers={**own, **headers})
    assert [A] == [one["url"] for one in served.ask("GET", NEXT, headers=own)[2]["urls"]]


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"},
        {"sec-fetch-site": "same-origin", "referer": f"http://{OWN}/openapi.json"},
        {"referer": f"http://{OWN}"},
        {"referer": f"HTTPS://{OWN}?x"},
        {"referer": ""},
        {"origin": f"http://{OWN}", "sec-fetch-site": "same-origin"},
        {},
    ],
    ids=str,
)
def test_pages_of_this_server_typed_addresses_and_programs_may_send_requests(headers):
    assert 200 == Served().ask("GET", NEXT, headers=headers)[0]


def keyed(served, method, path, body=None, key="one", **headers):
    return served.ask(method, path, body, headers={"idempotency-key": key, **headers})


def test_a_key_with_another_body_is_refused_and_that_body_is_not_marked_as_answered():
    served = Served()
    assert 200 == keyed(served, "POST", ADD, {"urls": [A]})[0]
    status, _, found = keyed(served, "POST", ADD, {"urls": [B]})
    assert (422, "urn:outrider:problem:key-reused") == (status, found["type"])
    assert {A} == {one["url"] for one in served.next()["urls"]}
    assert 1 == keyed(served, "POST", ADD, {"urls": [B]}, key="two")[2]["accepted"]


def test_the_same_request_in_another_spelling_has_the_first_answer(tmp_path):
    spellings = (
        b'{"urls":[{"url":"http://a.com/","priority":1,"metadata":{"b":1}}],"crawl_id":"x"}',
        b'{ "crawl_id": "x", "urls": [{"metadata": {"b":1}, "priority": 1.0, "depth": 0, "url": "http://a.com/"}]}',
    )
    for first in (0, 1):
        with Frontier.open(tmp_path / f"store{first}", robots="caller") as frontier:
            served = Served(frontier=frontier)
            told = keyed(served, "POST", ADD, spellings[first])
            assert (200, 1) == (told[0], told[2]["accepted"])
            assert told[2] == keyed(served, "POST", ADD, spellings[1 - first])[2]
        with Frontier.open(tmp_path / f"store{first}", robots="caller") as frontier:
            assert told[2] == keyed(Served(frontier=frontier), "POST", ADD, spellings[1 - first])[2]


def test_a_report_that_a_worker_reads_back_from_its_own_file_is_the_same_request():
    served = Served()
    served.add(A)
    token = served.next()["urls"][0]["token"]
    body = messages.OutcomeBody(token, "done", seconds=0, status=200, retry_after_seconds=1)
    again = msgspec.json.decode(msgspec.json.encode(body), type=messages.OutcomeBody)
    assert msgspec.json.encode(again) != msgspec.json.encode(body)
    path = f"{API}/frontier/report"
    told = [keyed(served, "POST", path, msgspec.json.encode(messages.Outcomes([one]))) for one in (body, again)]
    assert [(200, ["ok"])] * 2 == [(status, found["codes"]) for status, _, found in told]


def test_two_workers_with_the_same_key_get_two_leases():
    served = Served()
    served.add(A, B)
    first, second = (
        keyed(served, "GET", f"{API}/frontier/next?worker_id={worker}&batch_size=1")[2] for worker in ("v", "w")
    )
    assert {A, B} == {first["urls"][0]["url"], second["urls"][0]["url"]}
    again = keyed(served, "GET", f"{API}/frontier/next?worker_id=v&batch_size=1")[2]
    assert (first["lease_id"], first["urls"]) == (again["lease_id"], again["urls"])


def test_a_key_with_another_query_is_refused_unless_only_the_wait_differs():
    served = Served()
    served.add(A, B)
    first = keyed(served, "GET", f"{API}/frontier/next?worker_id=w&batch_size=1")[2]
    assert (
        first["urls"] == keyed(served, "GET", f"{API}/frontier/next?batch_size=1&timeout_ms=10&worker_id=w")[2]["urls"]
    )
    assert 422 == keyed(served, "GET", f"{API}/frontier/next?worker_id=w&batch_size=2")[0]


def test_a_key_belongs_to_the_token_of_its_request(tmp_path):
    served = Served(tokens=tokened(tmp_path))
    for token, url in (("0123456789abcdef", A), ("fedcba9876543210", B)):
        assert 1 == keyed(served, "POST", ADD, {"urls": [url]}, authorization=f"Bearer {token}")[2]["accepted"]


def test_a_key_belongs_to_the_worker_that_a_body_names():
    served = Served()
    for worker, url in (("v", A), ("w", B)):
        assert 1 == keyed(served, "POST", ADD, {"urls": [url], "worker_id": worker})[2]["accepted"]
        assert 422 == keyed(served, "POST", ADD, {"urls": [C], "worker_id": worker})[0]


def test_results_of_another_lease_under_a_used_key_are_refused_and_their_urls_stay_leased():
    served = Served()
    served.add(A, B)
    first, second = (served.next("worker_id=w&batch_size=1") for _ in range(2))
    done = [
        (one["lease_id"], {"url": one["urls"][0]["url"], "http_status": 200, "content_hash": one["urls"][0]["url"]})
        for one in (first, second)
    ]
    key = {"idempotency-key": "one"}
    assert 200 == served.results(*done[0], headers=key)[0]
    assert 422 == served.results(*done[1], headers=key)[0]
    assert ["ok"] == served.results(*done[0], headers=key)[2]["codes"]
    assert ["ok"] == served.results(*done[1], headers={"idempotency-key": "two"})[2]["codes"]


def test_a_refused_request_leaves_its_key_free():
    served = Served()
    deep = b'{"urls":[{"url":"http://a.com/","metadata":' + b'{"a":' * 90 + b"1" + b"}" * 90 + b"}]}"
    assert 400 == keyed(served, "POST", ADD, deep)[0]
    assert 1 == keyed(served, "POST", ADD, {"urls": [A]}, key="one")[2]["accepted"]


def test_after_a_restart_a_key_repeats_only_its_own_answer(tmp_path):
    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        served = Served(frontier=frontier)
        first = keyed(served, "POST", ADD, {"urls": [A]})[2]
        lease = served.next("worker_id=w")
        result = {"url": A, "http_status": 200, "links": [C]}
        told = served.results(lease["lease_id"], result, headers={"idempotency-key": "one"})[2]
    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        served = Served(frontier=frontier)
        assert first == keyed(served, "POST", ADD, {"urls": [A]})[2]
        assert told == served.results(lease["lease_id"], result, headers={"idempotency-key": "one"})[2]
    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        served = Served(frontier=frontier)
        assert 1 == keyed(served, "POST", ADD, {"urls": [B]})[2]["accepted"]
