"""The files by which sites verify a crawler: the key directory with proof of possession, address ranges (JAFAR), the
Signature Agent Card, and a page for people.

The sources: draft-ietf-webbotauth-httpsig-protocol-01, draft-illyes-webbotauth-jafar-00,
draft-meunier-webbotauth-registry-04 and draft-illyes-webbotauth-cbcp-01.
"""

from __future__ import annotations

import html
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from outrider.clock import Instant, rfc3339
from outrider.errors import SettingsError
from outrider.identity.signatures import DIRECTORY_PATH, Signature, content_digest, sign_directory
from outrider.identity.signing_key import SigningKey
from outrider.limits import IDENTITY_RANGES_MAX

DIRECTORY_TYPE: Final = "application/http-message-signatures-directory+json"
RANGES_TYPE: Final = "application/jafar+json;version=1"
CARD_TYPE: Final = "application/json"
PAGE_NAME, CARD_NAME, RANGES_NAME = "bot.html", "agent-card.json", "ranges.json"
_CACHE_SECONDS: Final = 3_600  # how long others may keep the key directory: a new key is known within an hour


PURPOSE: Final = "It collects pages for its operator."
DATA: Final = "Ask the contact below how the pages are used."
EXEMPTIONS: Final = "None. The crawler obeys robots.txt on all sites."


class CrawlerDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"name": "user_agent"}):
    """The description of a crawler, by the keys of identity.toml. url: the origin of its own site, https. name: its
    product token. contact: a mail address or a URL. purpose, data: sentences for people. renders: whether it runs the
    scripts of pages."""

    url: str
    name: str
    contact: str
    purpose: str = PURPOSE
    data: str = DATA
    exemptions: str = EXEMPTIONS
    renders: bool = False

    @property
    def authority(self) -> str:
        """Returns the authority of its site."""
        return self.url.removeprefix("https://")

    @property
    def mail(self) -> str | None:
        """Returns its mail address, None if the contact is a URL."""
        return None if self.contact.lower().startswith(("http:", "https:")) else self.contact.removeprefix("mailto:")


@dataclass(frozen=True, slots=True)
class KeyDirectory:
    """A key directory as it is served. proofs: one for each key. created, expires: of the proofs, in seconds since
    1970."""

    body: bytes
    digest: str
    proofs: tuple[Signature, ...]
    created: int
    expires: int

    def fields(self) -> tuple[tuple[str, str], ...]:
        """Returns the header fields of its answer."""
        joined = (
            ", ".join(values) for values in zip(*((one.input, one.signature) for one in self.proofs), strict=True)
        )
        inputs, signatures = joined
        return (
            ("Content-Type", DIRECTORY_TYPE),
            ("Cache-Control", f"max-age={_CACHE_SECONDS}"),
            ("Content-Digest", self.digest),
            ("Signature-Input", inputs),
            ("Signature", signatures),
        )


def key_directory(keys: Sequence[SigningKey], authority: str, *, created: int, expires: int) -> KeyDirectory:
    """Returns the key directory of this authority, with a proof for each key; the first one signs requests. `alg` is
    left out, because the standards name it differently."""
    told = [{"kty": "OKP", "crv": "Ed25519", "kid": key.id, "x": key.x, "use": "sig"} for key in keys]
    body = msgspec.json.encode({"keys": told})
    digest = content_digest(body)
    labels = ["binding", *(f"binding{number}" for number in range(1, len(keys)))]
    proofs = tuple(
        sign_directory(key, authority, digest, created=created, expires=expires, label=label)
        for key, label in zip(keys, labels, strict=True)
    )
    return KeyDirectory(body, digest, proofs, created, expires)


