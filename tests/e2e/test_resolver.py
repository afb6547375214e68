"""`--resolver`: a crawl queries the given DNS servers, and no other."""

from __future__ import annotations

import pytest

from e2e import crawling
from e2e.name_server import Stub, served_beside


def test_a_crawl_queries_the_given_dns_servers(tmp_path):
    with crawling.web(tmp_path / "web", hosts=4, pages=40) as served:
        names = [line.split() for line in served.hosts_file.read_text().splitlines() if line.strip()]
        stub = Stub({name: [(address, 0)] for address, *hosts in names for name in hosts})
        with served_beside(stub) as server:
            arguments = crawling.on(served, tmp_path / "out", "--delay", "0")
            place = arguments.index("--hosts")
            told = ["--resolver", server, "--allow-address", "127.0.0.0/8", "--contact", "a@b.test"]
            arguments[place : place + 2] = told
            assert 0 == crawling.outrider(*arguments).returncode
        assert served.web.must_fetch() == crawling.fetched(tmp_path / "out")
        assert len(stub.asked) == len(set(stub.asked)), "a TTL of 0 is no look-up for each request"


@pytest.mark.parametrize("server", ["dns.example.org", "127.0.0.1:0", "1.2.3"])
def test_a_resolver_that_is_not_an_address_is_refused(tmp_path, server):
    done = crawling.outrider("crawl", "http://a.test/", "-o", tmp_path / "out", "--resolver", server)
    assert 2 == done.returncode
    assert server in done.stderr.splitlines()[0]
