"""Crawls by unique keys: the caller says which URLs are the same, and a URL is kept byte for byte."""

from __future__ import annotations

from itertools import pairwise

import pytest

from limiting import set_limits
from model.world import START, World
from outrider import Frontier, Link
from outrider.errors import SettingsError
from outrider.journey import Code, Outcome, State, Verdict
from outrider.limits import LEASE_BYTES_MAX, METADATA_BYTES_MAX, UNIQUE_KEY_BYTES_MAX, UNIQUE_METADATA_BYTES_MAX
from outrider.storage.memory import MemoryFiles
from outrider.url.traps import Traps

A, B = "http://a.com/", "http://b.com/"
NEW, KNOWN, INVALID, OVER = Code.NEW, Code.KNOWN, Code.INVALID, Code.OVER_LIMIT


def by_callers(**settings):
    world = World(delay=1, delay_factor=0, **settings)
    world.frontier.make_crawl("c", unique="caller")
    return world


def link(url, unique_key=None, **more):
    return Link(url, crawl="c", unique_key=unique_key, **more)


def leased(world, rounds=20):
    """Leases and reports all URLs, and returns their leases."""
    found = []
    for _ in range(rounds):
        leases = list(world.frontier.lease(50))
        world.frontier.report([lease.done(seconds=0.0) for lease in leases])
        found += leases
        world.clock.move(1)
    return found


def test_two_posts_to_one_url_are_two_urls():
    world = by_callers()
    posts = [link(A, b"post 1", metadata={"body": "1"}), link(A, b"post 2", metadata={"body": "2"})]
    assert [NEW, NEW, KNOWN] == world.frontier.discover([*posts, posts[0]])
    assert [KNOWN, KNOWN] == world.frontier.discover(posts)
    assert [(A, b"post 1", "1"), (A, b"post 2", "2")] == [
        (lease.url, lease.unique_key, lease.metadata["body"]) for lease in leased(world)
    ]


def test_one_unique_key_is_one_url_at_any_host():
    world = by_callers()
    assert [NEW, KNOWN] == world.frontier.discover([link(A, b"k"), link(B, b"k")])
    assert [KNOWN] == world.frontier.discover([link("http://c.com/", b"k")])
    assert [NEW] == world.frontier.discover([Link(B)])
    assert {(A, b"k"), (B, None)} == {(lease.url, lease.unique_key) for lease in leased(world)}


def test_without_a_unique_key_the_key_and_the_text_decide():
    world = by_callers()
    links = [link(A), link(A, key="k"), link(A, key="j"), link(A, b"k"), link(A, key="a.com"), link("HTTP://a.com")]
    assert [NEW, NEW, NEW, NEW, KNOWN, NEW] == world.frontier.discover(links)


@pytest.mark.parametrize(
    "url",
    [
        "HTTP://A.com", "http://a.com/x/../y?b=1&a=2#part", "http://user:secret@a.com/", "http://a.com/ü?q=ä b",
        "http://a.com/%7e%2F", " http://a.com/ ", "http://a.com:80/\t", "https://bücher.de/",
    ],
)  # fmt: skip
def test_a_url_is_kept_byte_for_byte(url):
    world = by_callers(url_rules="tracking,trailing_slash,sort_query")
    assert [NEW, KNOWN] == world.frontier.discover([link(url), link(url)])
    (lease,) = leased(world)
    assert url == lease.url == world.frontier.status(url, crawl="c").url == next(iter(world.frontier.records()))["url"]
    assert lease.host in ("a.com", "xn--bcher-kva.de")
    assert [url] == [one.url for one in world.frontier.urls(crawl="c")]
    assert [url] == [one.url for one in world.reopen().urls(crawl="c")]


def test_a_text_that_is_not_a_url_is_leased_under_its_key():
    world = by_callers()
    links = [link("notaurl"), link("notaurl", key="k"), link("ftp://files.org/1"), link("ftp://files.org/2")]
    assert [NEW] * 4 == world.frontier.discover(links)
    assert {("notaurl", "notaurl"), ("notaurl", "k"), ("ftp://files.org/1", "files.org")} == {
        (lease.url, lease.key) for lease in world.frontier.lease(50)
    }
    world.clock.move(100)
    leases = leased(world)
    assert {("", "")} == {(lease.host, lease.authority) for lease in leases}
    assert ["k"] == [lease.key for lease in leases if lease.url == "notaurl" and lease.key != "notaurl"]


def test_a_text_that_is_not_a_url_has_only_the_clock_of_its_queue():
    world = by_callers(group="domain")
    world.frontier.discover([link("x", key="a.com"), link("y", key="a.com"), link(A), link("z", key="www.a.com")])
    assert {"x", "z", A} == {lease.url for lease in world.frontier.lease(9)}
    assert [] == list(world.frontier.lease(9))


