"""Hooks: the arguments and results of each. A hook that fails, sleeps or returns nonsense ends only its page."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import sys
import threading
import time

import numpy as np
import pytest

import outrider
from fake_web import FakeWeb
from limiting import set_limits
from outrider import Frontier
from outrider.crawl.output.line_fields import parts_of_item
from outrider.crawl.questions.control import ask
from outrider.crawl.run import hooks
from outrider.crawl.run.hook_failures import HookFailures
from outrider.crawl.run.hooks import HookFailed, Hooks, Watch, idle_with_hooks
from outrider.crawl.setup.options import LOST, CrawlOptions, as_toml, from_file, resolved
from outrider.errors import SettingsError, UnreachableError
from outrider.fetch.native import NativeDownloader
from outrider.journey import Link
from outrider.kernels import in_use
from outrider.limits import HOOK_ITEMS_BYTES_MAX, LINKS_PER_PAGE_MAX
from outrider.page import Page
from outrider.page.reader import READERS

HOME = "http://one.test/"
PAGES = {
    "/robots.txt": b"User-agent: *\nDisallow: /closed\n",
    "/": b"<title>home</title><a href=/a>a</a> <a href=/b>b</a> <a href=/closed>c</a>",
    "/a": b"<title>page a</title><a href=/deep>deep</a>",
    "/b": b"<title>page b</title>",
    "/deep": b"<title>deep</title>",
    "/moved": (301, "/b"),
}


class Web(FakeWeb):
    pages = PAGES


@pytest.fixture
def crawled(tmp_path):
    """Crawls the web above with these hooks. Returns the lines of its pages by path."""
    (tmp_path / "hosts").write_text("127.0.0.1 one.test\n127.0.0.2 two.test\n")
    out = tmp_path / "out"

    def run(*seeds, **more):
        told = {
            "output": out,
            "hosts": str(tmp_path / "hosts"),
            "downloader": Web,
            "delay": 0,
            "delay_factor": 0,
        } | more
        run.result = outrider.crawl(seeds or [HOME], **told)
        lines = [json.loads(line) for line in (out / "pages.jsonl").read_text().splitlines()]
        return {"/" + line["url"].split("/", 3)[3]: line for line in lines}

    run.out = out
    run.log = lambda: (out / "crawl.log").read_text()
    return run


def titles(page):
    return {"shout": page.title.upper(), "size": np.int64(len(page.body))}


def raises(page):
    if page.url.endswith("/a"):
        raise ZeroDivisionError("in my own code")


def test_the_result_of_on_page_is_in_the_line(crawled):
    lines = crawled(on_page=titles)
    assert [{"shout": "PAGE A", "size": len(PAGES["/a"])}] == lines["/a"]["items"]
    (item,) = (one for one in items_in(crawled.out) if one["url"] == HOME + "a")
    assert {"url": HOME + "a", "token": lines["/a"]["token"], "shout": "PAGE A", "size": len(PAGES["/a"])} == item


def items_in(directory):
    return [json.loads(line) for line in (directory / "items.jsonl").read_text().splitlines()]


def yields_two(page):
    yield {"n": 1}
    page.follow = []
    yield {"n": 2}


class YieldsTwo:
    def __call__(self, page):
        yield from ({"n": 1}, {"n": 2})


@pytest.mark.parametrize(
    "on_page",
    [
        yields_two,
        YieldsTwo(),
        functools.partial(yields_two),
        lambda page: [{"n": 1}, {"n": 2}],
        lambda page: ({"n": n} for n in (1, 2)),
        f"{__name__}:yields_two",
    ],
)
def test_each_mapping_of_on_page_is_an_item(crawled, on_page):
    lines = crawled(on_page=on_page, max_depth=0)
    assert [{"n": 1}, {"n": 2}] == lines["/"]["items"]
    assert [("n", 1), ("n", 2)] == [list(item.items())[-1] for item in items_in(crawled.out)]
    assert {HOME} == {item["url"] for item in items_in(crawled.out)}


def test_links_that_a_generator_drops_are_not_followed(crawled):
    assert {"/"} == set(crawled(on_page=yields_two))


@pytest.mark.parametrize("nothing", [None, [], (), iter(())])
def test_a_page_without_items_has_no_field_for_them(crawled, nothing):
    lines = crawled(on_page=lambda page: nothing, max_depth=0)
    assert "items" not in lines["/"]
    assert [] == items_in(crawled.out)


def test_a_generator_that_raises_leaves_no_item(crawled):
    def on_page(page):
        yield {"n": 1}
        raise KeyError("price")

    lines = crawled(on_page=on_page, max_depth=0)
    assert ("hook_on_page", None) == (lines["/"]["error"], lines["/"].get("items"))
    assert [] == items_in(crawled.out)


def test_an_endless_generator_ends_at_the_limit_of_a_page(crawled):
    def on_page(page):
        while True:
            yield {}

    lines = crawled(on_page=on_page, max_depth=0)
    assert "hook_on_page" == lines["/"]["error"]
    assert f"{HOOK_ITEMS_BYTES_MAX:,}" in crawled.log()


def test_the_most_items_that_a_page_may_have_fit_into_its_line(crawled):
    item = {"text": "x" * 989}  # 1,000 bytes as JSON, and a comma
    count = HOOK_ITEMS_BYTES_MAX // 1_001
    lines = crawled(on_page=lambda page: [item] * count, max_depth=0)
    assert ("done", count) == (lines["/"]["outcome"], len(lines["/"]["items"]))
    assert count == len(items_in(crawled.out))


@pytest.mark.parametrize(
    ("item", "first"),
    [
        ({"url": "mine"}, {"page_url": HOME, "url": "mine"}),
        ({"token": 7}, {"page_token": int, "token": 7}),
        ({"url": 1, "page_url": 2}, {"page_page_url": HOME, "url": 1, "page_url": 2}),
        ({"deeper": {"url": 1}}, {"url": HOME, "deeper": {"url": 1}}),
        ({}, {"url": HOME}),
        ({"outcome": "o", "items": [{"a": 1}], "new_links": 7}, {"outcome": "o", "items": [{"a": 1}], "new_links": 7}),
    ],
)
def test_an_item_may_have_fields_of_any_name(crawled, item, first):
    lines = crawled(on_page=lambda page: item, max_depth=0)
    assert ("done", [item]) == (lines["/"]["outcome"], lines["/"]["items"])
    (line,) = items_in(crawled.out)
    assert first == {name: int if value is int else line[name] for name, value in first.items()}
    assert (HOME, lines["/"]["token"], item) == parts_of_item(line)


def test_a_hook_that_raises_ends_its_page_and_not_the_crawl(crawled):
    lines = crawled(on_page=raises)
    assert ("error", "hook_on_page", 200) == tuple(lines["/a"][name] for name in ("outcome", "error", "status"))
    assert ("done", None) == (lines["/b"]["outcome"], lines["/b"].get("error"))
    assert "/deep" not in lines  # the page's links end with it
    assert "in my own code" in crawled.log()
    assert "in raises" in crawled.log()


@pytest.mark.parametrize(
    ("nonsense", "words"),
    [
        (7, "return a mapping"),
        ("text", "return a mapping"),
        ([{}, 7], "item 2 of on_page is 7"),
        ({"x": float("nan"), "y": None}, "'x'"),
        ([{"x": [np.float32("inf")]}], "'x'"),
        ({"x": {"deep": (float("-inf"),)}}, "'x'"),
        ({"x": [[]] * 70 + [functools.reduce(lambda inner, _: [inner], range(70), 0)]}, "levels"),
        ({1: "x"}, "use a text"),
        ({"x": object()}, "which JSON cannot contain"),
        ({"x": "y" * HOOK_ITEMS_BYTES_MAX}, "bytes"),
        ({"x": b"\xff" * 10}, None),
    ],
)
def test_an_invalid_result_of_on_page_is_refused_by_its_name(crawled, nonsense, words):
    lines = crawled(on_page=lambda _page: nonsense, max_depth=0)
    if words is None:
        assert [{"x": "/////////////w=="}] == lines["/"]["items"]
    else:
        assert "hook_on_page" == lines["/"]["error"]
        assert words in crawled.log()


def test_a_hook_that_exits_ends_only_its_page(crawled):
    lines = crawled(on_page=lambda page: sys.exit(3) if page.url.endswith("/a") else None)
    assert ("hook_on_page", "done") == (lines["/a"]["error"], lines["/b"]["outcome"])


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, BaseException])
def test_a_hook_that_raises_an_unusual_exception_ends_only_its_page(crawled, error):
    def raises(page):
        if page.url.endswith("/a"):
            raise error

    lines = crawled(on_page=raises)
    assert ("hook_on_page", "done") == (lines["/a"]["error"], lines["/b"]["outcome"])


def test_a_hook_that_removes_the_lease_of_its_page_ends_only_its_page(crawled):
    """The following hooks would read the URL of the page."""

    def takes(page):
        if page.url.endswith("/a"):
            page.lease = None

    lines = crawled(on_page=takes)
    assert ("hook_on_page", "done") == (lines["/a"]["error"], lines["/b"]["outcome"])


@pytest.mark.parametrize(
    "parts",
    [{"priority": float("nan")}, {"priority": 2}, {"depth": -1}, {"hops": "one"}, {"metadata": {"a": object()}}],
)
def test_a_link_with_invalid_parts_ends_the_page_of_its_hook(crawled, parts):
    def follows(page):
        if page.url.endswith("/a"):
            page.follow = [Link(HOME + "deep", **parts)]

    lines = crawled(on_page=follows)
    assert ("hook_on_page", "done") == (lines["/a"]["error"], lines["/b"]["outcome"])
    assert next(iter(parts)) in crawled.log()


@pytest.mark.parametrize("links", ["/deep", b"/deep", 7])
def test_a_text_in_place_of_a_list_of_links_is_refused(crawled, links):
    def follows(page):
        if page.url.endswith("/a"):
            page.follow = links

    lines = crawled(on_page=follows)
    assert "hook_on_page" == lines["/a"]["error"]
    assert "use a list of URLs" in crawled.log()


def test_on_page_adds_links_and_drops_some(crawled):
    def choose(page):
        page.follow = [link for link in page.follow if not str(link).endswith("/a")]
        page.follow.append("deep")

    lines = crawled(on_page=choose)
    assert {"/", "/b", "/deep", "/closed"} == set(lines)


def test_links_by_the_million_are_cut_to_a_page_s_limit(crawled):
    def flood(page):
        page.follow = (f"/n{number}" for number in range(3_000_000)) if page.depth == 0 else []

    began = time.process_time()
    crawled(on_page=flood, max_pages=3)
    assert LINKS_PER_PAGE_MAX + 1 == crawled.result.statistics["accepted"]
    assert time.process_time() - began < 20


def test_scope_decides_for_each_link_with_its_page(crawled):
    seen = []

    def scope(urls, page):
        seen.append((page.title, urls.columns["depth"].tolist()))
        return [not url.endswith("/a") for url in urls]

    lines = crawled(scope=scope)
    assert {"/", "/b", "/closed"} == set(lines)
    assert ("home", [1, 1, 1]) == seen[0]
    assert {"scope": 1} == lines["/"]["not_followed"]


def test_scope_decides_about_the_target_of_a_redirect(crawled):
    lines = crawled(HOME + "moved", scope=lambda urls, _page: np.zeros(len(urls), bool))
    assert {"/moved": "redirect"} == {path: line["outcome"] for path, line in lines.items()}


@pytest.mark.parametrize(
    ("name", "hook"),
    [
        ("scope", lambda urls, page: [True] * (len(urls) + 1)),
        ("scope", lambda urls, page: None),
        ("priority", lambda urls, page: [2.0] * len(urls)),
        ("priority", lambda urls, page: "high"),
        ("key", lambda urls, page: [7] * len(urls)),
        ("key", lambda urls, page: 3),
        ("revisit", lambda page: "soon"),
        ("revisit", lambda page: -1),
        ("revisit", lambda page: float("nan")),
        ("on_response", lambda response, lease: b"x"),
        ("on_request", lambda request, lease: "x"),
    ],
)
def test_an_invalid_column_or_value_ends_its_page(crawled, name, hook):
    def only_on_pages(*arguments):
        if arguments[-1] is None:
            return [0.5] * len(arguments[0]) if name == "priority" else [None] * len(arguments[0])
        return hook(*arguments)

    lines = crawled(max_depth=1, **{name: hook if name == "revisit" else only_on_pages})
    assert f"hook_{name}" == lines["/"]["error"]


def test_priority_decides_which_url_is_first(crawled):
    crawled(priority=lambda urls, page: [0.9 if url.endswith("/b") else 0.1 for url in urls])
    assert Web.last.urls.index(HOME + "b") < Web.last.urls.index(HOME + "a")


def test_a_ready_made_priority_is_used_by_its_name(crawled):
    lines = crawled(priority="weighted")
    assert lines["/deep"]["priority"] < lines["/a"]["priority"]


def test_a_link_from_a_hook_may_have_its_own_priority_and_metadata(crawled):
    seen = []

    def on_page(page):
        seen.append((page.url, page.lease.metadata))
        page.follow = [Link(HOME + "deep", priority=0.25, metadata={"from": "here"})] if page.depth == 0 else []

    lines = crawled(on_page=on_page, priority=lambda urls, page: [0.75] * len(urls))
    assert (0.75, 0.25) == (lines["/"]["priority"], lines["/deep"]["priority"])
    assert (HOME + "deep", {"from": "here"}) == seen[-1]


def test_key_names_the_queue_of_each_link(crawled):
    crawled(key=lambda urls, page: ["odd" if url.endswith("/a") else None for url in urls])
    with outrider.Frontier.open(crawled.out / "frontier", robots="errands") as frontier:
        assert "odd" == frontier.status(HOME + "a").key


def test_revisit_makes_a_page_due_again(crawled):
    lines = crawled(revisit=lambda page: 3600 if page.url == HOME else None, max_wait=1)
    with outrider.Frontier.open(crawled.out / "frontier", robots="errands") as frontier:
        assert ("waiting", "done") == (frontier.status(HOME).state, frontier.status(HOME + "a").state)
    assert "done" == lines["/"]["outcome"]


def test_on_request_sets_headers_for_pages_alone(crawled):
    def sign(request, lease):
        import dataclasses

        return dataclasses.replace(request, headers=(("X-Key", "1"),))

    crawled(on_request=sign)
    told = {request.url.endswith("robots.txt"): dict(request.headers) for request in Web.last.asked}
    assert {True: {}, False: {"X-Key": "1"}} == told


def test_on_request_cannot_send_a_request_to_another_url(crawled):
    import dataclasses

    elsewhere = {"on_request": lambda request, lease: dataclasses.replace(request, url="http://two.test/")}
    lines = crawled(**elsewhere, sitemaps=False)
    assert "hook_on_request" == lines["/"]["error"]
    assert all(url.endswith("/robots.txt") for url in Web.last.urls)


def test_on_response_returns_the_content_that_is_read(crawled):
    import dataclasses

    lines = crawled(on_response=lambda response, lease: dataclasses.replace(response, content=b"<title>mine</title>"))
    assert "mine" == lines["/"]["title"]


def test_a_reader_reads_a_type_of_its_own(crawled, monkeypatch):
    monkeypatch.setattr(Web, "types", {"/": "application/x-mine; charset=x"})
    seen = []

    def mine(body, url, content_type):
        seen.append((body, url, content_type))
        return {"title": "read by me", "links": ["b", "mailto:x@y"], "text": "words"}

    lines = crawled(readers={"application/x-mine": mine})
    assert ("read by me", 1) == (lines["/"]["title"], lines["/"]["links"])
    assert {"/", "/b"} == set(lines)
    assert [(PAGES["/"], HOME, "application/x-mine; charset=x")] == seen


def test_a_reader_may_return_a_page_or_no_page(crawled, monkeypatch):
    monkeypatch.setattr(Web, "types", {"/": "application/x-mine", "/a": "application/x-none"})
    readers = {"application/x-mine": lambda *_: Page(url=HOME, title="made"), "application/x-none": lambda *_: None}
    lines = crawled(HOME, HOME + "a", readers=readers)
    assert ("made", None) == (lines["/"]["title"], lines["/a"]["title"])


def test_a_reader_with_an_invalid_result_ends_its_page(crawled, monkeypatch):
    monkeypatch.setattr(Web, "types", {"/": "application/x-mine"})
    lines = crawled(readers={"application/x-mine": lambda *_: {"titel": "x"}})
    assert "hook_readers" == lines["/"]["error"]


class PanicError(BaseException):
    """A panic of a kernel reaches Python as such an exception."""


def test_a_panic_in_a_reader_of_ours_ends_only_its_page(crawled, monkeypatch):
    monkeypatch.setattr(Web, "types", {"/a": "application/x-panics"})

    def panics(*_):
        raise PanicError("index out of bounds")

    monkeypatch.setitem(READERS, "application/x-panics", panics)
    lines = crawled()
    assert ("error", "internal") == (lines["/a"]["outcome"], lines["/a"]["error"])
    assert {"done", "robots"} == {line["outcome"] for path, line in lines.items() if path != "/a"}
    assert "PanicError: index out of bounds" in crawled.log()


APART = """
def hangs(body, url, content_type):
    while True:
        pass

