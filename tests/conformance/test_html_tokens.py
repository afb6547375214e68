"""The tokeniser of the page kernel against html5lib's tokenizer cases: tags, attributes, text.

The data are next to the project (`../shared/data/html`). Comments and doctypes are not part of a page's columns: only
their ends count, and the tokens after them show these.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from outrider import kernels

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(kernels.in_use() != "native", reason="the tokeniser is a part of the native kernel"),
]

Token = tuple[str, str, dict[str, str], bool]


def expected_tokens(output: list[Any]) -> list[Token]:
    found: list[Token] = []
    for token in output:
        kind = token[0]
        if kind == "Character":
            if found and found[-1][0] == "Character":
                found[-1] = (kind, found[-1][1] + token[1], {}, False)
            else:
                found.append((kind, token[1], {}, False))
        elif kind == "StartTag":
            found.append((kind, token[1], token[2], len(token) > 3 and token[3]))
        elif kind == "EndTag":
            found.append((kind, token[1], {}, False))
    return found


def unescaped(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), value)
    if isinstance(value, list):
        return [unescaped(item) for item in value]
    if isinstance(value, dict):
        return {unescaped(name): unescaped(item) for name, item in value.items()}
    return value


def is_text(value: Any) -> bool:
    """Whether it can be encoded: a decoder never returns half a surrogate pair."""
    return not re.search("[\ud800-\udfff]", json.dumps(value, ensure_ascii=False))


def test_tags_attributes_and_text_are_cut_as_html5lib_cuts_them(shared: Path) -> None:
    from outrider._native import html_tokens

    wrong, cases = [], 0
    for file in sorted((shared / "data/html/html5lib/tokenizer").glob("*.json.gz")):
        for case in json.loads(gzip.decompress(file.read_bytes())).get("tests", []):
            text, output = case["input"], case["output"]
            if case.get("doubleEscaped"):
                text, output = unescaped(text), unescaped(output)
            if not is_text([text, output]):
                continue
            for state in case.get("initialStates", ["Data state"]):
                cases += 1
                tokens = html_tokens(text, state, case.get("lastStartTag", ""))
                found = [(kind, name, dict(attributes), closed) for kind, name, attributes, closed in tokens]
                if found != expected_tokens(output):
                    wrong.append((file.name, case["description"], state, expected_tokens(output), found))
    assert (4_200, []) == (cases // 100 * 100, wrong)
