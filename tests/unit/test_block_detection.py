"""A challenge differs from a rate limit: the host is parked with its reason until an operator wakes it."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.downloaders import each_downloader, new  # noqa: F401 - a fixture
from e2e.hostile import closes_after, hostile
from model.world import World, outcome
from outrider import Frontier, Link
from outrider.clock import wall
from outrider.crawl.run.visit import Visit, judged, page_outcome, robots_outcome
from outrider.fetch.challenge import SIGNS, sign_of
from outrider.fetch.downloader import Headers, Request
from outrider.frontier.policy.block_detection import (
    NAMELESS_FROM,
    PARKED_FROM,
    SILENT_FROM,
    BlockSignal,
    block_scores_after,
)
from outrider.journey import Kind, Outcome, Verdict
from outrider.limits import SILENT_SECONDS_FIRST, SILENT_TRIES_MAX, UNWELCOME_POINTS_MAX
from outrider.url import UrlBatch
from outrider.url.traps import Traps

A = "http://a.test/"
CHALLENGE = (
    b"HTTP/1.1 403 Forbidden\r\nServer: cloudflare\r\nCf-Mitigated: challenge\r\n"
    b"Connection: close\r\nContent-Length: 4\r\n\r\nwait"
)


# -- signs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status", "headers", "body"),
    [
        ("cloudflare", 403, {"cf-mitigated": "challenge"}, b""),
        ("cloudflare", 503, {"server": "cloudflare"}, b"<script src='/cdn-cgi/challenge-platform/h/b/orchestrate.js'>"),
        ("aws-waf", 202, {"x-amzn-waf-action": "challenge"}, b""),
        ("aws-waf", 405, {"x-amzn-waf-action": "captcha"}, b""),
        ("datadome", 403, {}, b"<script src='https://geo.CAPTCHA-delivery.com/captcha/'>"),
        ("imperva", 200, {"x-iinfo": "5-1-1 NNNN"}, b"<iframe src='/_Incapsula_Resource?SWUDNSAI=31'></iframe>"),
        ("akamai", 403, {"server": "AkamaiGHost"}, b"<TITLE>Access Denied</TITLE> Reference&#32;&#35;18"),
        (
            "anubis",
            200,
            {},
            b"<script id='anubis_challenge'></script><link href='/.within.website/x/anubis.css'>",
        ),
        ("interstitial", 503, {}, b"Enable JavaScript and cookies to continue"),
    ],
)
def test_a_challenge_is_recognised_by_its_signs(name, status, headers, body):
    assert name == sign_of(status, Headers(tuple(headers.items())), body)


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (403, {}, b"Forbidden"),
        (403, {"server": "cloudflare"}, b"you may not see this"),
        (429, {"server": "cloudflare"}, b"slow down"),
        (503, {"server": "nginx"}, b"maintenance"),
        (200, {"server": "cloudflare"}, b"an article about /cdn-cgi/challenge-platform/ and captcha-delivery.com"),
        (200, {}, b"how 'enable javascript and cookies to continue' pages work, with g-recaptcha in a form"),
        (403, {}, b" " * (64 << 10) + b"px-captcha"),
    ],
)
def test_a_page_about_challenges_or_a_plain_refusal_counts_as_no_challenge(status, headers, body):
    assert sign_of(status, Headers(tuple(headers.items())), body) is None


def test_every_sign_names_its_pattern():
    assert [] == [sign.name for sign in SIGNS if sign.header is None and not sign.body]
    assert [] == [sign.name for sign in SIGNS for piece in sign.body if piece != piece.lower()]


# -- points ------------------------------------------------------------------------------------------------------------


def plain(signals: list[BlockSignal]) -> int:
    """The rule in plain Python: points in a row, reset by a healthy answer; the host is parked at twelve points. A host
    that becomes silent or loses its address gets some more tries first."""
    points = tries = 0
    lost, first = (BlockSignal.BROKEN, BlockSignal.NAMELESS), SILENT_FROM
    for signal in signals:
        first = {BlockSignal.BROKEN: SILENT_FROM, BlockSignal.NAMELESS: NAMELESS_FROM}.get(signal, first)
        if signal is BlockSignal.HEALTHY:
            points = tries = 0
        elif signal in lost and tries:
            tries += 1
            if tries > SILENT_TRIES_MAX:
                return PARKED_FROM + signal
        elif signal is not BlockSignal.NEUTRAL:
            before = 0 if tries else points
            points, tries = (
                before + {BlockSignal.CHALLENGE: 6, BlockSignal.SAME: 12, BlockSignal.NAMELESS: 12}.get(signal, 1),
                0,
            )
            if points >= UNWELCOME_POINTS_MAX:
                if signal not in lost:
                    return PARKED_FROM + signal
                points, tries = 0, 1
    return first + tries if tries else points


_SIGNALS = st.sampled_from([*BlockSignal, *[BlockSignal.BROKEN] * 40, *[BlockSignal.NAMELESS] * 5])


@given(st.lists(st.lists(_SIGNALS, min_size=30, max_size=30), min_size=1, max_size=3))
def test_the_columns_count_signs_like_the_plain_rule(hosts):
    cells = np.zeros(len(hosts), np.uint8)
    for signals in zip(*hosts, strict=True):
        cells = block_scores_after(cells, np.array(signals, np.uint8))
    assert [plain(signals) for signals in hosts] == cells.tolist()


# -- the host ----------------------------------------------------------------------------------------------------------


def world_of(**how: object) -> World:
    world = World(delay=1.0, delay_factor=0.0, **how)
    world.discover(*[f"{A}{page}" for page in range(60)], "http://b.test/")
    return world


def asked(world: World, rounds: int, **how: object) -> int:
    """Answers pages of a.test in one way, at most `rounds` times. Returns how many were requested."""
    count = 0
    for _ in range(rounds):
        for lease in world.lease(2, key="a.test"):
            count += 1
            if how.get("status") == 200:
                world.report(lease.done(seconds=0.01))
            elif how.get("status") == 403 and not how.get("challenged"):
                world.report(lease.gone(status=403, seconds=0.01))
            else:
                world.report(lease.retry(seconds=0.01, after_seconds=100_000, **how))
        world.clock.move(400.0)
    return count


def words(world: World) -> str:
    return str(world.frontier.explain(f"{A}59").reason_now)


@pytest.mark.parametrize("status", [200, 403, 429, 503])
def test_a_challenge_page_parks_its_host_within_three_fetches_until_an_operator_wakes_it(status):
    world = world_of()
    assert 1 == asked(world, 1, status=200)
    for lease in world.lease(1, key="a.test"):
        world.report(lease.retry(seconds=0.01, status=status, challenged=True, refused=status in (429, 503)))
    world.clock.move(200.0)
    assert asked(world, 30, status=403, challenged=True) <= 2
    host = world.frontier.host("a.test")
    assert ("not_welcome", True) == (words(world), host.paused)
    assert "it answers with challenges for browsers or people" == host.not_welcome
    assert "`outrider host DIR a.test resume` continues it" in world.frontier.explain(f"{A}59").reason_text
    world.clock.move(40 * 86_400.0)
    assert ["http://b.test/"] == world.urls()
    world.discover(f"{A}later")
    world.kill()
    assert [] == world.urls(key="a.test")
    assert "not_welcome" == words(world)
    world.frontier.resume("a.test")
    assert (None, False) == (world.frontier.host("a.test").not_welcome, world.frontier.host("a.test").paused)
    assert 10 == asked(world, 10, status=200)


def test_a_woken_host_that_challenges_again_is_parked_again():
    world = world_of()
    assert 2 == asked(world, 30, status=403, challenged=True)
    world.frontier.resume("a.test")
    assert 2 == asked(world, 30, status=403, challenged=True)
    assert "not_welcome" == words(world)


def test_many_403s_park_a_host_but_one_folder_of_403s_does_not():
    world = world_of()
    assert 11 == asked(world, 11, status=403)
    assert 1 == asked(world, 1, status=200)
    assert 12 == asked(world, 30, status=403)
    assert "it answers everything with 403" == world.frontier.host("a.test").not_welcome


def walled(world: World, rounds: int) -> list[str]:
    """Requests pages of a.test; pages below /private/ are closed. Returns the paths in the order of the requests."""
    paths = []
    for _ in range(rounds):
        for lease in world.lease(1, key="a.test"):
            paths.append(lease.url.removeprefix(A))
            closed = paths[-1].startswith("private/")
            world.report(lease.gone(status=403, seconds=0.01) if closed else lease.done(status=200, seconds=0.01))
        world.clock.move(400.0)
    return paths


@pytest.mark.parametrize("closed", [15, 200])
def test_closed_urls_of_one_folder_that_any_site_may_link_park_no_host(closed):
    world = World(delay=1.0, delay_factor=0.0, traps=Traps(returns_min=0.03))
    world.discover(*[Link(f"{A}private/{page}.html", depth=1) for page in range(closed)])
    world.discover(*[Link(f"{A}pages/{page}", depth=1) for page in range(200)])
    paths = walled(world, 450)
    assert 200 == len([path for path in paths if path.startswith("pages/")])
    assert (None, False) == (world.frontier.host("a.test").not_welcome, world.frontier.host("a.test").paused)
    if closed == 15:
        assert paths[12] == "pages/0"
    world.discover(Link(f"{A}pages/later", depth=1))
    assert f"{A}pages/later" in world.urls(key="a.test")


def test_a_host_with_403s_of_two_shapes_and_no_page_is_parked():
    world = World(delay=1.0, delay_factor=0.0, traps=Traps(returns_min=0.03))
    world.discover(*[Link(f"{A}{folder}/{page}", depth=1) for folder in ("one", "two") for page in range(60)])
    assert 13 == asked(world, 30, status=403)
    assert "it answers everything with 403" == world.frontier.host("a.test").not_welcome


def silent(world: World, *, error: str = "reset") -> list[float]:
    """Lets every request to a.test fail until its URLs are no longer leased. Returns the seconds between requests."""
    gaps, last = [], None
    while (wait := world.ready_in()) is not None and len(gaps) < 100:
        world.clock.move(wait)
        for lease in world.lease(1, key="a.test"):
            if last is not None:
                gaps.append((world.clock() - last) / 1e6)
            last = world.clock()
            world.report(lease.retry(seconds=0.01, error=error))
    return gaps


@pytest.mark.parametrize("error", ["reset", "connect_timeout", "first_byte_timeout", "empty_reply"])
def test_a_host_that_becomes_silent_is_retried_for_two_days_and_then_parked(error):
    world = World(delay=1.0, delay_factor=0.0)
    world.discover(*[f"{A}{page}" for page in range(60)])
    assert 1 == asked(world, 1, status=200)
    gaps = silent(world, error=error)
    waits = [gap for gap in gaps if gap >= SILENT_SECONDS_FIRST]
    assert (11, SILENT_TRIES_MAX) == (len(gaps) - len(waits), len(waits))
    assert [SILENT_SECONDS_FIRST * 2**tries for tries in range(SILENT_TRIES_MAX)] == [round(wait) for wait in waits]
    host = world.frontier.host("a.test")
    assert ("not_welcome", True) == (words(world), host.paused)
    assert "it breaks every connection or is silent, and answered before" == host.not_welcome
    world.clock.move(40 * 86_400.0)
    assert [] == world.urls()


def test_a_server_that_was_down_for_minutes_is_crawled_completely():
    """The only site of a crawl needs no operator to wake it: the first answer removes all signs."""
    world = World(delay=1.0, delay_factor=0.0)
    world.discover(*[f"{A}{page}" for page in range(60)])
    assert 1 == asked(world, 1, status=200)
    assert 12 == asked(world, 12, error="first_byte_timeout")
    explained = world.frontier.explain(f"{A}59")
    assert ("not_welcome", True) == (explained.reason_now, explained.next_at > world.clock())
    assert "it is visited again at " in explained.reason_text
    assert "or earlier after `outrider host DIR a.test resume`" in explained.reason_text
    world.kill()
    assert ([], "not_welcome") == (world.urls(), words(world))
    world.clock.move(SILENT_SECONDS_FIRST)
    assert 30 == asked(world, 30, status=200)
    assert (None, False) == (world.frontier.host("a.test").not_welcome, world.frontier.host("a.test").paused)


@pytest.mark.parametrize(("error", "verdict"), [("dns_unknown", "gone"), ("dns_temporary", "retry")])
def test_a_host_that_lost_its_address_waits_and_loses_no_url(error, verdict):
    world = World(delay=1.0, delay_factor=0.0)
    world.discover(*[f"{A}{page}" for page in range(60)])
    assert 1 == asked(world, 1, status=200)
    waits = []
    while (wait := world.ready_in()) is not None:
        world.clock.move(wait)
        waits.append(wait)
        world.report(*[outcome(lease, verdict, error=error) for lease in world.lease()])
        assert {"queued": 59, "done": 1} == {state: count for state, count in world.counts().items() if count}
    assert [SILENT_SECONDS_FIRST * 2**tries for tries in range(SILENT_TRIES_MAX)] == [round(wait) for wait in waits[1:]]
    assert ("not_welcome", "its name leads to no address, and did before") == (
        words(world),
        world.frontier.host("a.test").not_welcome,
    )
    world.kill()
    world.frontier.resume("a.test")
    assert 59 == asked(world, 61, status=200)


def test_a_host_whose_address_returns_is_crawled_completely():
    world = World(robots="errands", delay=1.0, delay_factor=0.0)
    world.discover(*[f"{A}{page}" for page in range(3)])
    (errand,) = world.lease(errands=True)
    world.report(errand.robots(200, b"User-agent: *\nDisallow:", seconds=0.01))
    world.clock.move(2.0)
    (page,) = world.lease()  # robots.txt was fetched from this host, but no page yet
    world.report(page.gone(error="dns_unknown"))
    assert ([], 3) == (world.urls(), world.counts()["queued"])
    world.clock.move(SILENT_SECONDS_FIRST)
    assert 3 == asked(world, 5, status=200)
    assert None is world.frontier.host("a.test").not_welcome


def test_urls_of_a_host_that_never_had_an_address_are_gone_at_once():
    world = World(delay=1.0, delay_factor=0.0)
    world.discover(f"{A}1", f"{A}2")
    for _ in range(2):
        world.report(*[lease.gone(error="dns_unknown") for lease in world.lease()])
        world.clock.move(10.0)
    assert (2, None) == (world.counts()["gone"], world.frontier.host("a.test").not_welcome)


def test_an_operator_wakes_a_silent_host_early():
    world = world_of()
    assert (1, 12) == (asked(world, 1, status=200), asked(world, 12, error="reset"))
    world.frontier.resume("a.test")
    assert (None, "ready") == (world.frontier.host("a.test").not_welcome, words(world).replace("behind", "ready"))
    assert 11 == asked(world, 11, error="reset")
    assert None is world.frontier.host("a.test").not_welcome


def test_a_silent_host_that_returns_with_challenges_is_parked():
    world = world_of()
    assert (1, 12) == (asked(world, 1, status=200), asked(world, 12, error="reset"))
    world.clock.move(SILENT_SECONDS_FIRST)
    assert 2 == asked(world, 30, status=403, challenged=True)
    assert "it answers with challenges for browsers or people" == world.frontier.host("a.test").not_welcome


def test_requests_that_were_open_when_a_host_became_silent_count_once():
    world = world_of()
    world.frontier.set_limit(16, "a.test")
    assert 1 == asked(world, 1, status=200)
    leases = []
    for _ in range(16):
        leases += world.lease(1, key="a.test")
        world.clock.move(1.0)
    for lease in leases:
        world.report(lease.retry(seconds=0.01, error="reset"))
    explained = world.frontier.explain(f"{A}59")
    assert (16, "not_welcome") == (len(leases), explained.reason_now)
    assert SILENT_SECONDS_FIRST == (explained.next_at - world.clock()) / 1e6


def bodies(world: World, count: int, body: bytes | None) -> int:
    """Answers at most `count` pages of a.test, with one body or each with its own. Returns how many were requested."""
    asked_for = 0
    for _ in range(count):
        for lease in world.lease(1, key="a.test"):
            asked_for += 1
            digest = body if body is not None else lease.url.encode()
            copy = body is not None and asked_for > 1
            outcome = Outcome(lease.token, Verdict.DONE, seconds=0.01, digest=digest, status=200, duplicate=copy)
            world.report(outcome)
        world.clock.move(10.0)
    return asked_for


def test_a_host_that_returns_the_same_body_after_a_healthy_start_is_parked():
    world = world_of()
    assert (3, 25) == (bodies(world, 3, None), bodies(world, 40, b"blocked"))
    assert "it gives one same body for every page, and gave others before" == world.frontier.host("a.test").not_welcome
    assert "not_welcome" == words(world)


@pytest.mark.parametrize("varied", [False, True])
def test_a_path_that_ignores_its_query_is_not_a_block_sign(varied):
    """Each `index.html?PAGE` of a page with frames is that page. `page.php?id=7` was another page than `?id=8`."""
    world = World()
    world.discover(*(f"{A}{n}" for n in range(3)))
    assert 3 == bodies(world, 3, None)
    if varied:
        world.discover(f"{A}index.html?1", f"{A}index.html?2")
        assert 2 == bodies(world, 2, None)
    world.discover(*(f"{A}index.html?of{n}" for n in range(60)))
    assert (25 if varied else 60) == bodies(world, 60, b"frames")
    assert varied is (world.frontier.host("a.test").not_welcome is not None)


def test_one_body_for_all_pages_from_the_start_or_with_other_pages_between_is_not_a_block_sign():
    world = world_of()
    assert 40 == bodies(world, 40, b"application")
    world = world_of()
    for _ in range(2):
        assert (20, 1) == (bodies(world, 20, b"login"), bodies(world, 1, None))
    assert None is world.frontier.host("a.test").not_welcome


@pytest.mark.parametrize(
    "how", [{"status": 429, "refused": True}, {"status": 503, "refused": True}, {"status": 500}, {"error": "reset"},
            {"error": "connect_timeout"}]
)  # fmt: skip
def test_a_rate_limit_an_outage_or_an_unreachable_host_is_not_a_block(how):
    world = world_of()
    world.clock.move(86_400.0)
    for _ in range(15):
        for lease in world.lease(1, key="a.test"):
            world.report(lease.retry(seconds=0.01, after_seconds=1e6, **how))
        world.clock.move(100_000.0)
    assert words(world) in ("ready", "behind", "host_resting")


# -- the crawl ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("each_downloader")
@pytest.mark.parametrize("robots", ["errands", "caller"])
def test_a_server_that_answers_with_challenges_gets_two_requests(robots, tmp_path):
    """A challenge in place of robots.txt allows no page, and counts as a sign like any other."""

    async def main() -> tuple[int, str]:
        now = [wall()]
        requests = 0
        frontier = Frontier.open(tmp_path, clock=lambda: now[0], robots=robots, settings={"delay": 0.0})
        async with hostile(closes_after(CHALLENGE)) as site:
            downloader = new()
            frontier.discover([f"http://site.test:{site.port}/{page}" for page in range(20)])
            for _ in range(60):
                for lease in frontier.lease(1, errands=True):
                    requests += 1
                    answer = await downloader.fetch(Request(lease.url, "127.0.0.1", "Outrider/0.1"))
                    visit = Visit(lease, wall(), now[0], answer)
                    frontier.report([_outcome(visit)])
                now[0] += int(1e6 * (frontier.next_ready_seconds() or 1.0))
            await downloader.close()
        word = frontier.explain(f"http://site.test:{site.port}/19").reason_now
        frontier.close()
        return requests, word

    assert (2, "not_welcome") == asyncio.run(main())


def _outcome(visit: Visit):
    if visit.lease.kind is Kind.ROBOTS:
        return robots_outcome(visit)
    judgement = judged(visit)
    assert ("retry", Verdict.RETRY, "not_welcome") == (judgement.word, judgement.verdict, judgement.error)
    return page_outcome(visit, judgement, page=None, links=UrlBatch.of(()), digest=None, digest_shown=None, warc=None)
