"""The directives of a page: metas and X-Robots-Tag fields, the agents that they name, and the strictest of several."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.robots import page_directives

TAG = "X-Robots-Tag"


@pytest.mark.parametrize(
    ("metas", "headers", "expected"),
    [
        ([("robots", "noindex")], [], {"noindex"}),
        ([("ROBOTS", "NoIndex,NOFOLLOW")], [], {"noindex", "nofollow"}),
        ([("robots", "none")], [], {"none", "noindex", "nofollow"}),
        ([("robots", "all")], [], {"all"}),
        ([("robots", "index, follow"), ("outrider", "nofollow")], [], {"index", "nofollow"}),
        ([("robots", "all")], [(TAG, "noindex")], {"noindex"}),
        ([("googlebot", "noindex"), ("description", "nofollow")], [], set()),
        ([], [(TAG, "noindex"), ("x-robots-tag", "nofollow")], {"noindex", "nofollow"}),
        ([], [("X-Robots", "noindex")], set()),
        ([], [(TAG, "googlebot: nofollow")], set()),
        ([], [(TAG, "Outrider: nofollow")], {"nofollow"}),
        ([], [(TAG, "noarchive, otherbot: noindex, nofollow")], {"noarchive"}),
        ([], [(TAG, "otherbot: noindex, outrider: nofollow")], {"nofollow"}),
        ([], [(TAG, "max-snippet: 50"), (TAG, "max-snippet:20")], {"max-snippet:20"}),
        ([], [(TAG, "max-snippet:-1, max-snippet:0")], {"max-snippet:0"}),
        ([("robots", "max-image-preview:large")], [(TAG, "max-image-preview:none")], {"max-image-preview:none"}),
        ([("robots", "noindex nofollow")], [], {"noindex", "nofollow"}),
        ([], [(TAG, "otherbot: noindex, *: nofollow")], {"nofollow"}),
        (
            [("robots", "noindex; nofollow")],
            [(TAG, "otherbot: none; outrider: noarchive")],
            {"noindex", "nofollow", "noarchive"},
        ),
        (
            [("robots", "unavailable_after: Friday, 25-Jun-10 15:00:00 GMT")],
            [(TAG, "unavailable_after: Fri, 25 Jun 2010 15:00:00 GMT, nofollow")],
            {"unavailable_after:fri, 25 jun 2010 15:00:00 gmt", "nofollow"},
        ),
        ([], [(TAG, "otherbot: unavailable_after: Fri, 25 Jun 2010 15:00:00 GMT, noindex")], set()),
        ([("robots", ""), ("robots", " , ,")], [(TAG, ""), (TAG, ":")], set()),
    ],
)
def test_the_strictest_directives_for_the_agent_are_in_force(metas, headers, expected):
    assert expected == page_directives(metas, headers, "Outrider/0.1")


@given(
    st.lists(st.tuples(st.sampled_from(["robots", "a"]), st.text(max_size=40))),
    st.lists(st.tuples(st.just(TAG), st.text(max_size=40))),
    st.text(max_size=5),
)
def test_any_texts_are_read_and_one_more_text_never_allows_more(metas, headers, agent):
    found = page_directives(metas, headers, agent)
    strict = {"noindex", "nofollow", "none"}
    assert found & strict <= page_directives([*metas, ("robots", "noarchive")], headers, agent)
    assert all(word == word.lower() for word in found)


def test_the_directives_of_a_page_are_bounded():
    assert len(page_directives([("robots", ",".join(map(str, range(100_000))))], [], "a")) <= 100
