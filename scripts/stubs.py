"""Writes src/outrider/engine/derived.py: the methods that follow from the declarations above those of `Frontier`.

python scripts/stubs.py            writes the file of the package that is imported
python scripts/stubs.py --print    prints it
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

HEAD = '''"""Made by `scripts/stubs.py` of the words above each method of `Frontier`: to await it, to ask a server."""

from __future__ import annotations

from outrider.engine.calls import takes_builtins
from outrider.engine.owner import Frontier
from outrider.engine.verbs import asked, awaited
'''


def text() -> str:
    """The whole file."""
    frontier: Any = importlib.import_module("outrider.engine.owner").Frontier
    marks = {name: vars(method) for name, method in vars(frontier).items() if hasattr(method, "__dict__")}
    parts = [HEAD]
    for cls, doc, mark, make in (
        ("AwaitedVerbs", "The methods of `AsyncFrontier` that are made as `Frontier` declares.", "awaited", "awaited"),
        ("RemoteVerbs", "The methods of `RemoteFrontier` that are made as `Frontier` declares.", "served", "asked"),
    ):
        lines = [f"    {name} = {make}(Frontier.{name})" for name, found in marks.items() if mark in found]
        parts.append("\n".join(["", "@takes_builtins", f"class {cls}:", f'    """{doc}"""', "", *lines, ""]))
    return "\n".join(parts)


def main(given: list[str]) -> int:
    """The command."""
    if given == ["--print"]:
        print(text(), end="")
        return 0
    where = importlib.import_module("outrider.engine").__file__
    assert where is not None
    Path(where).with_name("derived.py").write_text(text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
