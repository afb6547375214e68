"""Settings of requests and of single hosts: headers, times, truncation, retries, and [[host]] tables."""

from __future__ import annotations

import logging

import pytest

from outrider.crawl.setup.host_settings import PerHost, unverified_hosts
from outrider.crawl.setup.options import CrawlOptions, as_toml, from_file, hidden, resolved
from outrider.crawl.setup.seeds import BadSeeds, read_seeds
from outrider.errors import InvalidUrlError, SettingsError
from outrider.fetch.downloader import Request, target_of
from outrider.fetch.type_limits import bytes_of_type
from outrider.limits import BODY_BYTES_MAX, PDF_BYTES_MAX
from outrider.page.pdf import PDF_TYPE
from unit.test_hooks import HOME, PAGES, Web, crawled  # noqa: F401 - a fixture

TABLES = [
    {"name": "*.slow.test", "delay": 10, "timeout": {"connect": 30}, "header": ["X-Own=1"]},
    {"name": "b.slow.test", "retries": 0, "truncate": "*=100", "capacity": 2},
]


def test_tables_apply_in_order_to_the_hosts_that_they_name():
    hosts = PerHost(CrawlOptions(host=TABLES, header="X-All=0", retries=2))
    usual, first, both = hosts.of("other.test"), hosts.of("a.slow.test"), hosts.of("b.slow.test")
    assert (None, None, 10.0, 10.0) == (usual.delay, usual.capacity, first.delay, both.delay)
    assert (10.0, 30.0) == (usual.connect_seconds, both.connect_seconds)
    assert [(("X-All", "0"),), (("X-Own", "1"),)] == [usual.header, both.header]
    assert [2, 2, 0] == [one.retries for one in (usual, first, both)]
    assert (2, (("*", 100),)) == (both.capacity, both.truncate)


def test_requests_for_pages_have_the_limits_by_type_and_other_requests_their_own():
    limits = ("text/html", 10), ("image/*", 20), ("*", 30)
    own = PerHost(CrawlOptions(truncate=dict(limits))).of("a.test")
    page, other = (own.request("http://a.test/", "127.0.0.1", "A", (), bytes_max=most) for most in (None, 7))
    assert (limits, BODY_BYTES_MAX) == (page.type_bytes_max, page.bytes_max)
    assert ((), 7) == (other.type_bytes_max, other.bytes_max)
    assert page.type_bytes_max is own.truncate  # one for all requests of the host
    kinds = ("TEXT/HTML; charset=x", "image/png", "a/b", None)
    assert [(10, 10), (20, 20), (30, 30), (30, 30)] == [page.room(99, kind) for kind in kinds]
    assert (0, 7) == other.room(99, "text/html")


@pytest.mark.parametrize(
    ("truncate", "reads", "most"),
    [
        ((), True, PDF_BYTES_MAX),
        ((), False, None),
        (("text/html=10",), True, PDF_BYTES_MAX),
        (("application/pdf=10",), True, 10),
        (("application/*=10",), True, 10),
        (("*=10",), True, 10),
    ],
)
def test_documents_are_kept_whole_if_they_are_read_and_no_limit_names_them(monkeypatch, truncate, reads, most):
    monkeypatch.setattr("outrider.crawl.setup.host_settings.reads_pdf", lambda: reads)
    own = PerHost(CrawlOptions(truncate=truncate)).of("a.test")
    assert most == bytes_of_type(own.truncate, PDF_TYPE)


def test_an_answer_of_a_users_downloader_is_cut_at_its_limit(crawled):  # noqa: F811
    class Much(Web):
        async def fetch(self, request):
            import dataclasses

            response = await super().fetch(request)
            return dataclasses.replace(response, body=b"x" * 3_000_000, content=b"y" * 3_000_000)

    for truncate, most in ((), BODY_BYTES_MAX), (("text/*=70",), 70):
        line = crawled(downloader=Much, max_depth=0, truncate=truncate, robots_unreachable="open", anew=True)["/"]
        assert "truncated" == line["outcome"]
        assert most - 100 < line["bytes"] <= most