def address_ranges(ranges: Sequence[str], at: Instant, services: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the address ranges of a crawler as JSON values (JAFAR; the list may be empty). services: what runs there.
    Raises SettingsError for a range that is wrong, and for one that nobody else can see."""
    if not all(service.strip() and service.isprintable() for service in services):
        raise SettingsError("a service is empty, or no text: use a word such as search")
    if len(ranges) > IDENTITY_RANGES_MAX:
        raise SettingsError(f"{len(ranges):,} ranges are too many: name {IDENTITY_RANGES_MAX:,} at most")
    prefixes: list[dict[str, Any]] = []
    for text in dict.fromkeys(ranges):
        try:
            network = ipaddress.ip_network(text)
        except ValueError as error:
            raise SettingsError(f"range {text!r:.80}: {error}; use the form ADDRESS/LENGTH") from None
        if not network.is_global:
            raise SettingsError(f"range {text!r:.80} is not public, so no site sees its addresses; leave it out")
        prefix: dict[str, Any] = {f"ipv{network.version}Prefix": str(network)}
        prefixes.append({**prefix, "services": list(services)} if services else prefix)
    return {"creationTime": rfc3339(at).partition(".")[0] + "Z", "prefixes": prefixes}


def agent_card(crawler: CrawlerDescription, user_agent: str, *, has_ranges: bool) -> dict[str, Any]:
    """Returns the Signature Agent Card of a crawler as JSON values. user_agent: the header field that it sends."""
    mail = crawler.mail
    told: dict[str, Any] = {
        "client_id": f"{crawler.url}/{CARD_NAME}",
        "client_name": crawler.name,
        "client_uri": f"{crawler.url}/{PAGE_NAME}",
        "contacts": [f"mailto:{mail}" if mail else crawler.contact],
        "jwks_uri": crawler.url + DIRECTORY_PATH,
        "web_bot_auth": {
            "expected-user-agent": user_agent,
            "rfc9309-product-token": crawler.name,
            "rfc9309-compliance": True,
            "trigger": "crawler",
            "purpose": crawler.purpose,
        },
    }
    if has_ranges:
        told["web_bot_auth"]["ips_uri"] = f"{crawler.url}/{RANGES_NAME}"
    return told


def bot_page(crawler: CrawlerDescription, user_agent: str, *, has_ranges: bool) -> str:
    """Returns the page for people: who crawls, how to block it, what becomes of the data, and whom to ask."""
    mail = crawler.mail
    link = f"mailto:{mail}" if mail else crawler.contact
    told = {
        "name": crawler.name,
        "agent": user_agent,
        "purpose": crawler.purpose,
        "data": crawler.data,
        "exemptions": crawler.exemptions,
        "scripts": "It runs the scripts of pages." if crawler.renders else "It does not run the scripts of pages.",
        "link": link,
        "contact": mail or crawler.contact,
        "keys": DIRECTORY_PATH,
        "card": f"/{CARD_NAME}",
    }
    ranges = f'<link rel="client-ranges" href="/{RANGES_NAME}" type="{html.escape(RANGES_TYPE)}">' if has_ranges else ""
    where = f' It sends them from <a href="/{RANGES_NAME}">these addresses</a>.' if has_ranges else ""
    texts = {name: html.escape(text) for name, text in told.items()}
    return _PAGE.format(**texts, ranges=ranges, where=where)


_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The crawler {name}</title>
{ranges}
</head>
<body>
<h1>The crawler {name}</h1>
<p>{purpose}</p>
<h2>How to recognise it</h2>
<p>Its requests have the field <code>User-Agent: {agent}</code>.{where}</p>
<p>It can sign its requests (RFC 9421). <a href="{keys}">This directory</a> has its keys, and
<a href="{card}">this card</a> describes it for programs.</p>
<h2>How to block it</h2>
<p>It reads robots.txt (RFC 9309), and the directives of <code>X-Robots-Tag</code> and <code>meta name="robots"</code>.
These lines in robots.txt keep it out of a site:</p>
<pre>User-agent: {name}
Disallow: /</pre>
<p>These lines ask it to wait ten seconds between two requests:</p>
<pre>User-agent: {name}
Crawl-delay: 10</pre>
<p>It slows down if your server is slow or answers 429 or 503, and it obeys <code>Retry-After</code>.</p>
<h2>What it does with pages</h2>
<p>{scripts} It keeps answers, and asks for a page again with conditional requests.</p>
<p>{data}</p>
<h2>Exemptions</h2>
<p>{exemptions}</p>
<h2>Contact</h2>
<p><a href="{link}">{contact}</a></p>
</body>
</html>
"""
