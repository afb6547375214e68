"""Crawls with groups, judged by the web's own log: hosts that share a clock are not visited at once, nor without the
gap."""

from __future__ import annotations

from itertools import pairwise

from e2e import crawling
from outrider.sim.verdict import LoggedRequest, read

GAP = 0.04


def requests(served) -> list[LoggedRequest]:
    with served.log_file.open(encoding="utf-8") as lines:
        return read(lines)


def gaps(some: list[LoggedRequest]) -> list[float]:
    """Seconds from the end of each request to the begin of the next; below 0 where they overlap."""
    return [after.start - before.end for before, after in pairwise(some)]


def test_the_hosts_of_a_domain_are_visited_one_at_a_time(tmp_path):
    with crawling.web(tmp_path / "web", hosts=5, pages=20) as served:
        arguments = crawling.on(served, tmp_path / "out", "--delay", str(GAP), "--group", "domain")
        ended = crawling.outrider(*arguments)
        assert 0 == ended.returncode, ended.stderr
        seen = requests(served)
        assert served.web.must_fetch() == crawling.fetched(tmp_path / "out")
    assert (5, 0) == (len({request.host for request in seen}), sum(gap < GAP for gap in gaps(seen)))


def test_hosts_in_one_network_share_the_clock_of_a_file(tmp_path):
    (tmp_path / "groups.toml").write_text(
        f'[[group]]\nname = "here"\naddresses = ["127.0.0.0/8"]\ngap = {GAP}\n', encoding="ascii"
    )
    with crawling.web(tmp_path / "web", hosts=5, pages=20) as served:
        arguments = crawling.on(served, tmp_path / "out", "--delay", "0", "--group", str(tmp_path / "groups.toml"))
        ended = crawling.outrider(*arguments)
        assert 0 == ended.returncode, ended.stderr
        seen = requests(served)
        assert served.web.must_fetch() == crawling.fetched(tmp_path / "out")
    # From the very first request on: a host's address is looked up before its robots.txt is requested.
    assert (5, 0) == (len({request.host for request in seen}), sum(gap < GAP for gap in gaps(seen)))


def test_an_invalid_file_is_refused_before_any_request(tmp_path):
    (tmp_path / "groups.toml").write_text("[domain]\ncapacity = 0\n", encoding="ascii")
    with crawling.web(tmp_path / "web", hosts=2, pages=4) as served:
        ended = crawling.outrider(
            *crawling.on(served, tmp_path / "out"), OUTRIDER_GROUP=f"address {tmp_path / 'groups.toml'}"
        )
        assert (2, []) == (ended.returncode, requests(served) if served.log_file.exists() else [])
    assert "groups.toml': capacity 0 ([domain]): use a whole number from 1 to 65535" in ended.stderr
