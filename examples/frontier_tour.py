"""Every verb of `Frontier` once, without a network: python examples/frontier_tour.py"""

from __future__ import annotations

import tempfile
from pathlib import Path

from outrider import Frontier, InvalidUrlError, Link, Outcome, OutriderError, normalize
from outrider.journey import OutcomeBatch, Verdict

A, B, C = "https://a.example/", "https://b.example/", "https://c.example/"
SECOND = 1_000_000  # instants are microseconds


def the_three_verbs(frontier: Frontier) -> None:
    print(frontier.opening.number, frontier.user_agent, frontier.pressure(), frontier.finished())
    print(frontier.discover([A, Link(B, priority=0.9, depth=1), "mailto:x@y.example", A]))
    frontier.set_robots("https://a.example", 200, b"User-agent: *\nDisallow: /private\nCrawl-delay: 2")
    print(frontier.robots_allow([A, A + "private"]), frontier.crawl_delays(["https://a.example"]))
    first, second = frontier.lease(want=2, worker="tour")
    print(frontier.workers(), frontier.held(first.token), frontier.extend([first.token], 120))
    print(frontier.rest([first.token], seconds=0.2))
    print(frontier.report([first.done(status=200, seconds=0.2, links=[A + "more", A + "private"], digest=b"1" * 20)]))
    print(frontier.report(OutcomeBatch([second.token], seconds=[0.1])))
    print(frontier.seen_content([b"1" * 20, b"2" * 20]), frontier.next_ready_seconds(), frontier.at_limit())


def leases_given_back(frontier: Frontier) -> None:
    frontier.discover([C, C + "2", "https://d.example/"])
    leases = list(frontier.lease(want=2))
    print(frontier.release([leases[0].token]), frontier.defer([leases[1].token], frontier.now() + SECOND))
    for lease in frontier.lease(want=1):
        frontier.report([Outcome(lease.token, Verdict.GONE, status=None, error="timeout")])
    print(frontier.make_crawl("requests", unique="caller"))
    posts = [Link(A, crawl="requests", unique_key=key, metadata={"method": "POST"}) for key in (b"1", b"2")]
    print(frontier.discover(posts), frontier.status(b"1", crawl="requests").state)
    print(frontier.retry(error="timeout"), frontier.queue_errands("sitemap", [A + "sitemap.xml"]))


def questions(frontier: Frontier) -> None:
    print(frontier.status(A).state, frontier.explain(A).reason_text, frontier.explain_idle().text)
    print(
        frontier.host("a.example"), list(frontier.hosts()), list(frontier.queues()), list(frontier.urls(state="done"))
    )
    print(frontier.count(state="queued"), frontier.statistics()["urls"], frontier.waits(), frontier.verify().ok)


def orders(frontier: Frontier) -> None:
    print(frontier.pause("b.example"), frontier.resume("b.example"), frontier.reprioritise([A + "more"], 0.9))
    print(frontier.requeue([A + "more"], priority=0.8), frontier.put([{"url": A + "put", "state": "done"}]))
    print(frontier.delete_urls([A + "put"]))
    print(frontier.set_delay(5, "a.example"), frontier.set_limit(2, "a.example"), frontier.recheck("a.example"))
    print(frontier.block_until(frontier.now() + 60 * SECOND, "a.example"), frontier.delete("b.example"))
    frontier.set_address("a.example", "192.0.2.1")
    print(frontier.set_addresses({"c.example": "192.0.2.2"}))


def between_stores(frontier: Frontier, place: Path) -> None:
    with Frontier.memory(settings={"delay": 0.5}, robots="caller") as copy:
        print(copy.restore(list(frontier.records())))
    keys = (b"k" * 16, b"s" * 16)
    halves = frozenset(range(2048)), frozenset(range(2048, 4096))
    with Frontier.open(place / "one", slots=halves[0], keys=keys, robots="caller") as one:
        with Frontier.open(place / "two", slots=halves[1], keys=keys, robots="caller") as two:
            one.discover([f"https://host{n}.example/" for n in range(8)])
            parcels = one.outbox(100)
            print(two.receive(parcels))
            one.delivered({source: sequence for source, sequence, *_ in parcels})
            print(len(one.outbox(100)))


def elsewhere() -> None:
    """`outrider serve DIR --http 127.0.0.1:7070` would answer here."""
    try:
        with Frontier.connect("http://127.0.0.1:1", worker="tour", patience_seconds=0.1) as remote:
            print(remote.lease(want=10))
    except OutriderError as error:
        print(error)


def beside_an_output(place: Path) -> None:
    with Frontier.open(place / "output", output=True, robots="caller") as frontier:
        frontier.discover([A])
        (lease,) = frontier.lease(1)
        frontier.report(OutcomeBatch([lease.token], seconds=[0.1], lines=[b'{"url": "a"}\n']))
        lines = list(frontier.lines("pages", 0))
        frontier.note_projection("pages", len(lines[-1][1]), lines[-1][0])
        frontier.note_watermark("archive", b"part-1 at 100")
        print(frontier.projection("pages"), frontier.watermarks())
        frontier.checkpoint()
        frontier.close("finished")


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    with Frontier.open(folder / "store", settings={"delay": 0}, robots="caller") as mine:
        the_three_verbs(mine)
        leases_given_back(mine)
        questions(mine)
        orders(mine)
        between_stores(mine, folder)
    beside_an_output(folder)
    elsewhere()
    with Frontier.look(folder / "store") as look:
        print(look.statistics()["accepted"])
    try:
        normalize("http://")
    except InvalidUrlError as error:
        print(isinstance(error, OutriderError), error)