def test_tables_and_pairs_read_back_from_the_file():
    options = CrawlOptions(output="/tmp/x", host=TABLES, header=["A=b c"], truncate={"a/b": 7}, timeout="total=5")
    text = as_toml(options, ())
    assert options == resolved({}, {}, from_file(text, "outrider.toml", "/tmp/x").options, "/tmp/x")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"header": "X"}, "has no ="),
        ({"header": "Host=x"}, "this field cannot be set"),
        ({"header": "X=a\r\nY: b"}, "cannot be sent"),
        ({"timeout": "connect=0"}, "too small"),
        ({"timeout": "first=3"}, "not one of connect"),
        ({"truncate": "html=3"}, "not a content type"),
        ({"truncate": "text/html=0"}, "too small"),
        ({"retries": 4}, "too large"),
        ({"host": [{"delay": 3}]}, "not a pattern of host names"),
        ({"host": [{"name": "a.test", "scope": "any"}]}, "scope is not a setting of a host"),
        ({"host": [{"name": "a.test", "delay": -1}]}, "delay of a.test is -1"),
        (
            {"host": [{"name": "a.test", "capacity": 0}]},
            "capacity of a.test is 0: it is too small; use a whole number",
        ),
        ({"host": {"name": "a.test"}}, "not a list of tables"),
        ({"header": "Authorization=Bearer abc"}, "would go to every host of the crawl"),
        ({"header": {"cookie": "a=b"}}, "would go to every host of the crawl"),
        ({"credentials": "https://a.test/path=u:pw"}, "has a path"),
        ({"credentials": "ftp://a.test=u:pw"}, "origin is not like https"),
        ({"credentials": "https://u:pw@a.test=u:pw"}, "a user"),
        ({"credentials": "https://a.test=u-pw"}, "neither USER:PASSWORD nor Bearer"),
        ({"credentials": "https://a.test=u:pw\r\nX: y"}, "control character"),
        ({"host": [{"name": "*.test", "tls": "unverified"}]}, "for one host, not for a pattern"),
        ({"host": [{"name": "a.test", "tls": "off"}]}, "unknown value"),
    ],
)
def test_an_invalid_value_is_refused_by_name(options, words):
    with pytest.raises(SettingsError) as caught:
        CrawlOptions(**options)
    assert caught.value.facts.startswith(next(iter(options)))
    assert words in caught.value.facts
    assert "pw" not in caught.value.facts


def test_headers_and_times_are_part_of_each_request(crawled):  # noqa: F811
    crawled(header=["X-Key=1"], timeout="connect=3,first-byte=4,total=5", max_depth=0)
    (page,) = [request for request in Web.last.asked if request.url == HOME]
    assert ((("X-Key", "1"),), 3.0, 4.0, 5.0) == (
        page.headers,
        page.connect_seconds,
        page.idle_seconds,
        page.total_seconds,
    )
    assert {("X-Key", "1")} == {field for request in Web.last.asked for field in request.headers}


def request_to(hosts: PerHost, url: str) -> Request:
    host = target_of(url).host
    return hosts.of(host).request(url, "127.0.0.1", "A", ())


def test_credentials_are_sent_only_to_their_origin():
    hosts = PerHost(
        CrawlOptions(credentials={"HTTPS://A.test:443/": "ann:se:cret", "http://b.test:8080": "Bearer abc"})
    )
    basic = b"Authorization: Basic YW5uOnNlOmNyZXQ=\r\n"
    assert basic in request_to(hosts, "https://a.test/x").head()
    assert b"Authorization: Bearer abc\r\n" in request_to(hosts, "http://b.test:8080/").head()
    others = (
        "http://a.test/",
        "https://a.test:8443/",
        "https://a.test.b.test/",
        "https://b.test:8080/",
        "http://b.test/",
    )
    assert [] == [url for url in others if b"uthorization" in request_to(hosts, url).head()]


