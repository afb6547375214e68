"""The settings of a crawl: typed, bounded, each with its meaning; from flags, the environment, outrider.toml, defaults.

`CrawlOptions` is the one list: the command line, the file and the documentation are made from its fields.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from outrider.catalog.address import ACCEPTED as ACCEPTED_CATALOGS
from outrider.catalog.address import checked_address, shown_address
from outrider.crawl.setup.credentials import checked_secret, origin_of
from outrider.crawl.setup.group_settings import GROUP_WORDS, groups_of, read_groups
from outrider.errors import SettingsError
from outrider.fetch.downloader import Request, is_secret
from outrider.fetch.request_signing import SignScope, SignWhen
from outrider.frontier.policy.frontier_settings import (
    CRAWL_DELAY_AS,
    CRAWL_DELAY_OVER,
    ROBOTS_UNREACHABLE,
    VISIT_TIME,
    check_revisits,
)
from outrider.frontier.policy.revisit_plan import NAMES as REVISIT_RULES
from outrider.identity.signatures import AgentForm
from outrider.limits import (
    ARCHIVE_SEAL_BYTES,
    ARCHIVE_SEAL_BYTES_MAX,
    ARCHIVE_SEAL_SECONDS,
    CONNECT_SECONDS_MAX,
    DELAY_FACTOR,
    DELAY_SECONDS_FLOOR,
    DNS_SERVERS_MAX,
    GROUP_CAPACITY_MAX,
    IDLE_SECONDS_MAX,
    MEMORY_BYTES,
    MEMORY_BYTES_MAX,
    MEMORY_BYTES_MIN,
    ORDER_SECONDS_MAX,
    RATE_MAX,
    RATE_MIN,
    RETRY_SECONDS,
    TIMEOUT_SECONDS_MAX,
    TOTAL_SECONDS_MAX,
    TRUNCATE_BYTES_MAX,
)
from outrider.local_hours import ACCEPTED as ACCEPTED_HOURS
from outrider.local_hours import LocalHours
from outrider.robots.tdmrep import TDMREP_PATH
from outrider.storage.object_address import ACCEPTED as ACCEPTED_STORES
from outrider.storage.object_address import checked_object_store
from outrider.url import LossyRules, Scope
from outrider.url.traps import Traps
from outrider.uses import USE_UNKNOWN, USES, Use, uses_of

ENVIRONMENT_PREFIX = "OUTRIDER_"
_ALMOST = 0.9  # how alike two names are that differ by a letter or two; other tools have variables of their own
SETTINGS_FILE = "outrider.toml"
SETTINGS_FILE_BYTES_MAX = 16 << 20  # a million seeds named on the command line do not fit there anyway

CONCURRENCY_MAX = 10_000  # sockets of one process; beyond it the kernel's tables are the limit, not the crawl
DELAY_SECONDS_MAX = 86_400.0  # a gap of more than a day is a typing error
DELAY_FACTOR_MAX = 10_000.0  # the term is cut at 60 s anyway
SECONDS_MAX = ORDER_SECONDS_MAX
MAX_WAIT_SECONDS = 86_400.0  # a site may set a Retry-After of a day; a run that waits longer seems to hang
COUNT_MAX = 1 << 53  # whole numbers that every JSON reader keeps exactly
SEED_MAX = (1 << 64) - 1
CONTACT_CHARACTERS_MAX = 200  # it travels in every request
USER_AGENT_CHARACTERS_MAX = 64  # a product token; robots.txt groups are matched by it

SCOPES = ("host", "domain", "prefix", "any")
PRIORITIES = ("weighted", "by_domain_page_freshness")
COPIES = ("last", "drop")
PROGRESS = ("auto", "bar", "log", "none")
LOG_FORMATS = ("text", "json")
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")

_TOKEN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")  # RFC 9309: letters, - and _; digits and dots are met too
_MAIL = re.compile(r"(?:mailto:)?[^@\s<>()]+@[^@\s<>()]+")
_WEB = re.compile(r"https?://[^\s<>()]+", re.IGNORECASE)


class RefusedError(ValueError):
    """Why a value cannot be used, in words that follow its name."""


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, str):
            text = value.strip().replace("_", "")
            if not re.fullmatch(r"[+-]?[0-9]{1,30}", text):
                raise RefusedError("not a whole number")
            value = int(text)
        if isinstance(value, bool) or not isinstance(value, int):
            raise RefusedError("not a whole number")
        if not least <= value <= most:
            raise RefusedError("it is too small" if value < least else "it is too large")
        return value

    return read


def size_reader(least: int, most: int) -> Callable[[object], int]:
    """Reads a number of bytes: 268435456, 256M, 256MiB, 2G."""

    def read(value: object) -> int:
        if isinstance(value, str):
            match = re.fullmatch(r"([0-9]{1,18})(?:([KMGT])(?:i?B)?|B)?", value.strip(), re.IGNORECASE)
            if match is None:
                raise RefusedError("not a size")
            value = int(match[1]) << (10 * " KMGT".index((match[2] or " ").upper()))
        if isinstance(value, bool) or not isinstance(value, int):
            raise RefusedError("not a size")
        if not least <= value <= most:
            raise RefusedError("it is too small" if value < least else "it is too large")
        return value

    return read


def _real(least: float, most: float, *, open_below: bool = False) -> Callable[[object], float]:
    def read(value: object) -> float:
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise RefusedError("not a number") from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RefusedError("not a number")
        number = float(value)
        if math.isnan(number) or math.isinf(number):
            raise RefusedError("not a finite number")
        if number < least or (open_below and number == least):
            raise RefusedError("it is too small")
        if number > most:
            raise RefusedError("it is too large")
        return number

    return read


def _one_of(names: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            near = difflib.get_close_matches(str(value), names, 1)
            raise RefusedError(f"did you mean {near[0]!r}?" if near else "unknown value")
        return value

    return read


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in YES + NO:
        return value.strip().lower() in YES
    raise RefusedError("neither true nor false")


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RefusedError("not a text")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in value):
        raise RefusedError("it contains a control character")
    return value.strip()


def _rules(value: object) -> str:
    if not isinstance(value, str):
        raise RefusedError("not a text")
    try:
        return LossyRules.parse(value).text
    except SettingsError as error:
        raise RefusedError(str(error.facts)) from None


def _path(value: object) -> str:
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str) or not value or "\0" in value:
        raise RefusedError("not a path")
    try:
        return os.path.abspath(os.path.expanduser(value))
    except FileNotFoundError:
        raise RefusedError("the current directory was removed") from None


def _readable(value: object) -> str:
    path = _path(value)
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        raise RefusedError(f"it cannot be read ({error.strerror})") from None
    return path


def _authorities(value: object) -> str:
    import ssl  # a hundredth of a second, and few commands need it

    path = _readable(value)
    try:
        ssl.create_default_context(cafile=path)
    except (ssl.SSLError, OSError):
        raise RefusedError("it contains no certificate in PEM form") from None
    return path


def _contact(value: object) -> str:
    contact = _text(value)
    if len(contact) > CONTACT_CHARACTERS_MAX:
        raise RefusedError(f"it is longer than {CONTACT_CHARACTERS_MAX} characters")
    if not contact.isascii():
        raise RefusedError("it contains characters that are not ASCII, which a header cannot have")
    if not (_WEB.fullmatch(contact) or _MAIL.fullmatch(contact)):
        raise RefusedError("neither a mail address nor a URL")
    return contact


def _user_agent(value: object) -> str:
    token = _text(value)
    if len(token) > USER_AGENT_CHARACTERS_MAX or not _TOKEN.fullmatch(token):
        raise RefusedError("not a product token")
    return token


def _several(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (_text(value),)
    if isinstance(value, Iterable) and not isinstance(value, Mapping | bytes):
        return tuple(_text(part) for part in value)
    raise RefusedError("not a list of texts")


def _uses(value: object) -> tuple[Use, ...]:
    try:
        return uses_of(value)
    except SettingsError:
        raise RefusedError("it has a name that is not a use") from None


def _include(value: object) -> tuple[str, ...]:
    return _patterns(value, lambda patterns: Scope("any", include=patterns))


def _exclude(value: object) -> tuple[str, ...]:
    return _patterns(value, lambda patterns: Scope("any", exclude=patterns))


def _patterns(value: object, check: Callable[[tuple[str, ...]], object]) -> tuple[str, ...]:
    patterns = _several(value)
    try:
        check(patterns)
    except SettingsError as error:
        raise RefusedError(error.facts) from None
    return patterns


def _groups(value: object) -> tuple[str, ...]:
    told = tuple(text if text in GROUP_WORDS else _readable(text) for text in _several(value))
    try:
        read_groups(told)
    except SettingsError as error:
        raise RefusedError(str(error.facts)) from None
    return told


LOST = "?"
"""The place in outrider.toml of a function that has no name to import it by."""
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*")
_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+")
_A_FUNCTION = "module:function, or in Python a function"


def is_function(value: object) -> bool:
    """Whether a value names a function, or is one; it is imported when a crawl begins (`hooks.py`)."""
    if isinstance(value, str):
        return value == LOST or _FUNCTION.fullmatch(value) is not None
    return callable(value)


def _function(value: object) -> object:
    if isinstance(value, str):
        value = value.strip()
    if not is_function(value):
        raise RefusedError("not a function")
    return value


def _downloader(value: object) -> object:
    return value if hasattr(value, "fetch") and hasattr(value, "close") else _function(value)


def _scope(value: object) -> object:
    return value if is_function(value) else _one_of(SCOPES)(value)


def _priority(value: object) -> object:
    return value if is_function(value) else _one_of(PRIORITIES)(value)


def _revisit(value: object) -> object:
    return value if is_function(value) else _one_of(REVISIT_RULES)(value)


def _readers(value: object) -> tuple[tuple[str, object], ...]:
    """Pairs of a content type and the function that reads it."""
    if isinstance(value, Mapping):
        value = tuple(value.items())
    if isinstance(value, str) or not isinstance(value, Iterable):
        value = (value,)
    found: dict[str, object] = {}
    for part in value:
        pair = part.split("=", 1) if isinstance(part, str) else part
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise RefusedError("it has no = between a content type and a function")
        essence = pair[0].strip().lower()
        if not _TYPE.fullmatch(essence):
            raise RefusedError(f"{essence!r} is not a content type")
        found[essence] = _function(pair[1])
    return tuple(found.items())


def spelled(value: object) -> str:
    """A function as outrider.toml names it; `LOST` for one that cannot be imported by a name."""
    if isinstance(value, str):
        return value
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    found: Any = sys.modules.get(module) if isinstance(module, str) and module != "__main__" else None
    for part in str(path).split("."):
        found = getattr(found, part, None)
    return f"{module}:{path}" if found is not None and found is value else LOST


def _servers(value: object) -> tuple[str, ...]:
    from outrider.fetch.dns import read_server  # with the event loop

    try:
        servers = tuple(dict.fromkeys(read_server(server) for server in _several(value)))
    except SettingsError as error:
        raise RefusedError(error.facts) from None
    if len(servers) > DNS_SERVERS_MAX:
        raise RefusedError(f"it names more than {DNS_SERVERS_MAX}")
    return servers


def _networks(value: object) -> tuple[str, ...]:
    networks = _several(value)
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise RefusedError(str(error)) from None
    return networks


def _pairs(value: object) -> list[tuple[str, object]]:
    """NAME=VALUE, one or many, as pairs; a mapping is one of them already."""
    if isinstance(value, Mapping):
        value = tuple(value.items())
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, Iterable):
        raise RefusedError("not a list of NAME=VALUE")
    found: list[tuple[str, object]] = []
    for part in value:
        pair = part.split("=", 1) if isinstance(part, str) else part
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise RefusedError("a part of it has no =")  # unquoted: it may be a secret
        found.append((pair[0].strip(), pair[1]))
    return found


def _headers(value: object) -> tuple[tuple[str, str], ...]:
    found = []
    for name, text in _pairs(value):
        if not isinstance(text, str):
            raise RefusedError(f"the value of {name!r} is not a text")
        try:
            Request("http://localhost/", "127.0.0.1", "x", ((name, text.strip()),))
        except SettingsError as error:
            raise RefusedError(error.facts) from None
        found.append((name, text.strip()))
    return tuple(found)


def _credentials(value: object) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for origin, secret in _pairs(value):
        if not isinstance(secret, str):
            raise RefusedError("the secret is not a text")
        try:
            found[origin_of(origin)] = checked_secret(secret)
        except ValueError as error:
            raise RefusedError(str(error)) from None
    return tuple(found.items())


def _object_store(value: object) -> str:
    if not isinstance(value, str):
        raise RefusedError("not a text")
    try:
        return checked_object_store(value)
    except SettingsError as error:
        raise RefusedError(error.facts.partition("; use ")[0]) from None


def _catalogs(value: object) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for one in (value,) if isinstance(value, str) else value if isinstance(value, Iterable) else (None,):
        if not isinstance(one, str):
            raise RefusedError("not a list of texts")
        try:
            address = checked_address(one)
        except SettingsError as error:
            raise RefusedError(error.facts.partition("; use ")[0]) from None
        found.setdefault(shown_address(address), address)
    return tuple(found.values())


def _truncate(value: object) -> tuple[tuple[str, int], ...]:
    found = []
    for name, size in _pairs(value):
        if name != "*" and not _TYPE.fullmatch(name.lower().replace("/*", "/x")):
            raise RefusedError(f"{name!r} is not a content type, type/* or *")
        found.append((name.lower(), _whole(1, TRUNCATE_BYTES_MAX)(size)))
    return tuple(found)


TIMEOUTS = (("connect", CONNECT_SECONDS_MAX), ("first-byte", IDLE_SECONDS_MAX), ("total", TOTAL_SECONDS_MAX))


def _hours(value: object) -> str:
    if not isinstance(value, str):
        raise RefusedError("not a text")
    try:
        LocalHours.of("*", value)
    except SettingsError as error:
        raise RefusedError(error.facts) from None
    return value


def _timeout(value: object) -> tuple[tuple[str, float], ...]:
    """The three times in their order; those that are not named have their defaults."""
    told = dict(TIMEOUTS)
    for name, seconds in _pairs(value.split(",") if isinstance(value, str) else value):
        name = name.replace("_", "-")
        if name not in told:
            raise RefusedError(f"{name!r} is not one of {', '.join(told)}")
        told[name] = _real(0, TIMEOUT_SECONDS_MAX, open_below=True)(seconds)
    return tuple(told.items())


VERIFIED, UNVERIFIED = "verified", "unverified"
COMPATIBLE, MODERN = "compatible", "modern"
_TLS_OF_HOST = (VERIFIED, UNVERIFIED, COMPATIBLE, MODERN)

_OF_TABLES: dict[str, tuple[Callable[[object], object], str]] = {
    "capacity": (_whole(1, GROUP_CAPACITY_MAX), f"a whole number from 1 to {GROUP_CAPACITY_MAX}"),
    "tls": (_one_of(_TLS_OF_HOST), "one of " + ", ".join(_TLS_OF_HOST)),
    "hours": (_hours, ACCEPTED_HOURS),
    "delay_outside": (_real(0, DELAY_SECONDS_MAX), "a number of seconds of at least 0"),
}
"""The keys of a [[host]] table that are not options of a whole crawl: how each is read, and its accepted values."""


def _tables(value: object) -> tuple[tuple[tuple[str, object], ...], ...]:
    """Returns the [[host]] tables, each as pairs, with values checked like those of the options of the same names."""
    if isinstance(value, Mapping) or not isinstance(value, list | tuple):
        raise RefusedError("not a list of tables")
    found = []
    for table in value:
        pairs = dict(table)
        name = pairs.get("name")
        if not isinstance(name, str) or not _HOST_PATTERN.fullmatch(name):
            raise RefusedError(f"name is {name!r:.80}, not a pattern of host names such as *.example.org")
        checked_pairs: dict[str, object] = {"name": name}
        for key, one in pairs.items():
            option = str(key).replace("-", "_")
            if option == "name":
                continue
            setting = SETTINGS.get(option)
            if option in _OF_TABLES:
                (read, accepted), secret = _OF_TABLES[option], False
            elif setting is None or not setting.per_host:
                known = ["name", *_OF_TABLES, *(name for name, setting in SETTINGS.items() if setting.per_host)]
                raise RefusedError(f"{key} is not a setting of a host: use {', '.join(known)}")
            else:
                read, accepted, secret = setting.read, setting.accepted, setting.secret
            try:
                checked_pairs[option] = read(one)
            except RefusedError as refusal:
                shown = "" if secret else f" is {one!r:.80}"
                raise RefusedError(f"{key} of {name}{shown}: {refusal}; use {accepted}") from None
        if checked_pairs.get("tls") == UNVERIFIED and set(name) & set("*?[]"):
            raise RefusedError(
                f"tls = {UNVERIFIED!r} of {name}: an exception is for one host, not for a pattern of names"
            )
        if "delay_outside" in checked_pairs and "hours" not in checked_pairs:
            raise RefusedError(f"delay_outside of {name} is about its hours, which are missing: name them with hours")
        found.append(tuple(checked_pairs.items()))
    return tuple(found)


_HOST_PATTERN = re.compile(r"[A-Za-z0-9*?._:\[\]-]{1,253}")


class OptionTopic(StrEnum):
    """The groups of options in help and documents, in their order; each value is the heading."""

    COMMON = "Common options"
    PAGES = "Which pages"
    LIMITS = "Limits"
    POLITENESS = "Politeness"
    NETWORK = "Network"
    REVISITS = "Revisits (docs/revisits.md)"
    HOOKS = "Your own functions (docs/hooks.md)"
    TRAPS = "Crawler traps (docs/traps.md)"
    RUN = "Run and output"


@dataclass(frozen=True, slots=True)
class Setting:
    """How one option is read and explained: the row from which command line, environment, outrider.toml, Python and
    docs/cli.md are made.

    optional: None (written `none`) is a value of its own. many: a list. switch: a flag with a second flag `no-`, or one
    named `off`. once: it is valid for one run, and not kept in outrider.toml. frontier: the frontier uses it. path: it
    names a file; in outrider.toml it is relative to the directory; `words` lists the values that are not paths.
    short: a second flag. flag: the flag, if it is not the name.
    topic: its group in help and documents. choices: the accepted words, which a shell completes.
    per_host: a [[host]] table may have it. secret: its values are never shown. shown: makes one of its values fit to be
    kept and shown, without its password. file_only: it can be set in
    outrider.toml and in Python, and has no flag. spaced: its values may contain spaces, so that a variable of the
    environment has one on each line.
    """

    topic: OptionTopic
    meaning: str
    accepted: str
    read: Callable[[object], object]
    metavar: str
    optional: bool = False
    many: bool = False
    switch: bool = False
    off: str = ""
    once: bool = False
    frontier: bool = False
    path: bool = False
    words: tuple[str, ...] = ()
    short: str = ""
    flag: str = ""
    per_host: bool = False
    file_only: bool = False
    secret: bool = False
    shown: Callable[[str], str] | None = None
    spaced: bool = False
    choices: tuple[str, ...] = ()


def _setting(
    topic: OptionTopic,
    default: object,
    meaning: str,
    accepted: str,
    read: Callable[[object], object],
    metavar: str,
    **more: Any,
) -> Any:
    """A field of `CrawlOptions` with its row; `more` are the further cells of `Setting`."""
    setting = Setting(topic, meaning, accepted, read, metavar, **more)
    return field(default=default, metadata={"setting": setting})


def _limit(topic: OptionTopic, meaning: str, *, least: int = 1) -> Any:
    accepted = f"a whole number, {least} or more, or none"
    return _setting(topic, None, meaning, accepted, _whole(least, COUNT_MAX), "N", optional=True, frontier=True)


def _bound(topic: OptionTopic, default: int, meaning: str) -> Any:
    return _setting(topic, default, meaning, "a whole number above 0", _whole(1, COUNT_MAX), "N")


def _choice(topic: OptionTopic, names: tuple[str, ...], meaning: str, **more: Any) -> Any:
    return _setting(
        topic, names[0], meaning, "one of " + ", ".join(names), _one_of(names), "|".join(names), choices=names, **more
    )


def _hook(topic: OptionTopic, meaning: str) -> Any:
    accepted = _A_FUNCTION + ", or none"
    return _setting(topic, None, meaning, accepted, _function, "MODULE:FUNCTION", optional=True)


def _switch(topic: OptionTopic, default: bool, meaning: str, **more: Any) -> Any:
    return _setting(topic, default, meaning, "true or false", _truth, "", switch=True, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlOptions:
    """Every option of a crawl, checked when made: SettingsError names the key, the value and what would be accepted."""

    output: str = _setting(
        OptionTopic.COMMON,
        "",
        "The directory of the crawl. Without it: ./ and the first host.",
        "a path",
        lambda v: "" if v == "" else _path(v),
        "DIR",
        path=True,
        short="-o",
    )
    scope: Any = _setting(
        OptionTopic.COMMON,
        SCOPES[0],
        "Which links to follow: on the seeds' hosts, on their registrable domains, below the seeds' "
        "paths, or anywhere. A function decides for each page (docs/hooks.md).",
        "one of host, domain, prefix, any; " + _A_FUNCTION,
        _scope,
        "host|domain|prefix|any|MODULE:FUNCTION",
        choices=SCOPES,
        frontier=True,
    )
    include: tuple[str, ...] = _setting(
        OptionTopic.COMMON,
        (),
        "Follow only URLs that match one of these patterns (repeatable).",
        "regular expressions in RE2's syntax",
        _include,
        "PATTERN",
        many=True,
        frontier=True,
    )
    exclude: tuple[str, ...] = _setting(
        OptionTopic.COMMON,
        (),
        "Skip URLs that match one of these patterns (repeatable).",
        "regular expressions in RE2's syntax",
        _exclude,
        "PATTERN",
        many=True,
        frontier=True,
    )
    url_rules: str | None = _setting(
        OptionTopic.PAGES,
        None,
        "Lossy rules that map several spellings to one URL, separated by commas. A store keeps its rules for good.",
        "names of rules (docs/urls.md), or none",
        _rules,
        "NAME,…",
        optional=True,
        frontier=True,
    )
    honour_canonical: bool = _switch(
        OptionTopic.PAGES,
        False,
        "If a page names another canonical URL, fetch that URL and count the page as a duplicate.",
    )
    follow_nofollow: bool = _switch(
        OptionTopic.PAGES,
        False,
        "Also follow links with rel=nofollow, ugc or sponsored, and links on pages that say nofollow.",
        per_host=True,
    )
    copies: str = _choice(
        OptionTopic.PAGES,
        COPIES,
        "Links of a page whose bytes were already seen at another URL: follow them last, or drop them.",
    )
    sitemaps: bool = _switch(
        OptionTopic.PAGES, True, "Fetch the sitemaps of sites that have a robots.txt, and the pages that these list."
    )
    traps: bool = _switch(OptionTopic.TRAPS, True, "Set aside links that look like traps, such as endless calendars.")
    max_url_bytes: int = _bound(
        OptionTopic.TRAPS, 2_000, "A link longer than N bytes counts as a trap. Its longest value is not counted."
    )
    max_path_depth: int = _bound(OptionTopic.TRAPS, 15, "A link with more than N path segments counts as a trap.")
    max_path_repeats: int = _bound(
        OptionTopic.TRAPS, 3, "A link that repeats one path segment more than N times counts as a trap."
    )
    date_horizon: float = _setting(
        OptionTopic.TRAPS,
        2.0,
        "A link to a month more than this many years ahead counts as a trap.",
        "a number from 0 to 1000",
        _real(0, 1_000),
        "YEARS",
    )
    new_urls_per_host: int | None = _setting(
        OptionTopic.TRAPS,
        None,
        "Set aside new links of a host or registrable domain that produced N new URLs within a day.",
        "a whole number, 1 or more, or none",
        _whole(1, COUNT_MAX),
        "N",
        optional=True,
    )
    least_returns: float = _setting(
        OptionTopic.TRAPS,
        0.03,
        "Set aside links of a URL shape if fewer than this share of its last fetches had new content. "
        "The same applies to hosts with ever new shapes. 0 disables it.",
        "a number from 0 to 1",
        _real(0, 1),
        "SHARE",
    )
    host_quantile: float | None = _setting(
        OptionTopic.TRAPS,
        None,
        "Set aside links of a host with twice as many fetches as this quantile of all hosts, such as "
        "0.99. It needs 100 hosts with 16 fetches.",
        "a number from 0 to 0.9999, or none",
        _real(0, 0.9999),
        "SHARE",
        optional=True,
    )
    probe_pages: int = _setting(
        OptionTopic.TRAPS,
        8,
        "After N pages that look alike, request a random path of the site. Pages that resemble its "
        "answer are soft 404s. 0 disables it.",
        "a whole number, 0 or more",
        _whole(0, COUNT_MAX),
        "N",
    )
    probe_hosts: int = _setting(
        OptionTopic.TRAPS,
        16,
        "After N new hosts of a domain within a day, request a random host name. If it answers, new "
        "hosts share one budget. 0 disables it.",
        "a whole number, 0 or more",
        _whole(0, COUNT_MAX),
        "N",
    )
    max_pages: int | None = _limit(OptionTopic.COMMON, "Stop after N pages.")
    max_depth: int | None = _limit(OptionTopic.COMMON, "Follow links up to N hops from a seed.", least=0)
    max_pages_per_host: int | None = _limit(OptionTopic.LIMITS, "Fetch at most N pages from each host.")
    memory_bytes: int = _setting(
        OptionTopic.LIMITS,
        MEMORY_BYTES,
        "Memory for URLs, hosts and robots rules. Beyond it, they are on disk (docs/memory.md).",
        f"a size such as 512M or 2G, at least {MEMORY_BYTES_MIN >> 20}M",
        size_reader(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX),
        "SIZE",
        flag="memory",
        frontier=True,
    )
    max_seconds: float | None = _setting(
        OptionTopic.LIMITS,
        None,
        "Stop this run after this time.",
        "a number above 0, or none",
        _real(0, SECONDS_MAX, open_below=True),
        "SECONDS",
        optional=True,
    )
    max_wait: float = _setting(
        OptionTopic.LIMITS,
        MAX_WAIT_SECONDS,
        "Stop if every remaining host asks for a longer wait (Retry-After).",
        f"a number from 0 to {SECONDS_MAX:.0f}",
        _real(0, SECONDS_MAX),
        "SECONDS",
    )
    delay: float = _setting(
        OptionTopic.COMMON,
        DELAY_SECONDS_FLOOR,
        "Minimum gap between two requests to one host.",
        f"a number from 0 to {DELAY_SECONDS_MAX:.0f}",
        _real(0, DELAY_SECONDS_MAX),
        "SECONDS",
        frontier=True,
        per_host=True,
    )
    delay_factor: float = _setting(
        OptionTopic.POLITENESS,
        DELAY_FACTOR,
        "Make the gap at least K times the duration of the last request. This rule adds at most 60 s.",
        f"a number from 0 to {DELAY_FACTOR_MAX:.0f}",
        _real(0, DELAY_FACTOR_MAX),
        "K",
        frontier=True,
    )
    group: tuple[str, ...] = _setting(
        OptionTopic.POLITENESS,
        (),
        "Hosts that share one politeness clock: those of one registrable domain, at one address, or in "
        "a file (repeatable). By default, hosts at one public address share two request slots.",
        "domain, address, none, or a readable file of groups (docs/groups.md)",
        _groups,
        "domain|address|FILE|none",
        choices=GROUP_WORDS,
        many=True,
        path=True,
        words=GROUP_WORDS,
    )
    concurrency: int = _setting(
        OptionTopic.COMMON,
        64,
        "Maximum number of requests in flight, one per host unless you allow more. Up to 7 × N slow "
        "requests may run in addition.",
        f"a whole number from 1 to {CONCURRENCY_MAX}",
        _whole(1, CONCURRENCY_MAX),
        "N",
    )
    contact: str | None = _setting(
        OptionTopic.COMMON,
        None,
        "A mail address or URL at which sites can reach you. Each request contains it. Without it, only "
        "loopback is crawled.",
        "a mail address or an http(s) URL",
        _contact,
        "URL|MAIL",
        optional=True,
    )
    user_agent: str = _setting(
        OptionTopic.POLITENESS,
        "Outrider",
        "The crawler's name, sent to every site and matched against robots.txt.",
        f"a product token: letters, digits, - _ . after a first letter, at most {USER_AGENT_CHARACTERS_MAX}",
        _user_agent,
        "TOKEN",
        frontier=True,
    )
    identity: str | None = _setting(
        OptionTopic.NETWORK,
        None,
        "The folder of `outrider identity init`, whose key signs requests (docs/howto/identity.md).",
        "the folder of an identity, or none",
        _path,
        "DIR",
        optional=True,
        path=True,
    )
    sign: str = _choice(
        OptionTopic.NETWORK,
        tuple(one.value for one in SignWhen),
        "Sign requests over https: none, those to hosts that ask for it, or all. It needs --identity.",
    )
    sign_scope: str = _choice(
        OptionTopic.NETWORK,
        tuple(one.value for one in SignScope),
        "The validity of a signature: for its method and path, or for all requests to its host for a minute.",
    )
    signature_agent: str = _choice(
        OptionTopic.NETWORK,
        tuple(one.value for one in AgentForm),
        "The form of the field Signature-Agent: the URL of the key directory, the origin of your site, or the "
        "origin as a plain string.",
        per_host=True,
    )
    hosts: str | None = _setting(
        OptionTopic.NETWORK,
        None,
        "A file of addresses and names, in the form of /etc/hosts. Names in it may have loopback addresses.",
        "a readable file",
        _readable,
        "FILE",
        optional=True,
        path=True,
    )
    resolver: tuple[str, ...] = _setting(
        OptionTopic.NETWORK,
        (),
        "Use this DNS server, not the system's (repeatable).",
        "addresses such as 9.9.9.9, 127.0.0.1:5353 or [2620:fe::fe]:53",
        _servers,
        "IP[:PORT]",
        many=True,
    )
    allow_address: tuple[str, ...] = _setting(
        OptionTopic.NETWORK,
        (),
        "Allow connections to these addresses although they are not public (repeatable).",
        "addresses or networks such as 127.0.0.0/8 or fd00::/8",
        _networks,
        "CIDR",
        many=True,
    )
    ca: str | None = _setting(
        OptionTopic.NETWORK,
        None,
        "Trust these certificates as well, for sites with their own certificate authority.",
        "a readable file of certificates (PEM)",
        _authorities,
        "FILE",
        optional=True,
        path=True,
    )
    tls: str = _choice(
        OptionTopic.NETWORK,
        (COMPATIBLE, MODERN),
        "If a server offers only outdated TLS (CBC, RSA key exchange): try again with libcurl, or give up.",
    )
    seed: int = _setting(
        OptionTopic.RUN,
        0,
        "Seed of the random choices. The same seed makes the same choices.",
        "a whole number from 0 to 2^64 - 1",
        _whole(0, SEED_MAX),
        "N",
    )
    obey_robots: bool = _switch(
        OptionTopic.POLITENESS,
        True,
        "Obey robots.txt and its Crawl-delay. --ignore-robots also needs --own-sites.",
        frontier=True,
        off="ignore-robots",
    )
    own_sites: bool = _switch(
        OptionTopic.POLITENESS, False, "Confirms that every site of this crawl is yours, as --ignore-robots requires."
    )
    use: tuple[Use, ...] = _setting(
        OptionTopic.POLITENESS,
        (),
        "The purposes of the crawl, separated by commas (repeatable). Pages whose site refuses one of them are not "
        "kept, and not requested if robots.txt refuses it.",
        "names out of " + ", ".join(USES),
        _uses,
        "USE,...",
        many=True,
        frontier=True,
    )
    use_unknown: str = _choice(
        OptionTopic.POLITENESS, USE_UNKNOWN, "With --use: keep or refuse pages whose site says nothing about a purpose."
    )
    tdmrep: bool = _switch(
        OptionTopic.POLITENESS,
        False,
        f"Also request {TDMREP_PATH} of each site, which says what its pages may be used for (TDMRep).",
    )
    visit_time: str = _choice(
        OptionTopic.POLITENESS,
        VISIT_TIME,
        "The hours that robots.txt names in Visit-time (GMT): ignore them, or let the host rest outside of them.",
        frontier=True,
    )
    robots_unreachable: str = _choice(
        OptionTopic.POLITENESS,
        ROBOTS_UNREACHABLE,
        "If robots.txt of a host cannot be read: keep the host closed, or (for its owner) open it with "
        "its last known rules.",
        frontier=True,
    )
    crawl_delay_max: float | None = _setting(
        OptionTopic.POLITENESS,
        None,
        "The longest Crawl-delay to obey as it is. --crawl-delay-over says what to do with a longer one.",
        "a number above 0, or none",
        _real(0, SECONDS_MAX, open_below=True),
        "S",
        optional=True,
        frontier=True,
    )
    crawl_delay_over: str = _choice(
        OptionTopic.POLITENESS,
        CRAWL_DELAY_OVER,
        "What to do with a Crawl-delay above --crawl-delay-max: obey it, cap it, or skip the host's pages.",
        frontier=True,
    )
    keep_text_digest: bool = _switch(
        OptionTopic.PAGES,
        False,
        "Keep the digest of each page's text in the frontier, 8 bytes a page. So a later visit shows whether the text "
        "has changed.",
        frontier=True,
    )
    crawl_delay_as: str = _choice(
        OptionTopic.POLITENESS,
        CRAWL_DELAY_AS,
        "Read Crawl-delay as a gap after each request, or as a window in which one request may begin (Bing).",
        frontier=True,
    )
    progress: str = _choice(
        OptionTopic.RUN, PROGRESS, "How to show progress: a bar on a terminal, lines elsewhere, or nothing."
    )
    log_format: str = _choice(OptionTopic.RUN, LOG_FORMATS, "The format of crawl.log.")
    warc: bool = _switch(OptionTopic.RUN, True, "Write every request and response to WARC files.")

    archive: str | None = _setting(
        OptionTopic.RUN,
        None,
        "Upload finished WARC files to this object storage, too (docs/howto/storage.md).",
        f"{ACCEPTED_STORES}, or none",
        _object_store,
        "URL",
        optional=True,
    )
    keep_archive: int | None = _setting(
        OptionTopic.RUN,
        None,
        "Keep only N uploaded WARC files in the directory.",
        "a whole number, 0 or more, or none",
        _whole(0, COUNT_MAX),
        "N",
        optional=True,
    )
    seal_bytes: int = _setting(
        OptionTopic.RUN,
        ARCHIVE_SEAL_BYTES,
        "With --archive, finish a WARC file at this size.",
        f"a whole number, 1 to {ARCHIVE_SEAL_BYTES_MAX}",
        _whole(1, ARCHIVE_SEAL_BYTES_MAX),
        "BYTES",
    )
    seal_seconds: float = _setting(
        OptionTopic.RUN,
        ARCHIVE_SEAL_SECONDS,
        "With --archive, finish a WARC file after this time.",
        "a number above 0",
        _real(0, SECONDS_MAX, open_below=True),
        "SECONDS",
    )

    catalog: tuple[str, ...] = _setting(
        OptionTopic.RUN,
        (),
        "Keep pages and URLs in this database, too (docs/howto/catalog.md; repeatable).",
        ACCEPTED_CATALOGS,
        _catalogs,
        "URL",
        many=True,
        secret=True,
        shown=shown_address,
    )

    on_page: Any = _hook(OptionTopic.HOOKS, "Called with each page. The page's line keeps what it returns.")
    on_request: Any = _hook(
        OptionTopic.HOOKS, "Called before each request for a page. May change its headers and timeouts."
    )
    on_response: Any = _hook(OptionTopic.HOOKS, "Called with each response. May replace its content.")
    readers: Any = _setting(
        OptionTopic.HOOKS,
        (),
        "The function that reads a content type (repeatable).",
        "content-type=module:function, or in Python a mapping of types to functions",
        _readers,
        "TYPE=MODULE:FUNCTION",
        many=True,
    )
    priority: Any = _setting(
        OptionTopic.PAGES,
        None,
        "Which URLs to fetch first: by a function of Outrider (docs/priority.md) or your own.",
        "one of weighted, by_domain_page_freshness; " + _A_FUNCTION + ", or none",
        _priority,
        "NAME|MODULE:FUNCTION",
        choices=PRIORITIES,
        optional=True,
    )
    key: Any = _hook(
        OptionTopic.HOOKS, "Called with each link, returns the name of its queue. Queues of one host share its clock."
    )
    revisit: Any = _setting(
        OptionTopic.REVISITS,
        None,
        "Visit fetched pages again, by this rule (docs/revisits.md). A function is called with each page, and returns "
        "the seconds until its next visit.",
        "one of " + ", ".join(REVISIT_RULES) + "; " + _A_FUNCTION + ", or none",
        _revisit,
        "RULE|MODULE:FUNCTION",
        choices=REVISIT_RULES,
        optional=True,
    )
    rate: float | None = _setting(
        OptionTopic.REVISITS,
        None,
        "Fetch at most N URLs a second from all hosts together, in each minute.",
        f"a number from {RATE_MIN:g} to {RATE_MAX:g}, or none",
        _real(RATE_MIN, RATE_MAX),
        "N",
        optional=True,
        frontier=True,
    )
    discovery_share: float | None = _setting(
        OptionTopic.REVISITS,
        None,
        "Use this share of --rate for new URLs. Without it, the values of new and known pages decide.",
        "a number from 0 to 1, or none",
        _real(0, 1),
        "X",
        optional=True,
        frontier=True,
    )
    downloader: Any = _setting(
        OptionTopic.NETWORK,
        None,
        "Fetch pages with your own downloader.",
        _A_FUNCTION + " or a Downloader, or none",
        _downloader,
        "MODULE:FUNCTION",
        optional=True,
    )
    header: Any = _setting(
        OptionTopic.NETWORK,
        (),
        "Send this header field with each request (repeatable).",
        "NAME=VALUE; Host, User-Agent and those of the connection are set already",
        _headers,
        "NAME=VALUE",
        many=True,
        per_host=True,
        secret=True,
        spaced=True,
    )
    credentials: Any = _setting(
        OptionTopic.NETWORK,
        (),
        "Send this secret to one origin and to no other (repeatable; docs/hosts.md).",
        "ORIGIN=USER:PASSWORD or ORIGIN=Bearer TOKEN, with an origin as https://example.org",
        _credentials,
        "ORIGIN=SECRET",
        many=True,
        per_host=True,
        secret=True,
        spaced=True,
    )
    timeout: Any = _setting(
        OptionTopic.NETWORK,
        TIMEOUTS,
        "Seconds allowed for the connection, for each pause of the site (first byte included), and for "
        "the whole request.",
        f"connect=S,first-byte=S,total=S or some of them, each above 0 and at most {TIMEOUT_SECONDS_MAX:.0f}",
        _timeout,
        "connect=S,first-byte=S,total=S",
        per_host=True,
    )
    truncate: Any = _setting(
        OptionTopic.LIMITS,
        (),
        "Keep at most BYTES of a content type or family (image/*). * means every other type (repeatable).",
        f"TYPE=BYTES, with a whole number from 1 to {TRUNCATE_BYTES_MAX}",
        _truncate,
        "TYPE=BYTES",
        many=True,
        per_host=True,
    )
    retries: int = _setting(
        OptionTopic.LIMITS,
        len(RETRY_SECONDS),
        "How many times to retry a failed page: after 5, 30 and 300 s.",
        f"a whole number from 0 to {len(RETRY_SECONDS)}",
        _whole(0, len(RETRY_SECONDS)),
        "N",
        per_host=True,
    )
    strict_seeds: bool = _switch(
        OptionTopic.PAGES, False, "Stop at a seed that is not a URL. By default, such seeds are listed and skipped."
    )
    name: str | None = _setting(
        OptionTopic.RUN, None, "The name of the crawl in its report.", "a text, or none", _text, "TEXT", optional=True
    )
    host: Any = _setting(
        OptionTopic.NETWORK,
        (),
        "Settings of single hosts: one table each, with a pattern of names and the values for them (docs/hosts.md).",
        "[[host]] tables",
        _tables,
        "",
        many=True,
        file_only=True,
    )
    anew: bool = _switch(
        OptionTopic.RUN,
        False,
        "Move the files in DIR to a folder inside it and begin again, with the same settings.",
        once=True,
    )

    def __post_init__(self) -> None:
        for name, setting in SETTINGS.items():
            object.__setattr__(self, name, checked(name, getattr(self, name), setting))
        _require_no_secret(self.header)
        check_revisits({"revisit": self.revisit_rule, "rate": self.rate, "discovery_share": self.discovery_share})
        if self.sign != SignWhen.OFF and self.identity is None:
            raise SettingsError(
                f"sign is {self.sign}, and identity is missing: make one with `outrider identity init`, and use "
                "--identity DIR"
            )
        if self.use_unknown != "allow" and not self.use:
            raise SettingsError(
                f"use-unknown is {self.use_unknown}, and use is missing: name the uses of your crawl with --use"
            )
        if not self.obey_robots:
            _require_owner(own_sites=self.own_sites, anywhere=self.scope == "any")

    @property
    def revisit_rule(self) -> str | None:
        """Returns the revisit rule by its name; None without one, or for a function, which decides page by page."""
        return self.revisit if self.revisit in REVISIT_RULES else None

    @property
    def keeps_text(self) -> bool:
        """Whether the frontier keeps the digests of texts: a revisit rule compares them."""
        return self.keep_text_digest or self.revisit_rule is not None

    @property
    def user_agent_sent(self) -> str:
        """Returns the User-Agent header: `TOKEN/0.1 (+contact)`."""
        from outrider.crawl.setup.version import PRODUCT_VERSION

        product = f"{self.user_agent}/{PRODUCT_VERSION}"
        return f"{product} (+{self.contact})" if self.contact else product

    @property
    def headers_sent(self) -> tuple[tuple[str, str], ...]:
        """Returns the fields of each request in addition to the usual ones: `From`, if the contact is a mail address
        (RFC 9110 section 10.1.2)."""
        mail = self.contact.removeprefix("mailto:") if self.contact and _MAIL.fullmatch(self.contact) else None
        return (("From", mail),) if mail else ()

    def frontier_settings(self) -> dict[str, object]:
        """Returns the settings of the frontier, under the same names."""
        told = {name: getattr(self, name) for name in FRONTIER_SETTINGS} | {
            "group": groups_of(self.group, self.contact),
            "revisit": self.revisit_rule,
            "keep_text_digest": self.keeps_text,
        }
        rules = Traps(
            self.max_url_bytes,
            self.max_path_depth,
            self.max_path_repeats,
            self.date_horizon,
            self.new_urls_per_host,
            self.least_returns or None,
            self.host_quantile,
        )
        told["traps"] = rules if self.traps else None
        tables = [dict(table) for table in self.host]
        told["hours"] = tuple(
            LocalHours.of(str(one["name"]), str(one["hours"]), cast("float | None", one.get("delay_outside")))
            for one in tables
            if "hours" in one
        )
        # A function decides per page, before the frontier gets its links.
        return {**told, "scope": "any"} if is_function(self.scope) else told


def _require_no_secret(fields: tuple[tuple[str, str], ...]) -> None:
    """Raises SettingsError for a field that would hand the secret of one site to all of them."""
    for name, _ in fields:
        if is_secret(name):
            raise SettingsError(
                f"header {name} would go to every host of the crawl: use credentials ORIGIN=SECRET, or set the header "
                "in a [[host]] table of outrider.toml"
            )


def _require_owner(*, own_sites: bool, anywhere: bool) -> None:
    """Raises SettingsError if robots.txt may not be ignored: for sites of other owners, or of unknown owners."""
    if not own_sites:
        raise SettingsError(
            "obey-robots is False: robots.txt may be ignored only on your own sites; if all of them are, add "
            "--own-sites (own_sites = true), else remove --ignore-robots"
        )
    if anywhere:
        raise SettingsError(
            "obey-robots is False, and scope is any, which includes foreign sites: set scope host, domain or prefix"
        )


SETTINGS: dict[str, Setting] = {
    entry.name: entry.metadata["setting"]
    for topic in OptionTopic
    for entry in fields(CrawlOptions)
    if entry.metadata["setting"].topic is topic
}
"""Every option by its name, topic by topic: the order of help, outrider.toml and documents."""


def default_of(name: str) -> object:
    """Returns the default of an option."""
    return CrawlOptions.__dataclass_fields__[name].default


FRONTIER_SETTINGS = tuple(name for name, setting in SETTINGS.items() if setting.frontier)


def checked(name: str, value: object, setting: Setting, source: str = "") -> object:
    """Returns the value in its own type. Raises SettingsError with the key, the value and the accepted values."""
    if setting.optional and (value is None or (isinstance(value, str) and value.strip().lower() == "none")):
        return None
    try:
        return setting.read(value)
    except RefusedError as refusal:
        shown = ", ".join(map(repr, value)) if isinstance(value, tuple | list) else repr(value)
        shown = "" if setting.secret else f" is {shown}" if len(shown) <= 200 else f" is {shown[:200]}…"
        key = name.replace("_", "-")
        origin = f" ({source})" if source else ""
        named = f"{setting.flag} ({key})" if setting.flag and not source else key
        raise SettingsError(f"{named}{origin}{shown}: {refusal}; use {setting.accepted}") from None


Given = Mapping[str, tuple[object, str]]
"""Values by option, each with where it was written ("" for a flag); not checked yet."""


_CLUSTER = "cluster"
"""A flag that is not a setting, because it says which command runs."""


def from_environment(environment: Mapping[str, str]) -> dict[str, tuple[object, str]]:
    """Returns the options named OUTRIDER_…. White space separates lists; line breaks separate those whose values may
    contain spaces. An empty variable does not count.

    Raises SettingsError for a variable with almost such a name: otherwise a typing error would be ignored silently.
    """
    found: dict[str, tuple[object, str]] = {}
    known = [ENVIRONMENT_PREFIX + name.upper() for name in SETTINGS]
    for variable in sorted(environment):
        if variable == ENVIRONMENT_PREFIX + _CLUSTER.upper():  # without the error, another crawl would begin
            raise SettingsError(f"{variable} (in the environment) is not a setting{_nearest(_CLUSTER)}")
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in known:
            near = difflib.get_close_matches(variable, known, 1, _ALMOST)
            if near:
                raise SettingsError(f"{variable} (in the environment) is not a setting; did you mean {near[0]}?")
    for name, setting in SETTINGS.items():
        if setting.file_only:
            continue
        variable = ENVIRONMENT_PREFIX + name.upper()
        text = environment.get(variable, "")
        if text:
            found[name] = (_listed(text, setting) if setting.many else text, variable)
    return found


def _listed(text: str, setting: Setting) -> list[str]:
    """Returns the values of a list in a variable."""
    if not setting.spaced:
        return text.split()
    return [line for line in map(str.strip, text.splitlines()) if line]


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The content of a DIR/outrider.toml: options, and the sources of the seeds."""

    options: Given
    seeds: tuple[str, ...] = ()


