"""Lossy rules: they merge spellings that usually mean one page. Named, ordered, each switchable, all off by default.

URLs that the standards call equal are already equal (spelling.py). Each rule here goes further and can change which
page a URL points to; docs/urls.md says how, with examples. They run in the order of `RULES`, after the patterns of the
URL's host:

    https               http becomes https if no port is given
    www                 removes a leading `www.` if the result is a registrable domain or below one
    host_dot            removes the trailing dot of a host
    strict_characters   percent-encodes what RFC 3986 does not allow in path and query: stray `%`, `[`, `|` …
    repeated_slashes    `//` in a path becomes `/`
    session_ids         removes session ids from the path and the query
    index_files         removes a final `index.html` (.htm, .php …, `default.aspx` …) of a path
    trailing_slash      removes slashes at the end of a path, except the first
    tracking            removes parameters that only record the origin of a click (TRACKING_NAMES, TRACKING_PREFIXES)
    blank_parameters    removes `name=`
    empty_parameters    removes nameless parameters (`&&`, `=1`); `name=` becomes `name`
    sort_query          sorts parameters by name; those of one name keep their order

A result is canonical again, for every input, and applying the same rules to it changes nothing: the rules repeat until
nothing changes. A URL that still changes after ROUNDS_MAX rounds is not changed at all, and neither is one longer
than URL_BYTES_MAX: no pattern makes a URL grow without end.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

from outrider.errors import SettingsError
from outrider.limits import URL_BYTES_MAX
from outrider.url.keys import registrable_domain
from outrider.url.patterns import compiled
from outrider.url.refusal import shown
from outrider.url.spelling import host_of, mended, normalize, spell

RULES_VERSION = "1"
"""Written with the names in `LossyRules.text`: any change below that changes the result of a rule raises it."""

ROUNDS_MAX = 8  # ordinary URLs settle in two; each round costs a pass over the URL
REPLACEMENT_CHARACTERS_MAX = 200  # a replacement is typed by a person; it is written once per match
REPLACEMENTS_PER_URL_MAX = 32  # a path with more matches is not a real path; keeps the work linear
_HOST_PATTERN = re.compile(r"(?:\*\.)?[^\s*/:?#@]+|\[[0-9A-Fa-f:.]+\]")

TRACKING_PREFIXES = ("utm_",)
"""Beginnings of parameter names, lower case: Google Analytics' campaign parameters (support.google.com/analytics)."""

TRACKING_NAMES: Mapping[str, str] = {
    name: maker
    for maker, names in {
        "Google Ads and Merchant: the click": "gclid gclsrc dclid gbraid wbraid gad_source gad_campaignid srsltid",
        "Google Analytics: the visitor, from one domain to the next": "_ga _gl",
        "Meta: the click, the share": "fbclid fb_action_ids fb_action_types fb_ref fb_source igshid igsh",
        "Microsoft Advertising: the click": "msclkid",
        "Yandex and Openstat: the click": "yclid ysclid _openstat",
        "X: the click": "twclid",
        "TikTok: the click": "ttclid",
        "LinkedIn: the member": "li_fat_id",
        "Pinterest: the click": "epik",
        "Snapchat: the click": "sccid",
        "Reddit: the click": "rdt_cid",
        "Mailchimp: the campaign and the reader": "mc_cid mc_eid",
        "HubSpot: the mail, the visitor, the advertisement": (
            "_hsenc _hsmi __hssc __hstc __hsfp hsctatracking hsa_acc hsa_ad hsa_cam hsa_grp hsa_kw hsa_la hsa_mt"
            " hsa_net hsa_ol hsa_src hsa_tgt hsa_ver"
        ),
        "Marketo: the mail": "mkt_tok",
        "Vero: the mail": "vero_id vero_conv",
        "Omeda: the reader": "oly_anon_id oly_enc_id",
        "Drip: the reader": "__s",
        "Klaviyo: the reader": "_kx",
        "MailerLite: the reader": "ml_subscriber ml_subscriber_hash",
        "Oracle Eloqua: the mail": "elqtrack elqtrackid",
        "Adobe: the campaign and the advertisement": "s_cid s_kwcid ef_id",
        "Webtrends: the campaign": "wt.mc_id",
        "Matomo, once Piwik: the campaign": (
            "mtm_campaign mtm_cid mtm_content mtm_group mtm_keyword mtm_kwd mtm_medium mtm_placement mtm_source"
            " pk_campaign pk_cid pk_content pk_keyword pk_kwd pk_medium pk_source"
        ),
        "Branch: the link": "_branch_match_id _branch_referrer",
        "Awin, CJ, Impact: the partner's click": "awc cjevent irclickid",
        "Wicked Reports: the click": "wickedid",
    }.items()
    for name in names.split()
}
"""Parameter names, lower case, with their maker and purpose. They are the makers' own names, documented by
them and removed by browsers and filter lists. Names that sites use for their own pages (`ref`, `source`, `from`,
`cid`, `spm`, `trk`) are not among them."""

