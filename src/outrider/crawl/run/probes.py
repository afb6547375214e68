"""Probes: requests for random names without a link, which detect sites that answer any name with a page
(docs/traps.md).

A random path next to a page of a site detects soft 404s, a random name under a domain detects wildcard DNS. The pages
of the site, or of the hosts of the domain, are compared with the answer. A page like the answer is kept, but counts as
no new content. It is gone only if it says "not found", as two answers of its site do. A site is probed when some of its
pages were like other pages of it; most sites never are. `probes.jsonl` records requests and answers: the frontier
queues the probe, the file is synced, then the outcome that led to it is reported. So a crash between two steps repeats
the request for the same URL, and for no other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from outrider.clock import Instant, instant
from outrider.crawl.output.output_frontier import OutputFrontier
from outrider.crawl.run.known_lines import known_lines
from outrider.crawl.run.visit import Judgement, Visit
from outrider.crawl.setup.options import CrawlOptions
from outrider.journey import Code, Verdict, Word
from outrider.limits import (
    PROBE_AGE_SECONDS,
    PROBE_ANSWERS_MAX,
    PROBE_LINE_BYTES_MAX,
    PROBE_LINKS_MAX,
    PROBE_NAME_LETTERS,
    PROBE_WINDOW_SECONDS,
    PROBED_MAX,
    REDIRECT_HOPS_MAX,
)
from outrider.page import SHINGLES_MIN, Page
from outrider.storage.files import Files, append_synced
from outrider.url import UrlBatch, authority_of, host_of, registrable_domain

PROBES_FILE: Final = "probes.jsonl"
SOFT_404: Final = "soft_404"
"""The error class of a page that says that there is nothing, as those of two paths by chance do."""
REDIRECT: Final = "probe_redirect"  # to another page: that one is fetched under its own URL
DISTANCE_MAX: Final = 3  # bits of a SimHash, as for near copies
_ANY_HOST: Final = "*."
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_ENDING: Final = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,4}$")
# Words by which a page says that there is nothing, language by language: tests/unit/test_crawl_probes.py has a sentence
# of each. A page that says so in another one is kept.
_SAYS_SO: Final = re.compile(
    r"\b404\b|not[ -]found|(?:does|do)(?: not|n['’]?t) exist|(?:could|can)(?:not| not|n['’]?t) (?:be )?(?:find|found)"
    r"|no longer (?:available|exist)"
    r"|nicht gefunden|existiert nicht|introuvable|n['’]existe (?:pas|plus)"
    r"|no encontrad|no (?:se )?ha encontrado|no existe|não (?:foi )?encontr|não existe"
    r"|non (?:è stat[ao] )?trovat|non esiste|niet gevonden|bestaat niet"
    r"|nie znalezion|nie istnieje|hittades inte|finns inte|nenalezen|neexistuje|bulunamad"
    r"|не найден|не существует|見つかりません|存在しません|찾을 수 없|존재하지 않|找不到|不存在|未找到",
    re.IGNORECASE,
)
# Every phrase above contains one of these.
_MAY_SAY_SO: Final = re.compile(
    r"404|found|find|exist|available|gefunden|introuvable|encontr|trovat|esiste|gevonden|bestaat|znalezion|istnieje"
    r"|hittades|finns|nenalezen|bulunamad|найден|существует|見つかり|存在|찾을|존재|找不到|找到",
    re.IGNORECASE,
)


class ProbeLine(msgspec.Struct, omit_defaults=True):
    """A probe that was sent, or answered. of: a site, or `*.` and a domain. at: an instant. status: of the answer, -1
    before one, 0 without one. The other fields describe a page, see `ProbeAnswer`: of the answer or, before there is
    one, of the first page of the site."""

    of: str
    url: str
    at: int
    status: int = -1
    simhash: str = ""
    shingles: int = 0
    title: str = ""
    text: str = ""
    bare: str = ""
    nothing: bool = False
    links: list[int] = []

    def tell(self, page: ProbeAnswer) -> None:
        """Notes a page without its links."""
        self.simhash, self.shingles = f"{page.simhash:016x}", page.shingles
        self.title, self.text, self.bare = page.title, page.text, page.bare


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The page in the answer for a random URL. at: when. title, text, bare: digests; `text` of its whole text,
    `bare` of a short one that says there is no page, without the names in its URL ("" for others). nothing: it says
    so, in a short text or in its title, and the first page of its site is known and different. links: digests of the
    URLs that it links to."""

    url: str
    at: Instant
    simhash: int
    shingles: int
    title: str
    text: str
    bare: str
    nothing: bool
    links: frozenset[int]

    @classmethod
    def of(cls, url: str, page: Page, links: UrlBatch, at: Instant = 0) -> ProbeAnswer:
        """The answer that a page is."""
        title, bare = _bare(page.title, url), _nothing_of(url, page)
        digests = frozenset(_number(link) for link in links[:PROBE_LINKS_MAX])
        told = _digest(bare) if bare is not None else ""
        nothing = says_nothing(url, page)
        return cls(url, at, page.simhash, page.shingles, _digest(title), _digest(page.text), told, nothing, digests)

    @classmethod
    def from_line(cls, line: ProbeLine) -> ProbeAnswer:
        """Reads the answer in a line. Raises ValueError."""
        return cls(
            *(line.url, line.at, int(line.simhash, 16), line.shingles, line.title, line.text, line.bare, line.nothing),
            frozenset(line.links),
        )

    def is_like(self, url: str, page: Page) -> bool:
        """Whether text and title of another page are those of this answer, or nearly."""
        if _digest(_bare(page.title, url)) != self.title:
            return False
        if min(page.shingles, self.shingles) >= SHINGLES_MIN:
            return (page.simhash ^ self.simhash).bit_count() <= DISTANCE_MAX
        return self.text == _digest(page.text) or self.bare == _digest(_bare(page.text, url))

    def is_same(self, other: ProbeAnswer) -> bool:
        """Whether two pages of a site are one, for all that they may name their URLs."""
        if self.title != other.title:
            return False
        if min(self.shingles, other.shingles) >= SHINGLES_MIN:
            return (self.simhash ^ other.simhash).bit_count() <= DISTANCE_MAX
        return self.text == other.text or bool(self.bare and self.bare == other.bare)

    def has_all(self, url: str, links: UrlBatch) -> bool:
        """Whether this answer has all links of another page."""
        return len(links) <= PROBE_LINKS_MAX and all(self._has(url, link) for link in links)

    def _has(self, url: str, link: str) -> bool:
        """Whether this answer has the link of a page: the same one, or one with the same relation to its own URL as the
        link to the URL of the page."""
        if link == url or _number(link) in self.links:
            return True
        for own, other in zip(_places(url), _places(self.url), strict=True):
            if link.startswith(own) and _number(other + link[len(own) :]) in self.links:
                return True
        return False


