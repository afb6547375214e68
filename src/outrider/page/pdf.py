"""Reads PDF by pypdf (`pip install outrider[pdf]`): title, words and the links of its annotations.

The caller bounds time and memory: a crawl reads each in a process of its own (`crawl/run/reader_process.py`). Objects
that are damaged are passed over; a document that cannot be opened at all has no words and no links.
"""

from __future__ import annotations

import importlib.util
import io
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from outrider.limits import (
    LINKS_PER_PAGE_MAX,
    PDF_ANNOTATIONS_PER_SHEET_MAX,
    PDF_SECONDS,
    PDF_SHEETS_MAX,
    TEXT_BYTES_MAX,
)

if TYPE_CHECKING:
    import pypdf

PDF_TYPE: Final = "application/pdf"
_INHERITED: Final = ("/Resources", "/MediaBox", "/CropBox", "/Rotate")  # by sheets, from the nodes above them
_END_BYTES: Final = 2_048  # after `startxref` there are a number and a mark; some servers add a few lines
_CATALOG: Final = re.compile(rb"(\d{1,9})\s{1,9}(\d{1,5})\s{1,9}obj\b[^>]{0,200}/Type\s{0,9}/Catalog\b")
PDF_READER: Final = "outrider.page.pdf:read_pdf"


def reads_pdf() -> bool:
    """Whether pypdf is installed."""
    return importlib.util.find_spec("pypdf") is not None


def read_pdf(
    body: bytes, url: str, content_type: str, *, clock: Callable[[], float] = time.monotonic
) -> Mapping[str, Any]:
    """Returns title, description, language, text and links of a document, as a `readers` hook does; of its first sheets
    if it has more than `PDF_SHEETS_MAX`, or more than can be read in `PDF_SECONDS`."""
    import pypdf

    until = clock() + PDF_SECONDS

    # It warns of each damaged object, and the words are the document's.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL + 1)
    try:
        document = pypdf.PdfReader(io.BytesIO(_ended(body)), strict=False)
        if document.is_encrypted and not document.decrypt(""):
            return {}
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - damage shows as any error: struct's, zlib's, a missing key, too deep a nesting
        return {}
    words: list[str] = []
    room = TEXT_BYTES_MAX
    links: list[str] = []
    for sheet in islice(_sheets(document, lambda: clock() > until), PDF_SHEETS_MAX):
        if room <= 0 and len(links) >= LINKS_PER_PAGE_MAX:
            break
        if room > 0:
            text = " ".join((_whole(sheet.extract_text) or "").split())
            room -= len(text) + 1
            words.append(text)
        if len(links) < LINKS_PER_PAGE_MAX:
            links += _whole(lambda sheet=sheet: list(_annotated(sheet))) or []
    told = _whole(lambda: document.metadata) or {}
    language = _whole(lambda: document.root_object.get("/Lang"))
    return {
        "title": _text(told, "/Title"),
        "description": _text(told, "/Subject"),
        "language": str(language) if language else None,
        "text": "\n".join(words),
        "links": links[:LINKS_PER_PAGE_MAX],
    }


def _ended(body: bytes) -> bytes:
    """The document with an end. One that is cut has no table of its objects; pypdf looks for them itself once an end
    names the catalog."""
    if b"startxref" in body[-_END_BYTES:]:
        return body
    catalogs = _CATALOG.findall(body)
    if not catalogs:
        return body
    return body + b"\nendstream\nendobj\ntrailer << /Root %s %s R >>\nstartxref\n0\n%%%%EOF\n" % catalogs[-1]


def _sheets(document: pypdf.PdfReader, late: Callable[[], bool]) -> Iterator[pypdf.PageObject]:
    """Yields the sheets in order, each when it is needed: `document.pages` reads all of them first, which needs
    ten seconds for a manual with 1,500."""
    import pypdf

    waiting: list[tuple[Any, dict[str, Any]]] = [(_whole(lambda: document.root_object.raw_get("/Pages")), {})]
    seen: set[int] = set()
    while waiting and not late():
        entry, inherited = waiting.pop()
        number = getattr(entry, "idnum", None)
        node = _whole(entry.get_object) if hasattr(entry, "get_object") else None
        if not isinstance(node, pypdf.generic.DictionaryObject) or number in seen:
            continue
        if number is not None:
            seen.add(number)
        inherited = {**inherited, **{name: node.raw_get(name) for name in _INHERITED if name in node}}
        kids = _whole(lambda node=node: node.get("/Kids"))
        if isinstance(kids, list):
            room = 2 * PDF_SHEETS_MAX - len(waiting)
            waiting += [(kid, inherited) for kid in reversed(list(kids)[: max(0, room)])]
            continue
        sheet = pypdf.PageObject(document, entry if number is not None else None)
        sheet.update({pypdf.generic.NameObject(name): value for name, value in inherited.items()})
        sheet.update(node)
        yield sheet


def _annotated(sheet: Any) -> Iterator[str]:
    """The URIs of the link annotations of one sheet; one that is damaged is passed over."""
    for entry in list(sheet.get("/Annots") or ())[:PDF_ANNOTATIONS_PER_SHEET_MAX]:
        target = _whole(lambda entry=entry: entry.get_object()["/A"]["/URI"])
        if isinstance(target, bytes):
            target = target.decode("utf-8", "replace")
        if isinstance(target, str) and target.strip():
            yield target.strip()


def _text(told: Mapping[str, Any], name: str) -> str:
    value = _whole(lambda: told.get(name))
    return " ".join(str(value).split()) if value else ""


def _whole(look: Any) -> Any:
    """The answer of `look`, None where that part of the document is damaged."""
    try:
        return look()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - damage shows as any error, and what is whole beside it is kept
        return None
