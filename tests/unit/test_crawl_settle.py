"""From visits to durable outcomes, on a real frontier in a directory: order, duplicates, a full disk, stale leases."""

from __future__ import annotations

import gzip
import json

import pytest
from msgspec.structs import replace as replace_lease

from fake_web import answer
from limiting import set_limits
from outrider.clock import wall
from outrider.crawl.output.journal import Journal
from outrider.crawl.output.output import Output
from outrider.crawl.run.settle import Settler
from outrider.crawl.run.visit import Visit
from outrider.crawl.setup.directory import opened
from outrider.crawl.setup.options import CrawlOptions
from outrider.engine import Frontier
from outrider.errors import SettingsError, StoreFullError
from outrider.fetch.downloader import Headers
from outrider.fetch.failures import FetchError
from outrider.frontier.verbs import reporting
from outrider.journey import Kind, State
from outrider.limits import DEPTH_MAX, LINKS_PER_PAGE_BYTES_MAX

SEEDS = [f"http://h{number}.test/" for number in range(4)]


class FullNow(Output):
    """An output whose disk is full at chosen calls."""

    keeps = 0
    keep_fails_at: int | None = None
    sync_fails = 0
    kept: list[str]

    def keep(self, records):
        self.keeps += 1
        if self.keep_fails_at is not None and self.keeps == self.keep_fails_at:
            raise StoreFullError("no room for a record")
        self.kept += [one.url for one in records]
        return super().keep(records)

    def sync_archive(self):
        if self.sync_fails:
            self.sync_fails -= 1
            raise StoreFullError("no room to mend")
        return super().sync_archive()


class House:
    """A frontier with four seeds, an output, and a settler."""

    def __init__(self, directory, *, clock=None, **options) -> None:
        self.directory = directory
        self.options = CrawlOptions(output=str(directory), **{"delay": 0, "delay_factor": 0, **options})
        self.files = opened(str(directory))
        self.frontier = Frontier.open(
            directory / "frontier",
            settings=self.options.frontier_settings(),
            robots="errands",
            output=True,
            clock=clock,
        )
        self.output = FullNow(self.files, self.frontier, self.options)
        self.output.kept = []
        self.output.open()
        self.journal = Journal(directory / "crawl.log", form="text", clock=wall)
        self.settler = Settler(self.frontier, self.output, self.options, self.journal)
        self.frontier.discover(SEEDS)

    def pages(self, robots=None):
        """Returns the leases of the pages. robots.txt was answered before: with these rules, or with 404."""
        errands = self.settler.turn([], 10).leases
        assert {Kind.ROBOTS} == {lease.kind for lease in errands}
        told = {"status": 404} if robots is None else {"body": robots}
        return list(self.settler.turn([self.visit(lease, **told) for lease in errands], 10).leases)

    def visit(self, lease, status=200, body=b"<title>x</title>", **more) -> Visit:
        now = self.frontier.now()
        return Visit(lease, wall(), now, answer(lease.url, status, body, at=now, **{"seconds": 0.01, **more}))

    def lines(self, name="pages.jsonl"):
        return [json.loads(line) for line in (self.directory / name).read_text().splitlines()]

    def close(self) -> None:
        self.output.close()
        self.journal.close()
        self.frontier.close()
        self.files.close()


@pytest.fixture
def house(tmp_path):
    made = House(tmp_path / "out")
    yield made
    made.close()


def test_copies_in_one_turn_are_reported_as_copies(house):
    house.settler.settle([house.visit(lease) for lease in house.pages()])
    assert ["done", "duplicate", "duplicate", "duplicate"] == [line["outcome"] for line in house.lines()]


def test_copies_of_an_earlier_page_are_reported_as_copies(house):
    for lease in house.pages():
        house.settler.settle([house.visit(lease)])
    assert ["done", "duplicate", "duplicate", "duplicate"] == [line["outcome"] for line in house.lines()]


def test_empty_pages_are_not_copies_of_each_other(house):
    house.settler.settle([house.visit(lease, body=b"") for lease in house.pages()])
    assert ["done"] * 4 == [line["outcome"] for line in house.lines()]


def test_the_links_of_a_copy_are_followed_too(house):
    leases = house.pages()
    bodies = [b"<a href='/a'>same words</a>", b"<a href='/a'>same words</a>", b"", b""]
    house.settler.settle([house.visit(lease, body=body) for lease, body in zip(leases, bodies, strict=True)])
    known = [house.frontier.status(lease.url + "a").state for lease in leases[:2]]
    assert [State.QUEUED, State.QUEUED] == known