@dataclass(frozen=True, slots=True)
class Likeness:
    """A page like the answer to a probe. probe: the URL of that. nothing: there is no page. leads_on: it has links that
    the answer lacks."""

    probe: str
    nothing: bool
    leads_on: bool


@dataclass(slots=True)
class _Asked:
    """The probes of a site or a domain: their number, when the last one was sent, and the number of recent ones."""

    count: int = 0
    at: Instant = 0
    lately: int = 0


@dataclass(slots=True)
class _DomainHosts:
    """The hosts of a domain that were met in a window. since: its beginning."""

    since: Instant
    names: set[str] = field(default_factory=set)


class Probes:
    """Sends probes, remembers and compares; used by one thread, the frontier's."""

    def __init__(self, frontier: OutputFrontier, options: CrawlOptions, files: Files | None = None) -> None:
        """files: the crawl's directory; None keeps nothing beyond this object. Raises StoreError."""
        self._frontier = frontier
        self._pages_min = options.probe_pages if options.traps else 0
        self._hosts_min = options.probe_hosts if options.traps and options.scope in ("domain", "any") else 0
        self._seed = options.seed
        self._files = files
        self._length = 0
        self._asked: dict[str, _Asked] = {}
        self._answers: dict[str, tuple[ProbeAnswer, ...]] = {}  # the last one, or two
        self._alike: dict[str, int] = {}  # by site: pages that were like other pages of it
        self._firsts: dict[str, ProbeAnswer] = {}  # by site: its first page, of this run or as an earlier one noted it
        self._nothings: dict[int, None] = {}  # short pages that say there is nothing
        self._hosts: dict[str, _DomainHosts] = {}  # by domain
        self._wanted: list[str] = []
        self._unwritten: list[ProbeLine] = []
        if files is not None:
            self._read(files)

    def _read(self, files: Files) -> None:
        for line, size in known_lines(files, PROBES_FILE, ProbeLine, PROBE_LINE_BYTES_MAX):
            self._remember(line)
            self._length += size

    def _remember(self, line: ProbeLine) -> None:
        if line.status < 0:
            asked = self._asked.setdefault(line.of, _Asked())
            asked.lately = asked.lately + 1 if asked.count and line.at < asked.at + instant(PROBE_AGE_SECONDS) else 1
            asked.count, asked.at = asked.count + 1, line.at
            if line.title and line.of not in self._firsts:
                self._firsts[line.of] = ProbeAnswer.from_line(line)
                _forget_first(self._firsts, PROBED_MAX)
            return
        before = self._answers.pop(line.of, ())
        # A site that answers one name with a page and another without has pages of its own: neither answer counts.
        if line.title:
            young = [one for one in before if line.at < one.at + instant(PROBE_AGE_SECONDS) and one.url != line.url]
            self._answers[line.of] = (*young[-1:], ProbeAnswer.from_line(line))
            _forget_first(self._answers, PROBE_ANSWERS_MAX)

    # -- pages --------------------------------------------------------------------------------------------------------

    def judged(self, url: str, depth: int, page: Page, links: UrlBatch) -> Likeness | None:
        """Returns the likeness of a page to the answer to a probe of its site or its domain; None for a page without
        one, and for seeds.

        There is no page if it is like both of two answers of its site, has no link that they lack, and all three say
        that there is no page. One answer proves nothing, nor do two like the first page of the site, nor two of a site
        whose first page is unknown: a site may have one text for all its pages, or one bad hour.
        """
        if not self._answers or not depth or not page.octets:
            return None
        for answers in self._answers_for(url):
            alike = [one for one in answers if one.is_like(url, page)]
            if not alike:
                continue
            copies = [one for one in alike if one.has_all(url, links)]
            proven = len(copies) == 2 and all(one.nothing for one in copies) and copies[0].is_same(copies[1])
            nothing = proven and says_nothing(url, page) and answers is self._answers.get(authority_of(url))
            return Likeness(alike[-1].url, nothing, leads_on=not copies)
        return None

    def _answers_for(self, url: str) -> Iterator[tuple[ProbeAnswer, ...]]:
        """The answers that a page is compared with: those of its site, then those of its domain. Not the front page of
        a site, nor those of the domain itself and its www: many sites show these for any name."""
        site, host = authority_of(url), host_of(url)
        of_site = self._answers.get(site)
        if self._pages_min and of_site is not None and url != f"{site}/":
            yield of_site
        domain = registrable_domain(host) if self._hosts_min else None
        of_domain = self._answers.get(f"{_ANY_HOST}{domain}")
        if domain is not None and of_domain is not None and host not in (domain, f"www.{domain}"):
            yield of_domain

    def count(self, url: str, page: Page, now: Instant, *, copy: bool) -> None:
        """Counts a page that is like other pages of its site, and its host among those of its domain; wants a probe if
        there are enough. copy: whether it is the copy of another page or of an answer, or nearly."""
        site, host = authority_of(url), host_of(url)
        if self._pages_min and site not in self._firsts:
            self._firsts[site] = ProbeAnswer.of(url, page, UrlBatch.of(()), now)
            _forget_first(self._firsts, PROBED_MAX)
        if self._pages_min and (copy or self._says_so_again(site, url, page)):
            found = self._alike.get(site, 0) + 1
            self._alike[site] = found
            if (found >= self._pages_min or site in self._answers) and self._is_due(site, now):
                self._ask(site, _random_url(url, self._name(site)), now)
            _forget_first(self._alike, PROBED_MAX)
        domain = registrable_domain(host) if self._hosts_min else None
        if domain in (None, host):
            return
        of = f"{_ANY_HOST}{domain}"
        if not self._is_due(of, now):
            return
        hosts = self._hosts.get(of)
        if hosts is None or now >= hosts.since + instant(PROBE_WINDOW_SECONDS):
            hosts = self._hosts[of] = _DomainHosts(now)
            _forget_first(self._hosts, PROBED_MAX)
        hosts.names.add(host)
        if len(hosts.names) >= self._hosts_min:
            del self._hosts[of]
            scheme, _, rest = site.partition("://")
            self._ask(of, f"{scheme}://{self._name(of)}.{domain}{rest[len(host) :]}/", now)

    def _says_so_again(self, site: str, url: str, page: Page) -> bool:
        """Whether a short page says that there is nothing, in the words of another one of the site."""
        bare = _nothing_of(url, page)
        if bare is None:
            return False
        number = _number(f"{site}\n{_bare(page.title, url)}\n{bare}")
        known = number in self._nothings
        self._nothings[number] = None
        _forget_first(self._nothings, PROBED_MAX)
        return known

    def _is_due(self, of: str, now: Instant) -> bool:
        """Whether to probe a site or domain: for the first time, again after a month, or a second time, if
        the first answer of a site says that there is no page."""
        asked = self._asked.get(of)
        if asked is None or now >= asked.at + instant(PROBE_AGE_SECONDS):
            return True
        answers = self._answers.get(of, ())
        return asked.lately == 1 and len(answers) == 1 and answers[0].nothing and not of.startswith(_ANY_HOST)

    def _name(self, of: str) -> str:
        """A name that no site has: drawn by the seed of the crawl, another one with each probe."""
        drawn = hashlib.blake2b(f"{self._seed}\n{of}\n{self._asked.get(of, _Asked()).count}".encode()).digest()
        return "".join(_LETTERS[octet % len(_LETTERS)] for octet in drawn[:PROBE_NAME_LETTERS])

    def _ask(self, of: str, url: str, now: Instant) -> None:
        if len(self._asked) >= PROBED_MAX and of not in self._asked:
            return
        line = ProbeLine(of, url, now)
        if (first := self._firsts.get(of)) is not None:
            line.tell(first)
        self._remember(line)
        self._wanted.append(url)
        self._unwritten.append(line)

    # -- answers ------------------------------------------------------------------------------------------------------

    def of_probe(self, visit: Visit, judgement: Judgement, page: Page | None, links: UrlBatch) -> Judgement:
        """Stores the answer to a probe; returns its judgement with regard to that. A temporary failure ends it
        too, because nothing waits for a probe."""
        lease = visit.lease
        asked = lease.referrer if lease.referrer is not None else lease.url
        of = _asked_of(asked)
        line = ProbeLine(of, lease.url, visit.now, visit.status or 0)
        if judgement.verdict is Verdict.RETRY:
            judgement = replace(judgement, word=Word.ERROR, verdict=Verdict.GONE)
        elif judgement.location is not None:
            if lease.hops < REDIRECT_HOPS_MAX and _is_same_name(asked, judgement.location):
                return judgement
            judgement = Judgement(Word.GONE, Verdict.GONE, REDIRECT)
        elif judgement.verdict is Verdict.DONE and page is not None and page.octets:
            answer = ProbeAnswer.of(lease.url, page, links, visit.now)
            first = self._firsts.get(of)
            if first is None or first.is_same(answer):
                answer = replace(answer, nothing=False)
            line.tell(answer)
            line.nothing, line.links = answer.nothing, sorted(answer.links)
        self._remember(line)
        self._unwritten.append(line)
        return judgement

    def write(self) -> None:
        """Queues the wanted probes, and writes what was sent and answered; repeating the call changes
        nothing. Raises StoreError."""
        if self._wanted:
            codes = self._frontier.queue_errands("probe", self._wanted)
            refused = {url for url, code in zip(self._wanted, codes, strict=True) if code is Code.OVER_LIMIT}
            self._unwritten = [line for line in self._unwritten if line.status >= 0 or line.url not in refused]
            self._wanted = []
        lines, self._unwritten = self._unwritten, []
        if self._files is None or not lines:
            return
        try:
            octets = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
            self._length = append_synced(self._files, PROBES_FILE, self._length, octets)
        except BaseException:
            self._unwritten = lines
            raise


