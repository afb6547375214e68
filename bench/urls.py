"""`urls`: what one spelling of a URL costs, beside the libraries that others use for it.

The rivals do not all do the same: what each does is in its name. Run by the Python of `.venv-bench`, where they are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from random import Random

from bench.measuring import PEERS_PYTHON, ROOT, alternating, run
from bench.tables import Table, ratio

COUNT = 20_000
BASE = "https://docs.example.org/guide/chapter/index.html"


def sample(count: int, seed: int = 1) -> list[str]:
    """URLs as pages have them: two in three plain, the others with what makes spelling necessary."""
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
    """References as one page has them: most of them relative."""
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
    """Both comparisons, measured in the environment of the peers."""
    if not PEERS_PYTHON.exists():
        return [Table("urls", "URLs", ("spelling",), (), ("No .venv-bench here: make bench makes it.",))]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    said = run([PEERS_PYTHON, "-m", "bench.urls"], environment=environment).said
    found = json.loads(said.strip().splitlines()[-1])
    result = []
    for name, title, best in (
        ("urls.spell", "URLs: one spelling for absolute URLs", found["spell"]),
        ("urls.join", "URLs: references resolved against their page and spelled", found["join"]),
    ):
        ours = best["outrider"]
        rows = tuple((rival, took / COUNT * 1e6, ratio(took, ours)) for rival, took in best.items())
        note = (
            f"CPU time per URL, {COUNT:,} URLs, best of 5 rounds in turns. What a rival leaves undone is in its name."
        )
        result.append(Table(name, title, ("spelling by", "µs", "theirs / ours"), rows, (note,)))
    return result


def _spell_rivals(urls: list[str]) -> dict[str, Callable[[], object]]:
    from urllib.parse import urlsplit, urlunsplit

    import can_ada
    import w3lib.url
    import yarl

    from outrider.url import spell

    return {
        "outrider": lambda: spell(urls),
        "w3lib canonicalize_url (sorts the query)": lambda: [w3lib.url.canonicalize_url(url) for url in urls],
        "yarl URL": lambda: [str(yarl.URL(url)) for url in urls],
        "urllib urlsplit and urlunsplit (no normalising)": lambda: [urlunsplit(urlsplit(url)) for url in urls],
        "can_ada parse (WHATWG, no unreserved decoding)": lambda: [can_ada.parse(url).href for url in urls],
    }


def _join_rivals(references: list[str]) -> dict[str, Callable[[], object]]:
    from urllib.parse import urldefrag, urljoin

    import ada_url
    import can_ada
    import w3lib.url
    import yarl

    from outrider.url import spell

    base = yarl.URL(BASE)
    return {
        "outrider": lambda: spell(references, base=BASE),
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


def _measure() -> dict[str, dict[str, float]]:
    return {
        "spell": alternating(_spell_rivals(sample(COUNT))),
        "join": alternating(_join_rivals(relative(COUNT))),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure()) + "\n")
