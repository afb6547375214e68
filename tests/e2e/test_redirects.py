"""Redirects that lead to another spelling of their own URL, on and on, or into the traps, by a crawl over HTTP."""

from __future__ import annotations

from pathlib import Path

from e2e import crawling
from e2e.loopback import MISSING, Answer, Site, site


def page(body: str) -> Answer:
    return Answer(body)


def moved(location: str, status: int = 302) -> Answer:
    return Answer(status=status, fields={"Location": location})


def crawled(server: Site, output: Path, *more: str) -> list[dict]:
    """The lines of a crawl from the root."""
    done = crawling.outrider(
        *("crawl", f"{server.root}/", "-o", str(output), "--delay", "0", "--delay-factor", "0", "--no-sitemaps"),
        *("--progress", "none", *more),
    )
    assert done.returncode == 0, done.stderr
    return crawling.pages(output)


SPELLED: dict[str, Answer] = {
    "/robots.txt": page("User-agent: *\nDisallow: /closed?\nDisallow: /*?seen=2\n"),
    "/": page("".join(f"<a href={path}>x</a>" for path in ("/x", "/loop", "/twice", "/closed", "/self", "/tilde"))),
    "/x": moved("/x?"),
    "/x?": page("<title>here</title><a href=/y>y</a>"),
    "/y": page("y"),
    "/loop": moved("/loop?", 301),
    "/loop?": moved("/loop", 301),
    "/twice": moved("/twice?#top"),
    "/twice?": MISSING,
    "/closed": moved("/closed?"),
    "/self": moved("/self#top"),
    "/tilde": moved("/%7etilde/../tilde"),
}


def test_another_spelling_of_the_same_url_is_requested_once_as_it_is_written(tmp_path: Path) -> None:
    with site(lambda _, target: SPELLED.get(target, MISSING)) as server:
        lines = crawled(server, tmp_path / "out", "--retries", "0")
    asked = {target: server.asked[target] for target in SPELLED}
    assert {**dict.fromkeys(SPELLED, 1), "/closed?": 0} == {**asked, "/closed?": server.asked["/closed?"]}
    ends = {
        line["url"].removeprefix(server.root): (
            line["outcome"], line.get("requested", "").removeprefix(server.root), line.get("title")
        )
        for line in lines
    }  # fmt: skip
    assert ("done", "/x?", "here") == ends["/x"]
    assert ("redirect", "/loop?", None) == ends["/loop"]
    assert ("gone", "/twice?", None) == ends["/twice"]
    assert ("redirect", "", None) == ends["/closed"]
    record = next(line for line in lines if line.get("title") == "here")
    shown = crawling.outrider("show", record["url"], "-o", str(tmp_path / "out"))
    assert "here" in shown.stdout


def test_files_for_crawlers_are_requested_in_other_spellings_too(tmp_path: Path) -> None:
    answers: dict[str, Answer] = {
        "/robots.txt": moved("/robots.txt?"),
        "/robots.txt?": page("User-agent: *\nDisallow: /closed\nSitemap: /map.xml\n"),
        "/map.xml": moved("/map.xml?"),
        "/": page("<a href=/closed>c</a>"),
        "/mapped": page("m"),
    }
    with site(lambda _, target: answers.get(target, MISSING)) as server:
        answers["/map.xml?"] = page(f"<urlset><url><loc>{server.root}/mapped</loc></url></urlset>")
        crawled(server, tmp_path / "out", "--sitemaps")
    assert dict.fromkeys(answers, 1) == server.asked


def test_a_parameter_that_the_rules_leave_out_is_sent_where_a_site_insists_on_it(tmp_path: Path) -> None:
    """Every page wants to see its cookie parameter: they are pages, and no trap."""

    def answer(_: str, target: str) -> Answer:
        path, _, query = target.partition("?")
        if path == "/robots.txt":
            return MISSING
        if path == "/":
            return page("".join(f"<a href=/p{number}>p</a>" for number in range(60)))
        return page(f"<p>page {path} has words of its own") if query else moved(f"{path}?utm_source=me")

    with site(answer) as server:
        lines = crawled(server, tmp_path / "out", "--url-rules", "tracking")
    assert 60 == sum(line["outcome"] in ("done", "duplicate") and "requested" in line for line in lines)
    assert {1} == set(server.asked.values())


def test_the_target_of_the_sixth_redirect_is_a_link_of_its_own(tmp_path: Path) -> None:
    def answer(_: str, target: str) -> Answer:
        if target == "/":
            return page("<a href=/r/0>r</a>")
        number = int(target.removeprefix("/r/")) if target.startswith("/r/") else -1
        if 0 <= number < 8:
            return moved(f"/r/{number + 1}")
        return page("the end") if number == 8 else MISSING

    with site(answer) as server:
        lines = crawled(server, tmp_path / "out")
    found = {line["url"].removeprefix(server.root): (line["outcome"], line["depth"]) for line in lines}
    assert [("redirect", 1), ("redirect", 2), ("done", 2)] == [found[f"/r/{number}"] for number in (5, 6, 8)]


def test_endless_redirects_end(tmp_path: Path) -> None:
    def answer(_: str, target: str) -> Answer:
        if target == "/":
            return page("<a href=/r/0>r</a>")
        if not target.startswith("/r/"):
            return MISSING
        return moved(f"/r/{int(target.removeprefix('/r/')) + 1}")

    with site(answer) as server:
        lines = crawled(server, tmp_path / "out")
    assert 200 < len(lines) < 400
    assert "redirect" == lines[-1]["outcome"]
