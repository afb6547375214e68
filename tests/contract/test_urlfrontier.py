"""The conformance suite of the URLFrontier protocol: one case for each call, default, status and order.

`make conformance AT=HOST:PORT` runs it against any server. Without an address it starts one in this process. Each case
uses a crawl of its own.
"""

from __future__ import annotations

import os
import threading
import time

import grpc
import pytest

from e2e.crawling import wait_for
from grpc_client import PROTOCOL, Client, crawl_name, discovered, info, known, serving

OK, SKIPPED, FAIL = 0, 1, 2
LATER = 4_000_000_000  # in the year 2096
UNKNOWN, INVALID, NOT_FOUND, EXHAUSTED, UNIMPLEMENTED = (
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNIMPLEMENTED,
)


@pytest.fixture(scope="module")
def server():
    """The address of a server, of this process or another one."""
    address = os.environ.get("OUTRIDER_URLFRONTIER")
    if address:
        yield address
        return
    with serving() as own:
        yield own


@pytest.fixture
def crawl():
    return crawl_name()


@pytest.fixture
def client(server, crawl):
    one = Client(server, suffix=f"-{crawl}")
    yield one
    one.close()


def stats(client, crawl, key=""):
    found = client.ask("GetStats", {"crawlID": crawl, "key": key})
    counts = found.get("counts", {})
    return (
        found.get("size", 0),
        found.get("inProcess", 0),
        counts.get("completed", 0),
        counts.get("active_queues", 0),
        found.get("numberOfQueues", 0),
    )


def code_of(call):
    with pytest.raises(grpc.RpcError) as raised:
        call()
    return raised.value.code()


def status(client, crawl, url, key=""):
    return client.ask("GetURLStatus", {"url": url, "key": key, "crawlID": crawl})


def date_of(item):
    return item["known"].get("refetchable_from_date", 0)


def urls_of(client, **request):
    return [item["known"]["info"]["url"] for item in client.stream("ListURLs", request)]


# -- PutURLs -----------------------------------------------------------------------------------------------------------


def test_a_new_discovered_url_is_ok_and_its_id_is_returned(client, crawl):
    assert client.put(discovered("http://a.test/", crawl, id="7")) == [("7", OK)]


def test_without_an_id_the_url_is_returned(client, crawl):
    assert client.put(discovered("http://a.test/", crawl)) == [("http://a.test/", OK)]


