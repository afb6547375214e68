"""Updates the packaged public suffix list, for maintainers: `python scripts/update_psl.py [FILE|URL]`.

Without an argument the list is fetched from publicsuffix.org, the only official source. Nothing else in the
project ever fetches it. The list in src/outrider/url/data keeps the licence, the version, the section marks and
the rules. Other comments and blank lines are removed. A list that is damaged, cut, or older than the packaged one is
refused.

A new list can change the registrable domain of a host. Users notice this, so add a line to CHANGELOG.md.
"""

from __future__ import annotations

import re
import sys
import urllib.request
from pathlib import Path

SOURCE = "https://publicsuffix.org/list/public_suffix_list.dat"
PACKAGED = Path(__file__).resolve().parent.parent / "src/outrider/url/data/public_suffix_list.dat"
BYTES_MAX = 8 << 20  # the list has a third of a megabyte
RULES_MIN = 9_000  # it has ten thousand; fewer is a list that was cut
MARKS = tuple(f"// ==={edge} {section} DOMAINS===" for section in ("ICANN", "PRIVATE") for edge in ("BEGIN", "END"))

_VERSION = re.compile(r"^// VERSION: (\d{4}-\d{2}-\d{2}_\d{2}-\d{2}-\d{2}_UTC)$", re.MULTILINE)
_RULE = re.compile(r"!?(?:\*\.)?[^\s.!*/]+(?:\.[^\s.!*/]+)*")


class ListError(ValueError):
    """This is not a public suffix list that can be packaged."""


def version_of(text: str) -> str:
    """The version line of a list, which begins with its date."""
    found = _VERSION.search(text)
    if found is None:
        raise ListError("the line '// VERSION: …' is missing")
    return found[1]


def packed(text: str, rules_min: int = RULES_MIN) -> str:
    """A list without what only people read. Raises ListError for one that is not whole."""
    version_of(text)
    kept: list[str] = []
    marks: list[str] = []
    rules = 0
    for line in text.splitlines():
        entry = line.strip()
        if entry.startswith("// ==="):
            marks.append(entry)
        elif entry.startswith("//"):
            # The licence and the version are before the first section, and must stay with the list.
            if marks or "Instructions" in entry:
                continue
        elif entry:
            rule = entry.split()[0]
            if not _RULE.fullmatch(rule):
                raise ListError(f"{rule[:80]!r} is not a rule")
            if len(marks) % 2 == 0:
                raise ListError(f"{rule!r} is not in a section")
            entry = rule
            rules += 1
        elif marks:
            continue
        if entry or (kept and kept[-1]):
            kept.append(entry)
    if tuple(marks) != MARKS:
        raise ListError(f"its sections are {marks}, not {list(MARKS)}")
    if rules < rules_min:
        raise ListError(f"it has {rules} rules; a whole one has more than {rules_min}")
    return "\n".join(kept) + "\n"


def fetched(source: str) -> str:
    """Returns the text of a file or of an https address."""
    if source.startswith("https://"):
        with urllib.request.urlopen(source, timeout=60) as answer:
            octets = answer.read(BYTES_MAX + 1)
    else:
        octets = Path(source).read_bytes()
    if len(octets) > BYTES_MAX:
        raise ListError(f"it has more than {BYTES_MAX} bytes")
    return octets.decode("utf-8")


def main(arguments: list[str]) -> int:
    source = arguments[0] if arguments else SOURCE
    try:
        text = packed(fetched(source))
        new = version_of(text)
        old = version_of(PACKAGED.read_text("utf-8")) if PACKAGED.exists() else ""
        if new < old:
            raise ListError(f"it is of {new}, the packaged one of {old}")
    except (OSError, ValueError) as error:
        print(f"update_psl: {source}: {error}", file=sys.stderr)
        return 1
    PACKAGED.parent.mkdir(exist_ok=True)
    PACKAGED.write_text(text, "utf-8")
    print(f"update_psl: {old or 'nothing'} -> {new}" if new != old else f"update_psl: {new} is the newest")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
