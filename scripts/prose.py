"""Measures docstrings, comments, names of tests and Markdown against the rules of plain English.

    python scripts/prose.py [--list] [--long] [--sample N --seed S] [PATH…]

Without a path it reads this project. It counts four things for each folder:

- sentences that open with a word in the place of a noun (what, those, of, who)
- sentences with a word for people, where a program is meant
- sentences with a listed word: verbs of people that are used for things, and idioms with a plainer form
- the length of sentences: the median and the 90th percentile in words

`--list` prints each counted sentence with its file, line and words. `--long` prints sentences above 24 words.
`--sample` prints N sentences that are drawn by the seed S.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPENINGS = frozenset({"what", "whatever", "those", "of", "who", "whoever", "whom", "counted_by"})
PEOPLE = frozenset(
    {"who", "whoever", "whom", "nobody", "somebody", "anybody", "everybody", "someone", "anyone", "everyone"}
)
LISTED = re.compile(
    r"\b(?:so (?:many|much|long|far|often)|behind|beside|(?-i:none)|others|nobody|whatever|whoever"
    r"|(?:is|are|was|were) no(?= (?!longer|more)[a-z])|told|tells?|telling|stands?|stood|standing|lies|lie|lay|lying"
    r"|holds?|held|holding|rests|rested|resting|goes|went|go|going|comes?|came|coming"
    r"|knows?|knew|hears?|heard|asks?|asked|asking|gives?|gave|giving|takes?|took|taken|taking)\b",
    re.IGNORECASE,
)
LONG = 24
MESSAGE_WORDS = 5
_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
_END = re.compile(r"(?<=[.!?:;])[\"'”)\]]*\s+(?=[\"'“(\[]*[A-Z`])")
_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|' r"'''(?:[^\\]|\\.)*?'''|" r'"(?:[^"\\\n]|\\.)*"|' r"'(?:[^'\\\n]|\\.)*'|#[^\n]*",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^#\s*(noqa|type:|fmt:|pragma|ruff|mypy|!|--|──)")


@dataclass(frozen=True)
class Sentence:
    """One sentence with its file and line."""

    path: Path
    line: int
    text: str

    @property
    def words(self) -> list[str]:
        return [word.lower() for word in _WORD.findall(re.sub(r"`[^`]*`", "X", self.text))]

    @property
    def opens_badly(self) -> bool:
        """Whether it opens with one of `OPENINGS`, which replace a noun."""
        words = self.words
        return bool(words) and words[0] in OPENINGS and not self.text.rstrip().endswith("?")

    @property
    def has_people(self) -> bool:
        """Whether it has a word for people."""
        return any(word in PEOPLE for word in self.words)

    @property
    def listed(self) -> list[str]:
        """The listed words of the sentence. Code in backticks does not count."""
        return [found.lower() for found in LISTED.findall(re.sub(r"`[^`]*`", "X", self.text))]


def sentences_of(path: Path) -> list[Sentence]:
    """Returns the sentences of at least three words in a Python or Markdown file."""
    blocks = [*_python(path), *_code(path)] if path.suffix == ".py" else _markdown(path)
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


def _code(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the sentences in the code of a file: names of tests, and messages such as help and errors."""
    messages = "src" in path.parts
    waiting: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while waiting:
        node = waiting.pop()
        inner = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.removeprefix("test_").replace("_", " ")
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            inner.remove(node.body[0])
        text = ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
            inner = []
        if messages and len(_WORD.findall(text)) >= MESSAGE_WORDS and "=" not in text[:40] and "</" not in text:
            yield node.lineno, _paragraphs(text)
        waiting += inner


def _comments(source: str) -> Iterator[tuple[int, bool, str]]:
    """Yields the comments of a source: line, whether the line has no code before it, text. Strings are skipped."""
    line, at = 1, 0
    for match in _STRING_OR_COMMENT.finditer(source):
        if match[0].startswith("#"):
            line, at = line + source.count("\n", at, match.start()), match.start()
            before = source[source.rfind("\n", 0, at) + 1 : at]
            yield line, not before.strip(), match[0]


def _paragraphs(text: str) -> str:
    """Ends a sentence at the end of a paragraph or list entry, also without a full stop."""
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
    """Returns Python and Markdown below these paths."""
    found: list[Path] = []
    for path in paths:
        found += [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.md")])
    return [path for path in found if not any(part == "target" or part.startswith(".venv") for part in path.parts)]


def own_files() -> list[Path]:
    """Returns the files of this project that people read."""
    folders = ("src", "docs", "bench", "scripts", "tests")
    pages = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
    made = ROOT / "docs" / "api.md"  # made from docstrings, which count in their own files
    return [path for path in files_of([ROOT / name for name in (*folders, *pages)]) if path != made]


def percentile(sentences: list[Sentence], share: float) -> int:
    """Returns the length in words that this share of the sentences does not exceed."""
    lengths = sorted(len(sentence.words) for sentence in sentences)
    return lengths[min(len(lengths) - 1, int(len(lengths) * share))] if lengths else 0


def summary(name: str, sentences: list[Sentence]) -> str:
    """Returns one row of figures."""
    total = len(sentences) or 1
    shares = (
        100 * sum(test(one) for one in sentences) / total
        for test in (lambda one: one.opens_badly, lambda one: one.has_people, lambda one: bool(one.listed))
    )
    openings, people, listed = shares
    return (
        f"{name:16} {len(sentences):6} sentences  openings {openings:.2f} %  people {people:.2f} %  "
        f"listed words {listed:.2f} %  words: median {percentile(sentences, 0.5)}, p90 {percentile(sentences, 0.9)}"
    )


def _marked(one: Sentence) -> str:
    marks = [*(["opening"] if one.opens_badly else []), *(["people"] if one.has_people else []), *one.listed]
    return f"{one.path}:{one.line}: [{', '.join(marks)}] {one.text}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    groups: dict[str, list[Sentence]] = {}
    for path in files_of(given.paths) if given.paths else own_files():
        name = (
            path.relative_to(ROOT).parts[0]
            if path.resolve().is_relative_to(ROOT) and path.is_absolute()
            else path.parts[0]
        )
        groups.setdefault(name, []).extend(sentences_of(path))
    everything = [sentence for sentences in groups.values() for sentence in sentences]
    if given.list:
        for one in everything:
            if one.opens_badly or one.has_people or one.listed:
                print(_marked(one))
    if given.long:
        for one in everything:
            if len(one.words) > LONG:
                print(f"{one.path}:{one.line}: {len(one.words)} words: {one.text}")
    if given.sample:
        for one in random.Random(given.seed).sample(everything, min(given.sample, len(everything))):
            print(f"{one.path}:{one.line}: {one.text}")
    for name, sentences in groups.items():
        print(summary(name, sentences))
    if len(groups) > 1:
        print(summary("all", everything))


if __name__ == "__main__":
    main(sys.argv[1:])
