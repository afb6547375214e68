"""Checks that the targets of the documents exist: files, headings, make targets, commands of `outrider`, names of
the package, and tests.

Checked in README.md, ARCHITECTURE.md, CONTRIBUTING.md, CHANGELOG.md and docs/**/*.md: relative links and their
#anchors; `make x` in code; `outrider x` at the start of a line of code; `src/…` and other paths in code that begin with
a folder of the project; `outrider.room.name` and `test_name` in code.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"
FOLDERS = ("bench", "crates", "docs", "examples", "requirements", "scripts", "src", "tests", ".ci")
MADE = ("bench/results/", "bench/.cache/", "docs/api.md")
"""Files that our own commands make, so a fresh clone does not contain them."""
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
FENCE = re.compile(r"^(```|~~~)[^\n]*\n(.*?)^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")


def documents(root: Path) -> list[Path]:
    names = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
    return [path for name in names if (path := root / name).is_file()] + sorted((root / "docs").rglob("*.md"))


def problems_of(document: Path, root: Path) -> Iterator[str]:
    """Returns the targets of a document's links that do not exist."""
    text = document.read_text("utf-8")
    prose = FENCE.sub("", text)
    for target in LINK.findall(CODE.sub("", prose)):
        problem = problem_of_link(target, document, root)
        if problem:
            yield problem
    code = CODE.findall(prose)
    lines = [line.strip() for _, block in FENCE.findall(text) for line in block.splitlines()]
    for piece in (*code, *(line.removeprefix("$ ") for line in lines)):
        yield from problems_of_code(piece, root)


def problem_of_link(target: str, document: Path, root: Path) -> str | None:
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return None
    path, _, anchor = target.partition("#")
    file = (document.parent / unquote(path)).resolve() if path else document
    if not file.is_relative_to(root) or not file.exists():
        return f"there is no {path}"
    if anchor and file.suffix == ".md" and anchor not in anchors(file.read_text("utf-8")):
        return f"{path or 'this page'} has no heading #{anchor}"
    return None


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
        anchor = plain.strip().replace(" ", "-")
        number = 1
        unique = anchor
        while unique in found:
            unique, number = f"{anchor}-{number}", number + 1
        found.add(unique)
    return found


def problems_of_code(piece: str, root: Path) -> Iterator[str]:
    target = re.match(r"make ([a-z][a-z-]*)\b", piece)
    if target and target.group(1) not in make_targets(root):
        yield f"the Makefile has no target {target.group(1)!r}"
    command = re.match(r"(?:\.venv/bin/)?outrider ([a-z][a-z-]*)(?![\w./:])", piece)
    if command and command.group(1) not in commands():
        yield f"outrider has no command {command.group(1)!r}"
    path = re.match(r"(\.?[\w-]+)/[\w./-]*(?![\w{*<…])", piece)
    if path and path.group(1) in FOLDERS and not re.search(r"[*{<…]", piece.split(maxsplit=1)[0]):
        name = piece.split(maxsplit=1)[0].split(":", maxsplit=1)[0].rstrip(".,;")
        if not name.startswith(MADE) and not (root / name).exists():
            yield f"there is no {name}"
    if re.fullmatch(r"test_\w+", piece) and piece not in tests(root):
        yield f"there is no test {piece}"
    for name in re.findall(r"(?<![\w./])outrider(?:\.[A-Za-z_]\w*)+", piece):
        is_call = name.startswith("outrider.v1.")  # of gRPC: src/outrider/engine/frontier.proto
        if not is_call and not name.endswith((".toml", ".main")) and not importable(name):
            yield f"there is no {name}"


@cache
def make_targets(root: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z][a-z-]*):", (root / "Makefile").read_text("utf-8"), re.MULTILINE))


@cache
def tests(root: Path) -> frozenset[str]:
    """Returns the names of all tests."""
    files = (root / "tests").rglob("test_*.py")
    return frozenset(name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.M))


@cache
def commands() -> frozenset[str]:
    """Returns the names that `outrider --help` lists."""
    help_text = subprocess.run(
        [sys.executable, "-c", "from outrider.cli.main import main; main()", "--help"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return frozenset(re.findall(r"^  ([a-z][a-z-]*) {2,}", help_text, re.MULTILINE))


@cache
def importable(name: str) -> bool:
    """Whether a dotted name exists: first modules, then attributes."""
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        try:
            place: object = importlib.import_module(".".join(parts[:split]))
        except ImportError:
            file = SOURCES.joinpath(*parts[:split]).with_suffix(".py")
            if file.is_file():  # it needs an extra that is not installed here
                nodes = ast.parse(file.read_text("utf-8")).body
                return {getattr(node, "name", "") for node in nodes} >= set(parts[split : split + 1])
            continue
        for part in parts[split:]:
            if not hasattr(place, part):
                return False
            place = getattr(place, part)
        return True
    return False


def main() -> int:
    found = [
        f"{document.relative_to(ROOT)}: {problem}"
        for document in documents(ROOT)
        for problem in dict.fromkeys(problems_of(document, ROOT))
    ]
    for line in found:
        print(line, file=sys.stderr)
    print(f"docs: {len(documents(ROOT))} pages, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
