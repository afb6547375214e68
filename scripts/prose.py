"""Counts the openings of sentences, and the words for people, in docstrings, comments and Markdown.

    python scripts/prose.py [--list] [PATH…]

Without a path it reads this project. With `--list` it prints each sentence that it counted, with file and line.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPENINGS = frozenset({"what", "whatever", "those", "of", "who", "whoever", "whom", "whose"})
PEOPLE = frozenset(
    {"who", "whoever", "whom", "nobody", "somebody", "anybody", "everybody", "someone", "anyone", "everyone"}
)
_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
_END = re.compile(r"(?<=[.!?:;])[\"'”)\]]*\s+(?=[\"'“(\[]*[A-Z`])")
_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|' r"'''(?:[^\\]|\\.)*?'''|" r'"(?:[^"\\\n]|\\.)*"|' r"'(?:[^'\\\n]|\\.)*'|#[^\n]*",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^#\s*(noqa|type:|fmt:|pragma|ruff|mypy|!|--|──)")


@dataclass(frozen=True)
class Sentence:
    """One sentence and where it stands."""

    path: Path
    line: int
    text: str

    @property
    def words(self) -> list[str]:
        return [word.lower() for word in _WORD.findall(re.sub(r"`[^`]*`", "X", self.text))]

    @property
    def opens_badly(self) -> bool:
        """It opens with one of `OPENINGS`, which stand for a noun."""
        words = self.words
        return bool(words) and words[0] in OPENINGS and not self.text.rstrip().endswith("?")

    @property
    def has_people(self) -> bool:
        """It has a word that is said of people."""
        return any(word in PEOPLE for word in self.words)


def sentences_of(path: Path) -> list[Sentence]:
    """All sentences of three words or more in a file of Python or Markdown."""
    blocks = _python(path) if path.suffix == ".py" else _markdown(path)
    found: list[Sentence] = []
    for line, text in blocks:
        for piece in _END.split(" ".join(text.split())):
            if len(_WORD.findall(piece)) >= 3:
                found.append(Sentence(path, line, piece))
    return found


def _python(path: Path) -> Iterator[tuple[int, str]]:
    source = path.read_text("utf-8")
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, _paragraphs(text)
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, block, ())
            waiting += inner if isinstance(inner, list) else ()
    run: list[str] = []
    first = last = 0
    for line, alone, comment in _comments(source):
        if _DIRECTIVE.match(comment):
            continue
        text = comment.lstrip("#:! ").rstrip(" -")
        if run and line == last + 1 and alone:
            run.append(text)
        else:
            if run:
                yield first, " ".join(run)
            first, run = line, [text]
        last = line
    if run:
        yield first, " ".join(run)


def _comments(source: str) -> Iterator[tuple[int, bool, str]]:
    """The comments of a source: line, whether nothing stands before it, text. Strings are passed over."""
    line, at = 1, 0
    for match in _STRING_OR_COMMENT.finditer(source):
        if match[0].startswith("#"):
            line, at = line + source.count("\n", at, match.start()), match.start()
            before = source[source.rfind("\n", 0, at) + 1 : at]
            yield line, not before.strip(), match[0]


def _paragraphs(text: str) -> str:
    """Paragraphs and list entries end a sentence, also without a full stop."""
    return re.sub(r"\n\s*(\n|(?=[-*] ))", ". \n", text)


def _markdown(path: Path) -> Iterator[tuple[int, str]]:
    fenced = False
    block: list[str] = []
    start = 0
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        text = line.strip()
        if text.startswith("```"):
            fenced = not fenced
        plain = not fenced and text and not text.startswith(("```", "|", "#")) and not line.startswith("    ")
        if not plain or re.match(r"([-*]|\d+\.)\s", text):
            if block:
                yield start, " ".join(block)
            block = []
        if plain:
            if not block:
                start = number
            block.append(re.sub(r"^([-*]|\d+\.)\s+", "", text).replace("**", ""))
    if block:
        yield start, " ".join(block)


def files_of(paths: list[Path]) -> list[Path]:
    """Python and Markdown below these paths."""
    found: list[Path] = []
    for path in paths:
        found += [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.md")])
    return [path for path in found if not {".venv", ".venv-bench", "target"} & set(path.parts)]


def own_files() -> list[Path]:
    """The files of this project that people read."""
    folders = ("src", "docs", "bench", "scripts", "tests")
    pages = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
    made = ROOT / "docs" / "api.md"  # of docstrings, which count where they stand
    return [path for path in files_of([ROOT / name for name in (*folders, *pages)]) if path != made]


def main(arguments: list[str]) -> None:
    listing = "--list" in arguments
    paths = [Path(argument) for argument in arguments if argument != "--list"]
    found = [sentence for path in (files_of(paths) if paths else own_files()) for sentence in sentences_of(path)]
    bad = [one for one in found if one.opens_badly]
    people = [one for one in found if one.has_people]
    if listing:
        for one in sorted({*bad, *people}, key=lambda one: (str(one.path), one.line)):
            mark = ("O" if one.opens_badly else "-") + ("P" if one.has_people else "-")
            print(f"{one.path}:{one.line}: {mark} {one.text}")
    total = len(found) or 1
    print(
        f"{len(found)} sentences; {len(bad)} open with what, those, of, who ({100 * len(bad) / total:.2f} %); "
        f"{len(people)} have a word for people ({100 * len(people) / total:.2f} %)"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
