"""Settings of single hosts: the `[[host]]` tables of outrider.toml over the crawl's own.

    [[host]]
    name = "*.example.org"        # a pattern of host names: * stands for any characters
    delay = 5
    header = ["X-Key=1"]

Tables hold in order, a later one over an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from outrider.crawl.credentials import sent_to
from outrider.crawl.options import UNVERIFIED, CrawlOptions
from outrider.fetch.downloader import Request, Response, target_of
from outrider.limits import BODY_BYTES_MAX, HEAD_BYTES_MAX, HOSTS_RULED_MAX

ANY_TYPE: Final = "*"


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The settings of one host. delay, capacity: None where no table says anything, and the crawl's own hold."""

    delay: float | None
    capacity: int | None
    header: tuple[tuple[str, str], ...]
    connect_seconds: float
    first_byte_seconds: float
    total_seconds: float
    truncate: Mapping[str, int]
    retries: int
    follow_nofollow: bool
    credentials: Mapping[tuple[str, str, int], str] = field(default_factory=dict, repr=False)
    verified: bool = True

    @property
    def bytes_max(self) -> int:
        """How much of an answer is asked for, its head included, before its type is known."""
        if not self.truncate:
            return BODY_BYTES_MAX
        largest = max(self.truncate.values()) + HEAD_BYTES_MAX
        return largest if ANY_TYPE in self.truncate else max(largest, BODY_BYTES_MAX)

    def bytes_of(self, content_type: str) -> int:
        """How much of a type of content is kept."""
        if not self.truncate:
            return BODY_BYTES_MAX
        essence = content_type.partition(";")[0].strip().lower()
        family = essence.partition("/")[0] + "/*"
        for name in (essence, family, ANY_TYPE):
            if name in self.truncate:
                return self.truncate[name]
        return BODY_BYTES_MAX

    def request(
        self,
        url: str,
        address: str,
        user_agent: str,
        usual: tuple[tuple[str, str], ...],
        *,
        last: tuple[tuple[str, str], ...] = (),
        bytes_max: int = BODY_BYTES_MAX,
    ) -> Request:
        """A request with the host's own fields, the `usual` ones that it does not name itself, and `last`; with
        credentials where its origin is theirs."""
        named = {name.lower() for name, _ in self.header}
        fields = self.header + tuple(field for field in usual if field[0].lower() not in named) + last
        return Request(
            url,
            address,
            user_agent,
            fields,
            connect_seconds=self.connect_seconds,
            idle_seconds=self.first_byte_seconds,
            total_seconds=self.total_seconds,
            bytes_max=bytes_max,
            credentials=self.credentials.get(target_of(url).origin) if self.credentials else None,
            verified=self.verified,
        )

    def cut(self, response: Response) -> Response:
        """The response with as much of its body and content as is kept; it is truncated then, as one that a limit
        cut."""
        most = self.bytes_of(response.headers.get("content-type") or "")
        if len(response.body) <= most and len(response.content) <= most:
            return response
        return replace(
            response,
            body=response.body[:most],
            content=response.content[:most],
            truncated=response.truncated or "length",
        )


def unverified_hosts(options: CrawlOptions) -> list[str]:
    """The hosts whose certificates need prove nothing, by their tables."""
    hosts = PerHost(options)
    names = dict.fromkeys(str(dict(table)["name"]).lower() for table in options.host if "tls" in dict(table))
    return [name for name in names if not hosts.of(name).verified]


class PerHost:
    """The settings of each host, made once."""

    def __init__(self, options: CrawlOptions) -> None:
        self._tables = [dict(table) for table in options.host]
        self._options = options
        self._usual = self._made({})
        self._made_ones: dict[str, HostSettings] = {}

    def of(self, host: str) -> HostSettings:
        """The settings of a host, by its canonical name."""
        if not self._tables:
            return self._usual
        known = self._made_ones.get(host)
        if known is None:
            name = host.removesuffix(".")
            told: dict[str, Any] = {}
            for table in self._tables:
                if fnmatchcase(name, str(table["name"]).lower()):
                    told |= table
            if len(self._made_ones) >= HOSTS_RULED_MAX:
                self._made_ones.clear()
            known = self._made_ones[host] = self._made(told) if told else self._usual
        return known

    def _made(self, told: Mapping[str, Any]) -> HostSettings:
        def value(name: str) -> Any:
            return told[name] if name in told else getattr(self._options, name)

        times = dict(value("timeout"))
        return HostSettings(
            told.get("delay"),
            told.get("capacity"),
            tuple(value("header")),
            times["connect"],
            times["first-byte"],
            times["total"],
            dict(value("truncate")),
            value("retries"),
            value("follow_nofollow"),
            {target_of(origin).origin: sent for origin, sent in map(sent_to, value("credentials"))},
            told.get("tls") != UNVERIFIED,
        )
