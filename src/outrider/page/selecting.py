"""The decoded text of a body, and CSS selectors and XPath expressions on it through parsel, loaded on first use.

A page is from the web, so its tree is bounded before it is made: by its size, and by the attributes of one tag. lxml
compares each attribute with all earlier ones: 100,000 attributes in one tag need 40 seconds. Neither parser nor
expression reads a file or the network: libxml2 is configured so, and parsel registers no function that could.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from outrider import kernels
from outrider.errors import SelectorError
from outrider.limits import SELECTED_ATTRIBUTES_MAX, SELECTED_BYTES_MAX, SELECTED_BYTES_UNCHECKED
from outrider.page.media_type import XHTML_TYPE
from outrider.sniffing import declared_type

if TYPE_CHECKING:
    from parsel import Selector, SelectorList

_TEXT_BYTES_MAX: Final = 1 << 30  # a body that was kept is shorter


class Source:
    """The body of a page as text and as a tree; each is made on first use."""

    def __init__(self, body: bytes, url: str, content_type: str, charset: str) -> None:
        """charset: the label that a reader found, otherwise `utf-8`."""
        self._body = body
        self._url = url
        self._content_type = content_type
        self._charset = charset

    @cached_property
    def html(self) -> str:
        """The decoded text. A byte order mark counts before the charset of the reader, as browsers have it."""
        label: str | None = self._charset
        if label == "utf-8":  # perhaps the default of a reader that looks for no charset
            label = declared_type(self._content_type).label or label
        return kernels.decode_text(self._body, label, _TEXT_BYTES_MAX)[1].decode()

    @cached_property
    def selector(self) -> Selector:
        """The tree. Raises SelectorError for a page that is too large for one."""
        import parsel
        from lxml import etree

        essence = declared_type(self._content_type).essence
        octets = self.html.replace("\0", "\ufffd").encode()
        if len(octets) > SELECTED_BYTES_MAX:
            raise SelectorError(
                f"{self._url} has {len(octets):,} bytes of text, and selectors read {SELECTED_BYTES_MAX:,}; "
                "read `page.html` yourself"
            )
        if essence != XHTML_TYPE and (essence in _XML or essence.endswith("+xml")):
            xml = etree.XMLParser(recover=True, resolve_entities=False, no_network=True, encoding="utf-8")
            root: Any = etree.fromstring(octets, parser=xml, base_url=self._url) if octets.strip() else None
            return parsel.Selector(root=etree.Element("empty") if root is None else root, type="xml")
        if len(octets) > SELECTED_BYTES_UNCHECKED and may_have_many_attributes(octets, SELECTED_ATTRIBUTES_MAX):
            self._check_attributes()
        html = etree.HTMLParser(recover=True, huge_tree=True, no_network=True, encoding="utf-8")
        root = etree.fromstring(octets, parser=html, base_url=self._url) if octets.strip() else None
        return parsel.Selector(root=etree.Element("html") if root is None else root, type="html")

    def _check_attributes(self) -> None:
        import turbohtml

        for token in turbohtml.tokenize(self.html):
            if token.attrs and len(token.attrs) > SELECTED_ATTRIBUTES_MAX:
                raise SelectorError(
                    f"a tag <{token.tag:.20}> of {self._url} has {len(token.attrs):,} attributes, and selectors read "
                    f"{SELECTED_ATTRIBUTES_MAX:,} of a tag; read `page.html` yourself"
                )

    def css(self, selector: str) -> SelectorList[Selector]:
        """The elements that a CSS selector matches. Raises SelectorError."""
        tree = self.selector
        try:
            return tree.css(_text(selector))
        except (SyntaxError, RuntimeError, ValueError) as error:  # cssselect's errors are some of these
            raise SelectorError(f"{selector!r:.200} is not a CSS selector that parsel reads ({error})") from None

    def xpath(self, expression: str, **variables: Any) -> SelectorList[Selector]:
        """The nodes or the value of an XPath expression. variables: values of its `$name`. Raises SelectorError."""
        tree = self.selector
        try:
            return tree.xpath(_text(expression), **variables)
        except ValueError as error:
            told = str(error).removeprefix("XPath error: ").removesuffix(f" in {expression}")
            raise SelectorError(f"{expression!r:.200} is not an XPath expression ({told})") from None


# A value in quotes that has a `>` in it. Each run of octets is searched once, whatever the page contains.
_QUOTED_END: Final = re.compile(rb"""=[\t\n\f\r ]*+(?:"[^">]*+>|'[^'>]*+>)""")


def may_have_many_attributes(octets: bytes, attributes_max: int) -> bool:
    """Whether one tag of a page may have more attributes; nearly always False, and a tenth of the time of a tokeniser.

    A tag ends at its first `>` outside of a quoted value, and an attribute needs two bytes. So a tag with too many is
    a long piece without a `>`, or it has a quoted value with one.
    """
    ends = np.flatnonzero(np.frombuffer(octets, np.uint8) == ord(">"))
    longest = int(np.diff(ends, prepend=-1, append=len(octets)).max())
    return longest > 2 * attributes_max or _QUOTED_END.search(octets) is not None


_XML: Final = frozenset({"application/xml", "text/xml"})


def _text(selector: object) -> str:
    if not isinstance(selector, str):
        raise SelectorError(f"{selector!r:.200} is not text; use a selector such as 'h1::text' or '//h1/text()'")
    return selector
