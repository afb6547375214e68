"""The published lists of addresses and URLs that lead a fetcher inside: every one is judged as it should be."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import InvalidUrlError
from outrider.fetch.addresses import AddressGuard, is_public_address, is_web_port
from outrider.fetch.downloader import target_of
from outrider.fetch.failures import BlockedAddress, FetchFailure
from outrider.fetch.names import Resolver
from outrider.url import join, normalize

pytestmark = pytest.mark.conformance


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_address_of_the_list_is_judged_right(shared: Path) -> None:
    cases = lines_of(shared / "data/security/ssrf-ips.jsonl")
    assert 75 == len(cases)
    assert [] == [case for case in cases if is_public_address(case["ip"]) != (case["expect"] == "allow")]


def verdict(case: dict[str, Any]) -> str:
    """allow, port, block or reject: the fate of a URL on its way to a socket, with names answered from the case."""
    answers = [case["resolves"]] if "resolves" in case else case.get("resolves_sequence", [["93.184.216.34"]])

    def look_up(host: str, port: int) -> tuple[str, ...]:
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return tuple(answers.pop(0) if len(answers) > 1 else answers[0])

    async def run(url: str) -> str:
        target = target_of(url)
        if not is_web_port(target.port):
            return "port"
        resolver = Resolver(look_up=look_up, ttl_seconds=0)
        for _ in range(len(answers)):
            AddressGuard().choose(target.host, await resolver.resolve(target.host, target.port))
        await resolver.close()
        return "allow"

    try:
        url = normalize(case["url"])
        if "location" in case:
            url = join(url, case["location"])
        return asyncio.run(run(url.split("#")[0]))
    except (BlockedAddress, FetchFailure):
        return "block"
    except InvalidUrlError:
        return "reject"


def test_every_url_of_the_list_ends_where_it_should(shared: Path) -> None:
    """A URL that can be read as having a public host or a loopback one is judged by the host that is dialled."""
    cases = lines_of(shared / "data/security/ssrf-urls.jsonl")
    assert 78 == len(cases)
    accepted = {
        "allow": {"allow"},
        "block": {"block", "reject", "port"},
        "block-or-reject": {"block", "reject"},
        "reject-scheme": {"reject"},
        "policy-port": {"port", "reject"},
    }
    wrong = []
    for case in cases:
        if case["expect"] == "single-interpretation":
            try:
                host = target_of(normalize(case["url"]).split("#")[0]).host
            except InvalidUrlError:
                continue  # refused: nothing is dialled
            if host != case["whatwg_host"]:
                wrong.append((case["url"], host))
        elif verdict(case) not in accepted[case["expect"]]:
            wrong.append((case["url"], verdict(case)))
    assert [] == wrong
