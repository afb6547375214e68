"""`outrider politeness`: the record of a crawl proves its gaps, and every change of a line is found."""

from __future__ import annotations

import json
import os
import random

import msgspec
import pytest

from model.world import World, outcome
from outrider.archive import line_index
from outrider.cli import main as cli
from outrider.clock import instant, rfc3339_exact
from outrider.crawl.questions import crawl_queries
from outrider.crawl.questions.politeness_proof import Judge, Proof, _instant, prove, prove_host
from outrider.crawl.questions.single_page import kept_page
from outrider.crawl.run.visit import sealed
from outrider.errors import StoreInUseError
from outrider.journey import Kind, Lease
from unit.test_crawl_settle import House


class Crawled(House):
    """A crawl on a virtual clock: four hosts, robots.txt and three pages of each."""

    def __init__(self, directory, **options) -> None:
        self.now = instant(1_700_000_000)
        super().__init__(directory, clock=lambda: self.now, **options)

    def crawl(self, rounds: int, seconds: float = 0.25) -> None:
        """Runs `rounds` rounds, and in each requests every host that is ready."""
        leases = []
        for _ in range(rounds):
            ended = []
            for lease in leases:
                began = self.frontier.now()
                self.now += instant(seconds)
                links = b"".join(b"<a href=/%d></a>" % number for number in range(9))
                status = 200 if lease.kind is Kind.PAGE else 404
                told = {"started_at": began, "ended_at": self.frontier.now(), "seconds": seconds}
                ended.append(self.visit(lease, status, body=links, **told))
            leases = list(self.settler.turn(ended, 10).leases)
            self.now += instant(3)
        self.settler.turn([self.visit(lease, started_at=self.now, ended_at=self.now) for lease in leases], 0)

    def close(self) -> None:
        self.output.note()
        super().close()


def crawl(directory, **options):
    house = Crawled(directory / "out", **{"delay": 1.0, "delay_factor": 10.0, **options})
    house.crawl(5)
    house.close()
    return directory / "out" / "politeness.jsonl"


@pytest.fixture
def record(tmp_path):
    return crawl(tmp_path)


def broken(record) -> list[tuple[str, str | None, int | None]]:
    return [(found.rule, found.host, found.line) for found in prove(str(record.parent)).violations]


def lines_of(record) -> list[bytes]:
    return record.read_bytes().splitlines()


def write(record, lines: list[bytes]) -> None:
    record.write_bytes(b"".join(line + b"\n" for line in lines))


def changed(line: bytes, *, seal: bool = False, **fields) -> bytes:
    told = {**json.loads(line), **fields}
    old = told.pop("seal")
    plain = json.dumps(told, separators=(",", ":")).encode()
    return sealed(plain) if seal else plain[:-1] + b',"seal":"%b"}' % old.encode()


def test_an_unchanged_record_proves_every_gap(record):
    proof = prove(str(record.parent))
    assert ([], len(lines_of(record)), 4, 0, 0) == (
        *(proof.violations, proof.requests, len(proof.hosts)),
        *(proof.unseen, proof.torn),
    )
    assert proof.requests >= 12
    assert all(host.room_min is not None and host.room_min >= 0 for host in proof.hosts.values())


def test_lines_contain_the_rule_and_the_first_byte(record):
    last = json.loads(lines_of(record)[-1])
    assert {"first_byte_at", "reason", "groups", "seal"} <= set(last)
    assert "factor" == last["reason"]


def test_an_edited_line_is_found_by_its_seal(record):
    lines = lines_of(record)
    host = json.loads(lines[6])["host"]
    write(record, [*lines[:6], changed(lines[6], status=418), *lines[7:]])
    assert ("seal", host, 7) in broken(record)


def test_a_line_without_its_seal_is_refused(record):
    lines = lines_of(record)
    told = json.loads(lines[6])
    del told["seal"]
    write(record, [*lines[:6], json.dumps(told, separators=(",", ":")).encode(), *lines[7:]])
    assert ("seal", told["host"], 7) in broken(record)


