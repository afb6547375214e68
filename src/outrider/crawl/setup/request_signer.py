"""The signer of a crawl, made of its settings and of the identity that these name."""

from __future__ import annotations

from collections.abc import Callable

from outrider.crawl.setup.options import CrawlOptions
from outrider.fetch.request_signing import RequestSigner, SignScope, SignWhen
from outrider.identity.folder import IdentityFolder
from outrider.install_hints import require_identity_extra


def signer_of(options: CrawlOptions, note: Callable[[str], None] = lambda _: None) -> RequestSigner | None:
    """Returns the signer of requests, None if none are signed. note: a line for the journal. Raises SettingsError and
    NamedPathError for an identity that cannot be used."""
    when = SignWhen(options.sign)
    if when is SignWhen.OFF or options.identity is None:
        return None
    require_identity_extra()
    folder = IdentityFolder(options.identity)
    return RequestSigner(folder.key(), folder.crawler.url, when, SignScope(options.sign_scope), note=note)
