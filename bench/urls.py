"""`urls`: the cost of normalizing one URL, with its key and fingerprint, compared with other libraries.

It uses real URLs if lists of reference material are available in the parent folder, otherwise made ones. The rivals do
different work, and the name of each says which. Run by the Python of `.venv-bench`, where they are installed.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Callable
from random import Random

from bench.measuring import PEERS_PYTHON, ROOT, alternating, run
from bench.tables import Table, ratio

COUNT = 20_000
BATCH = 1_000
LINKS = 80  # on a page, as many as real ones have
BASE = "https://docs.example.org/guide/chapter/index.html"
KEY = bytes(range(16))
LISTS = ROOT.parent / "shared" / "data" / "urls"
LIST_NAMES = ("kasztp.txt.xz", "debdocs.txt.xz")


def real(count: int, seed: int = 3) -> list[str]:
    """Returns real URLs in random order, without URLs that a rival refuses; nothing without the lists."""
    files = [LISTS / name for name in LIST_NAMES]
    if not all(file.exists() for file in files):
        return []
    urls = [url for file in files for url in lzma.decompress(file.read_bytes()).decode("utf-8").splitlines()]
    Random(seed).shuffle(urls)
    taken = [url for url in urls[: 2 * count] if url.startswith("http") and _all_take(url)][:count]
    # Made again one after another, like a page's links: so no URL is slower because of its place in memory.
    return "\n".join(taken).split("\n")


def _all_take(url: str) -> bool:
    try:
        for rival in _spelling_of_one().values():
            rival(url)
    except (ValueError, TypeError):
        return False
    return True


def sample(count: int, seed: int = 1) -> list[str]:
    """Returns URLs as pages have them: two in three plain, the rest with parts that need normalizing."""
    chance = Random(seed)
    words = ("guide", "api", "reference", "news", "archive", "user", "item", "page", "list", "search", "library")
    found = []
    for row in range(count):
        host = f"{chance.choice(words)}{row % 97}.example.{chance.choice(('org', 'com', 'net'))}"
        path = "/".join(chance.choice(words) for _ in range(chance.randint(1, 5)))
        url = f"https://{host}/{path}/{row}.html"
        kind = row % 12
        if kind == 1:
            url += f"?{chance.choice(words)}={row}&lang=en"
        elif kind == 3:
            url = url.replace("https://", "HTTPS://").replace(host, host.upper())
        elif kind == 5:
            url = url.replace(host, f"{host}:443") + "#section"
        elif kind == 7:
            url = url.replace(f"/{row}.html", f"/../{chance.choice(words)}/./%7e{row}")
        elif kind == 9:
            url += "?q=caf%c3%a9 au lait"
        found.append(url)
    return found


def relative(count: int, seed: int = 2) -> list[str]:
    """Returns references as one page has them: most of them relative."""
    chance = Random(seed)
    kinds: list[Callable[[int], str]] = [
        lambda row: f"chapter-{row}.html",
        lambda row: f"../api/{row}/index.html",
        lambda row: f"/library/{row}.html#part",
        lambda row: f"https://www.example.com/{row}",
        lambda row: f"?page={row}",
    ]
    return [kinds[chance.randrange(len(kinds))](row) for row in range(count)]


def tables() -> list[Table]:
    """Runs the comparisons in the environment of the peers."""
    if not PEERS_PYTHON.exists():
        return [Table("urls", "URLs", ("spelling",), (), ("No .venv-bench here: make bench makes it.",))]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    said = run([PEERS_PYTHON, "-m", "bench.urls"], environment=environment).said
    found = json.loads(said.strip().splitlines()[-1])
    result = []
    for name, title in (
        ("batch", f"URLs: absolute ones, our batches of {BATCH:,}; canonical text, host key and fingerprint"),
        ("one", "URLs: one a call, canonical text"),
        ("join", "URLs: references resolved against their page and spelled"),
    ):
        best = found[name]
        ours = next(iter(best.values()))
        rows = tuple((rival, took / COUNT * 1e6, ratio(took, ours)) for rival, took in best.items())
        which = "made" if name == "join" else found["urls"]
        note = (
            f"CPU time per URL, {COUNT:,} {which} URLs, best of 5 rounds in turns. A rival's name says what it leaves."
        )
        result.append(Table(f"urls.{name}", title, ("by", "µs", "theirs / ours"), rows, (note,)))
    return result


def _spelling_of_one() -> dict[str, Callable[[str], object]]:
    from urllib.parse import urlsplit, urlunsplit

    import ada_url
    import can_ada
    import w3lib.url
    import yarl

    return {
        "w3lib canonicalize_url (sorts the query)": w3lib.url.canonicalize_url,
        "yarl URL": lambda url: str(yarl.URL(url)),
        "urllib urlsplit and urlunsplit (no normalising)": lambda url: urlunsplit(urlsplit(url)),
        "ada-url normalize_url (WHATWG, no unreserved decoding)": ada_url.normalize_url,
        "can_ada parse (WHATWG, no unreserved decoding)": lambda url: can_ada.parse(url).href,
    }


def _over(urls: list[str], rival: Callable[[str], object]) -> Callable[[], object]:
    return lambda: [rival(url) for url in urls]


def _batch_rivals(urls: list[str]) -> dict[str, Callable[[], object]]:
    from outrider.url import UrlBatch, spell

    def in_batches(work: Callable[[list[str]], object]) -> Callable[[], object]:
        return lambda: [work(urls[first : first + BATCH]) for first in range(0, len(urls), BATCH)]

    ours: dict[str, Callable[[], object]] = {
        "Outrider UrlBatch, hashes of text and host": in_batches(lambda some: UrlBatch.of(some, key=KEY)),
        "the same and each host's name": in_batches(lambda some: UrlBatch.of(some, key=KEY).keys("host")),
        "Outrider spell, to strings (text only)": in_batches(spell),
    }
    return ours | {f"{name}: text only": _over(urls, rival) for name, rival in _spelling_of_one().items()}


def _one_rivals(urls: list[str]) -> dict[str, Callable[[], object]]:
    from outrider.url import normalize

    return {"Outrider normalize": _over(urls, normalize)} | {
        name: _over(urls, rival) for name, rival in _spelling_of_one().items()
    }


def _join_rivals(references: list[str]) -> dict[str, Callable[[], object]]:
    from urllib.parse import urldefrag, urljoin

    import ada_url
    import can_ada
    import w3lib.url
    import yarl

    from outrider.url import UrlBatch, spell

    base = yarl.URL(BASE)
    pages = [references[first : first + LINKS] for first in range(0, len(references), LINKS)]
    return {
        f"Outrider UrlBatch, {LINKS} links a page, hashes too": lambda: [
            UrlBatch.of(some, BASE, key=KEY) for some in pages
        ],
        f"Outrider spell, {LINKS} links a page, to strings": lambda: [spell(some, base=BASE) for some in pages],
        "urljoin + w3lib canonicalize_url": lambda: [
            w3lib.url.canonicalize_url(urljoin(BASE, reference)) for reference in references
        ],
        "yarl join": lambda: [str(base.join(yarl.URL(reference))) for reference in references],
        "urljoin and urldefrag (no normalising)": lambda: [
            urldefrag(urljoin(BASE, reference))[0] for reference in references
        ],
        "urljoin + can_ada parse": lambda: [can_ada.parse(urljoin(BASE, reference)).href for reference in references],
        "ada-url join_url": lambda: [ada_url.join_url(BASE, reference) for reference in references],
    }


def _measure() -> dict[str, object]:
    urls = real(COUNT)
    return {
        "urls": "real" if urls else "made",
        "batch": alternating(_batch_rivals(urls or sample(COUNT))),
        "one": alternating(_one_rivals(urls or sample(COUNT))),
        "join": alternating(_join_rivals(relative(COUNT))),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure()) + "\n")