def test_records_without_room_on_disk_are_archived_once_there_is_room(house):
    leases = house.pages()
    house.output.kept.clear()
    house.output.keep_fails_at = house.output.keeps + 1
    visits = [house.visit(lease) for lease in leases]
    with pytest.raises(StoreFullError):
        house.settler.settle(visits)
    assert (4, []) == (house.settler.waiting, house.output.kept)
    house.settler.settle([])
    assert ([lease.url for lease in leases], 4) == (house.output.kept, len(house.lines()))


def test_a_sync_without_room_on_disk_is_retried_and_loses_no_data(house):
    leases = house.pages()
    house.output.sync_fails = 2
    for visits in ([house.visit(lease) for lease in leases[:2]], [house.visit(lease) for lease in leases[2:]]):
        with pytest.raises(StoreFullError):
            house.settler.settle(visits)
    assert 4 == house.settler.settle([])
    assert [lease.url for lease in leases] == [line["url"] for line in house.lines()]


def test_a_stale_outcome_has_no_line(house):
    leases = house.pages()
    house.frontier.release([leases[0].token])
    house.settler.settle([house.visit(lease) for lease in leases])
    assert [lease.url for lease in leases[1:]] == [line["url"] for line in house.lines()]


def test_a_lease_that_was_stopped_before_its_request_is_returned(house):
    first, *others = house.pages()
    stopped = Visit(first, wall(), house.frontier.now(), stopped=True)
    house.settler.settle([stopped, *(house.visit(lease) for lease in others)])
    assert (State.QUEUED, 3) == (house.frontier.status(first.url).state, len(house.lines()))


def test_a_cancelled_request_is_recorded_and_requested_again(house):
    first = house.pages()[0]
    now = house.frontier.now()
    house.settler.settle([Visit(first, wall(), now, stopped=True, began=now - 100_000)])
    last = house.lines("politeness.jsonl")[-1]
    assert (first.url, "stopped") == (last["url"], last["error"])
    assert house.frontier.status(first.url).state in (State.WAITING, State.QUEUED)


def test_an_error_without_an_answer_has_a_line_but_no_record(house):
    lease = house.pages()[0]
    house.output.kept.clear()
    house.settler.settle([Visit(lease, wall(), house.frontier.now(), None, FetchError.BLOCKED_ADDRESS, "10.0.0.1")])
    line = house.lines()[-1]
    assert ("error", "blocked_address", None, []) == (line["outcome"], line["error"], line["warc"], house.output.kept)


def test_lines_that_were_not_noted_are_written_again_on_opening_and_once(tmp_path):
    house = House(tmp_path / "out")
    house.settler.settle([house.visit(lease) for lease in house.pages()])
    before = [(tmp_path / "out" / name).read_bytes() for name in ("pages.jsonl", "politeness.jsonl")]
    house.close()
    (tmp_path / "out" / "pages.jsonl").write_bytes(before[0][:50])  # the remainder that a crash may have left
    house = House(tmp_path / "out")
    house.output.note()
    house.close()
    house = House(tmp_path / "out")
    house.close()
    assert before == [(tmp_path / "out" / name).read_bytes() for name in ("pages.jsonl", "politeness.jsonl")]


CANONICAL = b"<link rel=canonical href=/real><a href=/other>x</a>"


def test_a_canonical_url_is_only_noted_by_default(tmp_path):
    house = House(tmp_path)
    lease = house.pages()[0]
    house.settler.settle([house.visit(lease, body=CANONICAL)])
    found = [str(house.frontier.status(lease.url + path).state) for path in ("real", "other")]
    assert ["unknown", "queued"] == found


def test_with_honoured_canonical_urls_the_canonical_url_is_fetched_instead(tmp_path):
    house = House(tmp_path, scope="any", honour_canonical=True)
    lease = house.pages()[0]
    deep = replace_lease(lease, url=lease.url + "copy")
    house.settler.settle([house.visit(deep, body=CANONICAL)])
    found = [str(house.frontier.status(lease.url + path).state) for path in ("real", "other")]
    assert (["queued", "unknown"], 1) == (found, house.frontier.statistics()["duplicates"])


