"""A frontier calls its priority function once per page, for links that are new and have no priority of their own."""

from __future__ import annotations

import numpy as np
import pytest

from outrider import Frontier, Link
from outrider.errors import SettingsError
from outrider.frontier.priority import DomainPriorities, Referrer, Weighted
from outrider.url import UrlBatch


class Asked:
    """A priority function that notes its arguments."""

    def __init__(self, answer: float = 0.9) -> None:
        self.answer = answer
        self.calls: list[tuple[list[str], list[str], Referrer | None]] = []

    def __call__(self, urls, page):
        self.calls.append((list(urls), sorted(urls.columns), page))
        return np.full(len(urls), self.answer)


def frontier(priority, **settings) -> Frontier:
    return Frontier.memory(
        settings={"priority": priority, "delay": 0.0, "delay_factor": 0.0, **settings}, robots="caller"
    )


def drawn(made: Frontier) -> dict[str, float]:
    return {lease.url: lease.priority for lease in made.lease(want=100)}


def test_links_without_a_priority_get_that_of_the_function():
    with frontier(Asked()) as made:
        made.discover(["http://a.example/", Link("http://b.example/", priority=0.1)])
        assert {"http://a.example/": 0.9, "http://b.example/": 0.1} == drawn(made)


def test_the_function_gets_no_page_for_seeds_but_the_page_of_found_links():
    asked = Asked()
    with frontier(asked) as made:
        made.discover(["http://a.example/"])
        (lease,) = made.lease(want=1)
        made.report([lease.done(seconds=0.1, links=["http://b.example/", "http://c.example/"])])
    assert [
        (["http://a.example/"], None),
        (["http://b.example/", "http://c.example/"], Referrer("http://a.example/", 0, 0.9)),
    ] == [(urls, page) for urls, _, page in asked.calls]


def test_known_urls_are_not_passed_to_the_function():
    asked = Asked()
    with frontier(asked) as made:
        made.discover(["http://a.example/"])
        made.discover(["http://a.example/", "http://b.example/"])
    assert [["http://a.example/"], ["http://b.example/"]] == [urls for urls, _, _ in asked.calls]


def test_the_function_gets_the_columns_of_the_links():
    urls = UrlBatch.of([f"http://h{row}.example/" for row in range(40)]).with_columns(page_rank=np.arange(40) / 64)
    with frontier(Weighted({"page_rank": 1})) as made:
        made.discover(urls)
        assert [row / 64 for row in range(40)] == sorted(drawn(made).values())


def test_columns_survive_lossy_rules_of_spelling():
    urls = UrlBatch.of([f"http://www.h{row}.example/" for row in range(40)]).with_columns(page_rank=0.25)
    with frontier(Weighted({"page_rank": 1}), url_rules="www") as made:
        made.discover(urls)
        assert {f"http://h{row}.example/": 0.25 for row in range(40)} == drawn(made)


def test_columns_of_one_page_are_not_used_for_another():
    with frontier(Weighted({"page_rank": 1})) as made:
        made.discover(["http://a.example/", "http://b.example/"])
        first, second = made.lease(want=2)
        ranked = UrlBatch.of([f"http://r{row}.example/" for row in range(40)]).with_columns(page_rank=1.0)
        plain = UrlBatch.of([f"http://p{row}.example/" for row in range(40)])
        made.report([first.done(seconds=0.1, links=ranked), second.done(seconds=0.1, links=plain)])
        assert {"r": 1.0, "p": 0.5} == {url[7]: priority for url, priority in drawn(made).items()}


def test_a_domain_with_a_high_priority_is_leased_first():
    with frontier(DomainPriorities({"good.example": 1.0, "bad.example": 0.0})) as made:
        made.discover(["http://www.bad.example/", "http://www.good.example/"])
        assert {"http://www.bad.example/": 0.0, "http://www.good.example/": 1.0} == drawn(made)


@pytest.mark.parametrize(("answer", "error"), [(1.5, SettingsError), (float("nan"), SettingsError)])
def test_a_function_with_an_invalid_answer_for_seeds_changes_no_state(answer, error):
    asked = Asked(answer)
    with frontier(asked) as made:
        with pytest.raises(error, match="priority function"):
            made.discover(["http://a.example/"])
        asked.answer = 0.5
        assert ["new"] == [str(code) for code in made.discover(["http://a.example/"])]


def test_a_function_with_an_invalid_answer_for_links_leaves_the_lease_open():
    asked = Asked()
    with frontier(asked) as made:
        made.discover(["http://a.example/"])
        (lease,) = made.lease(want=1)
        asked.answer = 2.0
        with pytest.raises(SettingsError, match="priority function"):
            made.report([lease.done(seconds=0.1, links=["http://b.example/"])])
        asked.answer = 0.5
        made.report([lease.done(seconds=0.1, links=["http://b.example/"])])
        assert {"http://b.example/": 0.5} == drawn(made)


def test_a_value_of_another_type_is_refused_as_a_function():
    with pytest.raises(SettingsError, match="priority"):
        frontier(0.5)
