"""Copies over kill -9: a page that was fetched before is the known original of later copies."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Final

from e2e import crawling
from e2e.hostile import served
from e2e.test_probes import FAST, answering

WORDS: Final = " ".join(f"word{number}" for number in range(400))
ORIGINAL: Final = f"<title>One</title><p>{WORDS}</p>"
PAGES: Final = {
    "/": "<title>Home</title>" + "".join(f"<a href={path}>x</a>" for path in ("/original", "/door")),
    "/original": ORIGINAL,
    "/door": "<title>Door</title><a href=/near>x</a><a href=/same>x</a>",
    "/near": ORIGINAL.replace("word399", "changed"),
    "/same": ORIGINAL,
}


def test_copies_of_a_page_that_was_fetched_before_a_kill_are_found_after_it(tmp_path: Path) -> None:
    """The page was in `pages.jsonl`, or in the log alone: the crawl is killed before it could end well."""
    output, asked = tmp_path / "out", list[str]()
    reached, dead = threading.Event(), threading.Event()

    def hangs(path: str) -> bool:
        if path not in ("/near", "/same"):
            return False
        reached.set()
        return not dead.is_set()

    with served(answering(lambda path: PAGES.get(path, ""), asked, hangs)) as port:
        site = f"http://127.0.0.1:{port}"
        crawl = crawling.started("crawl", f"{site}/", "-o", output, *FAST, "--concurrency", "1")
        assert reached.wait(60)
        crawl.kill()
        crawl.wait(60)
        dead.set()
        run = crawling.outrider("resume", output)
    assert 0 == run.returncode, run.stderr
    assert 1 == asked.count("/original")
    lines = {line["url"]: line for line in map(json.loads, (output / "pages.jsonl").read_text().splitlines())}
    near, same = lines[f"{site}/near"], lines[f"{site}/same"]
    assert ("done", f"{site}/original") == (near["outcome"], near["duplicate_of"])
    assert 0 <= near["distance"] <= 3
    assert ("duplicate", f"{site}/original", None) == (same["outcome"], same["duplicate_of"], same.get("distance"))
