"""A frontier hands out no page before its robots.txt by default, and says so to a program that leases pages alone."""

from __future__ import annotations

import asyncio

import pytest

from outrider import AsyncFrontier, Frontier
from outrider.errors import PagesNeedErrandsError

URL = "http://a.test/page"


def test_a_frontier_leases_robots_txt_first_by_default():
    with Frontier.memory() as frontier:
        frontier.discover([URL])
        (errand,) = frontier.lease(10, errands=True)
        assert ("robots", "http://a.test/robots.txt") == (errand.kind, errand.url)


def test_a_store_on_disk_has_the_same_default(tmp_path):
    with Frontier.open(tmp_path / "store") as frontier:
        frontier.discover([URL])
        assert ["robots"] == [lease.kind for lease in frontier.lease(10, errands=True)]


def test_a_lease_of_pages_alone_raises_with_the_way_out():
    with Frontier.memory() as frontier:
        frontier.discover([URL])
        with pytest.raises(PagesNeedErrandsError, match=r"errands=True.*robots=\"caller\""):
            frontier.lease(10)
        assert frontier.lease(10, errands=True)  # the error changed nothing


def test_a_lease_that_waits_raises_after_its_time():
    with Frontier.memory() as frontier:
        frontier.discover([URL])
        with pytest.raises(PagesNeedErrandsError):
            frontier.lease(10, wait_seconds=0.01)


def test_a_thread_for_pages_next_to_one_for_errands_gets_an_empty_batch():
    with Frontier.memory() as frontier:
        frontier.discover([URL])
        assert frontier.lease(10, errands=True)
        assert not frontier.lease(10)


def test_a_lease_of_no_urls_raises_no_error():
    with Frontier.memory() as frontier:
        frontier.discover([URL])
        assert not frontier.lease(0)


def test_an_empty_frontier_raises_no_error():
    with Frontier.memory() as frontier:
        assert not frontier.lease(10)


def test_a_program_that_checks_robots_txt_itself_gets_the_page():
    with Frontier.memory(robots="caller") as frontier:
        frontier.discover([URL])
        assert [URL] == frontier.lease(10).urls


def test_an_async_frontier_raises_the_same_error():
    async def leased():
        async with AsyncFrontier.memory() as frontier:
            await frontier.discover([URL])
            await frontier.lease(10)

    with pytest.raises(PagesNeedErrandsError):
        asyncio.run(leased())