def from_file(text: str, shown: str, directory: str) -> SettingsFile:
    """Reads the text of an outrider.toml (`shown` names it in errors; relative paths start at `directory`).

    Raises SettingsError for a text that is not TOML or has an unknown key; the values are checked later, together.
    """
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{shown} is not TOML: {error}") from None
    found: dict[str, tuple[object, str]] = {}
    seeds: tuple[str, ...] = ()
    for key, value in table.items():
        name = key.replace("-", "_")
        if name == "seeds":
            if not isinstance(value, list) or not all(isinstance(seed, str) for seed in value):
                raise SettingsError(f"seeds ({shown}) is not a list of texts")
            seeds = tuple(value)
            continue
        if name not in SETTINGS:
            raise SettingsError(f"{key} ({shown}) is not a setting{_nearest(name)}")
        if SETTINGS[name].once:
            raise SettingsError(f"{key} ({shown}) is valid for one run only: use the flag, and remove it from the file")
        if SETTINGS[name].path:
            value = _seen_from(directory, value, ("", "none", *SETTINGS[name].words))
        found[name] = (value, shown)
    return SettingsFile(found, seeds)


def _seen_from(directory: str, path: object, words: tuple[str, ...]) -> object:
    if isinstance(path, list):
        return [_seen_from(directory, part, words) for part in path]
    if not isinstance(path, str) or path in words:
        return path
    return os.path.join(directory, os.path.expanduser(path))


