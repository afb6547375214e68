"""Pages under other folders: whether one repeats the page of its name in another folder, except for a few words.

A site that puts a session into its paths (`/calm-otter/page-7`, `/page-7/calm-otter`) has each of its pages under any
number of URLs, with a different greeting or clock. So a page whose name is in several folders of its host is
compared with the first pages of that name, and with those of its folder. It contains nothing new if it has the same
figures, and differs in a few words. A page whose name is in one folder is not compared, so a list of similar pages
remains new.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.crawl.run.text_signature import TextSignature, signature_of
from outrider.limits import KIN_KEPT_MAX, KIN_MISSES_MAX, KIN_NAMES_MAX, KIN_PAGES_MAX
from outrider.page import Page


@dataclass(slots=True)
class _FirstPages:
    """The first pages of a name, or of a folder, and the number of later ones in a row that were different."""

    pages: list[TextSignature] = field(default_factory=list)
    misses: int = 0
    repeats: bool = False  # whether any was like one of them

    @property
    def is_full(self) -> bool:
        """Whether enough pages differed to stop comparing."""
        return self.misses >= KIN_MISSES_MAX


class FolderCopies:
    """The names of the pages of a run, and what the pages of some names said; all of it is of that run."""

    def __init__(self, names_max: int = KIN_NAMES_MAX, kept_max: int = KIN_KEPT_MAX) -> None:
        self._names_max = names_max
        self._kept_max = kept_max
        self._folder_of: dict[int, int] = {}  # by name: its first folder
        self._groups: dict[int, _FirstPages] = {}
        self._kept = 0

    def repeats(self, url: str, page: Page) -> bool:
        """Whether this page says what one of its name in another folder said, or one of its folder under another name
        that stands in several folders."""
        parts = _parted(url)
        if parts is None:
            return False
        place, folder, name = parts
        of_name, of_folder = hash((place, name)), hash((place, folder))
        first = self._folder_of.get(of_name)
        if first is None:
            if len(self._folder_of) >= self._names_max:
                self._folder_of.clear()
            self._folder_of[of_name] = of_folder
        if first in (None, of_folder) and not ((here := self._groups.get(~of_folder)) and here.repeats):
            return False
        if self._kept >= self._kept_max:
            self._groups.clear()
            self._kept = 0
        groups = [self._groups.setdefault(number, _FirstPages()) for number in (of_name, ~of_folder)]
        groups = [group for group in groups if not group.is_full]
        if not groups:
            return False
        said = signature_of(page, url)
        found = False
        for group in groups:
            if any(said.is_nearly(one) for one in group.pages):
                group.misses, group.repeats, found = 0, True, True
            else:
                group.misses += bool(group.pages)
        if not found:
            for group in groups:
                if len(group.pages) < KIN_PAGES_MAX:
                    group.pages.append(said)
                    self._kept += 1
        return found


def _parted(url: str) -> tuple[str, str, str] | None:
    """Host and depth of a canonical URL, its folder, and its last name with the query; None where it has no folder."""
    host, _, rest = url.partition("://")[2].partition("/")
    path, mark, query = rest.partition("?")
    names = path.split("/")
    if not names[-1] or names[-1].startswith("index."):  # the page of a folder
        names = [*names[:-2], "/".join(names[-2:])]
    if len(names) < 2:
        return None
    return f"{host} {len(names)}", "/".join(names[:-1]), f"{names[-1]}{mark}{query}"