def test_an_edited_line_with_a_new_seal_is_found_too(record):
    lines = lines_of(record)
    told = json.loads(lines[6])
    write(record, [*lines[:6], changed(lines[6], seal=True, gap=told["gap"] + 1), *lines[7:]])
    assert {("gap", told["host"], 7), ("store", None, None)} <= set(broken(record))


def test_a_removed_line_is_found(record):
    lines = lines_of(record)
    told = json.loads(lines[6])
    write(record, [*lines[:6], *lines[7:]])
    found = broken(record)
    assert ("store", None, None) in found
    assert told["host"] in {host for rule, host, _ in found if rule == "missing"}


def test_a_removed_last_line_is_found(record):
    write(record, lines_of(record)[:-1])
    assert ("store", None, None) in broken(record)


def test_two_swapped_lines_are_found(record):
    lines = lines_of(record)
    write(record, [*lines[:5], lines[6], lines[5], *lines[7:]])
    found = broken(record)
    assert ("store", None, None) in found
    assert {"order"} == {rule for rule, _, line in found if line in (6, 7)}


def test_a_short_gap_is_found_even_if_every_digest_fits(tmp_path):
    """The arithmetic alone, on a record without a store."""
    proof = Proof()
    judge = Judge(proof)
    for number, line in enumerate(requests(("a.test", 0, 1), ("b.test", 0, 9), ("a.test", 1.5, 2)), 1):
        judge.take(number, line)
    assert [("gap", "a.test", 3)] == [(one.rule, one.host, one.line) for one in proof.violations]


def requests(*asked, groups=(), gap_required=1.0):
    """Lines of requests: host, start and end in seconds."""
    ends: dict[str, float] = {}
    for token, (host, started, ended) in enumerate(asked, 1):
        line = {
            "host": host,
            "url": f"http://{host}/{token}",
            "kind": "page",
            "token": token,
            "started_at": rfc3339_exact(instant(1e9 + started)),
            "ended_at": rfc3339_exact(instant(1e9 + ended)),
            "gap": started - ends[host] if host in ends else None,
            "gap_required": gap_required if host in ends else None,
            "groups": list(groups),
        }
        ends[host] = ended
        yield sealed(json.dumps(line, separators=(",", ":")).encode())


def judged(lines) -> list[tuple[str, str | None, int | None]]:
    proof = Proof()
    judge = Judge(proof)
    for number, line in enumerate(lines, 1):
        judge.take(number, line)
    judge.end(true_to_store=True)
    return [(one.rule, one.host, one.line) for one in proof.violations]


def several(*asked, capacity=3, gap_required=1.0, groups=()):
    """Returns lines of requests to one host that accepts several at once: token, start, end, the end from which the gap
    counts in seconds (None: no gap), and a different capacity."""
    for token, started, ended, before, *own in asked:
        line = {
            "host": "a.test",
            "url": f"http://a.test/{token}",
            "kind": "page",
            "token": token,
            "started_at": rfc3339_exact(instant(1e9 + started)),
            "ended_at": rfc3339_exact(instant(1e9 + ended)),
            "gap": started - before if before is not None else None,
            "gap_required": gap_required if before is not None else None,
            "groups": list(groups),
        }
        most = own[0] if own else capacity
        line |= {"capacity": most} if most > 1 else {}
        yield sealed(json.dumps(line, separators=(",", ":")).encode())


def group(capacity=1, gap=None):
    return [{"name": "domain test", "capacity": capacity, "gap": gap}]


def test_two_requests_at_once_to_one_host_are_found():
    assert [("at once", "a.test", 2)] == judged(requests(("a.test", 0, 5), ("a.test", 3, 6)))


