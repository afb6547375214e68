"""Sites that ask for payment: what their answers say, and which pages are left alone."""

from __future__ import annotations

import base64
import json

import pytest

from fake_web import answer
from model.world import World
from outrider.fetch.downloader import Response
from outrider.fetch.meaning import meaning_of
from outrider.fetch.payment import payment_of
from outrider.frontier.state.payments import Payments, host_of_place, place_of
from outrider.journey import Verdict, Word
from outrider.limits import PAYMENT_FIELD_BYTES_MAX, PAYMENT_TEXT_MAX

A = "http://a.test/"
OFFER = {"scheme": "exact", "network": "eip155:8453", "amount": "10000", "asset": "0xA0b8"}
DEEP = b'{"accepts": [], "more": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"
"""JSON that is nested deeper than the reader of JSON follows, within the limit of an offer."""


def response(fields: dict[str, str], *, status: int = 402, body: bytes = b"") -> Response:
    return answer(f"{A}page", status, body, tuple(fields.items()))


def packed(offer: object) -> str:
    return base64.b64encode(json.dumps(offer).encode()).decode()


@pytest.mark.parametrize(
    ("fields", "body", "told"),
    [
        ({"crawler-price": "USD 0.01"}, b"", "crawler-price USD 0.01"),
        ({"crawler-price": " EUR 12 "}, b"", "crawler-price EUR 12"),
        ({}, b"", ""),
        ({"payment-required": packed({"accepts": [OFFER]})}, b"", "x402 10000 of 0xA0b8 on eip155:8453"),
        (
            {},
            json.dumps({"accepts": [{"network": "base", "maxAmountRequired": "7", "asset": "0x1"}]}).encode(),
            "x402 7 of 0x1 on base",
        ),
        ({"payment-required": packed({"accepts": []})}, b"", "x402 (no offer)"),
    ],
)
def test_scheme_and_price_are_kept_as_text(fields, body, told):
    assert told == payment_of(response(fields, body=body))


@pytest.mark.parametrize(
    "price", ["USD 1" + "0" * 400, "USD 0.01\x1b[2J", "free", "USD \u0661", "USD 0.01, USD 9", "usd 1", "USD -1", ""]
)
def test_a_price_that_cannot_be_read_is_shown_as_unreadable(price):
    told = payment_of(response({"crawler-price": price}))
    assert told.startswith("crawler-price (unreadable: ")
    assert (True, True) == (told.isprintable(), len(told) <= PAYMENT_TEXT_MAX)


@pytest.mark.parametrize(
    "offer",
    [
        "%%%",
        "e30",  # cut base64
        packed({"accepts": "all"}),
        packed({"accepts": [OFFER | {"network": "base\nevil"}]}),
        packed({"accepts": [OFFER | {"asset": "x" * 500}]}),
        "A" * (PAYMENT_FIELD_BYTES_MAX + 4),
        "\u00e9" * 8,
        base64.b64encode(DEEP).decode(),
    ],
)
def test_a_broken_offer_asks_for_payment_all_the_same(offer):
    told = payment_of(response({"payment-required": offer}))
    assert told.startswith("x402 (")
    assert (True, True) == (told.isprintable(), len(told) <= PAYMENT_TEXT_MAX)


def test_a_body_of_deep_json_asks_for_payment_all_the_same():
    assert "x402 (an offer that cannot be read)" == payment_of(response({}, body=DEEP))


def test_a_charge_is_told_and_any_other_page_says_nothing():
    assert "USD 0.01" == payment_of(response({"crawler-charged": "USD 0.01"}, status=200))
    assert None is payment_of(response({"crawler-price": "USD 0.01"}, status=200))


def test_the_outcome_of_402_is_asks_payment():
    found = meaning_of(402, None)
    assert (Word.ASKS_PAYMENT, Verdict.GONE, "payment") == (found.word, found.verdict, found.error)


@pytest.mark.parametrize(
    ("url", "place", "host"),
    [
        ("http://a.test/", "a.test/", "a.test"),
        ("https://a.test:8443/news/1?x=/y", "a.test:8443/news/", "a.test"),
        ("http://a.test/page?id=/7", "a.test/", "a.test"),
        ("http://[::1]:80/x/", "[::1]:80/x/", "[::1]"),
    ],
)
def test_the_first_part_of_a_path_is_its_place(url, place, host):
    assert (place, host) == (place_of(url), host_of_place(place))


# -- the frontier ------------------------------------------------------------------------------------------------------


def world_of(*paths: str) -> World:
    world = World(delay=1.0, delay_factor=0.0)
    world.discover(*[f"{A}{path}" for path in paths])
    return world


