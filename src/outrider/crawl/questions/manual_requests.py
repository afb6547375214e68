"""Single requests, one after the other: to a checked address, with the header fields and time limits of its host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from outrider.clock import elapsed, wall
from outrider.crawl.setup.host_settings import PerHost
from outrider.crawl.setup.options import CrawlOptions
from outrider.crawl.setup.seeds import loopback_of, require_contact
from outrider.fetch import AddressGuard, Resolver, Response, make_resolver
from outrider.fetch.downloader import Downloader
from outrider.fetch.judging import challenge_of, robots_of
from outrider.limits import BODY_BYTES_MAX, REDIRECT_HOPS_MAX, ROBOTS_BYTES_MAX
from outrider.robots import ALLOW_ALL, REFUSE_ALL, Rules, verdict_of_status
from outrider.url import Url, clock_host, join


@dataclass(frozen=True, slots=True)
class SiteRules:
    """The rules of a site. why: the reason, if no line of the file decides. error: why there is no answer."""

    rules: Rules
    why: str = ""
    status: int | None = None
    error: str = ""

    @classmethod
    def of(cls, body: bytes, name: str, *, lenient: bool = False, status: int | None = None) -> SiteRules:
        """Returns the rules of a file; `name` is its name in messages."""
        rules = Rules.parse(body, lenient=lenient)
        why = [] if rules.records else [f"{name} has no rules: everything is allowed"]
        if len(body) > ROBOTS_BYTES_MAX:
            why.append(f"{name} is longer than {ROBOTS_BYTES_MAX} bytes: the lines after them are not read")
        return cls(rules, "; ".join(why), status)


class ManualRequests:
    """Single requests with the settings of a crawl; robots.txt is requested with the same header fields as a page."""

    def __init__(
        self,
        options: CrawlOptions,
        hosts: Mapping[str, tuple[str, ...]],
        names: Resolver,
        guard: AddressGuard,
        downloader: Downloader,
    ) -> None:
        self._options, self._hosts = options, hosts
        self._names, self._guard, self._downloader = names, guard, downloader
        self._per_host = PerHost(options)

    @classmethod
    def named(cls, urls: Iterable[str], options: CrawlOptions, hosts: Mapping[str, tuple[str, ...]]) -> ManualRequests:
        """Prepares requests for typed URLs. A loopback address in one of them is permitted."""
        from outrider.fetch.default_downloader import make_downloader

        allowed = (*options.allow_address, *loopback_of(urls, hosts, options.allow_address))
        downloader = make_downloader(clock=elapsed, ca_file=options.ca)
        return cls(options, hosts, make_resolver(hosts, options.resolver), AddressGuard(allowed, hosts), downloader)

    async def page(self, url: str) -> Response:
        """Requests a page. Returns the part of the answer that a crawl keeps. Raises as `get`."""
        return await self.get(url, None)

    async def get(self, url: str, bytes_max: int | None = BODY_BYTES_MAX) -> Response:
        """Returns the answer to one request; bytes_max: None for as much as a crawl keeps of a page. Raises
        SettingsError without a contact, FetchFailure if no address may be used."""
        # A redirect may lead from this machine to another one.
        require_contact([url], self._options.contact, self._hosts)
        target = Url(url)
        address = self._guard.choose(target.host, await self._names.resolve(target.host, target.port))
        own = self._per_host.of(clock_host(url))
        usual = self._options.headers_sent
        request = own.request(url, address, self._options.user_agent_sent, usual, bytes_max=bytes_max)
        return await self._downloader.fetch(request)

    async def rules(self, url: str, *, lenient: bool = False) -> SiteRules:
        """Returns the robots.txt of a URL's site, after redirects. Raises as `get`."""
        asked = join(url, "/robots.txt")
        for _ in range(REDIRECT_HOPS_MAX + 1):
            response = await self.get(asked)
            failure = str(response.error) if response.error is not None else None
            is_challenge = challenge_of(response) is not None
            answer, fault = robots_of(response, failure, wall(), challenged=is_challenge)
            verdict = verdict_of_status(answer.status)
            if verdict == "redirect" and answer.location is not None:
                asked = answer.location
                continue
            if verdict == "rules":
                return SiteRules.of(answer.body, asked, lenient=lenient, status=answer.status)
            if verdict in ("allow", "redirect"):
                return SiteRules(ALLOW_ALL, f"{asked} answers {answer.status}: no rules apply", answer.status)
            told = f"answers {response.status}" if response.status is not None else f"fails ({response.error})"
            told += f" ({fault})" if response.status is not None and fault is not None else ""
            error = f"{asked}: {response.error}: {response.error_text}" if response.status is None else ""
            why = f"{asked} {told}: nothing is allowed while it cannot be read"
            return SiteRules(REFUSE_ALL, why, response.status, error)
        return SiteRules(ALLOW_ALL, f"{asked}: more than {REDIRECT_HOPS_MAX} redirects: no rules apply")

    async def close(self) -> None:
        """Closes connections and threads."""
        await self._downloader.close()
        await self._names.close()
