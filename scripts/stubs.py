"""Writes src/outrider/engine/derived.py: the methods that follow from the declarations above those of `Frontier`.

python scripts/stubs.py            writes the file of the package that is imported
python scripts/stubs.py --print    prints it
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from engine_file import put

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


if __name__ == "__main__":
    sys.exit(put("derived.py", text(), sys.argv[1:]))
