"""The signer of a crawl, made of its settings and of the identity that these name."""

from __future__ import annotations

from collections.abc import Callable

from outrider.crawl.setup.options import CrawlOptions
from outrider.fetch.request_signing import RequestSigner, SignScope, SignWhen
from outrider.identity.folder import IdentityFolder
from outrider.identity.signing_key import SigningKey
from outrider.install_hints import require_identity_extra


def identity_of(path: str | None) -> tuple[IdentityFolder, SigningKey] | None:
    """Returns an identity and its key, None without a path. Raises SettingsError and NamedPathError for one that cannot
    be used."""
    if path is None:
        return None
    require_identity_extra()
    folder = IdentityFolder(path)
    return folder, folder.key()


def signer_of(options: CrawlOptions, note: Callable[[str], None] = lambda _: None) -> RequestSigner | None:
    """Returns the signer of requests, None if none are signed. note: a line for the journal. Raises SettingsError and
    NamedPathError for an identity that cannot be used."""
    when = SignWhen(options.sign)
    found = identity_of(options.identity)
    if when is SignWhen.OFF or found is None:
        return None
    folder, key = found
    return RequestSigner(key, folder.crawler.url, when, SignScope(options.sign_scope), note=note)
