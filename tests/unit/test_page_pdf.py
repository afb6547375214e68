"""PDF: the content found in a document. Every document is read within a limit of time and raises no error."""

from __future__ import annotations

import io
import zlib

import pytest

from limiting import set_limits
from outrider.limits import PDF_SECONDS
from outrider.page.pdf import read_pdf

pypdf = pytest.importorskip("pypdf")
U = "http://a.test/paper.pdf"


def pdf(*objects, trailer=b"/Root 1 0 R"):
    """Returns a document of these objects, numbered from 1, with a correct table of their places."""
    out = bytearray(b"%PDF-1.7\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<< /Size %d %s >>\nstartxref\n%d\n%%%%EOF\n" % (len(places) + 1, trailer, start)
    return bytes(out)


def stream(octets, words=b""):
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(octets), words, octets)


def document(text=b"(Hello PDF words) Tj", annots=b"", *more, catalog=b"", packed=False):
    content = b"BT /F1 12 Tf 72 700 Td " + text + b" ET"
    body = stream(zlib.compress(content), b"/Filter /FlateDecode") if packed else stream(content)
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R " + catalog + b" >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> /Annots [" + annots + b"] >>",
        body,
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Title (On  Frontiers) /Subject (of the web) >>",
        *more,
        trailer=b"/Root 1 0 R /Info 6 0 R",
    )


def link(uri):
    return b"<< /Type /Annot /Subtype /Link /Rect [0 0 1 1] /A << /S /URI /URI (" + uri + b") >> >>"


def told(body):
    return read_pdf(body, U, "application/pdf")


def test_title_words_language_and_links_are_found():
    annots = link(b"http://b.test/one") + link(b"two?x=1") + b"<< /Subtype /Link /Dest [3 0 R /Fit] >> 99 0 R (text) 7"
    found = told(document(annots=annots, catalog=b"/Lang (en-GB)", packed=True))
    assert ("On Frontiers", "of the web", "en-GB") == (found["title"], found["description"], found["language"])
    assert ("Hello PDF words", ["http://b.test/one", "two?x=1"]) == (found["text"], found["links"])


def test_a_cut_document_yields_its_whole_parts():
    whole = document(annots=link(b"http://b.test/"))
    found = told(whole[: whole.index(b"xref")])
    assert ("Hello PDF words", ["http://b.test/"]) == (found["text"], found["links"])


def test_a_locked_document_has_no_text():
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(document()))
    writer.encrypt("secret", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    assert {} == told(out.getvalue())


def test_the_number_of_links_is_limited(monkeypatch):
    set_limits(monkeypatch, LINKS_PER_PAGE_MAX=50)
    assert 50 == len(told(document(annots=link(b"x") * 60))["links"])


def test_a_slow_document_yields_its_first_pages():
    writer = pypdf.PdfWriter()
    for _ in range(4):
        writer.append(io.BytesIO(document()))
    out = io.BytesIO()
    writer.write(out)
    instants = iter([0.0, 1.0, 2.0, PDF_SECONDS, PDF_SECONDS + 1])
    found = read_pdf(out.getvalue(), U, "", clock=lambda: next(instants))
    assert "Hello PDF words\nHello PDF words" == found["text"]


HOSTILE = {
    "nothing": b"",
    "a head": b"%PDF-1.7",
    "a page of HTML": b"<!doctype html><a href=/x>x</a>",
    "zeros": bytes(100_000),
    "a table far away": b"%PDF-1.7\nstartxref\n99999999999\n%%EOF",
    "a table that is its own ancestor": b"%PDF-1.7\nxref\n0 0\ntrailer << /Prev 9 >>\nstartxref\n9\n%%EOF",
    "sheets in a circle": pdf(b"<< /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 99 >>"),
    "a catalog that is its own": pdf(b"1 0 R"),
    "no catalog": pdf(b"<< >>", trailer=b""),
    "a count of a billion": pdf(b"<< /Pages 2 0 R >>", b"<< /Type /Pages /Kids [] /Count 1000000000 >>"),
    "arrays in arrays": pdf(b"<< /Pages 2 0 R >>", b"[" * 50_000 + b"]" * 50_000),
    "dictionaries in dictionaries": document(annots=b"<< /A " * 20_000),
    "a stream that cannot be unpacked": document().replace(b"BT /F1", b"\x00\xff\xfe"),
    "NULs in names": document(annots=link(b"http://\x00b.test/\xff\xfe\x00")),
    "annotations that are a number": document().replace(b"/Annots []", b"/Annots 77"),
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_no_document_raises_an_error(name):
    found = told(HOSTILE[name])
    assert set(found) <= {"title", "description", "language", "text", "links"}