def test_more_requests_at_once_than_a_group_has_turns_are_found():
    asked = [("a.test", 0, 5), ("b.test", 1, 6), ("c.test", 2, 7)]
    assert [("capacity", "c.test", 3)] == judged(requests(*asked, groups=group(2)))
    assert [] == judged(requests(*asked, groups=group(3)))


def test_a_long_request_that_is_reported_last_counts_from_its_start():
    asked = [("b.test", 1, 2), ("c.test", 3, 4), ("a.test", 0, 10)]
    assert ["capacity", "capacity"] == [rule for rule, *_ in judged(requests(*asked, groups=group(1)))]


def test_the_gap_of_a_group_is_its_own_or_the_delay_of_the_host_before():
    asked = [("a.test", 0, 1), ("b.test", 1.5, 2), ("a.test", 9, 10)]
    assert [("group gap", "b.test", 2)] == judged(requests(*asked, groups=group(gap=0.75)))
    assert [] == judged(requests(*asked, groups=group(gap=0.25)))
    assert [("group gap", "b.test", 2)] == judged(requests(*asked, groups=group()))


def test_a_group_of_several_turns_needs_no_gap_to_the_ends_of_requests():
    asked = [("a.test", 0, 1), ("b.test", 0.5, 2), ("c.test", 1.1, 3)]
    assert [] == judged(requests(*asked, groups=group(2, gap=1.0)))


def test_each_line_is_judged_by_the_capacity_and_the_gap_of_its_time():
    """A crawl whose groups were changed between two starts broke no rule."""
    wide = list(requests(("a.test", 0, 2), ("b.test", 1, 3), groups=group(2, gap=0.25)))
    narrow = list(requests(("c.test", 9, 10), ("d.test", 10.5, 12), groups=group(gap=0.5)))
    assert [] == judged([*wide, *narrow])
    assert [("capacity", "b.test", 2)] == judged(requests(("a.test", 0, 2), ("b.test", 1, 3), groups=group(1)))


@pytest.mark.parametrize("said", [{"capacity": 0}, {"capacity": 1 << 80}, {"gap": 1e300}, {"gap": -1}])
def test_impossible_clocks_make_a_record_invalid(said):
    assert [("record", None, 1)] == judged(requests(("a.test", 0, 1), groups=[{"name": "g", **said}]))


def test_lines_of_grouped_hosts_name_their_clocks(tmp_path):
    record = crawl(tmp_path, group=("domain",))
    assert [{"name": "domain h0.test", "capacity": 1, "gap": None}] == next(
        told["groups"] for told in map(json.loads, lines_of(record)) if told["host"] == "h0.test"
    )
    assert ([], 4) == (broken(record), prove(str(record.parent)).groups)


def test_a_torn_end_is_named_and_not_judged(record):
    whole = prove(str(record.parent)).requests
    with record.open("ab") as file:
        file.write(b'{"host":"h0.te')
    proof = prove(str(record.parent))
    assert (True, 14, whole) == (proof.ok, proof.torn, proof.requests)


def test_a_request_whose_answer_was_lost_in_a_crash_is_counted_without_a_breach(tmp_path):
    house = Crawled(tmp_path / "out", delay=1.0)
    house.crawl(2)
    house.now += instant(20)
    assert house.settler.turn([], 10).leases
    house.frontier.close()
    for part in (house.output, house.journal, house.files):
        part.close()
    again = Crawled(tmp_path / "out", delay=1.0)
    again.now = house.now + instant(500)
    again.crawl(3)
    again.close()
    assert [] == broken(tmp_path / "out" / "politeness.jsonl")


def test_a_page_that_was_answered_has_its_line(record):
    pages = record.parent / "pages.jsonl"
    told = json.loads(pages.read_text().splitlines()[0])
    pages.write_text(pages.read_text() + json.dumps({**told, "token": 999}) + "\n")
    assert ("missing", None, None) in broken(record)


