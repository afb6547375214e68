"""Every verb of `AsyncFrontier` once, without a network: python examples/async_tour.py"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from outrider import AsyncFrontier, Frontier, Link, OutriderError
from outrider.journey import OutcomeBatch

A, B = "https://a.example/", "https://b.example/"
SECOND = 1_000_000  # instants are microseconds


async def worker(frontier: AsyncFrontier, name: str) -> None:
    """Leases, fetches and reports until nothing is left: several of these share one frontier."""
    while not await frontier.finished():
        for lease in await frontier.lease(want=2, worker=name, wait_seconds=1):
            print(name, lease.url, frontier.waiting_leases)
            await frontier.report([lease.done(seconds=0.01, links=[lease.url + "x"] if lease.depth < 1 else [])])


async def verbs(frontier: AsyncFrontier) -> None:
    print(await frontier.discover([A, Link(B, priority=0.9)]), await frontier.pressure(), await frontier.now())
    await asyncio.gather(worker(frontier, "one"), worker(frontier, "two"))
    await frontier.set_robots("https://a.example", 200, b"User-agent: *\nDisallow: /no")
    print(await frontier.robots_allow([A + "no"]), await frontier.crawl_delays(["https://a.example"]))
    await frontier.discover([A + "1", B + "1", "https://c.example/"])
    first, second, third = await frontier.lease(want=3)
    print(await frontier.held(first.token), await frontier.workers(), await frontier.extend([first.token], 9))
    print(await frontier.release([first.token]), await frontier.defer([second.token], await frontier.now() + SECOND))
    print(await frontier.rest([third.token], ended_at=await frontier.now()))
    await frontier.report([third.gone(error="timeout")])
    print(await frontier.make_crawl("requests", unique="caller"))
    print(await frontier.retry(), await frontier.queue_errands("sitemap", [A + "sitemap.xml"]))
    print(await frontier.seen_content([b"1" * 20]), await frontier.next_ready_seconds(), await frontier.at_limit())


async def questions(frontier: AsyncFrontier) -> None:
    print((await frontier.status(A)).state, (await frontier.explain(A)).reason_text)
    print((await frontier.explain_idle()).text, await frontier.host("a.example"), await frontier.hosts())
    print(await frontier.queues(), await frontier.urls(), await frontier.count(state="done"))
    print((await frontier.statistics())["urls"], await frontier.waits(), (await frontier.verify()).ok)


async def orders(frontier: AsyncFrontier) -> None:
    print(await frontier.pause("b.example"), await frontier.resume("b.example"))
    print(await frontier.requeue([A + "1"], priority=0.8), await frontier.put([{"url": A + "put", "state": "done"}]))
    print(await frontier.delete_urls([A + "put"]))
    print(await frontier.reprioritise([A + "1"], 0.9), await frontier.set_delay(5, "a.example"))
    print(
        await frontier.set_limit(2, "a.example"),
        await frontier.recheck("a.example"),
        await frontier.delete("b.example"),
    )
    print(await frontier.block_until(await frontier.now() + 60 * SECOND, "a.example"))
    await frontier.set_address("a.example", "192.0.2.1")
    print(await frontier.set_addresses({"c.example": "192.0.2.2"}))


async def between_stores(frontier: AsyncFrontier, place: Path) -> None:
    records = [record async for record in frontier.records()]
    async with AsyncFrontier(Frontier.memory(robots="caller")) as copy:
        print(await copy.restore(records))
    async with AsyncFrontier.open(place / "one", **half(0)) as one:
        async with AsyncFrontier.open(place / "two", **half(1)) as two:
            await one.discover([f"https://host{n}.example/" for n in range(8)])
            parcels = await one.outbox(100)
            print(await two.receive(parcels))
            await one.delivered({source: sequence for source, sequence, *_ in parcels})


def half(number: int) -> dict:
    slots = frozenset(range(2048 * number, 2048 * (number + 1)))
    return {"slots": slots, "keys": (b"k" * 16, b"s" * 16), "robots": "caller"}


async def elsewhere() -> None:
    """`outrider serve DIR --http 127.0.0.1:7070` would answer here."""
    try:
        async with AsyncFrontier.connect("http://127.0.0.1:1", worker="tour", patience_seconds=0.1) as remote:
            print(await remote.lease(want=10))
    except OutriderError as error:
        print(error)


async def beside_an_output(place: Path) -> None:
    frontier = await AsyncFrontier.open(place / "output", output=True, robots="caller")
    await frontier.discover([A])
    (lease,) = await frontier.lease(1)
    await frontier.report(OutcomeBatch([lease.token], seconds=[0.1], lines=[b'{"url": "a"}\n']))
    lines = [line async for line in frontier.lines("pages", 0)]
    await frontier.note_projection("pages", len(lines[-1][1]), lines[-1][0])
    await frontier.note_watermark("archive", b"part-1 at 100")
    print(await frontier.projection("pages"), await frontier.watermarks())
    await frontier.checkpoint()
    await frontier.close("finished")


async def main(place: Path) -> None:
    async with AsyncFrontier.open(
        place / "store", settings={"delay": 0, "delay_factor": 0}, robots="caller"
    ) as frontier:
        print(frontier.opening.number, frontier.user_agent)
        await verbs(frontier)
        await questions(frontier)
        await orders(frontier)
        await between_stores(frontier, place)
    await beside_an_output(place)
    await elsewhere()
    look = await AsyncFrontier.look(place / "store")
    print((await look.statistics())["accepted"])
    await look.close()


if __name__ == "__main__":
    asyncio.run(main(Path(tempfile.mkdtemp())))