def _nearest(name: str) -> str:
    if name == _CLUSTER:
        return f"; use the flag --{_CLUSTER} FILE"
    near = difflib.get_close_matches(name, [*SETTINGS, "seeds"], 1)
    return f"; did you mean {near[0].replace('_', '-')}?" if near else ""


def resolved(flags: Mapping[str, object], environment: Given, file: Given, output: str) -> CrawlOptions:
    """Returns one value per option: flags override the environment, that outrider.toml, and that the defaults.

    A directory that was moved still works: `output` is its present path. Raises SettingsError.
    """
    return explained(flags, environment, file, output)[0]


def explained(
    flags: Mapping[str, object], environment: Given, file: Given, output: str
) -> tuple[CrawlOptions, dict[str, str]]:
    """Returns the same as `resolved`, and the source of each value that is not a default: "" (flag), variable, file."""
    merged: dict[str, tuple[object, str]] = {
        **file,
        **environment,
        **{name: (value, "") for name, value in flags.items()},
    }
    merged["output"] = (output, "")
    values: dict[str, Any] = {}
    for name, (value, source) in merged.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise SettingsError(f"{name} is no setting{_nearest(name)}")
        values[name] = checked(name, value, setting, source)
    return CrawlOptions(**values), {name: source for name, (_, source) in merged.items()}