def test_the_command_ends_with_9_and_names_host_line_and_rule(record, capsys):
    out = str(record.parent)
    assert 0 == cli.run(["politeness", out])
    assert "no delay violated" in capsys.readouterr().out
    assert 0 == cli.run(["politeness", out, "h1.test", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (True, ["h1.test"]) == (told["ok"], [one["host"] for one in told["hosts"]])
    assert 2 == cli.run(["politeness", out, "nowhere.test"])
    lines = lines_of(record)
    write(record, [*lines[:6], changed(lines[6], gap_required=0.0), *lines[7:]])
    capsys.readouterr()
    assert 9 == cli.run(["politeness", out])
    host = json.loads(lines[6])["host"]
    assert f"line 7  {host}  seal: it was edited" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("wrong", [{"capacity": "many"}, {"capacity": 1, "gap": "long"}, {"name": 7}])
def test_a_line_with_an_unknown_kind_of_group_is_invalid(wrong):
    groups = [{"name": "domain test", **wrong}]
    assert [("record", None, 1), ("record", None, 2)] == judged(
        requests(("a.test", 0, 1), ("b.test", 1.5, 2), groups=groups)
    )


def test_a_line_with_a_token_above_64_bits_is_invalid():
    line = next(requests(("a.test", 0, 1), groups=group()))
    assert [("record", None, 1)] == judged([line.replace(b'"token":1', b'"token":18446744073709551615')])


# -- hosts that take several requests at once

ROBOTS = (1, 0, 1, None, 1)


def found(*asked, true_to_store=True, **how) -> list[tuple[str, int | None]]:
    proof = Proof()
    judge = Judge(proof)
    for number, line in enumerate(several(*asked, **how), 1):
        judge.take(number, line)
    judge.end(true_to_store=true_to_store)
    return [(one.rule, one.line) for one in proof.violations]


def test_a_record_of_simultaneous_requests_is_in_the_order_of_their_ends():
    """The slow second request is reported after four that were leased later. Each gap counts from a reported end."""
    quick = [(3, 3, 4, 1), (4, 5, 6, 4), (5, 7, 8, 6), (6, 8.5, 9.5, 6)]
    assert [] == found(ROBOTS, *quick, (2, 2, 10, 1), (7, 11, 12, 10))


def test_more_simultaneous_requests_than_the_capacity_are_found():
    asked = [(2, 2, 9, 1), (3, 3, 9.1, 1), (4, 4, 9.2, 1), (5, 5, 9.3, 1)]
    assert [] == found(ROBOTS, *asked[:3])
    assert [("at once", 5), ("gap", 5)] == found(ROBOTS, *asked)
    assert [("at once", 4)] == found(ROBOTS, *asked[:3], capacity=2)[:1]


def test_a_gap_to_a_too_early_end_is_found():
    """Two of the five requests that were leased before it may have been open: its gap counts from the third end at
    least."""
    asked = [(2, 2, 3, 1), (3, 4, 5, 3), (4, 6, 7, 5), (5, 8, 9, 7)]
    assert [] == found(ROBOTS, *asked, (6, 10, 11, 5))
    assert [("gap", 6)] == found(ROBOTS, *asked, (6, 10, 11, 3))
    assert [("gap", 6)] == found(ROBOTS, *asked, (6, 10, 11, 5), capacity=2)


def test_a_gap_below_the_required_one_is_found():
    assert [("gap", 3)] == found(ROBOTS, (2, 2, 3, 1), (3, 3.9, 5, 3))


def test_a_gap_to_an_end_of_no_line_is_a_lost_answer_or_a_missing_line():
    """After a kill three requests count from the same end, and no line has that end: one request was lost."""
    asked = [(2, 2, 3, 1), (10, 9, 10, 7.5), (11, 10, 11, 7.5), (12, 11, 12, 7.5)]
    assert [] == found(ROBOTS, *asked)
    assert [("missing", 3)] == found(ROBOTS, *asked, true_to_store=False)


def test_more_lines_after_later_ones_than_could_be_open_are_found():
    asked = [(2, 2, 3, 1), (3, 4, 5, 3), (4, 6, 7, 3)]
    assert [("order", 2)] == found(ROBOTS, asked[2], *asked[:2], capacity=2)
    assert [("order", 3), ("order", 4)] == found(ROBOTS, asked[0], asked[1], asked[1])


def test_a_request_without_a_gap_after_a_reported_one_is_found():
    asked = [(2, 2, 3, 1), (3, 4, 5, 3), (4, 6, 7, None)]
    assert [("gap", 4)] == found(ROBOTS, *asked)
    assert [] == found((1, 0, 9, None), (2, 1, 8, None), (3, 2, 7, None))


def test_each_line_of_a_host_is_judged_by_the_capacity_at_its_lease():
    """Raised while one is open, lowered while two are."""
    raised = [(1, 0, 1, None, 1), (2, 2, 3, 1, 1), (3, 4, 9, 3, 1), (4, 5, 8, 3), (5, 6, 10, 3)]
    in_order = [*raised[:2], raised[3], raised[2], raised[4]]
    assert [] == found(*in_order)
    assert [] == found(*in_order, (6, 11, 12, 10, 1), (7, 13, 14, 12, 1))
    assert [("at once", 6), ("gap", 6)] == found(*in_order, (6, 9.5, 12, 8, 1))
    assert [("gap", 7)] == found(*in_order, (6, 11, 12, 10, 1), (7, 13, 14, 10, 1))


def test_a_capacity_that_is_raised_while_a_train_is_under_way_breaks_no_rule():
    """The first request of several was leased while the last two pages of a train were open."""
    train = [(token, 2 * token, 2 * token + 1, 2 * token - 1 if token > 2 else 1, 1) for token in range(2, 6)]
    asked = [ROBOTS, *train, (6, 12, 14, 7), (7, 13, 15, 11)]
    assert ([], []) == (found(*asked), found(*asked, true_to_store=False))
    assert [("gap", 7)] == found(*asked[:-1], (7, 13, 15, 7), capacity=2)[-1:]


@pytest.mark.parametrize("last", [(6, 9.5, 13, 7), (6, 8.25, 8.5, 7)])
def test_the_last_page_of_a_train_may_begin_during_the_first_of_several_requests(last):
    """Two pages of a train waited when the capacity was raised. The new lease began before they did."""
    train = [(token, 2 * token, 2 * token + 1, 2 * token - 1 if token > 2 else 1, 1) for token in (2, 3, 4)]
    last_of_train = (5, 10, 11, 9, 1)
    in_order = sorted([last_of_train, last], key=lambda request: request[2])
    asked = [ROBOTS, *train[:2], *sorted([train[2], *in_order], key=lambda request: request[2])]
    assert ([], []) == (found(*asked), found(*asked, true_to_store=False))


def test_a_third_request_is_found_although_a_later_lease_accepts_three():
    """The later lease began after the breach."""
    asked = [(2, 2, 8, 1, 1), (3, 3, 9, 1, 1), (4, 10, 11, 9)]
    assert ("at once", 3) in found(ROBOTS, *asked)


def test_two_pages_of_a_train_at_once_are_found_next_to_a_later_lease():
    later = (4, 2, 8, 1)
    assert [] == found(ROBOTS, later, (2, 5, 6, 1, 1), (3, 6, 7, 6, 1), gap_required=0.0)
    assert ("at once", 4) in found(ROBOTS, later, (2, 5, 6, 1, 1), (3, 5.5, 7, 6, 1), gap_required=0.0)


def test_a_short_gap_is_found_although_a_later_lease_begins_during_the_request():
    assert [("gap", 4)] == found(ROBOTS, (2, 2, 3, 1, 1), (4, 5, 5.5, 3), (3, 3.1, 6, 1, 1))


def test_a_lease_of_a_group_that_waited_may_begin_next_to_a_later_one():
    """The group accepts two since the second lease, which began first."""
    first, second = requests(("a.test", 2, 4), ("b.test", 1, 3))
    first, second = (changed(line, seal=True, groups=group(wide)) for line, wide in ((first, 1), (second, 2)))
    assert [] == judged([second, first])
    early, late = requests(("a.test", 4, 5), ("b.test", 1, 3.9))
    early, late = (changed(line, seal=True, groups=group(wide, gap=1.0)) for line, wide in ((early, 1), (late, 2)))
    assert [] == judged([late, early])
    narrow = [changed(line, seal=True, groups=group(wide)) for line, wide in ((first, 2), (second, 1))]
    assert [("capacity", "a.test", 2)] == judged(reversed(narrow))


def test_a_record_without_capacities_is_judged_as_before():
    """An older version wrote it, without capacities."""
    assert [("at once", 3)] == found(ROBOTS, (2, 2, 5, 1), (3, 4, 6, 1), capacity=1)


def test_a_group_of_one_turn_waits_after_a_host_that_accepts_several_requests():
    asked = [(11, 0, 1, None, 1), (12, 2, 3, 1), (13, 4, 5, 3)]
    beside = requests(("b.test", 3.5, 3.75), groups=group())
    lines = [*several(*asked, groups=group()), *beside]
    assert [("group gap", "b.test", 4)] == judged(lines)


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"capacity": 1 << 40}, {"gap": 1e300}, {"gap_required": -1e300}])
def test_impossible_numbers_make_a_record_invalid(wrong):
    (line,) = several((1, 0, 1, None))
    told = {**json.loads(line), **wrong}
    del told["seal"]
    assert [("record", None, 1)] == judged([sealed(json.dumps(told).encode())])