def asked(world: World, paid: tuple[str, ...] = ("",), *, rounds: int = 1_000, killed_at: int = -1) -> list[str]:
    """Answers pages of a.test until none is left. Pages below `paid` ask for payment. Returns the paths in order."""
    paths: list[str] = []
    for _ in range(rounds):
        leases = world.lease(1)
        if not leases:  # none is left, its host rests, or the call judged as many pages as it may
            wait = world.ready_in()
            if wait is None:
                break
            world.clock.move(wait)
            continue
        (lease,) = leases
        paths.append(lease.url.removeprefix(A))
        if paths[-1].startswith(paid):
            world.report(lease.gone(status=402, error="payment", payment="crawler-price USD 0.01", seconds=0.01))
        else:
            world.report(lease.done(seconds=0.01))
        world.clock.move(2.0)
        if len(paths) == killed_at:
            world.kill()
    return paths


@pytest.mark.parametrize("killed_at", [-1, 2])
def test_three_answers_in_a_row_park_the_first_part_of_the_path(killed_at):
    world = world_of(*[f"news/{page}" for page in range(2_000)])
    assert 3 == len(asked(world, killed_at=killed_at))
    found = world.frontier.explain(f"{A}news/1000")
    assert ("parked", "payment") == (found.state, found.status.reason)
    assert "a.test/news/ asks USD 0.01 a page: the last 3 answers were 402" in found.reason_text
    assert "`outrider retry --error payment` queues it again" in found.reason_text
    assert "asks USD 0.01 a page" == world.frontier.host("a.test").payment
    told = world.frontier.statistics()["payments"]
    assert {"answers": 3, "charged": 0, "hosts": {"a.test": "asks USD 0.01 a page"}} == told


@pytest.mark.parametrize("killed_at", [-1, 1, 5, 11])
def test_twelve_answers_in_a_row_park_the_host(killed_at):
    world = world_of(*[f"{page}/" for page in range(400)])
    assert 12 == len(asked(world, killed_at=killed_at))
    assert "it asks for payment for every page" == world.frontier.host("a.test").not_welcome
    told = world.frontier.explain(f"{A}399/").reason_text
    assert "a.test is parked because it asks for payment for every page" in told
    world.frontier.resume("a.test")
    assert 12 == len(asked(world))


@pytest.mark.parametrize("killed_at", [-1, 7, 20])
def test_every_free_page_of_a_mixed_host_is_fetched(killed_at):
    paid = tuple(f"paid{part}/" for part in range(6))
    world = world_of(*[f"{part}{page}" for part in paid for page in range(40)], *[f"free/{page}" for page in range(40)])
    paths = asked(world, paid, killed_at=killed_at)
    assert 40 == len([path for path in paths if path.startswith("free/")])
    assert dict.fromkeys(paid, 3) == {part: sum(path.startswith(part) for path in paths) for part in paid}


@pytest.mark.parametrize("killed_at", [-1, 6])
def test_a_host_of_ten_thousand_paid_pages_gets_at_most_twelve_requests(killed_at):
    world = world_of(*[f"{page % 400}/{page}" for page in range(10_000)])
    assert len(asked(world, killed_at=killed_at)) <= 12
    assert "it asks for payment for every page" == world.frontier.host("a.test").not_welcome


def test_pages_in_the_root_are_no_part():
    world = world_of(*[f"page?id={page}" for page in range(40)])
    assert 12 == len(asked(world))
    world = world_of(*[f"page?id={page}" for page in range(40)])
    assert 40 == len(asked(world, ("page?id=3",)))  # ten in a row


def test_a_page_in_between_resets_the_count():
    world = world_of(*[f"news/{page}" for page in range(8)])
    paths = asked(world, ("news/0", "news/1", "news/3", "news/4", "news/6"))
    assert 8 == len(paths)


def test_an_operator_has_the_pages_of_a_part_tried_again():
    world = world_of(*[f"news/{page}" for page in range(50)])
    assert 3 == len(asked(world))
    assert 50 == world.frontier.retry(error="payment")
    assert 3 == len(asked(world))
    assert 50 == world.frontier.retry(error="payment")
    assert 50 == len(asked(world, ("none",)))


def test_a_charge_is_kept():
    world = world_of("one")
    (lease,) = world.lease()
    world.report(lease.done(seconds=0.01, payment="USD 0.01"))
    world.kill()
    assert "CHARGED USD 0.01" == world.frontier.host("a.test").payment
    world.discover(f"{A}two")
    asked(world)
    assert "CHARGED USD 0.01; asks USD 0.01 a page" == world.frontier.host("a.test").payment
    assert 1 == world.frontier.statistics()["payments"]["charged"]


def test_the_least_recent_places_leave_above_the_limit():
    payments = Payments(most=2)
    for place in ("a.test/x", "b.test/y"):
        payments._payment(0, place, 3, 3, "", "")
    assert [(0, "a.test/x")] == payments.victims({"c.test/z"})
    payments._payment(0, "a.test/x", 0, 0, "", "")
    assert (None, {"b.test/y"}, 1) == (payments.of_host("a.test"), payments.closed, len(payments))
