"""Pictures of a report, of the site and of the help, by headless Chromium: `pictures.py FOLDER REPORT.html`.

It takes Debian's package: `apt install chromium`. The site is that of `make docs`; help is shown at 80 columns. Pages
are read from files, and the browser is told to resolve no name.
"""

from __future__ import annotations

import html
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS_MAX = 120
COLUMNS = 80
SIZES = {"wide": "1280,1600", "narrow": "420,1600"}
COMMANDS = ((), ("crawl",), ("explain",), ("fetch",))
TERMINAL = "<!doctype html><meta charset=utf-8><title>help</title><pre style='font:14px monospace;width:80ch'>"


def help_page(folder: Path) -> Path:
    """The help of some commands as a terminal of 80 columns shows it. Raises SystemExit for a line that is wider."""
    text = ""
    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "outrider", *command, "--help"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": str(COLUMNS)},
        )
        wide = [line for line in done.stdout.splitlines() if len(line) > COLUMNS]
        if wide:
            sys.exit(f"pictures: wider than {COLUMNS} columns: {wide[0]}")
        text += f"$ outrider {' '.join((*command, '--help'))}\n{done.stdout}\n"
    page = folder / "help.html"
    page.write_text(TERMINAL + html.escape(text), "utf-8")
    return page


def picture(browser: str, page: Path, file: Path, size: str) -> None:
    """Writes what the browser shows of a page. Raises SystemExit where there is no picture then."""
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
        command += [f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND", f"--screenshot={file}"]
        done = subprocess.run([*command, page.as_uri()], capture_output=True, timeout=SECONDS_MAX, check=False)
    if done.returncode != 0 or not file.is_file():
        sys.exit(f"pictures: {browser} made none of {page}")


def main(folder: Path, report: Path) -> None:
    browser = shutil.which("chromium") or sys.exit("pictures: there is no chromium here; `apt install chromium`")
    site = ROOT / "build" / "site"
    if not (site / "index.html").is_file():
        sys.exit("pictures: there is no site yet; `make docs` builds it")
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"report": report.resolve(), "site": site / "index.html", "recipes": site / "recipes.html"}
    for name, page in {**pages, "help": help_page(folder)}.items():
        for width, size in SIZES.items():
            file = (folder / f"{name}-{width}.png").resolve()
            picture(browser, page, file, size)
            print(file)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: pictures.py FOLDER REPORT.html")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
