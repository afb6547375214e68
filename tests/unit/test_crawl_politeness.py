"""`outrider politeness`: the record of a crawl proves its gaps, and no line of it can be changed unseen."""

from __future__ import annotations

import json

import pytest

from outrider.cli import main as cli
from outrider.clock import instant, rfc3339_exact
from outrider.crawl.politeness import Judge, Proof, prove
from outrider.crawl.visit import sealed
from outrider.journey import Kind
from unit.test_crawl_settle import House


class Crawled(House):
    """A crawl on a virtual clock: four hosts, robots.txt and three pages of each."""

    def __init__(self, directory, **options) -> None:
        self.now = instant(1_700_000_000)
        super().__init__(directory, clock=lambda: self.now, **options)

    def crawl(self, rounds: int, seconds: float = 0.25) -> None:
        """So many rounds, in each of which every host that may be asked is asked."""
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


def test_an_untouched_record_proves_every_gap(record):
    proof = prove(str(record.parent))
    assert ([], len(lines_of(record)), 4, 0, 0) == (
        *(proof.violations, proof.requests, len(proof.hosts)),
        *(proof.unseen, proof.torn),
    )
    assert proof.requests >= 12
    assert all(host.room_min is not None and host.room_min >= 0 for host in proof.hosts.values())


def test_lines_say_the_rule_and_the_first_byte(record):
    last = json.loads(lines_of(record)[-1])
    assert {"first_byte_at", "reason", "groups", "seal"} <= set(last)
    assert "factor" == last["reason"]


def test_an_edited_line_is_found_by_its_seal(record):
    lines = lines_of(record)
    host = json.loads(lines[6])["host"]
    write(record, [*lines[:6], changed(lines[6], status=418), *lines[7:]])
    assert ("seal", host, 7) in broken(record)


def test_a_line_whose_seal_was_taken_away_is_refused(record):
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


def test_two_lines_that_changed_places_are_found(record):
    lines = lines_of(record)
    write(record, [*lines[:5], lines[6], lines[5], *lines[7:]])
    found = broken(record)
    assert ("store", None, None) in found
    assert {"order"} == {rule for rule, _, line in found if line in (6, 7)}


def test_a_short_gap_is_found_though_every_digest_fits(tmp_path):
    """The arithmetic alone, on a record that no store knows."""
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


def group(capacity=1, gap=None):
    return [{"name": "domain test", "capacity": capacity, "gap": gap}]


def test_two_requests_at_once_to_one_host_are_found():
    assert [("at once", "a.test", 2)] == judged(requests(("a.test", 0, 5), ("a.test", 3, 6)))


def test_more_requests_at_once_than_a_group_has_turns_are_found():
    asked = [("a.test", 0, 5), ("b.test", 1, 6), ("c.test", 2, 7)]
    assert [("capacity", "c.test", 3)] == judged(requests(*asked, groups=group(2)))
    assert [] == judged(requests(*asked, groups=group(3)))


def test_a_long_request_that_is_told_last_counts_from_its_start():
    asked = [("b.test", 1, 2), ("c.test", 3, 4), ("a.test", 0, 10)]
    assert ["capacity", "capacity"] == [rule for rule, *_ in judged(requests(*asked, groups=group(1)))]


def test_the_gap_of_a_group_is_its_own_or_the_rest_of_the_host_before():
    asked = [("a.test", 0, 1), ("b.test", 1.5, 2), ("a.test", 9, 10)]
    assert [("group gap", "b.test", 2)] == judged(requests(*asked, groups=group(gap=0.75)))
    assert [] == judged(requests(*asked, groups=group(gap=0.25)))
    assert [("group gap", "b.test", 2)] == judged(requests(*asked, groups=group()))


def test_a_group_of_several_turns_keeps_its_turns_and_no_gap_to_ends():
    asked = [("a.test", 0, 1), ("b.test", 0.5, 2), ("c.test", 1.1, 3)]
    assert [] == judged(requests(*asked, groups=group(2, gap=1.0)))


def test_each_line_is_judged_by_the_capacity_and_the_gap_that_held_then():
    """A crawl whose groups were changed between two starts broke nothing."""
    wide = list(requests(("a.test", 0, 2), ("b.test", 1, 3), groups=group(2, gap=0.25)))
    narrow = list(requests(("c.test", 9, 10), ("d.test", 10.5, 12), groups=group(gap=0.5)))
    assert [] == judged([*wide, *narrow])
    assert [("capacity", "b.test", 2)] == judged(requests(("a.test", 0, 2), ("b.test", 1, 3), groups=group(1)))


@pytest.mark.parametrize("said", [{"capacity": 0}, {"capacity": 1 << 80}, {"gap": 1e300}, {"gap": -1}])
def test_clocks_that_no_crawl_can_have_make_no_record(said):
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


def test_a_request_whose_answer_a_crash_took_is_counted_and_breaks_nothing(tmp_path):
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
    assert "every gap was kept" in capsys.readouterr().out
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
def test_a_line_with_another_kind_of_group_is_no_record(wrong):
    groups = [{"name": "domain test", **wrong}]
    assert [("record", None, 1), ("record", None, 2)] == judged(
        requests(("a.test", 0, 1), ("b.test", 1.5, 2), groups=groups)
    )


def test_a_line_with_a_token_beyond_64_bits_is_no_record():
    line = next(requests(("a.test", 0, 1), groups=group()))
    assert [("record", None, 1)] == judged([line.replace(b'"token":1', b'"token":18446744073709551615')])
