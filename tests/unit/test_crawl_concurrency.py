"""Places of requests: slow requests are set aside within their limit, and slow hosts are recognised again."""

from __future__ import annotations

import asyncio

from outrider.crawl.run.concurrency import Place, RequestPlaces, kept_of, slow_max
from outrider.limits import SLOW_REQUEST_SECONDS


class Moved:
    """A loop whose clock a test moves: timers that are due run at once."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.passed = 0.0
        clock = self.loop.time
        self.loop.time = lambda: clock() + self.passed  # type: ignore[method-assign]

    async def on(self, seconds: float) -> None:
        self.passed += seconds
        for _ in range(5):
            await asyncio.sleep(0)


def enter(places: RequestPlaces, *hosts: str, begun: list[str]) -> list[Place]:
    """Enters requests to these hosts, one after the other; `begun` has those that were sent."""
    made = [Place(host, lambda host=host: begun.append(host)) for host in hosts]
    for place in made:
        places.enter(place)
    return made


def test_a_slow_request_leaves_its_place_to_another_host():
    async def main():
        time, told, begun = Moved(), [], []
        places = RequestPlaces(1, 1, lambda: told.append(1))
        both = enter(places, "tarpit", "good", begun=begun)
        await time.on(SLOW_REQUEST_SECONDS / 2)
        before = list(begun)
        await time.on(SLOW_REQUEST_SECONDS)
        found = (before, begun, places.aside, len(told))
        for place in both:
            places.leave(place)
        return found, places.aside

    assert ((["tarpit"], ["tarpit", "good"], 1, 1), 0) == asyncio.run(main())


def test_a_host_that_was_slow_uses_no_place_until_it_is_quick_again():
    async def main():
        time, begun = Moved(), []
        places = RequestPlaces(1, 8, lambda: None)
        (slow,) = enter(places, "tarpit", begun=begun)
        await time.on(2 * SLOW_REQUEST_SECONDS)
        places.leave(slow)
        both = enter(places, "tarpit", "good", begun=begun)
        together = (begun[1:], places.aside)
        for place in both:
            places.leave(place)
        enter(places, "tarpit", begun=begun)
        return together, places.aside

    assert ((["tarpit", "good"], 1), 0) == asyncio.run(main())


def test_no_more_requests_are_set_aside_than_the_limit():
    async def main():
        time, begun = Moved(), []
        places = RequestPlaces(2, 1, lambda: None)
        made = enter(places, "h0", "h1", "h2", "h3", begun=begun)
        await time.on(2 * SLOW_REQUEST_SECONDS)
        found = (len(begun), places.aside)
        for place in made:
            places.leave(place)
        return found, len(begun)

    assert ((3, 1), 4) == asyncio.run(main())


def test_a_cancelled_request_returns_its_place():
    """Also a request that still waits for a place: it is never sent."""

    async def main():
        time, begun = Moved(), []
        places = RequestPlaces(1, 1, lambda: None)
        made = enter(places, "h0", "h1", "h2", begun=begun)
        await time.on(2 * SLOW_REQUEST_SECONDS)
        for place in reversed(made):
            places.leave(place)
            places.leave(place)
        enter(places, "h3", "h4", begun=begun)
        return places.aside, begun

    assert (0, ["h0", "h1", "h3"]) == asyncio.run(main())


def test_one_timer_serves_requests_that_start_at_different_times():
    async def main():
        time, begun = Moved(), []
        places = RequestPlaces(2, 8, lambda: None)
        enter(places, "h0", begun=begun)
        await time.on(SLOW_REQUEST_SECONDS * 0.6)
        enter(places, "h1", "h2", "h3", begun=begun)
        await time.on(SLOW_REQUEST_SECONDS * 0.6)
        first = (places.aside, list(begun))
        await time.on(SLOW_REQUEST_SECONDS * 0.6)
        return first, (places.aside, begun)

    first, second = asyncio.run(main())
    assert (1, ["h0", "h1", "h2"]) == first
    assert (2, ["h0", "h1", "h2", "h3"]) == second


def test_each_request_of_a_train_has_the_time_of_a_single_request():
    """The next request at a place becomes slow by its own start: not earlier, and not with later requests."""

    async def main():
        time, begun = Moved(), []
        places = RequestPlaces(2, 8, lambda: None)
        (train,) = enter(places, "h0", begun=begun)
        await time.on(SLOW_REQUEST_SECONDS * 0.2)
        places.renew(train)
        await time.on(SLOW_REQUEST_SECONDS * 0.4)
        enter(places, "h1", begun=begun)
        found = []
        for share in (0.5, 0.2, 0.4):
            await time.on(SLOW_REQUEST_SECONDS * share)
            found.append(places.aside)
        return found

    assert [0, 1, 2] == asyncio.run(main())


def test_a_train_that_was_slow_once_is_set_aside_to_its_end():
    async def main():
        time, begun = Moved(), []
        places = RequestPlaces(1, 8, lambda: None)
        (train,) = enter(places, "tarpit", begun=begun)
        await time.on(2 * SLOW_REQUEST_SECONDS)
        places.renew(train)
        enter(places, "good", begun=begun)
        before = (begun, places.aside)
        places.leave(train)
        return before, places.aside

    assert ((["tarpit", "good"], 1), 0) == asyncio.run(main())


def test_slow_requests_use_the_sockets_that_are_left():
    assert [448, 7, 0, 36] == [slow_max(64, 512), slow_max(1, 512), slow_max(600, 600), slow_max(64, 100)]


def test_where_few_more_may_be_set_aside_places_are_reserved_for_hosts_with_a_prompt_page():
    async def main():
        time, told, begun = Moved(), [], []
        places = RequestPlaces(4, 2, lambda: told.append(1), kept=1)
        (good,) = enter(places, "good", begun=begun)
        places.note_page(good)
        places.leave(good)
        pits = enter(places, *(f"tarpit{number}" for number in range(9)), begun=begun)
        await time.on(2 * SLOW_REQUEST_SECONDS)
        stuck = (len(begun) - 1, places.aside, places.held_up)
        for _ in range(3):
            (good,) = enter(places, "good", begun=begun)
            places.note_page(good)
            places.leave(good)
        served = begun.count("good")
        enter(places, "new", begun=begun)
        places.leave(pits[0])  # a request set aside
        places.leave(pits[4])
        return stuck, served, begun[-2:], len(told) > 0

    stuck, served, last, told = asyncio.run(main())
    assert ((5, 2, 4), 4, True) == (stuck, served, told)
    assert ["good", "tarpit5"] == last


def test_a_prompt_host_that_became_slow_has_no_claim_to_the_reserved_places():
    async def main():
        time, begun = Moved(), []
        places = RequestPlaces(2, 0, lambda: None, kept=1)
        (turned,) = enter(places, "turned", begun=begun)
        places.note_page(turned)
        places.leave(turned)
        enter(places, "turned", "tarpit", begun=begun)
        await time.on(2 * SLOW_REQUEST_SECONDS)
        enter(places, "turned", "other", begun=begun)
        return begun, places.held_up

    assert (["turned", "turned", "tarpit"], 0) == asyncio.run(main())


def test_without_pressure_hosts_that_never_answered_may_use_all_places():
    async def main():
        begun = []
        places = RequestPlaces(4, 28, lambda: None, kept=1)
        enter(places, *(f"h{number}" for number in range(5)), begun=begun)
        return begun, places.held_up

    assert (["h0", "h1", "h2", "h3"], 0) == asyncio.run(main())
    assert [16, 0, 1] == [kept_of(64), kept_of(3), kept_of(4)]
