"""Budgets as pure rules, over counts in a dict. One budget of domains exists only here, because no setting has it."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from outrider.frontier.policy.budgets import BUDGETS, Budget, Budgets, CountedBy, budgets_over
from outrider.limits import CALL_ROWS_MAX

NAMES = ["a.example.org", "b.example.org", "c.com"]
DOMAIN = Budget("max_pages_per_domain", CountedBy.DOMAIN, "the limit of its domain is reached")


class Counts:
    def __init__(self, by_host=(0, 0, 0), leased=(), **tallies: int) -> None:
        self.by_host, self.leased = np.array(by_host, np.int64), np.array(leased, np.uint32)
        self.tallies = Counter({name.replace("__", "."): count for name, count in tallies.items()})

    def answered_by(self, hosts):
        return self.by_host[hosts]

    def tallied(self, name):
        return self.tallies[name]

    def host_names(self, hosts):
        return [NAMES[host] for host in hosts]

    def leased_from(self):
        return self.leased

    def leases_open(self):
        return len(self.leased)


def budgets(counts, crawl=None, host=None, domain=None):
    settings = SimpleNamespace(max_pages=crawl, max_pages_per_host=host, max_pages_per_domain=domain)
    return Budgets(settings, counts, (*BUDGETS, DOMAIN))


def of(*numbers):
    return np.array(numbers, np.uint32)


def lets(found, hosts, busy=(0, 0, 0), most=(5, 5, 5), given=()):
    return found.lets(of(*hosts), of(*busy)[: len(hosts)], np.array(most[: len(hosts)]), of(*given)).tolist()


def test_without_a_budget_all_pages_are_left_and_no_host_is_over():
    found = budgets(Counts((9, 9, 9), answered=99))
    assert (CALL_ROWS_MAX, False, None, False) == (
        found.pages_left(), found.is_over(), found.over(of(0, 1, 2)), found.parks,
    )  # fmt: skip
    assert ([5, 5, 5], 7, "") == (lets(found, (0, 1, 2)), found.at_once(0, 7), found.held())


def test_open_leases_use_the_budget_of_a_crawl_but_only_answers_end_it():
    found = budgets(Counts(leased=(0, 1), answered=3), crawl=5)
    assert (0, False) == (found.pages_left(), found.is_over())
    assert "max_pages" in found.held()
    assert budgets(Counts(answered=5), crawl=5).is_over()


@pytest.mark.parametrize(
    ("answered", "finished", "parked", "ends"),
    [
        (5, False, False, True), (5, True, False, False), (5, True, True, True), (5, False, True, True),
        (4, False, False, False), (4, False, True, False), (4, True, False, False), (4, True, True, True),
    ],
)  # fmt: skip
def test_a_budget_ends_a_crawl_that_still_has_work(answered, finished, parked, ends):
    assert ends == budgets(Counts(answered=answered), crawl=5).ends(finished=finished, parked=parked)


def test_a_host_is_over_after_the_last_page_of_its_budget():
    found = budgets(Counts((1, 2, 3)), host=2)
    assert [False, True, True] == found.over(of(0, 1, 2)).tolist()
    assert None is found.over(of(0))


def test_a_host_leases_only_what_its_open_leases_leave_and_a_host_over_budget_parks_all_urls():
    found = budgets(Counts((1, 4, 0)), host=4)
    assert [2, 5, 4] == lets(found, (0, 1, 2), busy=(1, 0, 0))
    assert (3, 1, 4) == (found.at_once(0, 9), found.at_once(1, 9), found.at_once(2, 9))


def test_hosts_of_a_domain_share_the_budget_left_by_its_open_leases_and_by_the_call():
    found = budgets(Counts(leased=(1,), answered__example__org=1), domain=5)
    assert [2, 0, 5] == lets(found, (0, 1, 2), given=(0,))


def test_all_hosts_of_a_domain_are_over_budget_at_the_same_time():
    counts = Counts(answered__example__org=5, answered__c__com=4)
    found = budgets(counts, domain=5)
    assert [True, True, False] == found.over(of(0, 1, 2)).tolist()
    assert DOMAIN.reason_text == found.parked(0)


def test_pages_are_counted_for_domains_with_a_budget():
    assert {"answered.example.org": 3, "answered.c.com": 1} == dict(budgets(Counts(), domain=9).tallies(of(0, 1, 1, 2)))
    assert [] == list(budgets(Counts(), host=9).tallies(of(0, 1)))


def test_a_higher_budget_lets_hosts_continue():
    counts = Counts((3, 3, 1), answered__example__org=6, answered__c__com=1)
    assert [True, True, False] == budgets(counts, host=3, domain=6).over(of(0, 1, 2)).tolist()
    assert [True, True, False] == budgets(counts, host=4, domain=6).over(of(0, 1, 2)).tolist()
    assert None is budgets(counts, host=4, domain=7).over(of(0, 1, 2))


def test_the_budget_that_ended_a_crawl_is_named_with_its_limit():
    settings = SimpleNamespace(max_pages=5, max_pages_per_host=2)
    assert [("--max-pages", 5)] == [(budget.flag, limit) for budget, limit in budgets_over(settings, 5)]
    assert [("--max-pages-per-host", 2)] == [(budget.flag, limit) for budget, limit in budgets_over(settings, 4)]
