"""Writes the keywords of `outrider.crawl(…)` as types and as a page, both from the declarations of its options.

python scripts/keywords.py    writes src/outrider/crawl/setup/keywords.py and docs/options.md
"""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

from outrider.crawl.setup.options import SETTINGS, CrawlOptions, default_of, typed_text

ROOT = Path(__file__).resolve().parent.parent
TYPES = ROOT / "src" / "outrider" / "crawl" / "setup" / "keywords.py"
PAGE = ROOT / "docs" / "options.md"
FORMS = {  # of options whose class has no one type
    "downloader": "Callable[..., Any] | str",
    "credentials": "Mapping[str, str] | Iterable[str]",
    "header": "Mapping[str, str] | Iterable[str]",
    "host": "Sequence[Mapping[str, Any]]",
    "readers": "Mapping[str, Callable[..., Any] | str] | Iterable[str]",
    "timeout": "Mapping[str, float] | str",
    "truncate": "Mapping[str, int] | Iterable[str]",
}
HEAD = '''"""The keywords of `outrider.crawl(…)` as types, for editors and checkers. Made by scripts/keywords.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict


class CrawlKeywords(TypedDict, total=False):
    """The options of a crawl as keywords. docs/options.md explains each."""
'''
INTRO = """# Options of `outrider.crawl(…)`

Each option of the command line is also a keyword of `outrider.crawl(…)` and of `outrider.Crawler`, with `_` for `-`.
Your editor completes them, and a type checker checks them. Made by `python scripts/keywords.py`.

```python
import outrider

outrider.crawl(
    ["https://example.org/"],
    output="example",
    contact="you@example.org",
    scope="domain",
    delay=2,
    header={"Accept-Language": "en"},
    timeout={"total": 30},
    host=[{"name": "*.slow.example", "delay": 10}],
)
```

A keyword that you do not pass comes from an `OUTRIDER_…` variable, then from `outrider.toml` in the directory, then
from the default.
[Hooks](hooks.md) explains the functions, and the [command line](cli.md) has the same options as flags.
"""


def keywords() -> dict[str, tuple[str, str]]:
    """Returns the type and the meaning of each keyword, without `output`, which is a separate argument."""
    found = {}
    for field in dataclasses.fields(CrawlOptions):
        setting, kind = SETTINGS[field.name], str(field.type)
        if field.name == "output":
            continue
        none = " | None" if setting.optional and "None" not in kind else ""
        if field.name in FORMS:
            kind = FORMS[field.name]
        elif kind == "Any":
            words = f"Literal[{', '.join(map(repr, setting.choices))}] | " if setting.choices else ""
            kind = f"{words}Callable[..., Any] | str"
        elif setting.choices and not setting.many:
            kind = f"Literal[{', '.join(map(repr, setting.choices))}]"
        elif setting.many or kind.startswith("tuple"):
            kind = "Iterable[str]"
        elif setting.path:
            kind = "str | os.PathLike[str]" + (" | None" if "None" in kind else "")
        found[field.name] = (kind.replace("'", '"') + none, setting.meaning)
    return found


def types_text() -> str:
    """Returns the file of types."""
    lines = [HEAD]
    lines += [f"    {name}: {kind}" for name, (kind, _) in keywords().items()]
    return "\n".join(lines) + "\n"


def page_text() -> str:
    """Returns the page of documentation, by the topics of the options."""
    parts = [INTRO.rstrip("\n")]
    topics = {SETTINGS[name].topic: None for name in keywords()}
    for topic in topics:
        parts += ["", f"## {topic}", "", "| keyword | type | default | meaning |", "|---|---|---|---|"]
        for name, (kind, meaning) in keywords().items():
            if SETTINGS[name].topic is topic:
                shown = re.sub(r"Literal\[(.*?)\]", lambda match: match[1].replace(", ", " | "), kind)
                cells = [f"`{name}`", f"`{shown}`".replace("|", "\\|"), typed_text(default_of(name)), meaning]
                parts.append(f"| {' | '.join(cells)} |")
    return "\n".join(parts) + "\n"


def main() -> int:
    """The command."""
    TYPES.write_text(types_text(), "utf-8")
    PAGE.write_text(page_text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
