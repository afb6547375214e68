"""docs/coming.md and docs/cannot.md: each option that they name exists, and each number is the current one."""

from __future__ import annotations

import re

import pytest

from outrider.crawl.setup.options import SETTINGS
from outrider.limits import BODY_BYTES_MAX, PDF_BYTES_MAX, RETRY_SECONDS, TRUNCATE_BYTES_MAX, WARC_ROLL_BYTES
from outrider.page import FOLLOWABLE


def page(project, name):
    return (project / "docs" / name).read_text("utf-8")


@pytest.mark.parametrize("name", ["coming.md", "cannot.md"])
def test_every_option_of_the_page_is_an_option_of_crawl(project, name):
    text = page(project, name)
    if name == "coming.md":  # the first cell of a row is the option of the other tool
        text = "\n".join("|".join(row.split("|")[2:]) for row in text.splitlines() if row.startswith("| "))
    there = {f"--{more}{name.replace('_', '-')}" for name in SETTINGS for more in ("", "no-")}
    there |= {f"--{setting.off}" for setting in SETTINGS.values() if setting.off}
    flags = set(re.findall(r"`(--[a-z-]+)", text)) - {"--what", "--to"}
    assert len(flags) > 2
    assert set() == flags - there


def test_every_value_that_is_shown_for_an_option_is_accepted(project):
    told = re.findall(r"`--([a-z-]+) ([a-z]+)`", page(project, "coming.md") + page(project, "cannot.md"))
    assert ("scope", "prefix") in told
    for name, value in told:
        SETTINGS[name.replace("-", "_")].read(value)


def test_the_numbers_of_the_page_are_the_limits(project):
    text = " ".join(page(project, "cannot.md").split())
    assert f"{BODY_BYTES_MAX // 1_000_000} MB of an answer" in text
    assert f"to {TRUNCATE_BYTES_MAX // 1_000_000} MB at most" in text
    assert f"For PDF the limit is {PDF_BYTES_MAX // 1_000_000} MB" in text
    assert "after {:.0f}, {:.0f} and {:.0f} seconds".format(*RETRY_SECONDS) in text
    assert f"files of {WARC_ROLL_BYTES >> 30} GB" in page(project, "coming.md")
    assert {"a", "area", "frame", "iframe", "meta"} == FOLLOWABLE