def test_a_crawl_by_urls_and_one_by_unique_keys_share_the_clock_of_a_host():
    world = by_callers()
    world.frontier.discover([Link(A), link(A, b"1"), link("HTTP://A.COM:80/x")])
    instants = []
    for _ in range(3):
        (lease,) = world.frontier.lease(9)
        instants.append(world.clock())
        assert [] == list(world.frontier.lease(9))
        world.frontier.report([lease.done(seconds=0.0)])
        world.clock.move(1)
    assert [1_000_000, 1_000_000] == [after - before for before, after in pairwise(instants)]


@pytest.mark.parametrize("url", ["", "\ud800", "://", "?x"])
def test_a_text_without_content_is_invalid(url):
    assert [INVALID] == by_callers().frontier.discover([link(url)])


def test_texts_and_metadata_that_are_too_long_are_over_the_limit():
    world = by_callers()
    long = "http://a.com/#" + "x" * 8_200
    most = {"a": "x" * (UNIQUE_METADATA_BYTES_MAX - 8)}
    more = {"a": "x" * (UNIQUE_METADATA_BYTES_MAX - 7)}
    links = [link(long), link("n" * 8_193, key="k"), link(A, b"1", metadata=more), link(A, b"1", metadata=most)]
    assert [OVER, OVER, OVER, NEW] == world.frontier.discover(links)
    assert [OVER] == world.frontier.discover([Link(A, metadata={"a": "x" * METADATA_BYTES_MAX})])
    assert [most] == [lease.metadata for lease in leased(world)]


def test_scope_traps_and_redirects_do_not_apply():
    world = by_callers(
        scope="host", max_depth=1, traps=Traps(path_depth_max=2, new_urls_max=0, returns_min=0.5), exclude=("/x",)
    )
    deep = "http://a.com/x/" + "y/" * 40
    assert [NEW, NEW] == world.frontier.discover([link(deep, depth=9), link("http://other.com/", depth=5)])
    leases = list(world.frontier.lease(9))
    assert {deep, "http://other.com/"} == {lease.url for lease in leases}
    report = world.frontier.report([lease.done(seconds=0.0, status=301, location=B) for lease in leases])
    assert ["ok", "ok"] == list(report)
    assert 2 == world.frontier.count(crawl="c", state="done")


def test_links_of_a_page_are_urls_of_its_crawl_with_their_own_unique_keys():
    world = by_callers()
    world.frontier.discover([link("HTTP://a.com")])
    (lease,) = world.frontier.lease(1)
    links = [
        B,
        B,
        Link(B, unique_key=b"1"),
        Link(B, unique_key=b"1"),
        "notaurl",
        "HTTP://b.com",
        Link(B, crawl="default"),
    ]
    report = world.frontier.report([lease.done(seconds=0.0, links=links)])
    assert ((NEW, KNOWN, NEW, KNOWN, NEW, NEW, NEW),) == report.links
    world.clock.move(1)
    assert {"HTTP://a.com"} == {one.referrer for one in leased(world)}


def test_a_unique_key_and_the_text_stay_when_an_outcome_changes_the_record():
    world = by_callers()
    world.frontier.discover([link("HTTP://a.com", b"1", metadata={"a": 1})])
    (lease,) = world.frontier.lease(1)
    world.frontier.report([lease.again(at=world.clock() + 5_000_000, seconds=0.0, etag="e", digest=b"d")])
    world.kill()
    world.clock.move(5)
    (lease,) = world.frontier.lease(1)
    assert ("HTTP://a.com", b"1", "e", {"a": 1}) == (lease.url, lease.unique_key, lease.etag, lease.metadata)
    world.frontier.report([lease.done(seconds=0.0, metadata={"b": "x" * (UNIQUE_METADATA_BYTES_MAX - 20)})])
    (record,) = world.frontier.records()
    assert ("HTTP://a.com", b"1".hex(), "caller") == (record["url"], record["unique_key"], record["unique"])


def test_long_metadata_of_an_outcome_is_refused_in_a_crawl_by_urls():
    world = by_callers()
    world.frontier.discover([Link(A), link(B)])
    for lease in world.frontier.lease(9):
        outcome = lease.done(seconds=0.0, metadata={"a": "x" * METADATA_BYTES_MAX})
        if lease.crawl == "c":
            assert ["ok"] == list(world.frontier.report([outcome]))
        else:
            with pytest.raises(SettingsError, match="metadata has 16,"):
                world.frontier.report([outcome])