def permitting(options: CrawlOptions, addresses: tuple[str, ...]) -> CrawlOptions:
    """Returns the same settings with further permitted addresses."""
    return replace(options, allow_address=(*options.allow_address, *addresses)) if addresses else options


def hidden(options: CrawlOptions) -> CrawlOptions:
    """Returns the same settings without the values of header fields and credentials."""

    def covered(name: str, value: Any) -> Any:
        if name not in SETTINGS or not SETTINGS[name].secret:
            return value
        if SETTINGS[name].shown is not None:
            return _kept(SETTINGS[name], value)
        return tuple((one, "hidden:hidden" if name == "credentials" else "hidden") for one, _ in value)

    tables = tuple({name: covered(name, value) for name, value in table} for table in options.host)
    secrets = (name for name, setting in SETTINGS.items() if setting.secret)
    return replace(options, host=tables, **{name: covered(name, getattr(options, name)) for name in secrets})


def _kept(setting: Setting, value: Any) -> Any:
    """Returns the value that outrider.toml keeps."""
    return value if setting.shown is None else tuple(map(setting.shown, value))


def as_toml(options: CrawlOptions, seeds: Iterable[str]) -> str:
    """Returns the text of an outrider.toml with every setting, its meaning and the sources of the seeds."""
    parts = [
        "# The settings this crawl runs with. Flags and OUTRIDER_… variables override the values in this file.",
        "",
        "# The sources of the seeds: URLs, @files, or - for standard input.",
        f"seeds = {_toml(tuple(seeds))}",
    ]
    for name, setting in SETTINGS.items():
        if name in ("output", "host") or setting.once:
            continue  # a directory may be moved; an option for one run is not kept; tables must follow the keys
        value = _kept(setting, getattr(options, name))
        parts += ["", f"# {setting.meaning} It takes {setting.accepted}."]
        parts.append(f"{name} = {value_text(value)}")
    for table in options.host:
        parts += ["", "[[host]]", *(f"{name} = {value_text(value)}" for name, value in table)]
    return "\n".join(parts) + "\n"


