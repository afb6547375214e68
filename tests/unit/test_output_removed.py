"""Lines that are removed from the files of a node, because another node owns their partition."""

from __future__ import annotations

import pytest

from outrider.crawl.output.output import FILES, PAGES
from unit.test_crawl_settle import House

START = dict.fromkeys(FILES, 0)


@pytest.fixture
def house(tmp_path):
    made = House(tmp_path / "crawl")
    yield made
    made.close()


def lengths(house):
    return {stream: house.frontier.projection(stream)[0] for stream in FILES}


def test_the_lengths_after_a_removal_are_noted_also_if_they_were_noted_before(house):
    leases = house.pages()
    house.settler.turn([house.visit(leases[0])], 0)
    house.output.note()
    assert lengths(house)[PAGES] > 0
    assert house.output.drop(lambda line: True, START) > 1  # the page and politeness lines
    house.output.note()
    assert START == lengths(house) == house.output.noted()
    assert 0 == house.output.drop(lambda line: True, START)


def test_lines_that_stay_keep_their_order(house):
    leases = house.pages()
    for lease in leases[:3]:
        house.settler.turn([house.visit(lease)], 0)
    url = leases[1].url.encode()
    assert house.output.drop(lambda line: url in line, START) > 1
    house.output.note()
    kept = [line for line in house.output.pages() if url not in line]
    assert [leases[0].url.encode() in kept[0], leases[2].url.encode() in kept[1]] == [True, True]
    assert 2 == len(list(house.output.pages()))