def test_a_lease_of_long_metadata_has_fewer_urls_and_one_at_least(monkeypatch):
    world = by_callers()
    most = {"a": "x" * 1_000_000}
    world.frontier.discover([link(f"http://h{number}.com/", metadata=most) for number in range(40)])
    first = world.frontier.lease(40)
    assert LEASE_BYTES_MAX // 1_100_000 < len(first) <= LEASE_BYTES_MAX // 1_000_000
    second = world.frontier.lease(40)
    assert 40 == len(first) + len(second)
    assert 40 == len({lease.url for lease in (*first, *second)})
    assert world.frontier.verify().ok


def test_status_explain_and_reprioritise_accept_a_unique_key_or_a_text_with_its_key():
    world = by_callers()
    world.frontier.discover([link(A, b"1"), link(A, b"2"), link("notaurl", key="k"), link(B)])
    frontier = world.frontier
    names = {b"1": State.QUEUED, Link("notaurl", key="k"): State.QUEUED, B: State.QUEUED, A: State.UNKNOWN}
    names |= {b"9": State.UNKNOWN, "notaurl": State.UNKNOWN}
    assert list(names.values()) == [frontier.status(name, crawl="c").state for name in names]
    assert list(names.values()) == [frontier.explain(name, crawl="c").state for name in names]
    assert list(names.values()) == frontier.reprioritise(dict.fromkeys(names, 0.9), crawl="c")
    assert [0.9, 0.5] == [frontier.status(name, crawl="c").priority for name in (b"1", b"2")]
    assert b"1" == frontier.status(b"1", crawl="c").unique_key
    assert {b"1", b"2"} == {one.unique_key for one in frontier.urls(host="a.com")}


BAD = {
    "a unique key in a crawl by URLs": lambda frontier: frontier.discover([Link(A, unique_key=b"1")]),
    "a unique key without a byte": lambda frontier: frontier.discover([link(A, b"")]),
    "a unique key that is text": lambda frontier: frontier.discover([link(A, "1")]),
    "a unique key that is too long": lambda frontier: frontier.discover([link(A, b"1" * (UNIQUE_KEY_BYTES_MAX + 1))]),
    "a name in a crawl by URLs": lambda frontier: frontier.status(b"1"),
    "a link in a crawl by URLs": lambda frontier: frontier.explain(Link(A, unique_key=b"1")),
    "names in a crawl by URLs": lambda frontier: frontier.reprioritise([A, b"1"], 0.5),
    "a name without a byte": lambda frontier: frontier.reprioritise([b""], 0.5, crawl="c"),
    "a crawl with another rule": lambda frontier: frontier.make_crawl("c", unique="url"),
    "the default crawl": lambda frontier: frontier.make_crawl("default", unique="caller"),
    "a known crawl by URLs": lambda frontier: frontier.make_crawl("u", unique="caller"),
    "an unknown rule": lambda frontier: frontier.make_crawl("d", unique="both"),
    "a crawl without a name": lambda frontier: frontier.make_crawl("", unique="caller"),
    "a record with a unique key": lambda frontier: frontier.restore([{"url": A, "state": "done", "unique_key": "31"}]),
    "a record of another rule": lambda frontier: frontier.restore(
        [{"url": A, "state": "done", "crawl": "c", "unique": "url"}]
    ),
    "a link of a page": lambda frontier: frontier.report(
        [Outcome(frontier.lease(1, key="u.com").tokens[0], Verdict.DONE, 0.0, links=[Link(B, unique_key=b"1")])]
    ),
}


@pytest.mark.parametrize("wrong", BAD.values(), ids=list(BAD))
def test_bad_input_is_refused_before_anything_is_logged(wrong):
    world = by_callers()
    world.frontier.discover([Link("http://u.com/", crawl="u")])
    lsn = world.frontier._log.appended_lsn
    with pytest.raises(SettingsError, match=r"unique|crawl"):
        wrong(world.frontier)
    assert world.frontier._log.appended_lsn - lsn in (0, 1)  # one for a lease
    assert 1 == world.frontier.count()
    assert world.frontier.verify().ok


def test_a_crawl_keeps_its_rule_until_it_is_deleted():
    world = by_callers()
    assert not world.frontier.make_crawl("c", unique="caller")
    world.frontier.discover([link(A, b"1")])
    world.frontier.delete(crawl="c")
    assert world.frontier.make_crawl("c", unique="url")
    assert [KNOWN] == world.reopen().discover([Link("HTTP://a.com", crawl="c"), Link(A, crawl="c")])[1:]