SESSION_NAMES = frozenset({"jsessionid", "phpsessid", "cfid", "cftoken", "zenid", "oscsid", "bv_sessionid"})
"""Parameter names of sessions, lower case: Java servlets, PHP, ColdFusion, Zen Cart, osCommerce, BroadVision."""
SESSION_NAMES_BY_VALUE = frozenset({"sid", "s", "session", "sessionid", "session_id", "sess", "sessid"})
"""Names that mean a session when the value looks like one, and a story, a song or a search when it does not. All of
these names are met with an underscore before them too."""

MAY_BE_SESSION = "".join(f"{name}\n" for name in (*sorted(SESSION_NAMES | SESSION_NAMES_BY_VALUE), "aspsessionid*"))
"""All of these names, and the start of those of ASP, for `kernels.shapes_of`."""

_ASP_SESSION = re.compile(r"aspsessionid[a-z]{8}").fullmatch
_TOKEN = re.compile(r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[0-9A-Za-z]{20,}").fullmatch
_PATH_SESSION = re.compile(r";(?:jsessionid|phpsessid)=[^;/]*", re.IGNORECASE)
# ASP.NET without cookies: /(S(24 letters and digits))/, with optional A(…), F(…), X(…); in version 1 /(24 of them)/.
_FOLDER_SESSION = re.compile(
    r"/(?:\((?:[AFX]\([\w-]*\))*S\([0-9a-z]{24}\)(?:[AFX]\([\w-]*\))*\)|\([0-9a-z]{24}\))(?=/)"
)
_INDEX_FILE = re.compile(
    r"(?:index|default)\.(?:s?html?|xhtml|php[3-6]?|phtml|aspx?|jsp[ax]?|jsf|cfm|cgi)", re.IGNORECASE
).fullmatch
_SLASHES = re.compile(r"/{2,}")
_WWW = re.compile(r"(?:www\.)*").match
_NOT_STRICT = re.compile(r"%(?![0-9A-Fa-f]{2})|[^A-Za-z0-9._~!$&'()*+,;=:@/?%-]")


class _Split(NamedTuple):
    scheme: str
    authority: str
    path: str
    query: str | None


def _split(url: str) -> _Split:
    scheme, _, rest = url.partition("://")
    slash = rest.index("/")
    path, mark, query = rest[slash:].partition("?")
    return _Split(scheme, rest[:slash], path, query if mark else None)


def _joined(parts: _Split) -> str:
    text = f"{parts.scheme}://{parts.authority}{parts.path}"
    return text if parts.query is None else f"{text}?{parts.query}"


def _https(url: str) -> str:
    if not url.startswith("http://"):
        return url
    authority = url[7 : url.index("/", 7)]
    # Another port speaks what it speaks; only the pair of default ports belongs together.
    return url if authority.rpartition("]")[2].find(":") >= 0 else "https" + url[4:]


def _www(url: str) -> str:
    start = url.index("//") + 2
    if not url.startswith("www.", start):
        return url
    host = host_of(url)
    labels = _WWW(host)
    assert labels is not None, "it may be empty"
    bare = host[labels.end() :]
    if registrable_domain(bare) is None:
        return url
    return url[:start] + bare + url[start + len(host) :]


def _host_dot(url: str) -> str:
    start = url.index("//") + 2
    host = host_of(url)
    bare = host.rstrip(".")
    return url[:start] + bare + url[start + len(host) :] if bare and bare != host else url


def _strict_characters(url: str) -> str:
    slash = url.index("/", 8)
    return url[:slash] + _NOT_STRICT.sub(lambda match: f"%{ord(match[0]):02X}", url[slash:])


def _repeated_slashes(url: str) -> str:
    parts = _split(url)
    return _joined(parts._replace(path=_SLASHES.sub("/", parts.path))) if "//" in parts.path else url


def _session_ids(url: str) -> str:
    parts = _split(url)
    path = parts.path
    if ";" in path:
        path = _PATH_SESSION.sub("", path)
    if "/(" in path:
        path = _FOLDER_SESSION.sub("", path)
    if path != parts.path:
        url = _joined(parts._replace(path=path))
    return _without(url, _is_session)


def _is_session(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    name = name.lower().lstrip("_")
    if name in SESSION_NAMES or _ASP_SESSION(name):
        return True
    return name in SESSION_NAMES_BY_VALUE and _TOKEN(value) is not None


def has_session(rest: str) -> bool:
    """Whether the part after the host of a canonical URL has a session id."""
    path, _, query = rest.partition("?")
    if (";" in path and _PATH_SESSION.search(path)) or ("/(" in path and _FOLDER_SESSION.search(path)):
        return True
    return bool(query) and any(map(_is_session, query.split("&")))


def _index_files(url: str) -> str:
    parts = _split(url)
    folder, _, file = parts.path.rpartition("/")
    return _joined(parts._replace(path=folder + "/")) if _INDEX_FILE(file) else url


def _trailing_slash(url: str) -> str:
    parts = _split(url)
    return _joined(parts._replace(path=parts.path.rstrip("/") or "/")) if parts.path.endswith("/") else url


def _tracking(url: str) -> str:
    return _without(url, _is_tracking)


def _is_tracking(parameter: str) -> bool:
    name = parameter.partition("=")[0].lower()
    return name in TRACKING_NAMES or name.startswith(TRACKING_PREFIXES)


def _blank_parameters(url: str) -> str:
    return _without(url, lambda parameter: parameter.find("=") == len(parameter) - 1 and len(parameter) > 1)


def _empty_parameters(url: str) -> str:
    url = _without(url, lambda parameter: parameter.startswith("=") or not parameter)
    head, mark, query = url.partition("?")
    if not mark or "=" not in query:
        return url
    parameters = query.split("&")
    return head + mark + "&".join(p[:-1] if p.find("=") == len(p) - 1 else p for p in parameters)


def _sort_query(url: str) -> str:
    head, mark, query = url.partition("?")
    if "&" not in query:
        return url
    return head + mark + "&".join(sorted(query.split("&"), key=lambda parameter: parameter.partition("=")[0]))


def _without(url: str, unwanted: Callable[[str], bool]) -> str:
    """Returns a URL without the query parameters for which the test is true; without `?` if no parameter is left."""
    head, mark, query = url.partition("?")
    if not mark:
        return url
    parameters = query.split("&")
    kept = [parameter for parameter in parameters if not unwanted(parameter)]
    if len(kept) == len(parameters):
        return url
    return head + mark + "&".join(kept) if kept else head


Rule = Callable[[str], str]

_RULES: Mapping[str, Rule] = {
    "https": _https,
    "www": _www,
    "host_dot": _host_dot,
    "strict_characters": _strict_characters,
    "repeated_slashes": _repeated_slashes,
    "session_ids": _session_ids,
    "index_files": _index_files,
    "trailing_slash": _trailing_slash,
    "tracking": _tracking,
    "blank_parameters": _blank_parameters,
    "empty_parameters": _empty_parameters,
    "sort_query": _sort_query,
}
RULES: tuple[str, ...] = tuple(_RULES)
"""The names of all rules, in the order in which they run."""
PRESETS: Mapping[str, tuple[str, ...]] = {
    "aggressive": RULES,
    "crawler_commons": ("host_dot", "strict_characters", "repeated_slashes", "empty_parameters", "sort_query"),
}
"""Names for several rules: all of them, for broad discovery; those of crawler-commons' basic normaliser."""

Names = str | Iterable[str] | Mapping[str, bool]
Explained = tuple[str, str, str]
"""A step: the rule's name ("replace PATTERN" for a host's pattern), the URL before it and after it."""


@dataclass(frozen=True, slots=True)
class HostRules:
    """Rules for some hosts, in place of the rules for all.

    names    the rules, in order; None: those of the crawl
    replace  (RE2 expression, replacement) pairs, tried in order on path and query before any rule, each at every place
             where it matches; `\\1` to `\\9` in a replacement are groups, `\\\\` is a backslash, "" removes
    """

    names: tuple[str, ...] | None = None
    replace: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LossyRules:
    """The lossy rules of a crawl; `LossyRules()` is empty. Made by `LossyRules.of` or `LossyRules.parse`.

    names  the rules for every host, in order
    hosts  (pattern, its rules), sorted: a pattern is a host name, or `*.example.org` for the names below it; the host
           itself is first, then the longest pattern, and only the first match applies
    """

    names: tuple[str, ...] = ()
    hosts: tuple[tuple[str, HostRules], ...] = ()

    def __post_init__(self) -> None:
        if self.names != _chosen(self.names):
            raise SettingsError(f"url-rules run in one order only; Rules.of({list(self.names)!r}) brings them into it")

    @classmethod
    def of(cls, names: Names = (), hosts: Mapping[str, Names | Mapping[str, object]] | None = None) -> LossyRules:
        """Returns rules by their names.

        names  names of rules and presets, with a `-` before them to switch off: "aggressive,-https", or a list of such;
               or a mapping of names to truth values
        hosts  for a host or `*.domain`: names as above, or {"rules": names, "replace": [[pattern, replacement], …]};
               without "rules" those of the crawl apply

        Raises SettingsError naming the mistake and the accepted values.
        """
        entries: dict[str, HostRules] = {}
        if not isinstance(hosts or {}, Mapping):
            raise SettingsError(f"url-rules: hosts are a mapping of hosts to their rules, not a {type(hosts).__name__}")
        for pattern, given in (hosts or {}).items():
            host = _host_pattern(pattern)
            if host in entries:
                raise SettingsError(f"url-rules: {shown(host)} is there twice; put its rules into one entry")
            entries[host] = _host_rules(pattern, given)
        return cls(_chosen(names), tuple(sorted(entries.items())))

    @classmethod
    def parse(cls, text: str) -> LossyRules:
        """Reads rules that a person typed or that `LossyRules.text` wrote: names with commas between, then hosts as
        JSON.

            tracking,sort_query
            aggressive,-https
            1:tracking {"*.example.org": {"replace": [["/s-[0-9]+/", "/"]], "rules": ["www"]}}

        "" and "none" are no rules. Raises SettingsError, also for rules of another version.
        """
        head, brace, tail = text.partition("{")
        version = re.match(r"\s*([0-9]+):", head)
        if version is not None:
            if version[1] != RULES_VERSION:
                raise SettingsError(
                    f"url-rules are of version {version[1]}, this Outrider has version {RULES_VERSION}: "
                    "open it with the release they were made with"
                )
            head = head[version.end() :]
        hosts: object = {}
        if brace:
            try:
                hosts = json.loads(brace + tail)
            except (ValueError, RecursionError) as error:
                raise SettingsError(f"url-rules: the text after the names is not a JSON object ({error})") from None
        return cls.of(head, cast(Mapping[str, Names], hosts))

    @property
    def text(self) -> str:
        """These rules as one line of ASCII, always the same for the same rules; a store pins it in its manifest."""
        line = f"{RULES_VERSION}:{','.join(self.names)}"
        if not self.hosts:
            return line
        hosts: dict[str, dict[str, object]] = {}
        for pattern, entry in self.hosts:
            shape: dict[str, object] = {}
            if entry.names is not None:
                shape["rules"] = list(entry.names)
            if entry.replace or entry.names is None:
                shape["replace"] = [list(pair) for pair in entry.replace]
            hosts[pattern] = shape
        return f"{line} {json.dumps(hosts, sort_keys=True, separators=(',', ':'))}"

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        """Whether there is a rule to apply."""
        return bool(self.names or self.hosts)

    def apply(self, canonical_url: str) -> str:
        """The URL that a canonical URL becomes; canonical again. The URL itself where nothing applies, where it does
        not settle and where it is longer than URL_BYTES_MAX."""
        return self._settled(canonical_url)[0] if self else canonical_url

    def apply_batch(self, canonical_urls: Sequence[str]) -> list[str]:
        """`apply` for each of some canonical URLs."""
        if not self:
            return list(canonical_urls)
        return [self._settled(url)[0] for url in canonical_urls]

    def explain(self, canonical_url: str) -> list[Explained]:
        """Returns the steps of the rules on a canonical URL, in order; the last step ends with the result of `apply`.

        Empty if no rule applies or the URL keeps changing.
        """
        return self._settled(canonical_url)[1]

    def _settled(self, url: str) -> tuple[str, list[Explained]]:
        if len(url) > URL_BYTES_MAX:
            return url, []  # no crawl accepts it, and rules cost more per byte than any other step
        text = url
        steps: list[Explained] = []
        for _ in range(ROUNDS_MAX):
            before = text
            # The host can change on the way; the host at the start of a round determines the rules of that round.
            for name, rule in self._of_host(text):
                changed = rule(text)
                if changed == text:
                    continue
                canonical = spell((changed,))[0]
                if canonical is None or canonical == text:
                    continue  # without its `www.` a text may not be a host; then the rule does not apply
                if len(canonical) > URL_BYTES_MAX:
                    continue
                steps.append((name, text, canonical))
                text = canonical
            if text == before:
                return text, steps
        return url, []

    def _of_host(self, url: str) -> Iterable[tuple[str, Rule]]:
        if not self.hosts:
            return _steps(self.names, ())
        host = host_of(url).rstrip(".")
        found = next(self._entries(host), None)
        if found is None:
            return _steps(self.names, ())
        return _steps(self.names if found.names is None else found.names, found.replace)

    def _entries(self, host: str) -> Iterator[HostRules]:
        table = _table(self.hosts)
        if host in table:
            yield table[host]
        dot = host.find(".")
        while dot >= 0:
            pattern = "*" + host[dot:]
            if pattern in table:
                yield table[pattern]
            dot = host.find(".", dot + 1)


@lru_cache(maxsize=64)
def _table(hosts: tuple[tuple[str, HostRules], ...]) -> dict[str, HostRules]:
    return dict(hosts)


@lru_cache(maxsize=1024)
def _steps(names: tuple[str, ...], replace: tuple[tuple[str, str], ...]) -> tuple[tuple[str, Rule], ...]:
    patterns = ((f"replace {pattern}", _replacing(pattern, replacement)) for pattern, replacement in replace)
    return (*patterns, *((name, _RULES[name]) for name in names))


def _chosen(names: Names, where: str = "url-rules") -> tuple[str, ...]:
    if isinstance(names, str):
        wishes = [(name.removeprefix("-"), not name.startswith("-")) for name in re.split(r"[,\s]+", names) if name]
    elif isinstance(names, Mapping):
        wishes = [(name, bool(wanted)) for name, wanted in names.items()]
    elif isinstance(names, Iterable):
        wishes = [(str(name).removeprefix("-"), not str(name).startswith("-")) for name in names]
    else:
        raise SettingsError(f"{where} are no names of rules: {names!r}"[:300])
    if wishes == [("none", True)]:
        return ()
    chosen: dict[str, bool] = {}
    for written, wanted in wishes:
        name = str(written).replace("-", "_").lower()
        if name not in _RULES and name not in PRESETS:
            near = difflib.get_close_matches(name, (*RULES, *PRESETS), 1)
            raise SettingsError(
                f"{where}: {shown(str(written))} is no rule{f'; did you mean {near[0]}?' if near else ''}; "
                f"there are {', '.join(RULES)}, and for several {', '.join(PRESETS)}; "
                "a `-` before a name switches it off"
            )
        chosen.update(dict.fromkeys(PRESETS.get(name, (name,)), wanted))
    return tuple(name for name in RULES if chosen.get(name))


def _host_pattern(pattern: object) -> str:
    if not isinstance(pattern, str) or not _HOST_PATTERN.fullmatch(pattern):
        raise SettingsError(f"url-rules: {shown(str(pattern))} is no host; write example.org or *.example.org")
    star = "*." if pattern.startswith("*.") else ""
    canonical = spell((f"http://{pattern.removeprefix('*.')}/",))[0]
    if canonical is None:
        raise SettingsError(f"url-rules: {shown(pattern)} is no host; write example.org or *.example.org")
    return star + host_of(canonical).rstrip(".")


def _host_rules(pattern: str, given: object) -> HostRules:
    where = f"url-rules of {pattern}"
    if not isinstance(given, Mapping) or not set(given) & {"rules", "replace"}:
        return HostRules(_chosen(cast(Names, given), where))
    strange = [name for name in given if name not in {"rules", "replace"}]
    if strange:
        raise SettingsError(f"{where}: {shown(str(strange[0]))} is neither rules nor replace")
    names = _chosen(given["rules"], where) if given.get("rules") is not None else None
    pairs = given.get("replace") or ()
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise SettingsError(f"{where}: replace is not a list of [pattern, replacement]")
    replace: list[tuple[str, str]] = []
    for pair in pairs:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise SettingsError(f"{where}: {pair!r} is no [pattern, replacement]"[:300])
        found, put = pair
        if not isinstance(found, str) or not isinstance(put, str):
            raise SettingsError(f"{where}: {pair!r} is not a pair of texts"[:300])
        try:
            _replacing(found, put)
        except SettingsError as error:
            raise SettingsError(f"{where}: {error.facts}") from None
        replace.append((found, put))
    return HostRules(names, tuple(replace))


@lru_cache(maxsize=1024)
def _replacing(pattern: str, replacement: str) -> Rule:
    """A rule that replaces the matches of an RE2 expression in path and query. Raises SettingsError naming it."""
    if len(replacement) > REPLACEMENT_CHARACTERS_MAX:
        raise SettingsError(
            f"the replacement {shown(replacement)} is longer than {REPLACEMENT_CHARACTERS_MAX} characters"
        )
    if mended(replacement) != replacement:
        raise SettingsError(f"the replacement {shown(replacement)} contains half a character")
    expression = compiled("the pattern", pattern, groups=True)
    # A piece of text, or the number of a group.
    pieces: list[bytes | int] = []
    for piece in re.split(r"(\\.?)", replacement, flags=re.DOTALL):
        if not piece.startswith("\\"):
            pieces.append(piece.encode())
        elif piece == "\\\\":
            pieces.append(b"\\")
        elif piece[1:] in set("123456789") and int(piece[1:]) <= expression.groups:
            pieces.append(int(piece[1:]))
        else:
            raise SettingsError(
                f"the replacement {shown(replacement)}: {shown(piece)} is no group of {shown(pattern)}; "
                f"it has {expression.groups}, and \\\\ is a backslash"
            )

    def expanded(match: Any) -> bytes:
        return b"".join(match.group(piece) or b"" if isinstance(piece, int) else piece for piece in pieces)

    def rule(url: str) -> str:
        slash = url.index("/", 8)
        target: bytes = expression.sub(expanded, url[slash:].encode("ascii"), REPLACEMENTS_PER_URL_MAX)
        changed = target.decode("utf-8", "replace")
        # A path begins with a slash, so no replacement ever becomes part of the host or the port.
        return url[:slash] + (changed if changed.startswith("/") else "/" + changed)

    return rule


_PAGE_NAMES = frozenset({"page", "paged", "pg", "pagenum", "page_no", "pageno", "start", "offset"})
_PAGE_FOLDER = re.compile(r"/page/([0-9]{1,6})(?=/|$)")


def canonical_target(page_url: str, canonical_url: str) -> str | None:
    """Returns the canonical URL that a page claims by `rel=canonical` if the claim is plausible, otherwise None.

    Source: RFC 6596, and the mistakes that search engines warn of. A claim is plausible if it names

    - an http or https URL that can be crawled, of at most URL_BYTES_MAX characters, other than the page's own;
    - on the same registrable domain (the same host without one) and port; https of an http page is the same,
      http of an https page is an old template;
    - not the home page, from another page: a template names it on every page of a site, and all would be one;
    - not another page of a series: page 2 of a list is not a copy of page 1;
    - not a host name written as a path (`href="example.org/a"`, which means /example.org/a on that host).

    `canonical_url` may be relative to the page. Raises InvalidUrlError when `page_url` cannot be crawled.
    """
    page = normalize(page_url)
    target = spell((canonical_url,), page)[0]
    if target is None or target == page or len(target) > URL_BYTES_MAX:
        return None
    of, to = _split(page), _split(target)
    own, other = host_of(page), host_of(target)
    if (registrable_domain(own) or own) != (registrable_domain(other) or other):
        return None
    if of.authority[len(own) :] != to.authority[len(other) :] or (of.scheme, to.scheme) == ("https", "http"):
        return None
    if (of.scheme != to.scheme) and ":" in of.authority[len(own) :]:
        return None
    if _is_home(target) and not _is_home(page):
        return None
    if _page_number(of) > 1 and _page_number(of) != _page_number(to):
        return None
    names = {own, own.removeprefix("www."), "www." + own}
    if names & set(to.path.split("/")[:-1]) - set(of.path.split("/")):
        return None
    return target


def _is_home(url: str) -> bool:
    """Whether a canonical URL is of a site's home page, with any session, tracking parameters or index file."""
    parts = _split(_without(url, lambda parameter: _is_tracking(parameter) or _is_session(parameter)))
    return parts.query is None and (parts.path == "/" or _INDEX_FILE(parts.path[1:]) is not None)


def _page_number(parts: _Split) -> int:
    """Returns the number of a URL's page in a series, from its address; 1 if the address has no number."""
    folder = _PAGE_FOLDER.search(parts.path)
    if folder is not None:
        return int(folder[1])
    for parameter in (parts.query or "").split("&"):
        name, _, value = parameter.partition("=")
        if name.lower() in _PAGE_NAMES and value.isascii() and value.isdigit():
            return int(value[:9])
    return 1