def test_an_edited_capacity_is_found(tmp_path):
    record = crawl(tmp_path, host=[{"name": "h1.test", "capacity": 3}])
    lines = lines_of(record)
    told = [json.loads(line) for line in lines]
    assert [({1}, {3}), ({1}, set())] == [
        ({one.get("capacity", 1) for one in told if one["kind"] == "robots"},
         {one["capacity"] for one in told if one["host"] == host and "capacity" in one})
        for host in ("h1.test", "h2.test")
    ]  # fmt: skip
    assert [] == broken(record)
    place = next(place for place, one in enumerate(told) if one.get("capacity") == 3)
    write(record, [*lines[:place], changed(lines[place], capacity=9), *lines[place + 1 :]])
    assert ("seal", "h1.test", place + 1) in broken(record)


@pytest.mark.parametrize("seed", range(40))
def test_every_record_of_a_frontier_with_simultaneous_requests_is_proved(seed):
    """Answers are slow and arrive in any order, the capacity is changed meanwhile, and the process is killed."""
    chance = random.Random(seed)
    world = World(delay=chance.choice([0.0, 1.0]), delay_factor=chance.choice([0.0, 3.0]))
    world.discover(*[f"http://a.com/{number}" for number in range(300)])
    world.frontier.set_limit(3, "a.com")
    lines: list[bytes] = []
    under_way: list[tuple[Lease, int]] = []
    for _ in range(300):
        act = chance.random()
        if act < 0.02:
            world.frontier.set_limit(chance.randint(1, 4), "a.com")
        elif act < 0.03:
            world.kill()
            under_way.clear()
        elif act < 0.3:
            world.clock.move(chance.choice([0.05, 0.5, 1.0]))
        elif act < 0.7 or not under_way:
            world.clock.move(min(world.ready_in() or 0.0, 20.0))  # the first instant at which the host is ready again
            under_way += [(lease, world.clock()) for lease in world.lease(ttl_seconds=3_600)]
        else:
            lease, began = under_way.pop(chance.randrange(len(under_way)))
            ended = world.clock() - round((world.clock() - began) * chance.choice([0.0, 0.01, 0.5]))
            lines.append(line_of(lease, began, ended))
            world.report(outcome(lease, seconds=(ended - began) / 1_000_000, status=200, ended_at=ended))
    proof = Proof()
    judge = Judge(proof)
    for number, line in enumerate(lines, 1):
        judge.take(number, line)
    judge.end(true_to_store=True)
    assert [] == proof.violations