def test_urls_of_a_deleted_queue_are_new_again_at_any_host():
    world = by_callers()
    world.frontier.discover([link(A, b"1"), link(B, b"2"), link("notaurl", b"3")])
    world.frontier.delete("a.com", crawl="c")
    world.frontier.delete("notaurl", crawl="c")
    assert [NEW, KNOWN, NEW] == world.frontier.discover([link(B, b"1"), link(A, b"2"), link(A, b"3")])
    assert B == world.frontier.status(b"1", crawl="c").url
    for again in (lambda: world.frontier, world.kill, world.reopen):
        frontier = again()
        assert B == frontier.status(b"1", crawl="c").url
        assert frontier.verify().ok


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_a_store_with_such_a_crawl_opens_with_all_of_it(checkpoint, killed):
    world = by_callers()
    links = [
        link(A, b"1"),
        link(A, b"2"),
        link("HTTP://a.com"),
        link("notaurl"),
        link("notaurl", key="k", metadata={"a": 1}),
    ]
    world.frontier.discover(links)
    leases = list(world.frontier.lease(9, worker="w"))
    world.frontier.report([lease.done(seconds=0.0, digest=b"1") for lease in leases[:1]])
    if checkpoint:
        world.frontier.checkpoint()
    before = list(world.frontier.records()), [(one.url, one.state, one.key) for one in world.frontier.urls()]
    frontier = world.kill() if killed else world.reopen()
    assert before == (list(frontier.records()), [(one.url, one.state, one.key) for one in frontier.urls()])
    assert [KNOWN] * 5 == frontier.discover(links)
    with pytest.raises(SettingsError, match="unique='caller'"):
        frontier.make_crawl("c")
    assert frontier.verify().ok
    assert [lease.url for lease in leases[1:]] == [lease.url for lease in frontier.held(leases[1].token)]


def test_records_carry_a_crawl_by_unique_keys_to_another_store():
    world = by_callers()
    links = [
        link(A, b"1"),
        link(A, b"2", metadata={"a": "x" * 100_000}),
        link("HTTP://a.com"),
        link("notaurl", key="k"),
    ]
    world.frontier.discover([*links, Link(A)])
    leased(world, 1)
    records = list(world.frontier.records())
    other = Frontier.open(MemoryFiles(), clock=lambda: START, robots="caller")
    assert 5 == other.restore(records)
    assert 0 == other.restore(records)
    assert records == list(other.records())
    assert [KNOWN] * 4 == other.discover(links)
    assert other.verify().ok


def test_urls_of_cold_hosts_are_found_by_unique_key_and_stay_known(monkeypatch):
    set_limits(monkeypatch, HOT_HOSTS_MIN=3)
    world = by_callers(memory_bytes=1)
    world.frontier.discover([*(link(f"http://h{number}.com/", b"%d" % number) for number in range(9)), link("n", b"n")])
    leased(world, 3)
    for _ in range(20):
        world.clock.move(100)
        world.frontier.discover(["http://later.com/"])
        world.frontier.checkpoint()
    assert 5 < world.frontier.statistics()["structures"]["cold_hosts"]["hosts"]
    names = [*(b"%d" % number for number in range(9)), b"n"]
    assert [State.DONE] * 10 == [world.frontier.status(name, crawl="c").state for name in names]
    assert ["h3.com", "n"] == [world.frontier.status(name, crawl="c").key for name in (b"3", b"n")]
    assert [KNOWN] * 2 == world.frontier.discover([link("http://other.com/", b"3"), link("n", b"n")])
    assert [NEW, NEW] == world.frontier.discover([link("http://h3.com/", b"new"), link("n", b"new too")])
    assert {"h3.com", "n"} <= {lease.key for lease in world.frontier.lease(20)}
    assert world.reopen().verify().ok


def test_links_for_another_log_keep_their_text_and_unique_key(tmp_path):
    halves, keys = (frozenset(range(2_048)), frozenset(range(2_048, 4_096))), (b"k" * 16, b"s" * 16)
    stores = [Frontier.open(MemoryFiles(), slots=half, keys=keys, robots="caller") for half in halves]
    stores[0].make_crawl("c", unique="caller")
    links = [link(f"HTTP://H{number}.com", b"%d" % number) for number in range(8)]
    links += [link(f"text {number}", key=f"k{number}", metadata={"a": "x" * 20_000}) for number in range(8)]
    assert {NEW, Code.HELD} == set(stores[0].discover(links))
    parcels = stores[0].outbox(100)
    assert [NEW] * len(parcels) == stores[1].receive(parcels)
    assert [KNOWN] * len(parcels) == stores[1].receive(parcels)
    found = [(one.url, one.unique_key) for store in stores for one in store.urls(crawl="c")]
    assert sorted((one.url, one.unique_key) for one in links) == sorted(found)
    assert all(store.verify().ok for store in stores)
    with pytest.raises(SettingsError, match="unique='caller'"):
        stores[1].make_crawl("c")
