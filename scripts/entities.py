"""Writes the named character references of HTML for the kernel, `crates/kernels/src/html/entities.rs`, to standard out.

Python's `html.entities.html5` is the table of the WHATWG HTML Standard, section 13.5. It never changes.
"""

from __future__ import annotations

from html.entities import html5

LINE_CHARACTERS_MAX = 118


def main() -> None:
    print("//! The named character references (WHATWG HTML 13.5), sorted; made by `scripts/entities.py`.")
    print()
    print("/// Name without its ampersand, and the text that it stands for.")
    print("#[rustfmt::skip]")
    print(f"pub(super) static ENTITIES: [(&str, &str); {len(html5)}] = [")
    line = "   "
    for name, text in sorted(html5.items()):
        escaped = "".join(f"\\u{{{ord(character):x}}}" for character in text)
        entry = f' ("{name}", "{escaped}"),'
        if len(line) + len(entry) > LINE_CHARACTERS_MAX:
            print(line)
            line = "   "
        line += entry
    print(line)
    print("];")


if __name__ == "__main__":
    main()
