"""Settings of single hosts: the `[[host]]` tables of outrider.toml override the crawl's own settings.

    [[host]]
    name = "*.example.org"        # a pattern of host names: * matches any characters
    delay = 5
    header = ["X-Key=1"]

Tables apply in order; a later one overrides an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from outrider.crawl.setup.credentials import sent_to
from outrider.crawl.setup.options import COMPATIBLE, MODERN, UNVERIFIED, CrawlOptions
from outrider.fetch.downloader import Request, target_of
from outrider.fetch.type_limits import TypeBytes, bytes_of_type
from outrider.identity.signatures import AgentForm
from outrider.limits import BODY_BYTES_MAX, HOSTS_RULED_MAX, PDF_BYTES_MAX
from outrider.page.pdf import PDF_TYPE, reads_pdf


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The settings of one host. delay, capacity: None if no table sets them, and the crawl's own apply. truncate: with
    the limit of PDF if PDF is read."""

    delay: float | None
    capacity: int | None
    header: tuple[tuple[str, str], ...]
    connect_seconds: float
    first_byte_seconds: float
    total_seconds: float
    truncate: TypeBytes
    retries: int
    follow_nofollow: bool
    credentials: Mapping[tuple[str, str, int], str] = field(default_factory=dict, repr=False)
    verified: bool = True
    modern_tls: bool = False
    signature_agent: AgentForm = AgentForm.KEYS

    def request(
        self,
        url: str,
        address: str,
        user_agent: str,
        usual: tuple[tuple[str, str], ...],
        *,
        last: tuple[tuple[str, str], ...] = (),
        bytes_max: int | None = None,
        capacity: int = 1,
    ) -> Request:
        """Returns a request with the host's own fields, those `usual` fields that it does not set, and `last`; with
        credentials if they are for its origin. bytes_max: replaces the limits of pages. capacity: of the lease, because
        an order may have changed it."""
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
            bytes_max=BODY_BYTES_MAX if bytes_max is None else bytes_max,
            type_bytes_max=self.truncate if bytes_max is None else (),
            credentials=self.credentials.get(target_of(url).origin) if self.credentials else None,
            verified=self.verified,
            modern_tls=self.modern_tls,
            capacity=capacity,
        )


def unverified_hosts(options: CrawlOptions) -> list[str]:
    """Returns the hosts whose certificates are not verified, by their tables."""
    hosts = PerHost(options)
    names = dict.fromkeys(str(dict(table)["name"]).lower() for table in options.host if "tls" in dict(table))
    return [name for name in names if not hosts.of(name).verified]


class PerHost:
    """The settings of each host, made once."""

    def __init__(self, options: CrawlOptions) -> None:
        self._tables = [dict(table) for table in options.host]
        self._options = options
        self._reads_pdf = reads_pdf()
        self._usual = self._made({})
        self._made_ones: dict[str, HostSettings] = {}

    def of(self, host: str) -> HostSettings:
        """Returns the settings of a host, by its canonical name without a trailing dot."""
        if not self._tables:
            return self._usual
        known = self._made_ones.get(host)
        if known is None:
            told: dict[str, Any] = {}
            for table in self._tables:
                if fnmatchcase(host, str(table["name"]).lower()):
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
            self._with_pdf(tuple(value("truncate"))),
            value("retries"),
            value("follow_nofollow"),
            {target_of(origin).origin: sent for origin, sent in map(sent_to, value("credentials"))},
            told.get("tls") != UNVERIFIED,
            (told["tls"] if told.get("tls") in (COMPATIBLE, MODERN) else self._options.tls) == MODERN,
            AgentForm(value("signature_agent")),
        )

    def _with_pdf(self, limits: TypeBytes) -> TypeBytes:
        """Returns the limits, with the one of PDF if PDF is read and no limit is set for it."""
        if not self._reads_pdf or bytes_of_type(limits, PDF_TYPE) is not None:
            return limits
        return (*limits, (PDF_TYPE, PDF_BYTES_MAX))
