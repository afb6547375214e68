"""`permission`: the CPU time of preferences and of the record's tree, and of signatures.

A crawl of the bundled web is compared with the same crawl without reading preferences, without the tree over
politeness.jsonl, and without naming the line of robots.txt that decided. No option turns these off, so the other side
replaces their functions. The bundled web is served from this process, over TLS where requests are signed.
BENCH_ROUNDS is the number of rounds.
"""

from __future__ import annotations

import os
import shutil
import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.e2e.certificates import AUTHORITY_FILE, server_context

from bench import crawl
from bench.measuring import CACHE, alternating
from bench.tables import Table, middle
from bench.webs import MadePages
from outrider.crawl.orders.identity_files import make_identity
from outrider.fetch.downloader import Request
from outrider.fetch.request_signing import RequestSigner, SignScope, SignWhen
from outrider.identity.signatures import AgentForm
from outrider.identity.signing_key import make_key
from outrider.sim.web import DemoServer, DemoWeb, Entry, WebAnswer

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "9"))
HOSTS, PAGES = 40, 3_000
SIGNED = 2_000
SIGNED_ROUNDS = 15
SAYS = "Content-Usage: train-ai=n, search=y\nContent-Usage: /about train-ai=y\nContent-Signal: ai-input=no\n"
ROBOTS = "User-agent: *\nDisallow: /never/\n"
FIELD = ("Content-Usage", "train-ai=n")
WITHOUT = f"""
from outrider.archive.projection import Projection
from outrider.crawl.run.reading import Reader
from outrider.frontier.state.authorities import Authorities
from outrider.robots.preferences import UseLines
from outrider.uses import NOTHING_SAID

made = Projection.__init__
Projection.__init__ = lambda self, files, name, has_tree=False: made(self, files, name)
Reader._preferences = lambda self, one: NOTHING_SAID
UseLines.of = classmethod(lambda cls, text, token: None)
Authorities.ruled_by = lambda self, urls: (None,) * len(urls)
{crawl.KEPT}
"""
"""The program of a crawl without preferences, tree, and lines that decided."""


class StatedWeb(DemoWeb):
    """The bundled web, of which each host has rules. says: whether robots.txt and answers speak of uses."""

    def __init__(self, port: int, scheme: str, *, says: bool) -> None:
        self._says = says
        super().__init__(hosts=HOSTS, pages=PAGES, port=port, quirks=False, scheme=scheme)

    def _add_robots(self, host: str) -> None:
        text = ROBOTS + SAYS * self._says
        self._put(Entry(host, "/robots.txt", content=text, content_type="text/plain"))

    def answer(self, host: str, path: str, now: float, *, takes_gzip: bool = False) -> WebAnswer:
        found = super().answer(host, path, now, takes_gzip=takes_gzip)
        return found._replace(headers=(*found.headers, FIELD)) if self._says else found


@contextmanager
def _served(folder: Path, *, says: bool, tls: bool = False) -> Iterator[MadePages]:
    """Serves the web until the block ends."""
    folder.mkdir()
    context: ssl.SSLContext | None = None
    if tls:
        context = server_context(folder, DemoWeb(hosts=HOSTS, pages=HOSTS, quirks=False).hosts)

    def made(port: int) -> StatedWeb:
        return StatedWeb(port, "https" if tls else "http", says=says)

    with DemoServer(made, folder, tls=context) as served:
        files = (served.seeds_file, served.hosts_file, served.log_file)
        yield MadePages("the bundled web", *files, served.web.must_fetch())


def tables() -> list[Table]:
    """Measures whole crawls, and single signatures."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="permission-", dir=CACHE))
    try:
        return [_crawls(folder), _signatures(folder)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


Side = tuple[str, Sequence[str | Path]]
"""A program of a crawl, and its options."""


def _crawls(folder: Path) -> Table:
    rows: list[tuple[object, ...]] = []
    for says, name in ((False, "preferences and tree, no site says anything"), (True, "the same, every site does")):
        with _served(folder / f"web-{says}", says=says) as web:
            rows.append(_compared(name, web, folder, (WITHOUT, ()), (crawl.KEPT, ())))
    me = folder / "me"
    make_identity(str(me), "https://bot.example", "you@bot.example", "Outrider")
    with _served(folder / "tls", says=False, tls=True) as web:
        plain = ("--ca", folder / "tls" / AUTHORITY_FILE, "--identity", me)
        for scope in SignScope:
            signed = (*plain, "--sign", "always", "--sign-scope", scope)
            rows.append(_compared(f"--sign always, by {scope}", web, folder, (crawl.KEPT, plain), (crawl.KEPT, signed)))
    columns = ("", "CPU s per 1,000, without", "with", "ratio", "ratio of the best")
    notes = (
        f"Crawls with WARC of {PAGES:,} pages on {HOSTS} hosts, {ROUNDS} rounds in turns: medians.",
        "The ratio is the median of the ratios of all rounds. Wanted: 1.01, 1.02, and 1.05 with signatures.",
    )
    return Table("permission.crawls", "Preferences, the tree and signatures in a crawl", columns, tuple(rows), notes)


def _compared(name: str, web: MadePages, folder: Path, without: Side, having: Side) -> tuple[object, ...]:
    """Runs both crawls in each round. The first one alternates, so that each follows the other as often."""
    costs: dict[str, list[float]] = {"without": [], "with": []}
    sides = {"without": without, "with": having}
    for row in range(ROUNDS):
        for side in sorted(sides, reverse=bool(row % 2)):
            program, words = sides[side]
            made = crawl.ours(web, folder / "out", "--warc", *words, program=program)
            costs[side].append(made.cpu_per_thousand)
    ratios = [one / other for one, other in zip(costs["with"], costs["without"], strict=True)]
    best = min(costs["with"]) / min(costs["without"])
    return (name, middle(costs["without"]), middle(costs["with"]), f"{middle(ratios):.3f}x", f"{best:.3f}x")


def _signatures(folder: Path) -> Table:
    """Signs requests for a target of its own each. A bare signature of as many bytes is the control."""
    key = make_key(str(folder / "key.pem"))
    target = Request("https://a.test/x/y?q=1", "127.0.0.1", "Outrider/0.1")
    base = b"x" * 400  # as long as a signature base
    works: dict[str, Callable[[], object]] = {"Ed25519 alone": lambda: _each(lambda: key.sign(base))}
    for scope, name in ((SignScope.REQUEST, "a signature"), (SignScope.HOST, "one that is reused")):
        signer = RequestSigner(key, "https://bot.example", SignWhen.ALWAYS, scope)
        works[name] = partial(_each, partial(signer.sign, target, AgentForm.KEYS))
    works["an empty call"] = lambda: _each(int)
    found = {name: seconds / SIGNED * 1e6 for name, seconds in alternating(works, rounds=SIGNED_ROUNDS).items()}
    rows = tuple((name, each, f"{each / found['Ed25519 alone']:.2f}x") for name, each in found.items())
    notes = (
        f"The least CPU time of {SIGNED_ROUNDS} rounds of {SIGNED:,} in turns. Wanted: 30 µs, and 1 µs if reused.",
    )
    return Table("permission.signatures", "Signatures", ("", "CPU µs each", "of Ed25519 alone"), rows, notes)


def _each(work: Callable[[], object]) -> None:
    for _ in range(SIGNED):
        work()