def test_every_record_of_trains_that_wait_while_the_capacity_changes_is_proved():
    waited = 0
    for seed in range(20):
        lines, count = waiting_trains(random.Random(seed))
        waited += count
        assert [] == judged(lines), f"seed {seed}"
    assert waited > 10


def waiting_trains(chance) -> tuple[list[bytes], int]:
    """A train begins some time after its lease, one page after another, and the capacity is changed meanwhile. Returns
    lines, and how many pages of one request at a time began during other requests."""
    world = World(delay=0.0, delay_factor=0.0)
    world.discover(*[f"http://a.com/{number}" for number in range(400)])
    first = world.one()
    lines = [line_of(first, world.clock(), world.clock())]
    world.report(outcome(first, seconds=0.0, status=200, ended_at=world.clock()))
    trains: list[list[Lease]] = []
    begun: dict[int, int] = {}  # the start of the open page of a train, by its token
    waited = 0
    for _ in range(600):
        act = chance.random()
        if act < 0.03:
            world.frontier.set_limit(chance.randint(1, 4), "a.com")
        elif act < 0.3:
            world.clock.move(chance.choice([0.05, 0.5, 1.0]))
        elif act < 0.5 or not trains:
            world.clock.move(min(world.ready_in() or 0.0, 20.0))
            if leases := list(world.lease(ttl_seconds=3_600, per_queue=16)):
                trains += [[lease] for lease in leases] if leases[0].capacity > 1 else [leases]
        else:
            train = chance.choice(trains)
            lease = train[0]
            if lease.token not in begun:
                waited += lease.capacity == 1 and len(begun) > 0
                begun[lease.token] = world.clock()
                continue
            began, ended = begun.pop(lease.token), world.clock()
            lines.append(line_of(lease, began, ended))
            world.report(outcome(lease, seconds=(ended - began) / 1_000_000, status=200, ended_at=ended))
            train[:2] = [msgspec.structs.replace(following, ended_before=ended) for following in train[1:2]]
            trains = [one for one in trains if one]
    return lines, waited


