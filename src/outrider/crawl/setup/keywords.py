"""The keywords of `outrider.crawl(…)` as types, for editors and checkers. Made by scripts/keywords.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict


class CrawlKeywords(TypedDict, total=False):
    """The options of a crawl as keywords. docs/options.md explains each."""

    scope: Literal["host", "domain", "prefix", "any"] | Callable[..., Any] | str
    include: Iterable[str]
    exclude: Iterable[str]
    url_rules: str | None
    honour_canonical: bool
    follow_nofollow: bool
    copies: Literal["last", "drop"]
    sitemaps: bool
    traps: bool
    max_url_bytes: int
    max_path_depth: int
    max_path_repeats: int
    date_horizon: float
    new_urls_per_host: int | None
    least_returns: float
    host_quantile: float | None
    probe_pages: int
    probe_hosts: int
    max_pages: int | None
    max_depth: int | None
    max_pages_per_host: int | None
    memory_bytes: int
    max_seconds: float | None
    max_wait: float
    delay: float
    delay_factor: float
    group: Iterable[str]
    concurrency: int
    contact: str | None
    user_agent: str
    identity: str | os.PathLike[str] | None
    sign: Literal["off", "challenge", "always"]
    sign_scope: Literal["request", "host"]
    signature_agent: Literal["keys", "origin", "string"]
    hosts: str | os.PathLike[str] | None
    resolver: Iterable[str]
    allow_address: Iterable[str]
    ca: str | os.PathLike[str] | None
    tls: Literal["compatible", "modern"]
    seed: int
    obey_robots: bool
    own_sites: bool
    use: Iterable[str]
    use_unknown: Literal["allow", "refuse"]
    tdmrep: bool
    visit_time: Literal["ignore", "obey"]
    robots_unreachable: Literal["closed", "open"]
    crawl_delay_max: float | None
    crawl_delay_over: Literal["obey", "cap", "skip"]
    keep_text_digest: bool
    crawl_delay_as: Literal["gap", "window"]
    progress: Literal["auto", "bar", "log", "none"]
    log_format: Literal["text", "json"]
    warc: bool
    archive: str | None
    keep_archive: int | None
    seal_bytes: int
    seal_seconds: float
    catalog: Iterable[str]
    on_page: Callable[..., Any] | str | None
    on_request: Callable[..., Any] | str | None
    on_response: Callable[..., Any] | str | None
    readers: Mapping[str, Callable[..., Any] | str] | Iterable[str]
    priority: Literal["weighted", "by_domain_page_freshness"] | Callable[..., Any] | str | None
    key: Callable[..., Any] | str | None
    revisit: Literal["uniform", "adaptive", "halving", "nutch", "optimal", "age"] | Callable[..., Any] | str | None
    rate: float | None
    discovery_share: float | None
    downloader: Callable[..., Any] | str | None
    header: Mapping[str, str] | Iterable[str]
    credentials: Mapping[str, str] | Iterable[str]
    timeout: Mapping[str, float] | str
    truncate: Mapping[str, int] | Iterable[str]
    retries: int
    strict_seeds: bool
    name: str | None
    host: Sequence[Mapping[str, Any]]
    anew: bool