def _paired(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else spelled(value)


def flag_of(name: str) -> str:
    """Returns the flag of a setting."""
    return "--" + (SETTINGS[name].flag or name.replace("_", "-"))


def typed_text(value: object) -> str:
    """Returns one value as a user types it after its flag; "" for an empty list or text."""
    if isinstance(value, tuple):
        return ",".join(f"{part[0]}={_paired(part[1])}" if isinstance(part, tuple) else str(part) for part in value)
    return f"{value:g}" if isinstance(value, float) else value_text(value).strip('"')


def value_text(value: object) -> str:
    """Returns one value as outrider.toml has it; None is "none"."""
    return '"none"' if value is None else _toml(value)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)  # the shortest text that reads back as the same number; TOML accepts the same forms
    if isinstance(value, tuple):
        if not value:
            return "[]"
        if isinstance(value[0], tuple) and isinstance(value[0][0], tuple):
            tables = ("{ " + ", ".join(f"{key} = {value_text(one)}" for key, one in table) + " }" for table in value)
            return "[" + ", ".join(tables) + "]"
        parts = [f"{part[0]}={_paired(part[1])}" if isinstance(part, tuple) else part for part in value]
        return "[\n" + "".join(f"    {_toml(part)},\n" for part in parts) + "]"
    if not isinstance(value, str):
        value = spelled(value)
    return '"' + "".join(_toml_character(character) for character in value) + '"'


def _toml_character(character: str) -> str:
    code = ord(character)
    if character in '"\\':
        return "\\" + character
    if 0xD800 <= code <= 0xDFFF:
        return "\\uFFFD"  # TOML allows scalar values only; half a character cannot be written
    if code < 0x20 or code == 0x7F or 0x80 <= code < 0xA0:
        return f"\\u{code:04X}"
    return character