def test_secrets_are_never_shown():
    """Neither in the archive's record of a request, nor in reprs, nor among settings."""
    table = {"name": "a.test", "header": ["Cookie=sesame"], "credentials": "http://a.test=ann:sesame"}
    options = CrawlOptions(host=[table], credentials="http://b.test=ann:sesame")
    request = request_to(PerHost(options), "http://a.test/")
    sent, kept = request.head(), request.record()
    assert (True, True) == (b"Cookie: sesame\r\n" in sent, b"Authorization: Basic " in sent)
    assert (True, True) == (b"Cookie: hidden\r\n" in kept, b"Authorization: hidden\r\n" in kept)
    assert [] == [one for one in (str(kept), as_toml(hidden(options), ())) if "sesame" in one or "YW5u" in one]
    assert "YW5u" not in repr(request) + repr(PerHost(options).of("a.test"))
    assert options == resolved({}, {}, from_file(as_toml(options, ()), "outrider.toml", "/").options, "")


def test_an_exception_of_tls_applies_to_its_host():
    options = CrawlOptions(host=[{"name": "A.test", "tls": "unverified"}, {"name": "b.test", "tls": "verified"}])
    asked = {name: request_to(PerHost(options), f"https://{name}.test/").verified for name in "abc"}
    assert {"a": False, "b": True, "c": True} == asked
    assert ["a.test"] == unverified_hosts(options)


def test_a_page_above_its_limit_of_bytes_is_cut_and_says_so(crawled):  # noqa: F811
    lines = crawled(truncate=["text/html=20"], max_depth=0)
    assert ("truncated", 20) == (lines["/"]["outcome"], lines["/"]["bytes"])


def test_a_table_of_a_host_sets_its_delay(crawled):  # noqa: F811
    import outrider

    crawled(host=[{"name": "*.test", "delay": 0.25, "capacity": 3}], max_depth=0)
    with outrider.Frontier.look(crawled.out / "frontier") as look:
        (queue,) = look.queues()
    assert (0.25, 3) == (queue.delay_seconds, queue.limit)


def test_a_page_without_retries_is_abandoned_at_once(crawled, monkeypatch):  # noqa: F811
    class Busy(Web):
        async def fetch(self, request):
            import dataclasses

            response = await super().fetch(request)
            return dataclasses.replace(response, status=500) if request.url == HOME else response

    lines = crawled(downloader=Busy, retries=0)
    assert ("error", "http_500", 1) == tuple(lines["/"][name] for name in ("outcome", "error", "attempt"))


def test_invalid_seeds_are_listed_and_valid_seeds_are_accepted(tmp_path):
    (tmp_path / "seeds").write_bytes(b"http://a.test/\nmailto:x@y\n\xff\n" + b"x" * 20_000 + b"\nhttp://b.test/\n")
    faults = BadSeeds()
    assert ["http://a.test/", "http://b.test/"] == read_seeds([f"@{tmp_path}/seeds"], None, faults)
    assert [2, 3, 4] == [int(fault.split("line ")[1].split(":")[0]) for fault in faults.texts]
    with pytest.raises(InvalidUrlError, match="line 2"):
        read_seeds([f"@{tmp_path}/seeds"])


def test_seeds_without_a_single_url_are_refused():
    with pytest.raises(InvalidUrlError):
        read_seeds(["mailto:x@y"], None, BadSeeds())


def test_strict_seeds_stop_a_crawl(crawled):  # noqa: F811
    with pytest.raises(InvalidUrlError):
        crawled(HOME, "mailto:x@y", strict_seeds=True)
    assert "/" in crawled(HOME, "mailto:x@y")


def test_events_are_records_of_pythons_logging(crawled, caplog):  # noqa: F811
    def fails(page):
        raise ValueError("mine")

    with caplog.at_level(logging.INFO, logger="outrider"):
        crawled(on_page=fails, max_depth=0)
    levels = {record.event: record.levelname for record in caplog.records if record.name == "outrider"}
    assert ("INFO", "INFO", "WARNING") == (levels["open"], levels["close"], levels["hook_on_page"])
    assert PAGES