def test_a_discovered_url_that_is_scheduled_is_skipped(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    assert client.put(discovered("http://a.test/", crawl, id="2")) == [("2", SKIPPED)]


def test_a_discovered_url_twice_in_one_stream_is_ok_once(client, crawl):
    acks = client.put(discovered("http://a.test/", crawl, id="1"), discovered("http://a.test/", crawl, id="2"))
    assert sorted(acks) == [("1", OK), ("2", SKIPPED)]


def test_a_discovered_url_in_flight_is_skipped(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    assert client.get(crawlID=crawl) == ["http://a.test/"]
    assert client.put(discovered("http://a.test/", crawl, id="2")) == [("2", SKIPPED)]


def test_a_discovered_url_that_is_completed_is_skipped_and_stays_so(client, crawl):
    client.put(known("http://a.test/", 0, crawl))
    assert client.put(discovered("http://a.test/", crawl, id="2")) == [("2", SKIPPED)]
    assert date_of(status(client, crawl, "http://a.test/")) == 0


def test_a_discovered_url_changes_no_metadata(client, crawl):
    client.put(discovered("http://a.test/", crawl, a=["1"]))
    client.put(discovered("http://a.test/", crawl, a=["2"]))
    assert client.infos(crawlID=crawl)[0]["metadata"] == {"a": {"values": ["1"]}}


def test_a_known_url_is_made_if_it_is_new(client, crawl):
    assert client.put(known("http://a.test/", LATER, crawl, id="k")) == [("k", OK)]
    assert date_of(status(client, crawl, "http://a.test/")) == LATER


def test_a_known_url_is_ok_each_time(client, crawl):
    for _ in range(3):
        assert client.put(known("http://a.test/", LATER, crawl, id="k")) == [("k", OK)]


def test_the_date_0_completes_a_url(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    client.put(known("http://a.test/", 0, crawl))
    assert client.get(crawlID=crawl) == []
    assert stats(client, crawl) == (0, 0, 1, 0, 1)


def test_a_completed_url_is_scheduled_again_by_a_date(client, crawl):
    client.put(known("http://a.test/", 0, crawl))
    client.put(known("http://a.test/", 1, crawl))
    assert stats(client, crawl)[:3] == (1, 0, 0)
    assert client.get(crawlID=crawl) == ["http://a.test/"]


def test_completing_twice_counts_once(client, crawl):
    client.put(discovered("http://a.test/", crawl), discovered("http://a.test/2", crawl))
    for _ in range(3):
        client.put(known("http://a.test/", 0, crawl))
    assert stats(client, crawl) == (1, 0, 1, 1, 1)


def test_a_known_url_with_a_later_date_is_not_handed_out(client, crawl):
    client.put(known("http://a.test/", LATER, crawl))
    assert client.get(crawlID=crawl) == []
    assert stats(client, crawl)[0] == 1


def test_a_known_url_with_a_past_date_is_handed_out(client, crawl):
    client.put(known("http://a.test/", 5, crawl))
    assert client.get(crawlID=crawl) == ["http://a.test/"]


def test_a_known_url_replaces_the_metadata(client, crawl):
    client.put(discovered("http://a.test/", crawl, a=["1"], b=["2"]))
    client.put(known("http://a.test/", 1, crawl, c=["3", "4"]))
    assert client.infos(crawlID=crawl)[0]["metadata"] == {"c": {"values": ["3", "4"]}}


def test_a_known_url_without_metadata_removes_it(client, crawl):
    client.put(discovered("http://a.test/", crawl, a=["1"]))
    client.put(known("http://a.test/", 1, crawl))
    assert "metadata" not in client.infos(crawlID=crawl)[0]


def test_a_known_url_ends_its_lease(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    client.get(crawlID=crawl)
    assert stats(client, crawl)[:2] == (1, 1)
    client.put(known("http://a.test/", 0, crawl))
    assert stats(client, crawl)[:3] == (0, 0, 1)


def test_an_item_with_neither_branch_is_skipped(client):
    assert client.put({}) == [("", SKIPPED)]


def test_an_item_with_neither_branch_returns_its_id(client):
    assert client.put({"ID": "x"}) == [("x", SKIPPED)]


def test_an_empty_url_is_skipped(client, crawl):
    assert client.put(discovered("", crawl, id="1"), known("", 0, crawl, id="2")) == [("1", SKIPPED), ("2", SKIPPED)]


def test_a_key_of_255_characters_is_accepted(client, crawl):
    assert client.put(discovered("http://a.test/", crawl, key="k" * 255, id="1")) == [("1", OK)]


def test_a_key_of_256_characters_is_skipped(client, crawl):
    assert client.put(discovered("http://a.test/", crawl, key="k" * 256, id="1")) == [("1", SKIPPED)]


def test_a_long_url_is_accepted(client, crawl):
    url = "http://a.test/" + "x" * 2_000
    assert client.put(discovered(url, crawl, id="1")) == [("1", OK)]
    assert client.get(crawlID=crawl) == [url]


def test_a_date_in_milliseconds_is_skipped(client, crawl):
    now = int(time.time())
    acks = client.put(known("http://a.test/1", now * 1000, crawl, id="1"), known("http://a.test/2", 1, crawl, id="2"))
    assert acks == [("1", SKIPPED), ("2", OK)]
    assert client.get(crawlID=crawl) == ["http://a.test/2"]


def test_a_date_above_63_bits_is_skipped(client, crawl):
    assert client.put(known("http://a.test/", 1 << 63, crawl, id="1")) == [("1", SKIPPED)]
    assert client.get(crawlID=crawl) == []


def test_a_far_date_delays_no_other_url_of_its_queue(client, crawl):
    client.put(known("http://a.test/late", 12_345_678_901, crawl), known("http://a.test/due", 1, crawl))
    assert client.get(crawlID=crawl, max_urls_per_queue=1) == ["http://a.test/due"]


def test_each_item_has_one_acknowledgement(client, crawl):
    acks = client.put(*(discovered(f"http://a.test/{row}", crawl, id=str(row)) for row in range(3_000)))
    assert sorted(int(name) for name, _ in acks) == list(range(3_000))


def test_equal_ids_have_an_acknowledgement_each(client, crawl):
    acks = client.put(*(discovered(f"http://a.test/{row}", crawl, id="same") for row in range(10)))
    assert acks == [("same", OK)] * 10


def test_the_acknowledgement_of_a_stream_that_stays_open_arrives(client, crawl):
    done = threading.Event()

    def items():
        yield discovered("http://a.test/", crawl, id="1")
        done.wait(20)

    answers = client.stream("PutURLs", items())
    assert next(answers)["ID"] == "1"
    done.set()
    assert list(answers) == []


def test_the_stream_ends_after_the_last_acknowledgement(client):
    assert client.put() == []


def test_updates_of_a_url_keep_their_order_in_a_stream(client, crawl):
    items = [known("http://a.test/", LATER + number, crawl) for number in range(2_000)]
    client.put(*items)
    assert date_of(status(client, crawl, "http://a.test/")) == LATER + 1_999


def test_a_discovered_item_after_a_known_one_is_skipped(client, crawl):
    acks = client.put(known("http://a.test/", LATER, crawl, id="1"), discovered("http://a.test/", crawl, id="2"))
    assert acks == [("1", OK), ("2", SKIPPED)]
    assert date_of(status(client, crawl, "http://a.test/")) == LATER


def test_a_known_item_after_a_discovered_one_counts(client, crawl):
    acks = client.put(discovered("http://a.test/", crawl, id="1"), known("http://a.test/", 0, crawl, id="2"))
    assert acks == [("1", OK), ("2", OK)]
    assert date_of(status(client, crawl, "http://a.test/")) == 0


def test_octets_that_are_no_item_end_the_call_with_a_status(client):
    assert code_of(lambda: list(client.stream("PutURLs", iter([b"\x0a\x05\x01"])))) in (
        INVALID,
        grpc.StatusCode.INTERNAL,
    )


# -- PutDiscovered -----------------------------------------------------------------------------------------------------


def batch(client, *batches):
    return [(one.get("ID", ""), one.get("statuses", [])) for one in client.stream("PutDiscovered", iter(batches))]


def test_a_batch_has_a_status_for_each_item_in_order(client, crawl):
    client.put(discovered("http://a.test/1", crawl))
    items = [info(f"http://a.test/{row}", crawl) for row in range(3)]
    assert batch(client, {"ID": "b", "items": items}) == [("b", [OK, SKIPPED, OK])]


def test_equal_items_of_a_batch_are_ok_once(client, crawl):
    assert batch(client, {"ID": "b", "items": [info("http://a.test/", crawl)] * 3}) == [("b", [OK, SKIPPED, SKIPPED])]


def test_an_empty_batch_has_an_empty_answer(client):
    assert batch(client, {"ID": "probe"}) == [("probe", [])]


def test_a_wrong_item_of_a_batch_affects_only_itself(client, crawl):
    items = [info("http://a.test/1", crawl), info("", crawl), info("http://a.test/2", crawl, "k" * 256)]
    assert batch(client, {"ID": "b", "items": [*items, info("http://a.test/3", crawl)]}) == [
        ("b", [OK, SKIPPED, SKIPPED, OK])
    ]


def test_batches_of_one_stream_are_answered_each(client, crawl):
    batches = [
        {"ID": str(row), "items": [info(f"http://a.test/{row}/{place}", crawl) for place in range(5)]}
        for row in range(40)
    ]
    assert sorted(batch(client, *batches)) == sorted((str(row), [OK] * 5) for row in range(40))


def test_a_batch_keeps_metadata(client, crawl):
    batch(client, {"ID": "b", "items": [info("http://a.test/", crawl, a=["1", ""])]})
    assert client.infos(crawlID=crawl)[0]["metadata"] == {"a": {"values": ["1", ""]}}


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://host.test/x", "host.test"),
        ("http://host.test:8080/x", "host.test"),
        ("http://user:pw@host.test/x", "host.test"),
        ("http://HOST.test/x", "host.test"),
        ("http://host.test#fragment", "host.test"),
        ("http://host.test?query", "host.test"),
        ("http://[2001:db8::1]:80/x", "[2001:db8::1]"),
        ("http://bücher.w.test/", "xn--bcher-kva.w.test"),
        ("http://under_score.test/", "under_score.test"),
    ],
)
def test_the_key_of_a_url_is_its_host(client, crawl, url, key):
    client.put(discovered(url, crawl))
    assert [(one["url"], one["key"]) for one in client.infos(crawlID=crawl)] == [(url, key)]


def test_a_text_that_is_no_url_has_a_queue(client, crawl):
    assert client.put(discovered("notaurl", crawl, id="1")) == [("1", OK)]
    assert [(one["url"], one["key"]) for one in client.infos(crawlID=crawl)] == [("notaurl", "notaurl")]


@pytest.mark.parametrize("key", ["_DEFAULT_", "a_b", "with space", "é ü", "a/b:c?d", "\x01\x7f", "%5F", "*"])
def test_a_key_may_have_any_characters(client, crawl, key):
    client.put(discovered("http://a.test/", crawl, key=key))
    assert [one["key"] for one in client.infos(crawlID=crawl)] == [key]
    assert stats(client, crawl, key)[:2] == (1, 1)


@pytest.mark.parametrize("name", ["my_crawl", "_", "with space", "ü", "a/b", "\x02", "DEFAULT2"])
def test_a_crawl_id_may_have_any_characters(client, name):
    crawl = f"{name}{crawl_name()}{name}"
    client.put(discovered("http://a.test/", crawl))
    assert [one["crawlID"] for one in client.infos(crawlID=crawl)] == [crawl]
    assert crawl in client.ask("ListCrawls")["values"]


def test_one_url_under_two_keys_is_two_urls(client, crawl):
    acks = client.put(discovered("http://a.test/", crawl, key="k1"), discovered("http://a.test/", crawl, key="k2"))
    assert [code for _, code in acks] == [OK, OK]
    assert stats(client, crawl)[0] == 2


def test_urls_are_compared_byte_for_byte(client, crawl):
    acks = client.put(
        *(discovered(url, crawl) for url in ("http://a.test", "http://a.test/", "http://A.test/", "http://a.test/#x"))
    )
    assert [code for _, code in acks] == [OK] * 4


def test_one_url_in_two_crawls_is_two_urls(client, crawl):
    client.put(discovered("http://two.test/", crawl), discovered("http://two.test/", crawl + "b"))
    assert (stats(client, crawl)[0], stats(client, crawl + "b")[0]) == (1, 1)


def test_without_a_crawl_id_the_crawl_is_default(client):
    url = f"http://default.test/{crawl_name()}"
    client.put(discovered(url))
    assert status(client, "DEFAULT", url)["known"]["info"]["crawlID"] == "DEFAULT"
    assert status(client, " ", url)["known"]["info"]["url"] == url
    assert client.ask("GetStats")["crawlID"] == "DEFAULT"
    client.put(known(url, 0))


# -- GetURLs -----------------------------------------------------------------------------------------------------------


def test_nothing_to_hand_out_ends_at_once_with_ok(client, crawl):
    begun = time.monotonic()
    assert client.get(crawlID=crawl) == []
    assert time.monotonic() - begun < 2


def test_an_unknown_key_gives_nothing(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    assert client.get(crawlID=crawl, key="b.test") == []
    assert client.get(crawlID=crawl, key="no host, no key") == []


def test_a_new_queue_is_handed_out_at_once(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    assert client.get(crawlID=crawl) == ["http://a.test/"]


def test_an_item_has_url_key_metadata_and_crawl(client, crawl):
    client.put(discovered("http://a.test/", crawl, key="k", m=["1"]))
    assert client.infos(crawlID=crawl) == [
        {"url": "http://a.test/", "key": "k", "metadata": {"m": {"values": ["1"]}}, "crawlID": crawl}
    ]


def test_each_url_is_handed_out_once(client, crawl):
    client.put(*(discovered(f"http://h{row}.test/", crawl) for row in range(50)))
    found = client.get(crawlID=crawl)
    assert len(found) == len(set(found)) == 50
    assert client.get(crawlID=crawl) == []


def test_max_queues_limits_the_queues(client, crawl):
    client.put(*(discovered(f"http://h{row}.test/{page}", crawl) for row in range(9) for page in range(3)))
    found = client.infos(crawlID=crawl, max_queues=4, max_urls_per_queue=1)
    assert len(found) == len({one["key"] for one in found}) == 4


def test_max_urls_per_queue_limits_each_queue(client, crawl):
    client.put(*(discovered(f"http://h{row}.test/{page}", crawl) for row in range(3) for page in range(5)))
    found = client.infos(crawlID=crawl, max_urls_per_queue=2)
    assert len(found) == 6
    assert all(sum(one["key"] == key for one in found) == 2 for key in {one["key"] for one in found})


def test_max_urls_per_queue_counts_urls_in_process(client, crawl):
    client.put(*(discovered(f"http://a.test/{row}", crawl) for row in range(8)))
    client.ask("SetDelay", {"crawlID": crawl, "key": "a.test", "delay_requestable": 0})
    assert len(got(client, crawl, 3, max_urls_per_queue=3)) == 3
    assert client.get(crawlID=crawl, max_urls_per_queue=3) == []
    assert len(got(client, crawl, 2, max_urls_per_queue=5)) == 2
    assert stats(client, crawl)[:2] == (8, 5)


def test_an_update_makes_room_in_its_queue(client, crawl):
    client.put(*(discovered(f"http://a.test/{row}", crawl) for row in range(3)))
    client.ask("SetDelay", {"crawlID": crawl, "key": "a.test", "delay_requestable": 0})
    (first,) = got(client, crawl, 1, max_urls_per_queue=1)
    client.put(known(first, 0, crawl))
    assert len(got(client, crawl, 1, max_urls_per_queue=1)) == 1


def test_the_urls_in_process_of_one_queue_hold_no_other(client, crawl):
    client.put(discovered("http://a.test/1", crawl, "one"), discovered("http://a.test/2", crawl, "one"))
    client.put(discovered("http://a.test/3", crawl, "two"))
    for key in ("one", "two"):
        client.ask("SetDelay", {"crawlID": crawl, "key": key, "delay_requestable": 0})
    assert len(got(client, crawl, 1, key="one", max_urls_per_queue=1)) == 1
    assert got(client, crawl, 1, max_urls_per_queue=1) == ["http://a.test/3"]


def got(client, crawl, count, **request):
    """Some URLs that the crawl hands out together, within two seconds: a server may count whole seconds."""
    found = []

    def is_enough():
        found[:] = client.get(crawlID=crawl, **request)
        return len(found) >= count

    wait_for(is_enough, 2.5)
    return found


def test_0_is_no_limit(client, crawl):
    client.put(*(discovered(f"http://h{row}.test/{page}", crawl) for row in range(3) for page in range(5)))
    assert len(client.get(crawlID=crawl)) == 15


def test_a_key_gives_only_its_queue(client, crawl):
    client.put(discovered("http://a.test/", crawl), discovered("http://b.test/", crawl))
    assert client.get(crawlID=crawl, key="b.test") == ["http://b.test/"]


def test_any_crawl_includes_this_one(client, crawl):
    key = f"any-{crawl}"
    client.put(discovered("http://any.test/", crawl, key=key))
    assert key in [one["key"] for one in client.infos(anyCrawlID={}, max_urls_per_queue=1)]


def test_an_unset_crawl_is_any_crawl(client, crawl):
    key = f"unset-{crawl}"
    client.put(discovered("http://unset.test/", crawl, key=key))
    assert key in [one["key"] for one in client.infos(max_urls_per_queue=1)]


def test_an_empty_crawl_id_is_default_and_no_other(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    url = f"http://set-but-empty-{id(crawl)}.test/"
    client.put(discovered(url))
    found = client.infos(crawlID="")
    assert url in [one["url"] for one in found]
    assert {one["crawlID"] for one in found} == {"DEFAULT"}


def test_a_key_without_a_crawl_is_of_default(client):
    url = f"http://keyed-{crawl_name()}.test/"
    key = url.removeprefix("http://").removesuffix("/")
    client.put(discovered(url))
    assert client.get(key=key) == [url]


def test_urls_of_a_queue_come_by_date(client, crawl):
    dates = [500, 3, 40, 2, 1]
    client.ask("SetDelay", {"crawlID": crawl, "key": "a.test", "delay_requestable": 0})
    client.put(*(known(f"http://a.test/{date}", date, crawl) for date in dates))
    found = client.get(crawlID=crawl)
    assert found == [f"http://a.test/{date}" for date in sorted(dates)]


def test_a_handed_out_url_is_in_process(client, crawl):
    client.put(discovered("http://a.test/1", crawl), discovered("http://a.test/2", crawl))
    client.get(crawlID=crawl, max_urls_per_queue=1)
    assert stats(client, crawl) == (2, 1, 0, 1, 1)


def test_the_default_delay_is_a_second(client, crawl):
    client.put(discovered("http://a.test/1", crawl), discovered("http://a.test/2", crawl))
    begun = time.monotonic()
    assert len(client.get(crawlID=crawl, max_urls_per_queue=1)) == 1
    while not client.get(crawlID=crawl, max_urls_per_queue=2):
        assert time.monotonic() - begun < 5
        time.sleep(0.005)
    assert 0.99 <= time.monotonic() - begun < 1.5


def test_a_delay_of_0_gives_the_next_url_at_once(client, crawl):
    client.put(discovered("http://a.test/1", crawl), discovered("http://a.test/2", crawl))
    client.ask("SetDelay", {"crawlID": crawl, "key": "a.test", "delay_requestable": 0})
    assert client.get(crawlID=crawl, max_urls_per_queue=1) == ["http://a.test/1"]
    client.put(known("http://a.test/1", 0, crawl))
    assert client.get(crawlID=crawl, max_urls_per_queue=1) == ["http://a.test/2"]


def test_an_unreported_url_is_handed_out_again_after_its_time(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    client.ask("SetDelay", {"crawlID": crawl, "key": "a.test", "delay_requestable": 0})
    assert client.get(crawlID=crawl, delay_requestable=1) == ["http://a.test/"]
    assert client.get(crawlID=crawl) == []
    deadline = time.monotonic() + 5
    while not (found := client.get(crawlID=crawl)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found == ["http://a.test/"]


def test_a_call_without_a_message_has_a_status(client):
    call = client.channel.stream_stream(PROTOCOL.calls["GetStats"].path, lambda one: one, lambda one: one)
    assert code_of(lambda: list(call(iter(()), timeout=10))) is not None


# -- counts and lists --------------------------------------------------------------------------------------------------


def test_the_counts_of_a_crawl_that_is_unknown_are_0(client, crawl):
    assert stats(client, crawl) == (0, 0, 0, 0, 0)


def test_the_counts_of_a_queue_that_is_unknown_are_0(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    assert stats(client, crawl, "b.test") == (0, 0, 0, 0, 0)


def test_the_counts_of_a_queue_are_its_own(client, crawl):
    client.put(*(discovered(f"http://{host}.test/{row}", crawl) for host in "ab" for row in range(3)))
    client.put(known("http://a.test/0", 0, crawl))
    assert stats(client, crawl, "a.test") == (2, 0, 1, 1, 1)
    assert stats(client, crawl) == (5, 0, 1, 2, 2)


def test_counts_name_the_crawl(client, crawl):
    assert client.ask("GetStats", {"crawlID": crawl})["crawlID"] == crawl


def test_the_status_of_a_discovered_url_is_known_with_the_second_of_its_discovery(client, crawl):
    client.put(discovered("http://a.test/", crawl, a=["1"]))
    found = status(client, crawl, "http://a.test/")
    assert found["known"]["info"] == {
        "url": "http://a.test/", "key": "a.test", "crawlID": crawl, "metadata": {"a": {"values": ["1"]}}
    }  # fmt: skip
    assert abs(date_of(found) - time.time()) < 120
    assert abs(found["creation_date"] - time.time()) < 120


def test_the_status_of_an_unknown_url_is_not_found(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    assert code_of(lambda: status(client, crawl, "http://a.test/2")) is NOT_FOUND
    assert code_of(lambda: status(client, crawl, "http://a.test/", "other")) is NOT_FOUND


def test_the_status_of_a_url_of_an_unknown_crawl_is_not_found(client, crawl):
    assert code_of(lambda: status(client, crawl, "http://a.test/")) is NOT_FOUND


def test_the_status_of_no_url_is_invalid(client, crawl):
    assert code_of(lambda: status(client, crawl, "")) is INVALID


def test_the_status_of_a_url_with_a_key_needs_the_key(client, crawl):
    client.put(discovered("http://a.test/", crawl, key="k"))
    assert status(client, crawl, "http://a.test/", "k")["known"]["info"]["key"] == "k"
    assert code_of(lambda: status(client, crawl, "http://a.test/")) is NOT_FOUND


def test_a_crawl_is_listed_while_it_has_a_queue(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    assert crawl in client.ask("ListCrawls")["values"]
    client.ask("DeleteCrawl", {"value": crawl})
    assert crawl not in client.ask("ListCrawls").get("values", [])


def test_queues_are_listed(client, crawl):
    client.put(*(discovered(f"http://h{row}.test/", crawl) for row in range(5)))
    found = client.ask("ListQueues", {"crawlID": crawl})
    assert sorted(found["values"]) == [f"h{row}.test" for row in range(5)]
    assert (found["crawlID"], found["size"]) == (crawl, 100)


def test_queues_are_listed_page_by_page(client, crawl):
    client.put(*(discovered(f"http://h{row}.test/", crawl) for row in range(7)))
    pages = [client.ask("ListQueues", {"crawlID": crawl, "start": at, "size": 3})["values"] for at in (0, 3, 6)]
    assert [len(page) for page in pages] == [3, 3, 1]
    assert len({one for page in pages for one in page}) == 7


def test_a_page_beyond_the_queues_is_empty(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    assert client.ask("ListQueues", {"crawlID": crawl, "start": 5}).get("values", []) == []


def test_a_page_of_queues_has_100_by_default(client, crawl):
    client.put(*(discovered(f"http://h{row}.test/", crawl) for row in range(120)))
    assert len(client.ask("ListQueues", {"crawlID": crawl})["values"]) == 100


def test_completed_queues_are_listed_only_on_request(client, crawl):
    client.put(known("http://a.test/", 0, crawl), discovered("http://b.test/", crawl))
    assert client.ask("ListQueues", {"crawlID": crawl})["values"] == ["b.test"]
    found = client.ask("ListQueues", {"crawlID": crawl, "include_inactive": True})["values"]
    assert sorted(found) == ["a.test", "b.test"]


def test_blocked_queues_are_listed_only_on_request(client, crawl):
    client.put(discovered("http://a.test/", crawl), discovered("http://b.test/", crawl))
    client.ask("BlockQueueUntil", {"crawlID": crawl, "key": "a.test", "time": LATER})
    assert client.ask("ListQueues", {"crawlID": crawl})["values"] == ["b.test"]
    assert len(client.ask("ListQueues", {"crawlID": crawl, "include_inactive": True})["values"]) == 2


def test_the_urls_of_a_crawl_are_listed(client, crawl):
    client.put(*(discovered(f"http://h{row % 2}.test/{row}", crawl) for row in range(6)))
    assert sorted(urls_of(client, crawlID=crawl)) == sorted(f"http://h{row % 2}.test/{row}" for row in range(6))


def test_listed_urls_are_known_items_with_dates(client, crawl):
    client.put(known("http://a.test/", LATER, crawl, a=["1"]), known("http://a.test/2", 0, crawl))
    found = {item["known"]["info"]["url"]: item for item in client.stream("ListURLs", {"crawlID": crawl})}
    assert date_of(found["http://a.test/"]) == LATER
    assert found["http://a.test/"]["known"]["info"]["metadata"] == {"a": {"values": ["1"]}}
    assert date_of(found["http://a.test/2"]) == 0


def test_the_urls_of_a_queue_are_listed(client, crawl):
    client.put(discovered("http://a.test/", crawl), discovered("http://b.test/", crawl))
    assert urls_of(client, crawlID=crawl, key="b.test") == ["http://b.test/"]


def test_urls_are_listed_page_by_page(client, crawl):
    client.put(*(discovered(f"http://a.test/{row}", crawl) for row in range(7)))
    pages = [urls_of(client, crawlID=crawl, start=at, size=3) for at in (0, 3, 6)]
    assert [len(page) for page in pages] == [3, 3, 1]
    assert len({one for page in pages for one in page}) == 7


def test_a_page_of_urls_has_100_by_default(client, crawl):
    client.put(*(discovered(f"http://a.test/{row}", crawl) for row in range(130)))
    assert len(urls_of(client, crawlID=crawl)) == 100


def test_urls_are_listed_by_a_part_of_them(client, crawl):
    client.put(discovered("http://a.test/One", crawl), discovered("http://a.test/two", crawl))
    assert urls_of(client, crawlID=crawl, filter="One") == ["http://a.test/One"]
    assert urls_of(client, crawlID=crawl, filter="one") == []
    assert urls_of(client, crawlID=crawl, filter="one", ignoreCase=True) == ["http://a.test/One"]


def test_the_start_counts_listed_urls(client, crawl):
    client.put(*(discovered(f"http://a.test/{'x' if row % 2 else 'y'}{row}", crawl) for row in range(8)))
    first, rest = (
        urls_of(client, crawlID=crawl, filter="/x", size=1),
        urls_of(client, crawlID=crawl, filter="/x", start=1),
    )
    assert len(first) == 1
    assert len(rest) == 3
    assert first[0] not in rest


def test_a_list_of_an_unknown_crawl_is_empty(client, crawl):
    assert urls_of(client, crawlID=crawl) == []
    assert urls_of(client, crawlID=crawl, key="a.test") == []


def test_urls_are_counted(client, crawl):
    client.put(
        discovered("http://a.test/1", crawl), discovered("http://a.test/2", crawl), known("http://b.test/", 0, crawl)
    )
    assert client.ask("CountURLs", {"crawlID": crawl}) == {"value": 3}
    assert client.ask("CountURLs", {"crawlID": crawl, "key": "a.test"}) == {"value": 2}
    assert client.ask("CountURLs", {"crawlID": crawl, "filter": "/2"}) == {"value": 1}
    assert client.ask("CountURLs", {"crawlID": crawl, "filter": "HTTP://A", "ignoreCase": True}) == {"value": 2}


def test_the_urls_of_an_unknown_crawl_are_0(client, crawl):
    assert client.ask("CountURLs", {"crawlID": crawl}) == {}


# -- orders ------------------------------------------------------------------------------------------------------------


def test_deleting_a_queue_gives_the_number_of_its_urls(client, crawl):
    client.put(
        discovered("http://a.test/1", crawl), known("http://a.test/2", 0, crawl), discovered("http://b.test/", crawl)
    )
    assert client.ask("DeleteQueue", {"crawlID": crawl, "key": "a.test"}) == {"value": 2}
    assert stats(client, crawl)[0] == 1
    assert client.get(crawlID=crawl) == ["http://b.test/"]


def test_deleting_an_unknown_queue_gives_0(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    assert client.ask("DeleteQueue", {"crawlID": crawl, "key": "b.test"}) == {}
    assert client.ask("DeleteQueue", {"crawlID": crawl + "x", "key": "b.test"}) == {}


def test_deleting_a_queue_without_a_key_deletes_nothing(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    assert client.ask("DeleteQueue", {"crawlID": crawl}) == {}
    assert stats(client, crawl)[0] == 1


def test_a_url_of_a_deleted_queue_is_new_again(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    client.ask("DeleteQueue", {"crawlID": crawl, "key": "a.test"})
    assert client.put(discovered("http://a.test/", crawl, id="1")) == [("1", OK)]
    assert stats(client, crawl)[0] == 1


def test_deleting_a_crawl_gives_the_number_of_its_urls(client, crawl):
    client.put(*(discovered(f"http://h{row}.test/", crawl) for row in range(5)), known("http://h0.test/2", 0, crawl))
    assert client.ask("DeleteCrawl", {"value": crawl}) == {"value": 6}
    assert stats(client, crawl) == (0, 0, 0, 0, 0)


def test_deleting_an_unknown_crawl_gives_0(client, crawl):
    assert client.ask("DeleteCrawl", {"value": crawl}) == {}


def test_a_deleted_crawl_can_be_made_again(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    client.ask("DeleteCrawl", {"value": crawl})
    assert client.put(discovered("http://a.test/", crawl, id="1")) == [("1", OK)]
    assert stats(client, crawl)[0] == 1


def purged(client, crawl, urls, **request):
    """How many URLs `PurgeURLs` deletes. It deletes those before this second, so it is asked until it has deleted this
    number of URLs."""
    counts = []

    def is_enough():
        counts.append(client.ask("PurgeURLs", {"crawlID": crawl, **request}).get("value", 0))
        return sum(counts) >= urls

    wait_for(is_enough, 5.0)
    return sum(counts)


def test_purging_deletes_urls_in_any_state(client, crawl):
    client.put(discovered("http://a.test/1", crawl), known("http://a.test/2", 0, crawl))
    client.put(known("http://b.test/", LATER, crawl), discovered("http://c.test/", crawl))
    assert client.get(crawlID=crawl, key="c.test") == ["http://c.test/"]
    assert purged(client, crawl, 4) == 4
    assert stats(client, crawl)[:4] == (0, 0, 0, 0)
    assert urls_of(client, crawlID=crawl) == []
    assert client.get(crawlID=crawl) == []


def test_a_purged_url_is_unknown_and_can_be_new_again(client, crawl):
    client.put(known("http://a.test/", 0, crawl))
    assert purged(client, crawl, 1) == 1
    assert code_of(lambda: status(client, crawl, "http://a.test/")) is NOT_FOUND
    assert client.put(discovered("http://a.test/", crawl, id="1")) == [("1", OK)]
    assert stats(client, crawl)[:3] == (1, 0, 0)


def test_urls_of_the_last_days_are_not_purged(client, crawl):
    later = crawl_name()
    client.put(discovered("http://a.test/", crawl))
    client.put(discovered("http://a.test/", later))
    assert purged(client, later, 1) == 1  # so days=0 would purge the earlier one, too
    assert client.ask("PurgeURLs", {"crawlID": crawl, "days": 1}) == {}
    assert client.ask("PurgeURLs", {"crawlID": crawl, "days": 2**32 - 1}) == {}
    assert stats(client, crawl)[0] == 1


def test_purging_a_queue_leaves_the_others(client, crawl):
    client.put(discovered("http://a.test/", crawl), discovered("http://b.test/", crawl))
    assert purged(client, crawl, 1, key="a.test") == 1
    assert urls_of(client, crawlID=crawl) == ["http://b.test/"]


def test_purging_leaves_other_crawls(client, crawl):
    client.put(discovered("http://a.test/", crawl), discovered("http://a.test/", crawl + "x"))
    assert purged(client, crawl, 1) == 1
    assert stats(client, crawl + "x")[0] == 1


def test_purging_an_unknown_crawl_or_queue_gives_0(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    assert client.ask("PurgeURLs", {"crawlID": crawl + "x"}) == {}
    assert client.ask("PurgeURLs", {"crawlID": crawl, "key": "b.test"}) == {}


def test_purged_completed_urls_make_room_below_a_limit(client, crawl):
    client.put(discovered("http://a.test/1", crawl))
    client.ask("SetCrawlLimit", {"crawlID": crawl, "key": "a.test", "limit": 1})
    client.put(known("http://a.test/1", 0, crawl))
    assert purged(client, crawl, 1) == 1
    client.put(discovered("http://a.test/2", crawl))
    assert client.get(crawlID=crawl) == ["http://a.test/2"]


def test_a_blocked_queue_is_not_handed_out(client, crawl):
    client.put(discovered("http://a.test/", crawl), discovered("http://b.test/", crawl))
    client.ask("BlockQueueUntil", {"crawlID": crawl, "key": "a.test", "time": LATER})
    assert client.get(crawlID=crawl) == ["http://b.test/"]


def test_a_block_of_0_ends_a_block(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    client.ask("BlockQueueUntil", {"crawlID": crawl, "key": "a.test", "time": LATER})
    client.ask("BlockQueueUntil", {"crawlID": crawl, "key": "a.test", "time": 0})
    assert client.get(crawlID=crawl) == ["http://a.test/"]


def test_a_block_in_the_past_blocks_nothing(client, crawl):
    client.put(discovered("http://a.test/", crawl))
    client.ask("BlockQueueUntil", {"crawlID": crawl, "key": "a.test", "time": 5})
    assert client.get(crawlID=crawl) == ["http://a.test/"]


def test_a_block_of_an_unknown_queue_is_ok(client, crawl):
    assert client.ask("BlockQueueUntil", {"crawlID": crawl, "key": "a.test", "time": LATER}) == {}


def test_a_delay_of_an_unknown_queue_is_ok(client, crawl):
    assert client.ask("SetDelay", {"crawlID": crawl, "key": "a.test", "delay_requestable": 7}) == {}


def test_a_longer_delay_holds_the_queue(client, crawl):
    client.put(discovered("http://a.test/1", crawl), discovered("http://a.test/2", crawl))
    client.ask("SetDelay", {"crawlID": crawl, "key": "a.test", "delay_requestable": 3_600})
    assert len(client.get(crawlID=crawl, max_urls_per_queue=1)) == 1
    time.sleep(1.2)
    assert client.get(crawlID=crawl, max_urls_per_queue=1) == []


def test_a_block_before_the_first_url_of_its_queue_counts(client, crawl):
    client.ask("BlockQueueUntil", {"crawlID": crawl, "key": "a.test", "time": LATER})
    client.put(discovered("http://a.test/", crawl))
    assert client.get(crawlID=crawl) == []
    client.ask("BlockQueueUntil", {"crawlID": crawl, "key": "a.test", "time": 0})
    assert client.get(crawlID=crawl) == ["http://a.test/"]


def test_a_delay_before_the_first_url_of_its_queue_counts(client, crawl):
    client.ask("SetDelay", {"crawlID": crawl, "key": "k", "delay_requestable": 0})
    client.put(discovered("http://a.test/1", crawl, key="k"), discovered("http://a.test/2", crawl, key="k"))
    assert len(client.get(crawlID=crawl, max_urls_per_queue=1)) == 1
    assert len(client.get(crawlID=crawl, max_urls_per_queue=2)) == 1


def test_a_queue_at_its_limit_of_completed_urls_is_not_handed_out(client, crawl):
    client.put(*(discovered(f"http://a.test/{row}", crawl) for row in range(4)))
    client.ask("SetDelay", {"crawlID": crawl, "key": "a.test", "delay_requestable": 0})
    client.ask("SetCrawlLimit", {"crawlID": crawl, "key": "a.test", "limit": 2})
    for row in range(2):
        assert client.get(crawlID=crawl, max_urls_per_queue=1) == [f"http://a.test/{row}"]
        client.put(known(f"http://a.test/{row}", 0, crawl))
    assert client.get(crawlID=crawl) == []


def test_urls_in_flight_do_not_count_for_the_limit(client, crawl):
    client.put(*(discovered(f"http://a.test/{row}", crawl) for row in range(3)))
    client.ask("SetDelay", {"crawlID": crawl, "key": "a.test", "delay_requestable": 0})
    client.ask("SetCrawlLimit", {"crawlID": crawl, "key": "a.test", "limit": 1})
    assert len(client.get(crawlID=crawl, max_urls_per_queue=1)) == 1
    assert len(client.get(crawlID=crawl, max_urls_per_queue=2)) == 1


def test_a_limit_of_0_ends_a_limit(client, crawl):
    client.put(known("http://a.test/1", 0, crawl), discovered("http://a.test/2", crawl))
    client.ask("SetCrawlLimit", {"crawlID": crawl, "key": "a.test", "limit": 1})
    assert client.get(crawlID=crawl) == []
    client.ask("SetCrawlLimit", {"crawlID": crawl, "key": "a.test", "limit": 0})
    assert client.get(crawlID=crawl) == ["http://a.test/2"]


def test_a_completed_url_that_is_scheduled_again_makes_room_for_others(client, crawl):
    client.put(known("http://a.test/1", 0, crawl), discovered("http://a.test/2", crawl))
    client.ask("SetCrawlLimit", {"crawlID": crawl, "key": "a.test", "limit": 1})
    client.put(known("http://a.test/1", LATER, crawl))
    assert client.get(crawlID=crawl) == ["http://a.test/2"]


def test_a_limit_before_the_first_url_of_its_queue_counts(client, crawl):
    client.ask("SetCrawlLimit", {"crawlID": crawl, "key": "a.test", "limit": 1})
    client.put(known("http://a.test/1", 0, crawl), discovered("http://a.test/2", crawl))
    assert client.get(crawlID=crawl) == []


def test_a_limit_without_a_key_is_invalid(client, crawl):
    assert code_of(lambda: client.ask("SetCrawlLimit", {"crawlID": crawl, "limit": 1})) is INVALID


def test_an_inactive_frontier_hands_out_nothing_and_accepts_urls(client, crawl):
    assert client.ask("GetActive") == {"state": True}
    client.ask("SetActive", {"state": False})
    try:
        assert client.ask("GetActive") == {}
        assert client.put(discovered("http://a.test/", crawl, id="1")) == [("1", OK)]
        assert client.get(crawlID=crawl) == []
    finally:
        client.ask("SetActive", {"state": True})
    assert client.get(crawlID=crawl) == ["http://a.test/"]


def test_the_log_level_is_set(client):
    for level in range(5):
        assert client.ask("SetLogLevel", {"package": "outrider.service", "level": level}) == {}
    client.ask("SetLogLevel", {"package": "outrider.service", "level": 3})


def test_the_nodes_are_one(client):
    assert len(client.ask("ListNodes")["values"]) == 1


@pytest.mark.parametrize("local", [False, True])
def test_local_changes_nothing_on_one_node(client, crawl, local):
    client.put(discovered("http://a.test/", crawl))
    assert crawl in client.ask("ListCrawls", {"local": local})["values"]
    assert client.ask("GetStats", {"crawlID": crawl, "local": local})["size"] == 1
    assert client.ask("DeleteCrawl", {"value": crawl, "local": local}) == {"value": 1}


# -- the transport -----------------------------------------------------------------------------------------------------


def test_an_unknown_call_is_unimplemented(client):
    call = client.channel.unary_unary("/urlfrontier.URLFrontier/Nothing", lambda one: one, lambda one: one)
    assert code_of(lambda: call(b"", timeout=10)) is UNIMPLEMENTED


def test_a_message_beyond_the_limit_is_refused(client, crawl):
    url = "http://a.test/" + "x" * (5 << 20)
    assert code_of(lambda: client.put(discovered(url, crawl))) is EXHAUSTED


def test_a_cancelled_stream_leaves_the_others(client, crawl):
    stop = threading.Event()

    def items():
        yield discovered("http://a.test/", crawl, id="1")
        stop.wait(20)

    answers = client.stream("PutURLs", items())
    next(answers)
    answers.cancel()
    stop.set()
    assert client.put(discovered("http://b.test/", crawl, id="2")) == [("2", OK)]


def test_many_items_in_flight_never_block(client, crawl):
    # Acknowledgements are read only after all items were sent, as far as the transport allows.
    count = 5_000
    acks = client.stream("PutURLs", (discovered(f"http://h{row % 50}.test/{row}", crawl) for row in range(count)))
    assert sum(1 for _ in acks) == count
    assert stats(client, crawl)[0] == count
    client.ask("DeleteCrawl", {"value": crawl})


def test_many_streams_at_once_are_answered_each(client, crawl):
    found = []

    def one(number):
        found.append(client.put(*(discovered(f"http://h{number}.test/{row}", crawl, id=str(row)) for row in range(50))))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [sorted(int(name) for name, _ in acks) for acks in found] == [list(range(50))] * 20
    assert stats(client, crawl)[0] == 1_000


def test_deleting_while_handing_out_ends_every_call(client, crawl):
    client.put(*(discovered(f"http://h{row}.test/{page}", crawl) for row in range(30) for page in range(5)))
    ends = []

    def read():
        for _ in range(20):
            client.get(crawlID=crawl, max_urls_per_queue=1)
        ends.append(True)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for row in range(30):
        client.ask("DeleteQueue", {"crawlID": crawl, "key": f"h{row}.test"})
    client.ask("DeleteCrawl", {"value": crawl})
    for thread in threads:
        thread.join(30)
    assert ends == [True] * 4
