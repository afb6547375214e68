"""Reads a page: bytes in, links, directives, text and a SimHash out."""

from outrider.kernels import SimHashIndex
from outrider.page.content import FOLLOWABLE, NO_LINKS, Alternate, FoundLinks, Page, PageLink
from outrider.page.image import Image, image_of
from outrider.page.likeness import (
    BLOCK_WORDS_MIN,
    SHINGLES_MIN,
    SIMHASH_VERSION,
    near_pairs,
    simhash,
    simhash_of_text,
    text_digest,
)
from outrider.page.link_header import HeaderLink, header_links
from outrider.page.media_type import media_type
from outrider.page.reader import ReadPages, Unread, followed_of, read, read_many
from outrider.page.selecting import Source
from outrider.page.sitemap_reader import Sitemap, SitemapEntry, in_location, read_sitemap

__all__ = [
    "BLOCK_WORDS_MIN",
    "FOLLOWABLE",
    "NO_LINKS",
    "SHINGLES_MIN",
    "SIMHASH_VERSION",
    "Alternate",
    "FoundLinks",
    "HeaderLink",
    "Image",
    "Page",
    "PageLink",
    "ReadPages",
    "SimHashIndex",
    "Sitemap",
    "SitemapEntry",
    "Source",
    "Unread",
    "followed_of",
    "header_links",
    "image_of",
    "in_location",
    "media_type",
    "near_pairs",
    "read",
    "read_many",
    "read_sitemap",
    "simhash",
    "simhash_of_text",
    "text_digest",
]
