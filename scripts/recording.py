"""A recording of a crawl that is killed and resumed, as docs/pictures/crawl.svg: `python scripts/recording.py`.

It really crawls the bundled web on loopback, kills the crawl by SIGKILL, and resumes it. The picture has the words that
the commands printed, and shows them one after another. It needs no script and follows light and dark screens.
"""

from __future__ import annotations

import html
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "crawl.svg"
PAGES_BEFORE = 250  # answered pages, after which the crawl is killed
SECONDS_MAX = 300
COLUMNS = 110
LINE_HEIGHT, LETTER_WIDTH, MARGIN = 19, 8.43, 16
STEP_SECONDS, PAUSE_SECONDS, END_SECONDS = 0.25, 1.2, 6.0  # a line of output, before a command, and the last picture
KEPT = ("pages", "bytes", "politeness", "left", "ended", "report")
STYLE = """svg{--paper:#fbfaf7;--ink:#1d2329;--soft:#5c6670;--mark:#0b6e74;--line:#dcdad3}
@media (prefers-color-scheme:dark){svg{--paper:#14181c;--ink:#e6e8ea;--soft:#9aa4ad;--mark:#5cc2c2;--line:#2c343b}}
rect{fill:var(--paper);stroke:var(--line)}
text{font:14px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--ink);white-space:pre}
.soft{fill:var(--soft)}.command{fill:var(--mark);font-weight:600}
"""


def lines_of(folder: Path) -> int:
    """Returns the present number of lines in pages.jsonl."""
    try:
        return (folder / "pages.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def recorded(folder: Path) -> Iterator[tuple[str, str]]:
    """Each line with its class: what was typed, and what the crawl printed."""
    outrider = [sys.executable, "-m", "outrider"]
    web = [sys.executable, "-m", "outrider.sim.web", "--directory", str(folder / "web")]
    with subprocess.Popen(web, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        ready = json.loads(child.stdout.readline())
        (folder / "seeds").write_bytes(Path(ready["seeds"]).read_bytes())
        (folder / "hosts").write_bytes(Path(ready["hosts"]).read_bytes())
        crawl = ["crawl", "@seeds", "--hosts", "hosts", "--delay", "0.2", "-o", "demo"]
        yield "command", f"$ outrider {' '.join(crawl)} &"
        begun = subprocess.Popen([*outrider, *crawl], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + SECONDS_MAX
        while lines_of(folder / "demo") < PAGES_BEFORE and begun.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        yield "command", "$ kill -9 %1"
        begun.kill()
        begun.wait()
        yield "soft", "[1]+  Killed"
        yield "command", "$ wc -l demo/pages.jsonl"
        yield "", f"{lines_of(folder / 'demo')} demo/pages.jsonl"
        yield "command", "$ outrider resume demo"
        done = subprocess.run([*outrider, "resume", "demo"], cwd=folder, capture_output=True, text=True, check=True)
        before = ""
        for line in (done.stdout + done.stderr).replace(str(folder) + "/", "").splitlines():
            name = line[:12].strip()
            if name in KEPT or (line.strip() and before == "politeness"):
                yield "", line  # the host with the smallest margin is in the line after that of politeness
            before = name
        records = [json.loads(line) for line in (folder / "demo" / "pages.jsonl").read_bytes().splitlines()]
        urls = [record["url"] for record in records if record["outcome"] == "done"]
        yield "command", "$ jq -r 'select(.outcome==\"done\").url' demo/pages.jsonl | sort | uniq -d | wc -l"
        yield "", str(len(urls) - len(set(urls)))
        child.stdin.close()


def drawn(lines: list[tuple[str, str]]) -> str:
    """The animated picture; a viewer that plays nothing shows all lines."""
    moment, moments = 0.0, []
    for kind, _ in lines:
        moment += PAUSE_SECONDS if kind == "command" else STEP_SECONDS
        moments.append(moment)
    whole = moment + END_SECONDS
    width, height = int(COLUMNS * LETTER_WIDTH) + 2 * MARGIN, len(lines) * LINE_HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        "<title>A crawl that is killed by kill -9 and resumed</title>",
        f'<style>{STYLE}</style><rect width="{width}" height="{height}" rx="6"/>',
    ]
    for row, ((kind, text), at) in enumerate(zip(lines, moments, strict=True)):
        y = MARGIN + row * LINE_HEIGHT + 14
        shown = html.escape(text if len(text) <= COLUMNS else text[: COLUMNS - 1] + "…")
        about = f' class="{kind}"' if kind else ""
        share = at / whole
        parts.append(
            f'<text{about} x="{MARGIN}" y="{y}">{shown}<animate attributeName="opacity" values="0;1;1" '
            f'keyTimes="0;{share:.4f};1" calcMode="discrete" dur="{whole:.2f}s" repeatCount="indefinite"/></text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="recording-") as kept:
        folder = Path(kept).resolve()
        lines = list(recorded(folder))
        if any(str(folder) in text or "/tmp" in text for _, text in lines):
            sys.exit("recording: a line has a path of this machine")
    PICTURE.write_text(drawn(lines), "utf-8")
    print(f"{PICTURE}: {len(lines)} lines, {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
