"""Pictures of the site, of a report and of every help text, by headless Chromium: `pictures.py FOLDER REPORT.html`.

Each page is shown at 1280 and at 400 pixels. The command fails if something is cut off: if the page, a block of
code, a table or a preformatted text is wider than its place. It needs Debian's package (`apt install chromium`) and the
site of `make docs`. The browser resolves only the names of this machine.
"""

from __future__ import annotations

import contextlib
import functools
import html
import http.server
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS_MAX = 120
COLUMNS = 80
WIDTHS = (1280, 400)
HEIGHT_MAX = 4_000  # pixels of a picture: the first screens; the whole page is measured
PAGES = ("index", "tutorial", "api")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking")
FLAGS += ("--disable-component-update", "--disable-sync", "--disable-quic", "--no-first-run")
FLAGS += ("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--virtual-time-budget=20000")
# A window of Chromium is at least 500 pixels wide. So a page is shown in a frame, which is also measured from here.
FRAME = """<!doctype html><meta charset=utf-8><style>body{margin:0}iframe{border:0;display:block}</style>
<iframe id=f width=WIDTH height=HEIGHT src=PAGE></iframe><pre id=found hidden></pre><script>
document.getElementById('f').onload = event => {
  const page = event.target.contentDocument, cut = [];
  for (const one of [page.documentElement, ...page.querySelectorAll('pre,table,div.highlight,figure,svg,section')])
    if (one.scrollWidth > Math.max(one.clientWidth, one instanceof SVGElement ? one.scrollWidth : 0))
      cut.push([one.tagName, one.scrollWidth, one.clientWidth, one.textContent.trim().slice(0, 60)]);
  for (const one of page.querySelectorAll('pre,table,figure,svg')) {
    const box = one.getBoundingClientRect();
    const text = one.textContent.trim().slice(0, 60);
    if (box.right > WIDTH + 1) cut.push([one.tagName, Math.ceil(box.right), WIDTH, text]);
  }
  document.getElementById('found').textContent = JSON.stringify(cut);
}</script>"""


def help_texts() -> dict[str, str]:
    """Returns the help of every command, at 80 columns. Raises SystemExit for a line that is wider."""
    import click

    from outrider.cli.main import outrider
    from outrider.cli.reference import commands_of

    texts = {}
    for words, command in commands_of("", outrider):
        name = f"outrider {words}".strip()
        context = click.Context(command, info_name=name, max_content_width=COLUMNS, terminal_width=COLUMNS)
        texts[name] = text = command.get_help(context)
        wide = [line for line in text.splitlines() if len(line) > COLUMNS]
        if wide:
            sys.exit(f"pictures: {name} --help is wider than {COLUMNS} columns: {wide[0]}")
    return texts


def help_page(name: str, text: str) -> str:
    """Returns a help text as a terminal of 80 columns shows it."""
    style = f"<style>body{{margin:0}}pre{{font:14px monospace;width:{COLUMNS}ch;margin:8px}}</style>"
    shown = html.escape(f"$ {name} --help\n{text}\n")
    return f"<!doctype html><meta charset=utf-8><title>help</title>{style}<pre>{shown}</pre>"


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serves the files of a folder on a port of loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def browsed(browser: str, url: str, *flags: str) -> str:
    """Returns the output of Chromium for a page. Raises SystemExit if it fails."""
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, *FLAGS, f"--user-data-dir={profile}", *flags, url]
        done = subprocess.run(command, capture_output=True, timeout=SECONDS_MAX, check=False)
    if done.returncode != 0:
        sys.exit(f"pictures: {browser} failed for {url}: {done.stderr.decode('utf-8', 'replace')[-500:]}")
    return done.stdout.decode("utf-8", "replace")


def cut_off(browser: str, folder: Path, root: str, page: str, width: int, picture: Path | None) -> list[str]:
    """Returns the elements that are wider than their place on a page of `width` pixels. picture: the file to write."""
    frame = FRAME.replace("WIDTH", str(width)).replace("HEIGHT", str(HEIGHT_MAX)).replace("PAGE", page)
    (folder / "frame.html").write_text(frame, "utf-8")
    shown = browsed(browser, f"{root}/frame.html", "--dump-dom")
    found = re.search(r"<pre id=\"found\"[^>]*>(.*?)</pre>", shown, re.DOTALL)
    if found is None or not found[1]:
        sys.exit(f"pictures: {page} was not measured at {width} pixels")
    if picture is not None:
        browsed(
            browser, f"{root}/frame.html", f"--window-size={max(width, 500)},{HEIGHT_MAX}", f"--screenshot={picture}"
        )
    return [
        f"{page} at {width} pixels: <{tag.lower()}> is {wide} wide, its place {place}: {text!r}"
        for tag, wide, place, text in json.loads(html.unescape(found[1]))
    ]


def looked_at(browser: str, site: Path, report: Path, folder: Path | None) -> list[str]:
    """Returns the elements that are cut off on the site, a report and the help. folder: for their pictures."""
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as kept:
        root = Path(kept)
        shutil.copytree(site, root / "site")
        shutil.copy(report, root / "report.html")
        pages = {**{name: f"site/{name}.html" for name in PAGES}, "report": "report.html"}
        shown = [(name, page, width) for name, page in pages.items() for width in WIDTHS]
        for number, (name, text) in enumerate(help_texts().items()):
            (root / f"help{number}.html").write_text(help_page(name, text), "utf-8")
            if folder is not None or number == 0:
                shown.append((f"help {name}".replace(" ", "-"), f"help{number}.html", WIDTHS[0]))
        with served(root) as at:
            for name, page, width in shown:
                picture = None if folder is None else folder / f"{name}-{width}.png"
                problems += cut_off(browser, root, at, page, width, picture)
    return problems


def main(folder: Path, report: Path) -> int:
    """Makes the pictures. Returns 1 if something is cut off."""
    browser = shutil.which("chromium") or sys.exit("pictures: there is no chromium here; `apt install chromium`")
    site = ROOT / "build" / "site"
    if not (site / "index.html").is_file():
        sys.exit("pictures: there is no site yet; `make docs` builds it")
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    problems = looked_at(browser, site, report, folder)
    for problem in problems:
        print(f"pictures: {problem}", file=sys.stderr)
    print(f"pictures: {len(list(folder.glob('*.png')))} in {folder}")
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: pictures.py FOLDER REPORT.html")
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
