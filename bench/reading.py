"""`reading`: the cost of a page's links, and of a whole reading, compared with other libraries.

It uses real pages if reference material is available in the parent folder, otherwise made ones. The rivals return
addresses as strings, as written. Ours are resolved, canonical, hashed and distinct. Run by the Python of `.venv-bench`.
"""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Callable
from random import Random

from bench.measuring import PEERS_PYTHON, ROOT, alternating, cpu_seconds_of, run
from bench.tables import Table, ratio

PAGES = ROOT.parent / "shared" / "data" / "html" / "real-pages" / "pages.tar.xz"
URL = "https://docs.example.org/guide/chapter/index.html"
KEY = bytes(range(16))
MADE = 40
TOGETHER = 16
SITEMAP_URLS = 50_000
FINGERPRINTS = 10_000_000
LOOK_UPS = 100_000


def pages() -> list[bytes]:
    """Returns real pages, otherwise made ones of some 30 kB and 90 links."""
    if PAGES.exists():
        with tarfile.open(PAGES) as archive:
            return [file.read() for member in archive if (file := archive.extractfile(member)) is not None]
    chance = Random(1)
    words = ("guide", "api", "reference", "news", "archive", "user", "item", "list", "search", "library")
    return [
        b"<!doctype html><title>Page</title><body>"
        + "".join(
            f"<div class='row {chance.choice(words)}'><a href='../{chance.choice(words)}/{row}.html'>"
            f"{chance.choice(words)}</a><p>{' '.join(chance.choices(words, k=30))}</p></div>"
            for row in range(90)
        ).encode()
        for _ in range(MADE)
    ]


def tables() -> list[Table]:
    """Runs the comparison in the environment of the peers."""
    if not PEERS_PYTHON.exists():
        return [Table("reading", "pages", ("reading",), (), ("No .venv-bench here: make bench makes it.",))]
    said = run([PEERS_PYTHON, "-m", "bench.reading"], environment={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}).said
    found = json.loads(said.strip().splitlines()[-1])
    costs = found["costs"]
    ours = next(iter(costs.values()))
    rows = tuple((name, took * 1e6, ratio(took, ours)) for name, took in costs.items())
    notes = (f"{found['pages']} pages of {found['bytes']:,} bytes and {found['links']} links each; CPU time.",)
    return [
        Table("reading", "pages: what is in one", ("by", "us a page", "theirs / ours"), rows, notes),
        _beside_pages(),
    ]


def _beside_pages() -> Table:
    """Measures a sitemap of the largest size, and near copies among ten million fingerprints."""
    import numpy as np

    from outrider.page import SimHashIndex, read_sitemap

    entry = "<url><loc>https://www.example.org/section/{0}/page-{0}.html</loc><lastmod>2026-01-01</lastmod></url>\n"
    body = f"<urlset>{''.join(entry.format(row) for row in range(SITEMAP_URLS))}</urlset>".encode()
    assert len(read_sitemap(body, URL).entries) == SITEMAP_URLS
    sitemap = cpu_seconds_of(lambda: read_sitemap(body, URL))
    known = np.random.default_rng(1).integers(0, 2**64, FINGERPRINTS, np.uint64)
    index = SimHashIndex()
    index.add_many(known)
    asked = known[:LOOK_UPS] ^ np.uint64(0b1001_0001)
    _, counts = index.near_many(asked)
    assert np.frombuffer(counts, "<u4").all(), "a planted pair was not found"
    looked = cpu_seconds_of(lambda: index.near_many(asked), rounds=3)
    rows = (
        (f"a sitemap of {SITEMAP_URLS:,} URLs, {len(body) / 1e6:.1f} MB: ms", sitemap * 1e3),
        (f"look-ups a second within 3 bits, among {FINGERPRINTS:,} fingerprints in 4 tables", LOOK_UPS / looked),
    )
    notes = (f"CPU time, best of 5 and 3 rounds. Each of the {LOOK_UPS:,} planted pairs was found.",)
    return Table("beside", "sitemaps and near copies", ("work", "measured"), rows, notes)


def _rivals(bodies: list[bytes]) -> dict[str, Callable[[], object]]:
    import turbohtml
    from lxml import html as lxml_html
    from scrapy.http import HtmlResponse
    from scrapy.linkextractors import LinkExtractor
    from selectolax.lexbor import LexborHTMLParser

    extractor = LinkExtractor(unique=False)
    return {
        "turbohtml, a[href] as strings": lambda: [
            [node.attr("href") for node in turbohtml.parse(body, positions=False).select("a[href],area[href]")]
            for body in bodies
        ],
        "selectolax (lexbor), a[href] as strings": lambda: [
            [node.attributes["href"] for node in LexborHTMLParser(body).css("a[href],area[href]")] for body in bodies
        ],
        "lxml, //a/@href as strings": lambda: [
            lxml_html.fromstring(body).xpath("//a/@href|//area/@href") for body in bodies
        ],
        "Scrapy LinkExtractor": lambda: [
            extractor.extract_links(HtmlResponse(URL, body=body, encoding="utf-8")) for body in bodies
        ],
    }


def main() -> int:
    """Prints one JSON object: the CPU seconds per page of each library."""
    from outrider import kernels
    from outrider.page import Unread, read, read_many
    from outrider.page.reader import LIMITS

    bodies = pages()

    def links() -> None:
        for body in bodies:
            read(body, URL).link_batch().fingerprints(KEY)

    unread = [Unread(body, URL) for body in bodies]

    def many() -> None:
        for first in range(0, len(unread), TOGETHER):
            _ = read_many(unread[first : first + TOGETHER], key=KEY).links

    def whole() -> None:
        for body in bodies:
            read(body, URL)

    def columns() -> None:
        for body in bodies:
            kernels.read_html(body, None, False, LIMITS)

    works: dict[str, Callable[[], object]] = {
        "Outrider, all: links canonical, title, metas, text, SimHash": whole,
        "the same, and links to follow hashed, each once": links,
        f"the same of {TOGETHER} pages in one call, as a crawl has them": many,
        "Outrider, columns alone": columns,
        **_rivals(bodies),
    }
    costs = alternating(works, rounds=3)
    found = sum(len(read(body, URL).links) for body in bodies)
    json.dump(
        {
            "costs": {name: cost / len(bodies) for name, cost in costs.items()},
            "pages": len(bodies),
            "bytes": sum(map(len, bodies)) // len(bodies),
            "links": found // len(bodies),
        },
        sys.stdout,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