def test_the_canonical_url_of_the_deepest_page_is_fetched(tmp_path):
    house = House(tmp_path, scope="any", honour_canonical=True)
    lease = house.pages()[0]
    deep = replace_lease(lease, url=lease.url + "copy", depth=DEPTH_MAX)
    house.settler.settle([house.visit(deep, body=CANONICAL)])
    assert "queued" == house.frontier.status(lease.url + "real").state


def naming(url, body=b"<a href=/other>x</a>"):
    return b"<link rel=canonical href='%s'>%s" % (url.encode(), body)


def settled(house, lease, canonical, path="copy"):
    """Returns the result of a page that names a canonical URL: whether it was a duplicate, and whether its link was
    accepted."""
    house.settler.settle([house.visit(replace_lease(lease, url=lease.url + path), body=naming(canonical))])
    return house.frontier.statistics()["duplicates"], str(house.frontier.status(lease.url + "other").state)


@pytest.mark.parametrize(
    ("canonical", "options"),
    [
        ("/copy/", {"url_rules": "trailing_slash"}),  # its own URL, as this crawl spells it
        ("http://www.h0.test/real", {"scope": "host"}),  # a URL that this crawl does not visit
        ("/real.zip", {"exclude": [r"\.zip$"]}),
    ],
)
def test_a_canonical_url_that_is_never_fetched_replaces_no_page(tmp_path, canonical, options):
    house = House(tmp_path, honour_canonical=True, **options)
    assert (0, "queued") == settled(house, house.pages()[0], canonical)


def test_a_canonical_url_that_is_gone_replaces_no_page(tmp_path):
    house = House(tmp_path, honour_canonical=True)
    first, second, *_ = house.pages()
    house.frontier.discover([first.url + "real"])
    real = house.settler.turn([house.visit(first)], 1).leases[0]
    house.settler.settle([house.visit(real, 410)])
    assert (0, "queued") == settled(house, replace_lease(second, url=first.url), "/real")


def test_only_one_of_two_pages_that_name_each_other_is_a_copy(tmp_path):
    house = House(tmp_path, honour_canonical=True)
    lease = house.pages()[0]
    assert (0, "queued") == settled(house, replace_lease(lease, referrer=lease.url + "one"), "/one")


def test_url_rules_of_a_crawl_make_one_url_of_two_spellings(tmp_path):
    house = House(tmp_path, url_rules="tracking")
    lease = house.pages()[0]
    house.settler.settle([house.visit(lease, body=b"<a href=/a?utm_source=x>x</a><a href=/a>y</a>")])
    assert len(SEEDS) + 1 == house.frontier.statistics()["accepted"]


LONG_BASE = b"<base href='/" + b"b" * 2_000 + b"/'>"


def counting_reports(house, monkeypatch) -> list[int]:
    """Returns how many outcomes each report has from here on."""
    reports: list[int] = []
    report = house.frontier.report

    def counted(outcomes, **how):
        reports.append(len(outcomes))
        return report(outcomes, **how)

    monkeypatch.setattr(house.frontier, "report", counted)
    return reports


def test_a_turn_is_cut_by_the_bytes_of_its_bodies(house, monkeypatch):
    """A turn once read and archived all bodies together in memory, however many and large they were."""
    leases = house.pages()
    reports = counting_reports(house, monkeypatch)
    set_limits(monkeypatch, TURN_BYTES_MAX=3_000_000)
    house.settler.settle([house.visit(lease, body=b"%d" % n * 2_000_000) for n, lease in enumerate(leases)])
    assert ([2, 2], 4, 0) == (reports, len(house.lines()), house.settler.waiting)


def test_a_turn_is_cut_by_the_bytes_of_its_links(house, monkeypatch):
    leases = house.pages()
    reports = counting_reports(house, monkeypatch)
    set_limits(monkeypatch, TURN_BYTES_MAX=5 * LINKS_PER_PAGE_BYTES_MAX)
    body = LONG_BASE + b"".join(b"<a href=%d>" % n for n in range(5_000))
    house.settler.settle([house.visit(lease, body=body) for lease in leases])
    assert [2, 2] == reports
    assert [True] * 4 == [400 < line["links"] < 600 and line["links_left_out"] > 4_000 for line in house.lines()]


