"""Places of requests: slow ones stand aside within their number, and slow hosts are known again."""

from __future__ import annotations

import asyncio

from outrider.crawl.places import Places, aside_max
from outrider.limits import SLOW_REQUEST_SECONDS


class Moved:
    """A loop whose clock a test sets on: timers that fall due run at once."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.passed = 0.0
        clock = self.loop.time
        self.loop.time = lambda: clock() + self.passed  # type: ignore[method-assign]

    async def on(self, seconds: float) -> None:
        self.passed += seconds
        for _ in range(5):
            await asyncio.sleep(0)


async def hold(places: Places, host: str, until: asyncio.Event, begun: list[str]) -> None:
    async with places.of(host):
        begun.append(host)
        await until.wait()


def test_a_slow_request_gives_its_place_to_another_host():
    async def main():
        time, told, begun, never = Moved(), [], [], asyncio.Event()
        places = Places(1, 1, lambda: told.append(1))
        slow = asyncio.create_task(hold(places, "tarpit", never, begun))
        good = asyncio.create_task(hold(places, "good", never, begun))
        await time.on(SLOW_REQUEST_SECONDS / 2)
        before = list(begun)
        await time.on(SLOW_REQUEST_SECONDS)
        found = (before, begun, places.aside, len(told))
        never.set()
        await asyncio.gather(slow, good)
        return found, places.aside

    assert ((["tarpit"], ["tarpit", "good"], 1, 1), 0) == asyncio.run(main())


def test_a_host_that_was_slow_takes_no_place_until_it_was_quick_again():
    async def main():
        time, begun, ends = Moved(), [], asyncio.Event()
        places = Places(1, 8, lambda: None)
        one = asyncio.create_task(hold(places, "tarpit", ends, begun))
        await time.on(0)
        await time.on(2 * SLOW_REQUEST_SECONDS)
        ends.set()
        await one
        ends.clear()
        again = asyncio.create_task(hold(places, "tarpit", ends, begun))
        good = asyncio.create_task(hold(places, "good", ends, begun))
        await time.on(0)
        together = (begun[1:], places.aside)
        ends.set()
        await asyncio.gather(again, good)
        async with places.of("tarpit"):
            return together, places.aside

    assert ((["tarpit", "good"], 1), 0) == asyncio.run(main())


def test_no_more_stand_aside_than_may():
    async def main():
        time, begun, ends = Moved(), [], asyncio.Event()
        places = Places(2, 1, lambda: None)
        tasks = [asyncio.create_task(hold(places, f"h{n}", ends, begun)) for n in range(4)]
        await time.on(0)
        await time.on(2 * SLOW_REQUEST_SECONDS)
        found = (len(begun), places.aside)
        ends.set()
        await asyncio.gather(*tasks)
        return found, len(begun)

    assert ((3, 1), 4) == asyncio.run(main())


def test_a_request_that_is_broken_off_gives_back_what_it_held():
    async def main():
        time, begun, never = Moved(), [], asyncio.Event()
        places = Places(1, 1, lambda: None)
        tasks = [asyncio.create_task(hold(places, f"h{n}", never, begun)) for n in range(2)]
        await time.on(0)
        await time.on(2 * SLOW_REQUEST_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with places.of("h3"):
            return places.aside

    assert 0 == asyncio.run(main())


def test_slow_requests_have_the_sockets_that_are_left():
    assert [448, 7, 0, 36] == [aside_max(64, 512), aside_max(1, 512), aside_max(600, 600), aside_max(64, 100)]