def line_of(lease, began, ended) -> bytes:
    before = lease.ended_before
    line = {
        "host": lease.host,
        "url": lease.url,
        "kind": "page",
        "token": lease.token,
        "started_at": rfc3339_exact(began),
        "ended_at": rfc3339_exact(ended),
        "groups": [],
        "gap": round((began - before) / 1_000_000, 6) if before is not None else None,
        "gap_required": round(lease.gap_seconds, 6) if before is not None else None,
        **({"capacity": lease.capacity} if lease.capacity > 1 else {}),
    }
    return sealed(json.dumps(line, separators=(",", ":")).encode())


# -- one host ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def short_runs(monkeypatch):
    """An index of some lines, so that a small crawl has many runs."""
    monkeypatch.setattr(line_index, "LINE_INDEX_RUN_BYTES", 1_000)
    monkeypatch.setattr(line_index, "LINE_INDEX_FANOUT", 2)


def host_of_line(line: bytes) -> str:
    return json.loads(line)["host"]


def test_the_requests_to_one_host_are_proved_by_the_index_as_by_the_whole_record(short_runs, tmp_path):
    record = crawl(tmp_path)
    whole = prove(str(record.parent)).hosts
    assert 4 == len(whole)
    assert any(name.startswith("politeness-") for name in os.listdir(record.parent / "index"))
    for host, expected in whole.items():
        proof = prove_host(str(record.parent), host)
        assert (True, {host: expected}) == (proof.ok, proof.hosts)