def test_the_links_of_a_turn_fit_into_one_frame(house, monkeypatch):
    """So a disk that becomes full in between never leaves half of a turn reported."""
    pieces = []
    of = reporting.Reporting._pieces
    monkeypatch.setattr(reporting.Reporting, "_pieces", lambda *given: pieces.append(of(*given)) or pieces[-1])
    leases = house.pages()
    pieces.clear()
    body = b"".join(b"<a href=/%d>" % n for n in range(20_000))
    house.settler.settle([house.visit(lease, body=body + b"%d" % n) for n, lease in enumerate(leases)])
    assert [(1, False)] * len(pieces) == [(len(some), some[0].ahead) for some in pieces]
    assert [10_000] * 4 == [line["links"] for line in house.lines()]


def test_copies_in_two_pieces_of_a_turn_are_reported_as_copies(house, monkeypatch):
    set_limits(monkeypatch, TURN_BYTES_MAX=1)
    house.settler.settle([house.visit(lease) for lease in house.pages()])
    assert ["done", "duplicate", "duplicate", "duplicate"] == [line["outcome"] for line in house.lines()]


def test_a_full_disk_between_the_pieces_of_a_turn_archives_no_record_twice(house, monkeypatch):
    set_limits(monkeypatch, TURN_BYTES_MAX=1)
    leases = house.pages()
    house.output.kept.clear()
    house.output.keep_fails_at = house.output.keeps + 3
    with pytest.raises(StoreFullError):
        house.settler.settle([house.visit(lease) for lease in leases])
    assert (2, 2) == (house.settler.waiting, len(house.lines()))
    house.settler.settle([])
    assert ([lease.url for lease in leases], 4) == (house.output.kept, len(house.lines()))


def test_an_outcome_that_cannot_be_stored_ends_its_url_and_not_the_crawl(house, monkeypatch):
    """A refusal of one page's outcome was once reported as `wrong settings`, exit code 2, at each resume."""
    leases = house.pages()
    report = house.frontier.report

    def refuses(outcomes, **how):
        if any(outcome.token == leases[1].token and outcome.error is None for outcome in outcomes):
            raise SettingsError("too long for the test")
        return report(outcomes, **how)

    monkeypatch.setattr(house.frontier, "report", refuses)
    house.settler.settle([house.visit(lease, body=b"%d" % n) for n, lease in enumerate(leases)])
    ends = {line["url"]: (line["outcome"], line.get("error")) for line in house.lines()}
    assert {lease.url: ("done", None) for lease in leases} | {leases[1].url: ("error", "too_large")} == ends
    assert ["gone", "done"] == [house.frontier.status(lease.url).state for lease in leases[1:3]]


def test_lines_of_outcomes_that_are_reported_one_by_one_are_written_before_a_disk_is_full(house, monkeypatch):
    """The lines before the full disk were once left out of pages.jsonl, and their pages settled twice."""
    leases = house.pages()
    report = house.frontier.report
    full = [True]

    def refuses(outcomes, **how):
        if any(outcome.token == leases[1].token and outcome.error is None for outcome in outcomes):
            raise SettingsError("too long for the test")
        if full and [outcome.token for outcome in outcomes] == [leases[2].token]:
            full.clear()
            raise StoreFullError("no room")
        return report(outcomes, **how)

    monkeypatch.setattr(house.frontier, "report", refuses)
    with pytest.raises(StoreFullError):
        house.settler.settle([house.visit(lease, body=b"%d" % n) for n, lease in enumerate(leases)])
    assert [leases[0].url, leases[1].url] == [line["url"] for line in house.lines()]
    assert 2 == house.settler.waiting
    house.settler.settle([])
    assert [lease.url for lease in leases] == [line["url"] for line in house.lines()]
    assert 0 == house.frontier.statistics()["stale"]


def directed(directory, field, body=b"<a href=/a></a>", **options):
    """Returns the line of a page with this X-Robots-Tag, and the state of the page that it links to."""
    house = House(directory, **options)
    lease, *_ = house.pages()
    headers = Headers((("Content-Type", "text/html"), ("X-Robots-Tag", field)))
    house.settler.turn([house.visit(lease, body=body, headers=headers)], 0)
    state = house.frontier.status(lease.url + "a").state
    house.close()
    return house.lines()[0], state


@pytest.mark.parametrize("field", ["nofollow", "noindex, none", "outrider: nofollow"])
def test_no_link_of_a_page_whose_header_says_nofollow_is_followed(tmp_path, field):
    line, state = directed(tmp_path / "out", field)
    assert (0, State.UNKNOWN, True) == (line["links"], state, "nofollow" in line["directives"])


