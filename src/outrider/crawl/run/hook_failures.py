"""Failures of hooks while a crawl runs: the first traceback at once, one line for each further kind, and counts.

A failed hook ends only its page, so a crawl can lose every page and still finish. These counts say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from outrider.crawl.output.summary import HookFailure, failure_text, ranked, way_out
from outrider.crawl.run.hooks import HookFailed
from outrider.limits import HOOK_KINDS_TOLD_MAX

TOO_LARGE = "too_large"
"""The error class of an outcome that the frontier cannot keep."""
MOST_SHARE = 0.5
"""A run in which hooks failed on more than this share of its pages ends with an exit code of its own."""


class HookFailures:
    """Counts the failures of one run and says the first of each kind; used by one thread."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        """say: prints a line for the user."""
        self._say = say
        self._first_told = False
        self._told: set[tuple[str, ...]] = set()
        self._pages: Counter[str] = Counter()
        self._others: Counter[str] = Counter()
        self._texts: dict[str, Counter[str]] = {}
        self._firsts: dict[str, tuple[str, str]] = {}  # name of the hook and URL, by error class
        self._whole = 0

    def page_was_read(self) -> None:
        """Counts a page with content that no hook failed for."""
        self._whole += 1

    def failed(self, fault: HookFailed, url: str, *, page: bool) -> None:
        """Counts a failure, and says it where it is the first of its kind. page: whether it ended a page."""
        (self._pages if page else self._others)[fault.word] += 1
        texts = self._texts.setdefault(fault.word, Counter())
        text = fault.text()
        if text in texts or len(texts) < HOOK_KINDS_TOLD_MAX:
            texts[text] += 1
        self._firsts.setdefault(fault.word, (fault.name, url))
        kind = fault.kind()
        if kind in self._told or len(self._told) >= HOOK_KINDS_TOLD_MAX:
            return
        self._told.add(kind)
        who = f"the hook {fault.name}" if fault.is_of_user else "a reader of Outrider (this is a bug)"
        lines = fault.lines()
        if self._first_told or len(lines) == 1:  # a value that was refused has no frames of the user
            self._say(f"{who} failed for {url}: {text}")
            return
        self._first_told = True
        self._say(f"{who} failed for {url}; the crawl continues without this page, and crawl.log has the next ones:")
        for line in lines:
            self._say(f"  {line}")

    def refused(self, what: str, text: str) -> None:
        """Says the first part of an outcome that the frontier does not keep, and why."""
        if (TOO_LARGE,) not in self._told:
            self._told.add((TOO_LARGE,))
            self._say(f"left out: {what}: {text}; crawl.log has the next ones")

    def found(self) -> tuple[HookFailure, ...]:
        """The failures of the user's hooks, the most pages first."""
        counts = self._pages or self._others
        return tuple(self._of(word, count) for word, count in ranked(counts) if word.startswith("hook_"))

    def _of(self, word: str, count: int) -> HookFailure:
        name, url = self._firsts[word]
        (exception, _), *_ = self._texts[word].most_common(1)
        kinds = sum(kind[0] == word for kind in self._told)
        return HookFailure(name, word, count, self.pages, exception, url, max(1, kinds))

    @property
    def pages(self) -> int:
        """How many pages hooks could have seen: those with content, and those that a hook failed for."""
        return self._whole + sum(self._pages.values())

    @property
    def on_most_pages(self) -> bool:
        """Whether hooks of the user failed on most pages of this run, or on every request where it has no page."""
        failed = sum(count for word, count in self._pages.items() if word.startswith("hook_"))
        if failed:
            return failed > MOST_SHARE * self.pages
        return not self._whole and any(word.startswith("hook_") for word in self._others)

    def ending(self, output: str) -> str:
        """One clause on why a run ends with the exit code for hooks, with the command that helps."""
        worst = self.found()[0]
        return f"the hook {failure_text(worst)}; {way_out(worst, output)}"
