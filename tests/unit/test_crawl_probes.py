"""Probes in a crawl: a random path or a random host is requested once, and pages like its answer are soft 404s."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider import Frontier
from outrider.clock import instant
from outrider.crawl.run.probes import PROBES_FILE, SOFT_404, Likeness, ProbeAnswer, Probes, _random_url, says_nothing
from outrider.crawl.run.visit import Judgement
from outrider.crawl.setup.options import CrawlOptions
from outrider.fetch.downloader import Request, Response
from outrider.journey import Code, Verdict
from outrider.limits import PROBE_AGE_SECONDS, PROBE_NAME_LETTERS, PROBED_MAX
from outrider.page import read
from outrider.storage.memory import MemoryFiles
from outrider.url import UrlBatch
from unit.test_crawl_sitemaps import House

A: Final = "http://a.test"
PAGES: Final = 24
BY_CHANCE: Final = re.compile(rf"/[a-z]{{{PROBE_NAME_LETTERS}}}(?:/|\.html)?$")
LONG: Final = " ".join(f"word{number % 71} and{number % 13}" for number in range(200))


def page_of(url: str, body: str) -> tuple[Any, UrlBatch]:
    page = read(body.encode(), url, "text/html")
    return page, page.link_batch()


def answer_of(url: str, body: str) -> ProbeAnswer:
    return ProbeAnswer.of(url, *page_of(url, body))


def like(answer: ProbeAnswer, url: str, body: str) -> bool:
    page, links = page_of(url, body)
    return answer.is_like(url, page) and answer.has_all(url, links)


# -- pages like an answer ----------------------------------------------------------------------------------------------

SHORT: Final = "<title>Not found</title><h1>Oops</h1><p>{0} was not found.</p><a href='{0}/deeper'>on</a>"


def test_a_short_page_with_any_name_is_like_a_not_found_answer() -> None:
    answer = answer_of(f"{A}/real/qzkvxw", SHORT.format("/real/qzkvxw"))
    assert like(answer, f"{A}/real/17", SHORT.format("/real/17"))
    assert like(answer, f"{A}/real/17/deeper", SHORT.format("/real/17/deeper"))


@pytest.mark.parametrize(
    "body",
    [
        SHORT.replace("Not found", "Found").format("/real/17"),
        SHORT.format("/real/17") + "<a href='/real/18'>next</a>",
        SHORT.format("/real/17") + "<p>But here is more.</p>",
        "",
    ],
    ids=["another title", "another link", "more text", "nothing"],
)
def test_a_page_with_its_own_content_is_not_like_an_answer(body: str) -> None:
    assert not like(answer_of(f"{A}/real/qzkvxw", SHORT.format("/real/qzkvxw")), f"{A}/real/17", body)


def test_short_pages_with_different_names_are_different_unless_the_answer_is_a_not_found_page() -> None:
    """A site may make a page for any name, and each of them is a page."""
    assert not like(answer_of(f"{A}/p/qzkvxw", "<p>The page /p/qzkvxw</p>"), f"{A}/p/17", "<p>The page /p/17</p>")
    assert like(answer_of(f"{A}/p/qzkvxw", "<p>One page for all</p>"), f"{A}/p/17", "<p>One page for all</p>")


def test_a_long_page_is_like_an_answer_by_simhash_but_not_with_other_links() -> None:
    answer = answer_of(f"{A}/a/qzkvxw", f"<title>x</title><p>{LONG} /a/qzkvxw</p><a href=/home>home</a>")
    body = f"<title>x</title><p>{LONG} /a/17</p><a href=/home>home</a>"
    assert like(answer, f"{A}/a/17", body)
    assert not like(answer, f"{A}/a/17", body + "<a href=/a/18>next</a>")
    assert not like(answer, f"{A}/a/17", f"<title>x</title><p>{LONG[::-1]}</p>")


@given(st.text(max_size=200), st.text(max_size=30))
def test_any_page_can_be_compared(text: str, name: str) -> None:
    url = UrlBatch.of([f"{A}/{name}"])
    if url.valid[0]:
        body = f"<title>{text}</title>{text}<a href='{name}'>x</a>"
        assert like(answer_of(url[0], body), url[0], body) or not page_of(url[0], body)[0].octets


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/", "/N"),
        ("/a", "/N"),
        ("/a/b.html?x=1/2", "/a/N.html"),
        ("/a/b/", "/a/N/"),
        ("/a/", "/N/"),
        ("/a/b.17;x", "/a/N"),
        ("/a.b/c.verylong", "/a.b/N"),
    ],
)
def test_a_random_path_is_next_to_a_page(url: str, expected: str) -> None:
    assert A + expected == _random_url(A + url, "N")


# -- when a probe is asked, on a clock of the test's -------------------------------------------------------------------


class Books:
    """Stores the queued errands."""

    def __init__(self) -> None:
        self.queued: list[str] = []

    def queue_errands(self, kind: str, urls: Sequence[str]) -> list[Code]:
        assert "probe" == kind
        self.queued += urls
        return [Code.NEW for _ in urls]


def probes(files: MemoryFiles | None = None, **how: Any) -> tuple[Probes, Books]:
    books = Books()
    return Probes(books, CrawlOptions(**how), files), books  # type: ignore[arg-type]


def is_nothing(one: Probes, url: str, body: str, depth: int = 1) -> bool | None:
    """Whether a page is a soft 404. None if it is like no answer."""
    like = one.judged(url, depth, *page_of(url, body))
    return like.nothing if like is not None else None


def counted(
    one: Probes, urls: Sequence[str], now: float = 1.0, body: str = "<p>Hello</p>", *, copy: bool = True
) -> None:
    for url in urls:
        one.count(url, page_of(url, body)[0], instant(now), copy=copy)
    one.write()


def answered(one: Probes, url: str, body: str, status: int = 200, at: float = 2.0) -> Judgement:
    lease = SimpleNamespace(url=url, referrer=None, hops=0)
    judgement = Judgement("done", Verdict.DONE) if status == 200 else Judgement("gone", Verdict.GONE)
    made = one.of_probe(SimpleNamespace(lease=lease, now=instant(at), status=status), judgement, *page_of(url, body))  # type: ignore[arg-type]
    one.write()
    return made


SITE: Final = [f"{A}/d/{number}.html" for number in range(40)]
MANY: Final = [f"http://h{number}.wild.test:81/" for number in range(40)]


def test_a_site_is_probed_once_after_enough_similar_pages_and_again_after_a_month() -> None:
    one, books = probes(probe_pages=10)
    counted(one, SITE[:9])
    assert [] == books.queued
    counted(one, SITE)
    (first,) = books.queued
    assert (f"{A}/d", True) == (first.rpartition("/")[0], BY_CHANCE.search(first) is not None)
    counted(one, SITE, PROBE_AGE_SECONDS)
    assert [first] == books.queued
    counted(one, SITE, PROBE_AGE_SECONDS + 1.0)
    assert (2, 2) == (len(books.queued), len(set(books.queued)))


def test_short_not_found_pages_are_like_other_pages_and_pages_with_their_own_content_are_not() -> None:
    one, books = probes(probe_pages=10)
    counted(one, SITE, copy=False)
    assert [] == books.queued
    counted(one, SITE[:10], body="<title>404</title>No such page", copy=False)
    assert [] == books.queued
    counted(one, SITE[10:11], body="<title>404</title>No such page", copy=False)
    assert 1 == len(books.queued)


def test_a_failed_probe_is_not_retried() -> None:
    one, _ = probes()
    failed = Judgement("retry", Verdict.RETRY, "http_503", refused=True)
    lease = SimpleNamespace(url=f"{A}/d/qzkvxw", referrer=None, hops=0)
    visit = SimpleNamespace(lease=lease, now=1, status=503)
    made = one.of_probe(visit, failed, None, UrlBatch.of(()))  # type: ignore[arg-type]
    assert (Verdict.GONE, "http_503", True) == (made.verdict, made.error, made.refused)


def test_a_domain_is_probed_once_after_many_of_its_hosts_appear_within_a_day() -> None:
    one, books = probes(probe_hosts=10, scope="any")
    counted(one, MANY[:9])
    counted(one, MANY[9:11], 100_000.0)
    assert [] == books.queued
    counted(one, MANY, 100_001.0)
    (url,) = books.queued
    assert re.fullmatch(r"http://[a-z]+\.wild\.test:81/", url)
    counted(one, MANY, 100_002.0)
    assert [url] == books.queued


@pytest.mark.parametrize("how", [{"probe_pages": 0, "probe_hosts": 0}, {"traps": False}])
def test_no_probe_is_sent_where_probes_are_off(how: dict[str, Any]) -> None:
    one, books = probes(scope="any", **how)
    counted(one, SITE + MANY)
    answered(one, f"{A}/d/qzkvxw.html", SHORT.format("x"))
    assert [] == books.queued
    assert is_nothing(one, f"{A}/d/1.html", SHORT.format("x")) is None


def test_no_random_host_outside_the_scope_is_requested() -> None:
    one, books = probes(probe_hosts=10, scope="host")
    counted(one, MANY)
    assert [] == books.queued


def test_the_same_seed_draws_the_same_names_and_another_seed_draws_different_ones() -> None:
    drawn = []
    for seed in (1, 1, 2):
        one, books = probes(probe_pages=10, probe_hosts=10, scope="any", seed=seed)
        counted(one, SITE + MANY)
        drawn.append(books.queued)
    assert (2, True, False) == (len(drawn[0]), drawn[0] == drawn[1], drawn[0] == drawn[2])


def test_probes_and_answers_are_known_to_the_next_run_and_a_torn_end_is_overwritten() -> None:
    files = MemoryFiles()
    one, books = probes(files, probe_pages=10)
    counted(one, SITE)
    (url,) = books.queued
    answered(one, url, SHORT.format("x"))
    counted(one, SITE[:1])
    answered(one, books.queued[1], SHORT.format("x"))
    end = files.open(PROBES_FILE)
    whole = end.size()
    end.write_at(whole, b'{"of":"http://b.test","url":"http')
    one, books = probes(files, probe_pages=10)
    counted(one, SITE, 3.0)
    assert [] == books.queued
    page = f"{A}/d/1.html", SHORT.format("x")
    assert is_nothing(one, *page)
    counted(one, [f"http://b.test/{number}" for number in range(10)], 3.0)
    lines = end.read_at(0, end.size()).splitlines()
    assert [A, A, A, A, "http://b.test"] == [json.loads(line)["of"] for line in lines]
    answered(one, url, "", 404)
    assert is_nothing(one, *page) is None


def proven(one: Probes, body: str = SHORT, at: float = 2.0) -> None:
    """Answers two probes of a.test with this body, after a page of the site."""
    counted(one, SITE[:1], copy=False)
    for name in ("qzkvxw", "other/wxvkzq"):
        answered(one, f"{A}/d/{name}", body.format(f"/d/{name}"), at=at)


def test_a_page_is_a_soft_404_if_it_says_so_like_two_answers_of_its_site() -> None:
    one, _ = probes()
    counted(one, SITE[:1], copy=False)
    page = f"{A}/d/1", SHORT.format("/d/1")
    assert is_nothing(one, *page) is None
    answered(one, f"{A}/d/qzkvxw", SHORT.format("/d/qzkvxw"))
    assert is_nothing(one, *page) is False
    answered(one, f"{A}/d/qzkvxw", SHORT.format("/d/qzkvxw"))  # the same probe, repeated after a kill
    assert is_nothing(one, *page) is False
    answered(one, f"{A}/other/wxvkzq", SHORT.format("/other/wxvkzq"))
    assert is_nothing(one, *page) is True


@pytest.mark.parametrize("first", ["<p>Hello</p>", SHORT.format("/d/0.html"), None])
@pytest.mark.parametrize("asked_again", [False, True])
def test_a_later_run_reads_the_first_page_of_a_site_from_the_notes_or_accepts_no_answer_as_proof(
    first: str | None, asked_again: bool
) -> None:
    """None: as in notes of older releases, which lack it. asked_again: the kill was after the first answer."""
    files, page = MemoryFiles(), (f"{A}/e/1", SHORT.format("/e/1"))
    one, books = probes(files, probe_pages=3)
    counted(one, SITE[:1], body=first or "<p>Hello</p>")
    counted(one, SITE[1:3])
    if asked_again:
        answered(one, books.queued[0], SHORT.format("/d/x"))
        counted(one, SITE[3:4])
    if first is None:
        file = files.open(PROBES_FILE)
        notes = [json.loads(line) for line in file.read_at(0, file.size()).splitlines()]
        told = [note if "status" in note else {name: note[name] for name in ("of", "url", "at")} for note in notes]
        kept = b"".join(json.dumps(note).encode() + b"\n" for note in told)
        file.truncate(0)
        file.write_at(0, kept)
    one, later = probes(files, probe_pages=3)
    for url in {*books.queued, f"{A}/other/wxvkzq"}:
        answered(one, url, SHORT.format(url.removeprefix(A)))
    assert (first == "<p>Hello</p>") == is_nothing(one, *page)
    assert [] == later.queued


@pytest.mark.parametrize(
    "body",
    [
        "<title>Home</title>One text for all pages",
        f"<title>Pictures</title><p>{LONG} a page that was not found by anybody",
    ],
    ids=["short", "long"],
)
def test_a_site_with_one_text_for_every_path_loses_no_page(body: str) -> None:
    one, _ = probes()
    proven(one, body)
    assert is_nothing(one, f"{A}/d/1", body) is False


def test_a_long_page_says_not_found_in_its_title() -> None:
    one, _ = probes()
    body = f"<title>Page not found - Site</title><p>{LONG}"
    proven(one, body)
    assert is_nothing(one, f"{A}/d/1", body) is True
    assert is_nothing(one, f"{A}/d/1", f"<title>A page</title><p>{LONG}") is None


def test_answers_that_differ_prove_no_soft_404() -> None:
    one, _ = probes()
    answered(one, f"{A}/d/qzkvxw", SHORT.format("/d/qzkvxw"))
    answered(one, f"{A}/e/wxvkzq", SHORT.format("/e/wxvkzq") + "<p>Look elsewhere.")
    assert is_nothing(one, f"{A}/d/1", SHORT.format("/d/1")) is False
    answered(one, f"{A}/f/vzkqwx", "", 404)
    assert is_nothing(one, f"{A}/d/1", SHORT.format("/d/1")) is None


def test_answers_of_different_months_prove_no_soft_404_together() -> None:
    one, _ = probes()
    answered(one, f"{A}/d/qzkvxw", SHORT.format("/d/qzkvxw"))
    answered(one, f"{A}/e/wxvkzq", SHORT.format("/e/wxvkzq"), at=3.0 + PROBE_AGE_SECONDS)
    assert is_nothing(one, f"{A}/d/1", SHORT.format("/d/1")) is False


def test_a_site_is_probed_a_second_time_only_if_the_first_answer_is_a_not_found_page() -> None:
    for body, asked in ((SHORT.format("x"), 2), ("<title>Home</title>One text", 1)):
        one, books = probes(probe_pages=10)
        counted(one, SITE[:10])
        answered(one, books.queued[0], body)
        counted(one, ["http://a.test/far/1"], copy=False)
        assert 1 == len(books.queued)
        counted(one, [f"{A}/e/{number}" for number in range(9)])
        assert asked == len(books.queued) == len(set(books.queued))
        answered(one, books.queued[-1], body)
        counted(one, SITE)
        assert asked == len(books.queued)
    one, books = probes(probe_pages=10)
    counted(one, SITE[:10])
    answered(one, books.queued[0], SHORT.format("x"))
    counted(one, [f"{A}/e/1"])
    assert (f"{A}/e", 2) == (books.queued[1].rpartition("/")[0], len(books.queued))


def test_a_page_like_an_answer_but_with_other_links_counts_as_without_new_content() -> None:
    one, _ = probes()
    proven(one)
    page = page_of(f"{A}/d/1", SHORT.format("/d/1") + "<a href=/elsewhere></a>")
    like = one.judged(f"{A}/d/1", 1, *page)
    assert Likeness(f"{A}/d/other/wxvkzq", nothing=False, leads_on=True) == like


def test_first_pages_of_sites_use_memory_up_to_the_limit() -> None:
    """47 MB for all of them."""
    one, _ = probes()
    page = page_of(f"{A}/d/1", f"<title>Any</title><p>{LONG}")[0]
    tracemalloc.start()
    try:
        for number in range(2_000):
            one.count(f"https://www.some-site-{number}.test/section/page-{number}.html", page, 1, copy=False)
        told = tracemalloc.get_traced_memory()[0] / 2_000
    finally:
        tracemalloc.stop()
    assert told * PROBED_MAX < 50_000_000


def test_seeds_and_the_front_page_are_compared_with_no_answer() -> None:
    one, _ = probes()
    proven(one)
    found = [
        is_nothing(one, url, SHORT.format("x"), depth) for url, depth in ((f"{A}/x", 1), (f"{A}/x", 0), (f"{A}/", 1))
    ]
    assert [True, None, None] == found


def test_pages_of_any_host_are_compared_with_a_random_host_except_the_domain_and_www() -> None:
    one, _ = probes(scope="domain")
    for name in ("qzkvxw", "wxvkzq"):
        answered(one, f"http://{name}.wild.test/", "<title>404</title><p>Not found")
    found = [
        is_nothing(one, f"http://{host}/", "<title>404</title><p>Not found")
        for host in ("h1.wild.test", "wild.test", "www.wild.test", "h1.tame.test")
    ]
    assert [False, None, None, None] == found


@pytest.mark.parametrize(
    "text",
    [
        "Error 404",
        "The page could not be found.",
        "This item doesn't exist.",
        "We couldn’t find that page.",
        "Die Seite wurde nicht gefunden.",
        "Diese Seite existiert nicht.",
        "Page introuvable",
        "La page n'existe pas.",
        "Página no encontrada",
        "No se ha encontrado la página.",
        "Página não encontrada",
        "A página não foi encontrada.",
        "Pagina non trovata",
        "La pagina non è stata trovata.",
        "Pagina niet gevonden",
        "Nie znaleziono strony",
        "Sidan hittades inte",
        "Stránka nenalezena",
        "Sayfa bulunamadı",
        "Страница не найдена",
        "ページが見つかりません",
        "페이지를 찾을 수 없습니다",
        "找不到网页",
        "頁面不存在",
    ],
)
def test_not_found_pages_are_recognised_in_many_languages(text: str) -> None:
    for body in (f"<p>{text}", f"<title>{text}</title><p>{LONG}"):
        assert says_nothing(f"{A}/d/1", page_of(f"{A}/d/1", f"<meta charset=utf-8>{body}")[0])


def test_the_name_of_a_page_does_not_count_as_a_not_found_text() -> None:
    for url, title in ((f"{A}/room/404", "Room 404"), (f"{A}/not-found", "not-found"), (f"{A}/d/1", "Found")):
        assert not says_nothing(url, page_of(url, f"<title>{title}</title><p>{title}")[0])


@pytest.mark.parametrize(
    ("target", "leads"),
    [
        (f"{A}/d/qzkvxw/", True),
        ("https://a.test/d/qzkvxw", True),
        (f"{A}/", False),
        (f"{A}/404.html", False),
        ("http://b.test/d/qzkvxw", False),
    ],
)
def test_a_redirect_of_a_probe_is_followed_only_to_the_same_name(target: str, leads: bool) -> None:
    one, _ = probes()
    lease = SimpleNamespace(url=f"{A}/d/qzkvxw", referrer=None, hops=0)
    moved = replace(Judgement("redirect", Verdict.DONE), location=target)
    visit = SimpleNamespace(lease=lease, now=1, status=301)
    made = one.of_probe(visit, moved, None, UrlBatch.of(()))  # type: ignore[arg-type]
    assert (target if leads else None) == made.location


# -- a crawl -----------------------------------------------------------------------------------------------------------


def body_of(path: str) -> str:
    """Honest pages 0 to PAGES - 1. Each leads to two other pages and to a missing one. Any other name gets a not-found
    page with status 200 and further links."""
    found = re.fullmatch(r"/(?:p/([0-9]+))?", path)
    number = int(found[1] or 0) if found else PAGES
    if number >= PAGES:
        return SHORT.format(path)
    onward = [f"/p/{more}" for more in (2 * number + 1, 2 * number + 2) if more < PAGES]
    links = "".join(f"<a href={link}>x</a>" for link in [*onward, f"/p/{1_000 + number}"])
    return f"<title>Page {number}</title><p>All about {number}</p>{links}"


@pytest.fixture
def house(tmp_path) -> House:
    one = House(tmp_path)

    async def fetch(request: Request) -> Response:
        path = request.url.removeprefix(A)
        if request.url not in one.web.pages and path != "/robots.txt":
            one.web.pages[request.url] = body_of(path)
        return await type(one.web).fetch(one.web, request)

    one.web.pages.clear()
    one.web.fetch = fetch  # type: ignore[method-assign]
    return one


def asked_by_chance(house: House) -> list[str]:
    return [url for url in house.web.urls if BY_CHANCE.search(url)]


def test_a_crawl_names_soft_404s_follows_no_links_of_them_and_fetches_every_honest_page(house) -> None:
    house.crawl(sitemaps=False, probe_pages=3)
    assert 2 == len(asked_by_chance(house))
    lines = house.lines("pages.jsonl")
    done = {line["url"] for line in lines if line["outcome"] == "done"}
    assert {f"{A}/", *(f"{A}/p/{number}" for number in range(1, PAGES))} <= done
    soft = [line for line in lines if line.get("error") == SOFT_404]
    assert {("gone", 200, 0)} == {(line["outcome"], line["status"], line["links"]) for line in soft}
    assert {1} == {line["not_followed"][SOFT_404] for line in soft}
    assert set(asked_by_chance(house)) >= {line["probe"] for line in soft}
    assert len(soft) >= PAGES - 10
    deeper = {line["url"] for line in lines if "/deeper" in line["url"]}
    assert not {f"{line['url']}/deeper" for line in soft} & deeper
    assert ["probe"] * 2 == [line["kind"] for line in house.lines("politeness.jsonl") if BY_CHANCE.search(line["url"])]
    with Frontier.look(house.output / "frontier") as frontier:
        told = frontier.explain(soft[0]["url"])
        assert ("gone", True) == (str(told.state), SOFT_404 in told.reason_text)
        assert frontier.verify().ok
        assert len(soft) == frontier.statistics()["errors"][SOFT_404]  # type: ignore[index]


def test_a_probe_is_not_repeated_by_the_next_run_and_retry_queues_soft_404s_again(house) -> None:
    house.crawl(sitemaps=False, probe_pages=3)
    before = asked_by_chance(house)
    soft = [line["url"] for line in house.lines("pages.jsonl") if line.get("error") == SOFT_404]
    with Frontier.open(
        house.output / "frontier", settings={"delay": 0, "delay_factor": 0}, robots="caller"
    ) as frontier:
        assert len(soft) == frontier.retry(error=SOFT_404)
    house.crawl(sitemaps=False, probe_pages=0)
    last = {line["url"]: line["outcome"] for line in house.lines("pages.jsonl")}
    assert {"done", "duplicate"} >= {last[url] for url in soft}
    assert before == asked_by_chance(house)


def test_robots_txt_applies_to_probes(house) -> None:
    closed = "".join(f"Disallow: /p/*{letter}\n" for letter in "abcdefghijklmnopqrstuvwxyz")
    house.web.pages[f"{A}/robots.txt"] = f"User-agent: *\n{closed}"
    house.crawl(sitemaps=False, probe_pages=3)
    assert ([], 1) == (asked_by_chance(house), len(house.lines(PROBES_FILE)))
    assert SOFT_404 not in {line.get("error") for line in house.lines("pages.jsonl")}


def test_a_site_that_answers_404_has_no_soft_404s(house) -> None:
    fetch = type(house.web).fetch
    same = {f"{A}/same/{number}": "<p>The same page was not found to be another.</p>" for number in range(9)}
    house.web.pages |= {f"{A}/": "".join(f"<a href={url}>x</a>" for url in same), **same}
    house.web.fetch = lambda request: fetch(house.web, request)
    house.crawl(sitemaps=False, probe_pages=3)
    assert 1 == len(asked_by_chance(house))
    told = {line["url"]: (line["outcome"], line.get("error")) for line in house.lines("pages.jsonl")}
    assert {f"{A}/", *same} == set(told)
    assert {("done", None), ("duplicate", None)} == set(told.values())


@pytest.mark.parametrize("text", ["Hello", "Page not found"])
def test_a_site_with_one_body_for_all_paths_is_fetched_whole_and_its_links_last(house, text: str) -> None:
    """The text does not matter: the front page is like the answers, too, and all pages that it names are fetched."""
    body = f"<title>{text}</title><p>{text}</p>" + "".join(f"<a href=/{number}>x</a>" for number in range(30))

    async def fetch(request: Request) -> Response:
        house.web.pages[request.url] = (404, "") if request.url.endswith("/robots.txt") else body
        return await type(house.web).fetch(house.web, request)

    house.web.fetch = fetch
    house.crawl(sitemaps=False, probe_pages=3)
    told = {line["url"]: line["outcome"] for line in house.lines("pages.jsonl")}
    assert {f"{A}/", *(f"{A}/{number}" for number in range(30))} == set(told)
    assert "done" == told.pop(f"{A}/")
    assert {"duplicate"} == set(told.values())
    assert 1 == len(asked_by_chance(house))


def test_a_page_of_a_template_is_kept_and_names_the_probe_that_it_is_like(house) -> None:
    """These pages have one text, although their pictures differ."""

    async def fetch(request: Request) -> Response:
        path = request.url.removeprefix(A)
        links = "".join(f"<a href=/photo/{number}>x</a>" for number in range(20)) if path == "/" else "<a href=/>x</a>"
        page = f"<title>Pictures</title><p>{LONG}</p><img src={path}.png>{links}"
        house.web.pages[request.url] = (404, "") if path == "/robots.txt" else page
        return await type(house.web).fetch(house.web, request)

    house.web.fetch = fetch
    house.crawl(sitemaps=False, probe_pages=3)
    lines = {line["url"]: line for line in house.lines("pages.jsonl")}
    (probe,) = asked_by_chance(house)
    assert {"done"} == {line["outcome"] for line in lines.values()}
    assert {f"{A}/", *(f"{A}/photo/{number}" for number in range(20))} == set(lines)
    assert {probe, None} == {line.get("probe") for line in lines.values()}


@pytest.mark.parametrize("at", ["the probe", "the page behind it"])
def test_a_killed_crawl_continues_with_the_same_probe(house, at: str) -> None:
    fetch, died = house.web.fetch, []

    async def dying(request: Request) -> Response:
        there = BY_CHANCE.search(request.url) if at == "the probe" else asked_by_chance(house)
        if there and not died:
            died.append(request.url)
            raise ZeroDivisionError("the end of this process")
        return await fetch(request)

    house.web.fetch = dying
    with pytest.raises(ZeroDivisionError):
        house.crawl(sitemaps=False, probe_pages=3)
    house.crawl(sitemaps=False, probe_pages=3)
    asked = set(asked_by_chance(house))
    assert 2 == len(asked)
    assert at != "the probe" or asked >= set(died)