def test_the_directives_of_meta_and_header_are_in_the_line(tmp_path):
    body = b"<meta name=robots content='noarchive, max-snippet: 50'><a href=/a></a>"
    line, state = directed(tmp_path / "out", "noindex, max-snippet:20, otherbot: nofollow", body)
    assert (["max-snippet:20", "noarchive", "noindex"], State.QUEUED) == (line["directives"], state)


def test_statements_about_uses_are_in_the_line_by_source(tmp_path):
    house = House(tmp_path / "out", sitemaps=False)
    lease, *_ = house.pages(b"User-agent: *\nContent-Signal: ai-train=no\nContent-Usage: / ai-use=y\n")
    headers = Headers((("Content-Type", "text/html"), ("Content-Usage", "search=n"), ("TDM-Reservation", "0")))
    body = b"<meta name=robots content=noai><meta name=tdm-reservation content=1><meta name=tdm-policy content='http://p/P'>"
    house.settler.settle([house.visit(lease, body=body, headers=headers)])
    house.close()
    said = house.lines()[0]["preferences"]
    assert {"train-ai": "n", "ai-use": "n", "search": "n"} == said["uses"]
    assert [
        ("robots content-usage", "/ ai-use=y", 3),
        ("robots content-signal", "ai-train=no", 2),
        ("header content-usage", "search=n", None),
        ("header tdm-reservation", "0", None),
        ("noai", "noai", None),
        ("meta tdm-reservation", "1", None),
    ] == [(one["source"], one["text"], one.get("line")) for one in said["said"]]
    assert "http://p/P" == said["said"][-1]["policy"]


SECRET = b"<title>SECRET</title><meta name=robots content=noai>SECRET"


def unwanted(directory, body=SECRET, **options):
    """Returns the line of a page of a crawl with these options, and the bytes of its archive."""
    house = House(directory, **options)
    lease, *_ = house.pages()
    house.settler.settle([house.visit(lease, body=body)])
    house.close()
    packed = b"".join(file.read_bytes() for file in (directory / "archive").iterdir())
    return house.lines()[0], gzip.decompress(packed)


def test_a_page_whose_answer_refuses_a_wanted_use_leaves_its_line_and_its_head(tmp_path):
    line, archive = unwanted(tmp_path / "out", use=("train-ai",))
    assert ("gone", "use", None, 0) == (line["outcome"], line["error"], line["title"], line["bytes"])
    assert {"train-ai": "n"} == line["preferences"]["uses"]
    assert b"SECRET" not in archive
    assert b'Outrider-Preferences: {"uses":{"train-ai":"n"}' in archive
    assert b"WARC-Truncated: unspecified" in archive


def test_a_page_is_kept_if_no_wanted_use_is_refused(tmp_path):
    line, archive = unwanted(tmp_path / "out", use=("search",))
    assert ("done", "SECRET") == (line["outcome"], line["title"])
    assert b"SECRET" in archive


def test_an_unknown_use_is_a_refusal_only_if_the_settings_say_so(tmp_path):
    assert "done" == unwanted(tmp_path / "out", b"SECRET", use=("search",))[0]["outcome"]
    line, archive = unwanted(tmp_path / "other", b"SECRET", use=("search",), use_unknown="refuse")
    assert ("use", False) == (line["error"], b"SECRET" in archive)


def test_a_page_is_packed_without_its_body_after_a_hook_saw_the_answer(tmp_path):
    line, archive = unwanted(tmp_path / "out", use=("train-ai",), on_response=lambda response, lease: response)
    assert ("use", False) == (line["error"], b"SECRET" in archive)


def test_links_of_a_nofollow_page_are_followed_if_the_settings_say_so(tmp_path):
    body = b"<a rel=ugc href=/a></a>"
    assert State.QUEUED == directed(tmp_path / "out", "nofollow", body, follow_nofollow=True)[1]
    assert State.UNKNOWN == directed(tmp_path / "other", "noindex", body)[1]


def test_a_statement_with_other_letters_is_ascii_in_the_archive(tmp_path):
    metas = "<meta name=tdm-reservation content=1><meta name=tdm-policy content='http://p/\u00e4'>".encode()
    line, archive = unwanted(tmp_path / "out", body=metas + SECRET, use=("train-ai",))
    policy = line["preferences"]["said"][-1]["policy"]
    field = archive.partition(b"Outrider-Preferences: ")[2].partition(b"\r\n")[0]
    assert policy == json.loads(field)["said"][-1]["policy"]
    assert (False, True) == (policy.isascii(), field.isascii())