def _asked_of(url: str) -> str:
    """Returns the site or the domain of a probe with this URL."""
    site = authority_of(url)
    return f"{_ANY_HOST}{registrable_domain(host_of(url))}" if url == f"{site}/" else site


def _is_same_name(asked: str, target: str) -> bool:
    """Whether a redirect leads to the name by chance in another spelling: with a slash, with another scheme."""
    path = asked[len(authority_of(asked)) :]
    return host_of(target) == host_of(asked) and path.strip("/").rpartition("/")[2] in target


def _random_url(url: str, name: str) -> str:
    """A URL by chance in the folder of a page, with its ending."""
    site = authority_of(url)
    path = url[len(site) :].partition("?")[0].partition(";")[0]
    folder = path[:-1].rpartition("/")[0] if path != "/" else ""
    last = path[len(folder) + 1 :]
    ending = "/" if last.endswith("/") else (found[0] if (found := _ENDING.search(last)) else "")
    return f"{site}{folder}/{name}{ending}"


def _places(url: str) -> tuple[str, str, str]:
    """A URL without its query and last slash, its folder, and its site."""
    own = url.partition("?")[0].partition(";")[0].rstrip("/")
    return own, own.rpartition("/")[0] + "/", authority_of(url)


def _bare(text: str, url: str) -> str:
    """A text without the names in the URL of its page: its host, its path, the last name of that."""
    site = authority_of(url)
    rest = url[len(site) :]
    path = rest.partition("?")[0].rstrip("/")
    for own in (url, unquote(url), rest, unquote(rest), path, unquote(path), site, host_of(url)):
        if len(own) > 1:
            text = text.replace(own, "")
    last = {path.rpartition("/")[2], unquote(path.rpartition("/")[2])}
    return " ".join(word for word in text.split() if word.strip("\"'“”‘’«».,:;!?()") not in last)


def says_nothing(url: str, page: Page) -> bool:
    """Whether a page says that there is nothing under its URL: in its title or, where it is short, in its text. The
    names in the URL say nothing."""
    return _nothing_of(url, page) is not None or _SAYS_SO.search(_bare(page.title, url)) is not None


def _nothing_of(url: str, page: Page) -> str | None:
    """The text of a short page without the names in its URL, where it or the title says that there is nothing."""
    if page.shingles >= SHINGLES_MIN or not page.octets:
        return None
    text = page.text
    if _MAY_SAY_SO.search(text) is None and _MAY_SAY_SO.search(page.title) is None:
        return None
    bare = _bare(text, url)
    return bare if _SAYS_SO.search(f"{_bare(page.title, url)}\n{bare}") is not None else None


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little")


def _forget_first(kept: dict[Any, Any], most: int) -> None:
    if len(kept) > most:
        del kept[next(iter(kept))]
