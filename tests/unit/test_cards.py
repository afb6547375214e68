"""Cards in columns: joined and chosen. Their heads keep the 72 bytes on which kernels, log and disk depend."""

from __future__ import annotations

import numpy as np

from outrider.frontier.format.card_columns import Cards
from outrider.kernels.card_layout import HEAD, HEAD_BYTES


def cards(*urls: bytes) -> Cards:
    heads = np.zeros(len(urls), HEAD)
    heads["url_bytes"] = [len(url) for url in urls]
    heads["flags"] = 1
    return Cards(heads, b"".join(urls), np.array([0, *map(len, urls)]).cumsum())


def test_joined_cards_are_those_of_the_parts_with_heads_of_72_bytes() -> None:
    joined = Cards.concatenate([cards(b"a", b"bc"), Cards.none(), cards(b"def")])
    assert ["a", "bc", "def"] == joined.urls()
    assert (HEAD, 3 * HEAD_BYTES) == (joined.heads.dtype, len(joined.heads.tobytes()))
    assert [1, 1, 1] == joined.heads["flags"].tolist()


def test_chosen_cards_keep_their_bodies() -> None:
    some = cards(b"a", b"bc", b"def").take([2, 0])
    assert (["def", "a"], HEAD_BYTES) == (some.urls(), some.heads.dtype.itemsize)