def reads(body, url, content_type):
    return {"title": "read apart", "links": ["deep"]}
"""


def test_a_reader_that_hangs_ends_its_page_and_not_the_crawl(tmp_path, crawled, monkeypatch):
    (tmp_path / "my_readers_5473.py").write_text(APART)
    monkeypatch.chdir(tmp_path)
    set_limits(monkeypatch, READER_SECONDS_MAX=3.0)
    monkeypatch.setattr(Web, "types", {"/a": "application/x-hangs", "/b": "application/x-mine"})
    names = {"application/x-hangs": "my_readers_5473:hangs", "application/x-mine": "my_readers_5473:reads"}
    lines = crawled(readers=names)
    assert ("error", "hook_readers_time", 200) == tuple(lines["/a"][name] for name in ("outcome", "error", "status"))
    assert ("read apart", "done") == (lines["/b"]["title"], lines["/deep"]["outcome"])
    assert "it took longer than 3 s" in crawled.log()
    assert not Hooks(CrawlOptions(output=str(tmp_path), readers=names)).look_at_answers  # reading threads


def test_pdf_is_read_with_pypdf_and_by_a_reader_of_the_user(tmp_path, crawled, monkeypatch):
    pytest.importorskip("pypdf")
    monkeypatch.setattr(Web, "types", {"/a": "application/pdf"})
    page = b"%PDF-1.7\n1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj\n2 0 obj << /Kids [3 0 R] /Count 1 >> endobj\n"
    annots = b"/Annots [<< /A << /URI (deep) >> >>]"
    body = page + b"3 0 obj << /Type /Page /MediaBox [0 0 9 9] /Parent 2 0 R " + annots + b" >> endobj\n"
    monkeypatch.setitem(PAGES, "/a", body)
    lines = crawled()
    assert (1, HOME + "a") == (lines["/a"]["links"], lines["/deep"]["referrer"])
    own = CrawlOptions(output=str(tmp_path), readers={"application/pdf": lambda *_: None})
    assert Hooks(own).reads_here


def test_a_downloader_that_raises_ends_its_page_and_its_host_waits(crawled):
    class Faulty(Web):
        async def fetch(self, request):
            if request.url.endswith("/a"):
                raise OSError("my cable")
            return await super().fetch(request)

    lines = crawled(downloader=Faulty)
    assert ("hook_downloader", "done") == (lines["/a"]["error"], lines["/b"]["outcome"])
    asked = [json.loads(line) for line in (crawled.out / "politeness.jsonl").read_text().splitlines()]
    assert [HOME + "a"] == [line["url"] for line in asked if line["error"] == "hook_downloader"]


@pytest.mark.parametrize(
    "parts",
    [
        {"content": "text"},
        {"content": None},
        {"headers": None},
        {"headers": {}},
        {"status": 70_000},
        {"error": "reset"},
        {"status": "200"},
        {"body": "text"},
        {"url": None},
        {"address": 3},
        {"truncated": 5},
        {"truncated": []},
        {"decoding": None},
        {"ended_at": None},
        {"started_at": "now"},
        {"seconds": "0"},
        {"seconds": float("nan")},
        {"verified": "yes"},
        {"url": "nonsense"},
        {"url": "ftp://one.test/a"},
        {"url": "http://one.test/" + "x" * 9_000},
        {"url": ""},
        {"address": ""},
        {"address": "one.test"},
        {"address": "127.0.0.1:80"},
        {"seconds": 1e300},
        {"status": None},
    ],
)
@pytest.mark.parametrize("name", ["on_response", "downloader"])
def test_a_response_with_invalid_parts_ends_its_page_and_not_the_crawl(crawled, name, parts):
    def odd(response):
        return response if response.url.endswith("/robots.txt") else dataclasses.replace(response, **parts)

    class OddWeb(Web):
        async def fetch(self, request):
            return odd(await super().fetch(request))

    hooks = {"on_response": lambda response, lease: odd(response), "downloader": OddWeb}
    lines = crawled(**{name: hooks[name]})
    assert f"hook_{name}" == lines["/"]["error"]
    assert f"{name} returned a Response whose {next(iter(parts))}" in crawled.log()


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), KeyError()])
def test_any_error_of_a_downloader_ends_only_its_page(crawled, error):
    class Faulty(Web):
        async def fetch(self, request):
            if request.url.endswith("/a"):
                raise error
            return await super().fetch(request)

    lines = crawled(downloader=Faulty)
    assert ("hook_downloader", "done") == (lines["/a"]["error"], lines["/b"]["outcome"])


def test_a_downloader_whose_fetch_is_not_a_coroutine_ends_only_its_page(crawled):
    class Plain(Web):
        def fetch(self, request):
            if request.url.endswith("/a"):
                raise OSError("before it was awaited")
            if request.url.endswith("/b"):
                return None
            return asyncio.ensure_future(super().fetch(request))

    lines = crawled(downloader=Plain)
    assert ("hook_downloader", "hook_downloader") == (lines["/a"]["error"], lines["/b"]["error"])
    assert "done" == lines["/"]["outcome"]


@pytest.mark.parametrize("parts", [{"started_at": 1, "ended_at": 2}, {"ended_at": 1 << 52}])
def test_a_downloader_with_a_clock_of_its_own_gets_the_advice_to_use_the_crawls(crawled, parts):
    class Elsewhere(Web):
        async def fetch(self, request):
            response = await super().fetch(request)
            return dataclasses.replace(response, **parts) if request.url.endswith("/a") else response

    assert "hook_downloader" == crawled(downloader=Elsewhere)["/a"]["error"]
    assert "take instants from the clock" in crawled.log()


@pytest.mark.skipif(in_use() != "native", reason="the fetch kernel was not built")
def test_a_downloader_derived_from_the_built_in_one_is_used_by_its_fetch(crawled):
    class Mine(NativeDownloader):
        def __init__(self, options, clock):
            super().__init__(clock=clock)
            self.web = Web(options, clock)

        async def fetch(self, request):
            return await self.web.fetch(request)

    assert "done" == crawled(downloader=Mine)["/a"]["outcome"]


def test_a_downloader_that_cannot_be_closed_is_reported_and_the_crawl_has_its_result(crawled):
    class Stuck(Web):
        async def close(self):
            raise ZeroDivisionError("in my own code")

    assert "/deep" in crawled(downloader=Stuck)
    assert (0, True) == (crawled.result.exit_code, "in my own code" in crawled.log())


def test_a_downloader_that_cannot_be_made_is_refused_with_a_message(crawled):
    with pytest.raises(SettingsError, match="downloader"):
        crawled(downloader=lambda options, clock: 7)


def test_hooks_that_fail_for_the_seeds_end_the_crawl_with_a_message(crawled):
    with pytest.raises(SettingsError, match="priority failed for the seeds"):
        crawled(priority=lambda urls, page: [7.0] * len(urls))


def test_a_resume_requires_a_function_without_a_name_again(crawled, tmp_path):
    crawled(on_page=lambda page: None)
    assert f'on_page = "{LOST}"' in (crawled.out / "outrider.toml").read_text()
    with pytest.raises(SettingsError, match="pass it again"):
        outrider.crawl(output=crawled.out)
    assert 0 == outrider.crawl(output=crawled.out, on_page=None).exit_code


def test_a_hook_is_found_in_the_current_folder(tmp_path, crawled, monkeypatch):
    (tmp_path / "my_hooks_5471.py").write_text("def on_page(page):\n    return {'mine': page.title}\n")
    monkeypatch.chdir(tmp_path)
    lines = crawled(on_page="my_hooks_5471:on_page")
    assert [{"mine": "home"}] == lines["/"]["items"]
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize("name", ["nowhere_5472:f", "json:nothing", "json:__name__"])
def test_a_name_without_a_function_is_refused_before_the_crawl_is_made(crawled, name):
    with pytest.raises(SettingsError, match=name):
        crawled(on_page=name)
    assert not crawled.out.exists()


def test_functions_and_readers_read_back_from_the_file():
    options = CrawlOptions(output="/tmp/x", on_page=titles, scope="m:f", readers={"a/b": "m:g", "c/d": titles})
    kept = resolved({}, {}, from_file(as_toml(options, ()), "outrider.toml", "/tmp/x").options, "/tmp/x")
    name = f"{__name__}:titles"
    assert (name, "m:f", (("a/b", "m:g"), ("c/d", name))) == (kept.on_page, kept.scope, kept.readers)


@pytest.mark.parametrize(
    ("name", "value"),
    [("on_page", "f"), ("on_page", "m:"), ("scope", "hosts"), ("priority", "depth"), ("readers", ("m:f",))],
)
def test_a_value_that_is_not_a_function_is_refused_by_name(name, value):
    with pytest.raises(SettingsError) as caught:
        CrawlOptions(**{name: value})
    assert caught.value.facts.startswith(name.replace("_", "-"))


async def waits(page):
    return {}


def yields(page):
    yield {}


class Waits:
    async def __call__(self, page):
        return {}


@pytest.mark.parametrize("hook", [waits, Waits(), functools.partial(waits), f"{__name__}:waits"])
@pytest.mark.parametrize("name", ["on_page", "scope", "on_request"])
def test_a_coroutine_function_is_refused_before_the_crawl_is_made(crawled, name, hook):
    with pytest.raises(SettingsError, match=f"{name.replace('_', '-')} is a.*plain functions"):
        crawled(**{name: hook})
    assert not crawled.out.exists()


@pytest.mark.parametrize("name", ["scope", "on_request", "revisit"])
def test_a_function_with_yield_is_refused_except_for_on_page(crawled, name):
    with pytest.raises(SettingsError, match=f"{name.replace('_', '-')} is a function with yield"):
        crawled(**{name: yields})


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_hook_that_uses_half_of_the_time_is_the_reason_in_why_idle():
    now = [0.0]
    watch = Watch(lambda: now[0])
    with watch.over("on_page", HOME):
        now[0] = 6.0
    now[0] = 10.0
    told = idle_with_hooks({"reason": "resting", "text": "hosts rest"}, watch.shares())
    assert "hook" == told["reason"]
    assert told["text"].startswith("the hook on_page uses 60% of the time")
    now[0] = 100.0
    assert "resting" == idle_with_hooks({"reason": "resting", "text": ""}, watch.shares())["reason"]


def test_a_hook_that_sleeps_is_named_meanwhile(crawled, monkeypatch):

    set_limits(monkeypatch, HOOK_ANSWER_SECONDS=0.05)
    inside, over = threading.Event(), threading.Event()
    told = {}

    def sleeps(page):
        inside.set()
        over.wait(20)

    def asks():
        inside.wait(20)
        told["idle"] = ask(str(crawled.out), "why-idle")
        try:
            ask(str(crawled.out), "hosts")
        except UnreachableError as error:
            told["hosts"] = error.facts
        over.set()

    beside = threading.Thread(target=asks)
    beside.start()
    crawled(on_page=sleeps, max_depth=0)
    beside.join()
    assert "hook" == told["idle"]["reason"]
    assert "on_page" in told["idle"]["text"]
    assert "on_page" in told["hosts"]


def test_leases_are_kept_during_a_slow_hook(crawled, monkeypatch):
    monkeypatch.setattr("outrider.crawl.run.loop.EXTEND_STEP_SECONDS", 0.01)
    monkeypatch.setattr("outrider.crawl.run.loop.EXTEND_SECONDS", 1_000.0)
    extended, meanwhile = [], []

    def extend(frontier, tokens, ttl_seconds, plain=Frontier.extend):
        extended.append(len(tokens))
        return plain(frontier, tokens, ttl_seconds)

    def on_page(page):
        before = len(extended)
        time.sleep(0.1)
        meanwhile.append(len(extended) - before)

    monkeypatch.setattr(Frontier, "extend", extend)
    lines = crawled(on_page=on_page, max_depth=0)
    assert min(meanwhile) > 0
    assert {"done"} == {line["outcome"] for line in lines.values()}


# -- pages to iterate over ---------------------------------------------------------------------------------------------


def test_pages_are_read_while_the_crawl_runs(tmp_path, crawled):
    async def read():
        pages = outrider.crawl([HOME], output=tmp_path / "out", hosts=str(tmp_path / "hosts"), downloader=Web, delay=0)
        found = [(page.url, page.title, page.line["outcome"]) async for page in pages]
        return found, pages.result

    found, result = asyncio.run(read())
    assert sorted(found)[0] == (HOME, "home", "done")
    assert (4, 0) == (len(found), result.exit_code)
    assert (tmp_path / "out" / "report.html").exists()


def test_a_reader_that_stops_loses_no_page(tmp_path, crawled):
    told = {"output": tmp_path / "out", "hosts": str(tmp_path / "hosts"), "downloader": Web, "delay": 0}

    async def one():
        async with outrider.crawl([HOME], **told) as pages:
            async for page in pages:
                return page.url, pages
        return None

    async def others():
        return [page.url async for page in outrider.crawl(**told)]

    first, pages = asyncio.run(one())
    assert (HOME, 4) == (first, pages.result.exit_code)
    assert first not in asyncio.run(others())
    kept = [json.loads(line) for line in (tmp_path / "out" / "pages.jsonl").read_text().splitlines()]
    done = sorted(line["url"] for line in kept if line["outcome"] == "done")
    assert [HOME, HOME + "a", HOME + "b", HOME + "deep"] == done


def test_a_slow_reader_slows_the_crawl(tmp_path, crawled, monkeypatch):

    set_limits(monkeypatch, PAGES_READ_AHEAD_MAX=1)

    async def read():
        waiting = []
        pages = outrider.crawl([HOME], output=tmp_path / "out", hosts=str(tmp_path / "hosts"), downloader=Web, delay=0)
        async for _page in pages:
            await asyncio.sleep(0.05)
            waiting.append(len(pages._waiting))
        return waiting

    assert max(asyncio.run(read())) < 3  # one waits, one was in flight


def test_an_error_of_the_settings_reaches_the_reader(tmp_path):
    async def read():
        async for _page in outrider.crawl(["https://example.org/"], output=tmp_path / "out"):
            pass

    with pytest.raises(SettingsError, match="contact"):
        asyncio.run(read())


def test_every_hook_of_the_table_is_an_option():
    named = {line.split()[0].split("(")[0] for line in hooks.__doc__.splitlines() if line.startswith("    ")}
    assert named == {name for name in vars(Hooks(CrawlOptions())) if name not in ("watch", "looks_at_pages")}


def test_the_focused_example_follows_its_topic(tmp_path, crawled, project):
    import runpy

    (tmp_path / "hosts").write_text("127.0.0.1 one.test\n")
    example = runpy.run_path(str(project / "examples" / "focused.py"))
    told = {"hosts": str(tmp_path / "hosts"), "downloader": Web, "delay": 0, "delay_factor": 0}
    example["crawl"](str(tmp_path / "out"), None, "page", [HOME], **told)
    lines = [json.loads(line) for line in (tmp_path / "out" / "pages.jsonl").read_text().splitlines()]
    scores = {line["url"]: line["items"][0]["score"] for line in lines if line["outcome"] == "done"}
    assert (1.0, 0.0) == (scores[HOME + "a"], scores[HOME])
    assert "robots" in {line["outcome"] for line in lines}
    assert len((project / "examples" / "focused.py").read_text().splitlines()) <= 40


def test_nofollow_links_are_counted(crawled, monkeypatch):
    monkeypatch.setitem(PAGES, "/", b"<a href=/a rel=nofollow>a</a><a href=/b>b</a><a href=http://other.test/>c</a>")
    lines = crawled()
    assert {"/", "/b"} == set(lines)
    assert {"nofollow": 1} == lines["/"]["not_followed"]
    run = json.loads((crawled.out / "run.json").read_text())
    assert ({"nofollow": 1, "scope": 1}, True) == (run["not_followed"], run["seconds"] > 0)


def test_the_result_of_a_crawl_says_how_it_ended(crawled):
    crawled()
    assert ("finished", 0) == (crawled.result.statistics["state"], crawled.result.exit_code)


# -- what people are told of a hook that fails -------------------------------------------------------------------------


def test_the_first_traceback_is_printed_at_once_and_one_line_of_each_later_kind(crawled, capsys):
    def on_page(page):
        if page.url.endswith("/b"):
            raise KeyError("another kind")
        if page.url.endswith("/a"):
            raise ZeroDivisionError(f"in my own code for {page.url}")

    crawled(on_page=on_page, seed=1)
    told = capsys.readouterr().err
    assert 1 == told.count("Traceback")
    assert all(words in told for words in ("in on_page", "in my own code for http://one.test/a", "'another kind'"))


def test_a_kind_of_failure_is_printed_once(crawled, capsys):
    crawled("http://one.test/a", "http://one.test/b", HOME, on_page=lambda page: 1 // 0)
    assert 1 == capsys.readouterr().err.count("ZeroDivisionError")


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ({"on_page": lambda page: 7}, "return a mapping"),
        ({"scope": lambda urls, page: [True]}, "true or false for each"),
        ({"priority": lambda urls, page: [7.0] * len(urls) if page else [0.5] * len(urls)}, "7.0"),
        ({"key": lambda urls, page: [None] * len(urls) if page is None else "k"}, "a text or None for each"),
        ({"revisit": lambda page: -1}, "seconds from 0"),
        ({"on_response": lambda response, lease: b"bytes"}, "use a Response"),
        ({"on_request": lambda request, lease: "GET /"}, "use a Request"),
        ({"readers": {"text/html": lambda body, url, content_type: 7}}, "use a Page"),
    ],
)
def test_a_refused_result_is_reported_at_the_first_page_with_the_reason(crawled, capsys, hook, words):
    crawled(**hook)
    told = capsys.readouterr().err
    assert (0, 1, True) == (told.count("Traceback"), told.count(words), f"for {HOME}: " in told)


def test_a_link_that_the_frontier_cannot_store_is_reported_with_the_reason(crawled, capsys):
    crawled(on_page=lambda page: page.follow.append(Link("/x", metadata={"x": "y" * 100_000})))
    told = capsys.readouterr().err
    assert (1, True) == (told.count(f"1 link of {HOME}"), "16,384 bytes of metadata" in told)


def test_a_crawl_whose_hook_fails_on_most_pages_ends_with_a_code_of_its_own(crawled):
    crawled("http://one.test/a", "http://one.test/b", on_page=lambda page: 1 // 0)
    (failure,) = crawled.result.hook_failures
    assert (10, 2, 2, "on_page", "hook_on_page") == (
        crawled.result.exit_code,
        *(failure.pages, failure.of_pages, failure.hook, failure.error),
    )
    help_ = f"outrider retry {crawled.out} --error hook_on_page"
    assert all(
        words in crawled.result.ending for words in ("2 of 2 pages", "ZeroDivisionError: integer division", help_)
    )


def test_a_hook_that_fails_on_few_pages_does_not_change_the_exit_code(crawled):
    crawled(on_page=raises)
    (failure,) = crawled.result.hook_failures
    assert (0, "finished", 1, "ZeroDivisionError: in my own code", "http://one.test/a") == (
        *(crawled.result.exit_code, crawled.result.ending),
        *(failure.pages, failure.exception, failure.url),
    )


def test_a_limit_of_pages_does_not_hide_that_a_hook_failed_on_most(crawled):
    crawled("http://one.test/a", "http://one.test/b", on_page=lambda page: 1 // 0, max_pages=1)
    assert (10, 1) == (crawled.result.exit_code, crawled.result.hook_failures[0].pages)


def test_answers_without_content_do_not_hide_that_a_hook_failed(crawled):
    missing = [f"http://one.test/missing/{number}" for number in range(4)]
    crawled(HOME, *missing, on_page=lambda page: 1 // 0)
    assert 10 == crawled.result.exit_code


def test_without_a_failure_no_message_mentions_hooks(crawled, capsys):
    crawled(on_page=titles)
    assert (0, (), "") == (crawled.result.exit_code, crawled.result.hook_failures, capsys.readouterr().err)


def test_a_downloader_that_failed_for_every_robots_txt_counts_as_failed_on_most():
    failures = HookFailures()
    failures.failed(HookFailed("downloader", ValueError("no")), "http://one.test/robots.txt", page=False)
    assert (True, 1) == (failures.on_most_pages, failures.found()[0].pages)
    for _ in range(2):
        failures.page_was_read()
    assert not failures.on_most_pages


def test_a_bug_in_a_reader_of_ours_is_reported_but_not_as_a_failure_of_a_hook():
    told: list[str] = []
    failures = HookFailures(told.append)
    failures.failed(HookFailed("reading", ValueError("x"), word="internal"), HOME, page=True)
    assert (False, (), True) == (failures.on_most_pages, failures.found(), "bug" in told[0])


class Odd(BaseException):
    """Not an Exception, so `except Exception` does not catch it."""


@pytest.mark.parametrize("error", [Odd, KeyboardInterrupt, GeneratorExit, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("name", ["downloader", "on_request", "on_page"])
def test_an_exception_that_is_not_a_subclass_of_exception_ends_its_page_and_leaves_no_request_open(
    crawled, name, error
):
    class Faulty(Web):
        async def fetch(self, request):
            if request.url.endswith("/a"):
                raise error("odd")
            return await super().fetch(request)

    def hook(given, *_):
        if given.url.endswith("/a"):
            raise error("odd")

    lines = crawled(**({"downloader": Faulty} if name == "downloader" else {name: hook}))
    assert (f"hook_{name}", "done") == (lines["/a"]["error"], lines["/b"]["outcome"])
    assert (0, 0) == (crawled.result.exit_code, crawled.result.statistics["urls"]["leased"])
    asked = [json.loads(line) for line in (crawled.out / "politeness.jsonl").read_text().splitlines()]
    assert len(asked) == len(Web.last.asked) + (name == "downloader")


def test_a_url_of_a_response_is_spelled_like_every_url(crawled):
    class Elsewhere(Web):
        async def fetch(self, request):
            response = await super().fetch(request)
            return dataclasses.replace(response, url=response.url.replace("http://one.test", "HTTP://One.test:80"))

    assert {"/", "/a", "/b", "/closed", "/deep"} == crawled(downloader=Elsewhere).keys()
