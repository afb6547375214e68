"""Builds the documents into build/site, and fails where a page is missing there or would load anything from elsewhere.

It runs in `.venv-docs`, which `scripts/install.py --docs` makes: `make docs`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
SETTINGS = (
    *("-D", "project=Outrider", "-D", "extensions=myst_parser", "-D", "root_doc=index", "-D", "html_theme=alabaster"),
    *("-D", "copyright=the authors of Outrider", "-D", "html_show_sphinx=0", "-D", "html_copy_source=0"),
    *("-D", "myst_heading_anchors=3", "-D", "html_theme_options.page_width=70rem", "-D", "html_title=Outrider"),
    *("-D", "html_theme_options.font_size=16px", "-D", "highlight_language=none"),
    *("-D", f"html_static_path={ROOT / 'scripts' / 'theme'}", "-D", "html_theme_options.sidebar_includehidden=1"),
    *("-D", "html_theme_options.sidebar_collapse=0"),
    # Pages also link to files of the project that the site does not contain.
    *("-D", "suppress_warnings=myst.xref_missing,misc.highlighting_failure"),
)
LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=[\"']?(?P<src>[^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|preload|preconnect))[^>]*\bhref=[\"']?(?P<href>[^\"'\s>]+)"
    r"|(?:@import\s+|url\()[\"']?(?P<css>[^\"')\s;]+)",
    re.IGNORECASE,
)
ELSEWHERE = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)


def groups(index: str) -> dict[str, list[str]]:
    """The groups of the side navigation with their pages, as the index declares them: its hidden tables of contents."""
    blocks = re.findall(r"```{toctree}\n:caption: (.+)\n:maxdepth: 1\n:hidden:\n\n([^`]+)```", index)
    return {caption: pages.split() for caption, pages in blocks}


def loaded_from_elsewhere(site: Path) -> Iterator[str]:
    """Each thing that a page or a style of a site would load over the network, as 'file: address'."""
    for path in sorted(site.rglob("*")):
        if path.suffix not in (".html", ".css", ".js", ".svg"):
            continue
        for match in LOADED.finditer(path.read_text("utf-8", "replace")):
            address = next(text for text in match.groups() if text is not None)
            if ELSEWHERE.match(address):
                yield f"{path.relative_to(site)}: {address}"


def missing(site: Path, documents: Path) -> Iterator[str]:
    """The pages of the documents that the site does not have."""
    for path in sorted(documents.rglob("*.md")):
        name = path.relative_to(documents).with_suffix(".html")
        if not (site / name).is_file():
            yield f"{name}: it is not in the site; does docs/index.md name it?"


def main() -> int:
    from sphinx.cmd.build import build_main

    code = build_main(["-C", "-q", "-W", "--keep-going", "-b", "html", *SETTINGS, str(ROOT / "docs"), str(SITE)])
    problems = [*missing(SITE, ROOT / "docs"), *loaded_from_elsewhere(SITE)]
    for problem in problems:
        print(f"site: {problem}", file=sys.stderr)
    print(f"site: {SITE / 'index.html'}, {len(list(SITE.rglob('*.html')))} pages")
    return 1 if code or problems else 0


if __name__ == "__main__":
    sys.exit(main())