def test_only_the_lines_of_the_host_are_read(short_runs, tmp_path, monkeypatch):
    record = crawl(tmp_path)
    host = host_of_line(lines_of(record)[3])
    read: list[int] = []
    line_at = line_index._line_at
    monkeypatch.setattr(line_index, "_line_at", lambda file, at: read.append(at) or line_at(file, at))
    prove_host(str(record.parent), host)
    begins = [sum(len(line) + 1 for line in lines_of(record)[:row]) for row in range(len(lines_of(record)))]
    own = [at for at, line in zip(begins, lines_of(record), strict=True) if host_of_line(line) == host]
    assert read
    assert own[: len(read)] == read


@pytest.mark.parametrize("row", [6, -1])
def test_an_edited_line_of_the_host_is_found_by_its_seal_with_its_number(short_runs, tmp_path, row):
    """The length of the file remains, so the index is in use."""
    record = crawl(tmp_path)
    lines = lines_of(record)
    lines[row] = lines[row].replace(b'"status":200', b'"status":201')
    write(record, lines)
    host = host_of_line(lines[row])
    number = row + 1 if row >= 0 else len(lines)
    found = prove_host(str(record.parent), host).violations
    assert [("seal", host, number)] == [(one.rule, one.host, one.line) for one in found]
    assert 9 == cli.run(["politeness", str(record.parent), host])
    other = next(name for name in map(host_of_line, lines) if name != host)
    assert prove_host(str(record.parent), other).ok


def test_a_short_gap_of_the_host_is_found(short_runs, tmp_path):
    record = crawl(tmp_path)
    lines = lines_of(record)
    host = host_of_line(lines[-1])
    row = max(row for row, line in enumerate(lines) if host_of_line(line) == host)
    began = json.loads(lines[row])["started_at"]
    sooner = rfc3339_exact(_instant(began) - instant(5.9))
    lines[row] = changed(lines[row], seal=True, started_at=sooner, gap=0.1)
    write(record, lines)
    assert {("gap", host, row + 1)} == {
        (one.rule, one.host, one.line) for one in prove_host(str(record.parent), host).violations
    }


def test_the_requests_to_a_host_are_proved_while_the_crawl_runs(short_runs, tmp_path, capsys):
    house = Crawled(tmp_path / "out", delay=1.0, delay_factor=10.0)
    house.crawl(5)
    host = host_of_line(lines_of(tmp_path / "out" / "politeness.jsonl")[0])
    with pytest.raises(StoreInUseError):
        prove(str(tmp_path / "out"))
    assert 0 == cli.run(["politeness", str(tmp_path / "out"), host])
    said = capsys.readouterr().out
    assert f"no delay violated: {prove_host(str(tmp_path / 'out'), host).requests} requests to 1 host" in said
    assert f"`outrider politeness {tmp_path / 'out'}` proves all hosts" in said
    house.close()


def test_a_host_without_a_request_is_refused_by_name(record, capsys):
    assert 2 == cli.run(["politeness", str(record.parent), "nosuch.test"])
    assert "nosuch.test" in capsys.readouterr().err


def test_show_and_explain_find_the_lines_of_a_running_crawl_by_the_index(short_runs, tmp_path, monkeypatch):
    house = Crawled(tmp_path / "out", delay=1.0, delay_factor=10.0)
    house.crawl(6)
    pages = [json.loads(line) for line in lines_of(tmp_path / "out" / "pages.jsonl")]
    assert any(name.startswith("pages-") for name in os.listdir(tmp_path / "out" / "index"))
    last = {page["url"]: page for page in pages}
    assert last == {url: kept_page(str(tmp_path / "out"), url).line for url in last}
    monkeypatch.setattr(crawl_queries, "EXPLAINED_PAGES_BYTES_MAX", 10)  # not even one line
    first = pages[0]["url"]
    found = crawl_queries.LOOKS["explain"](house.frontier, {"url": first})
    found = crawl_queries._with_page(str(tmp_path / "out"), {}, found)
    assert last[first]["warc"] == found["archived"] is not None
    house.close()
