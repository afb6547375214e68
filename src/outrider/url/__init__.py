"""One spelling for every URL, its key, its site, and the scope of a crawl: batches in, batches out."""

from outrider.url.keys import PUBLIC_SUFFIX_DATE, PUBLIC_SUFFIX_VERSION, fingerprints, key, registrable_domain
from outrider.url.scope import Scope
from outrider.url.spelling import SPELLING_VERSION, authority_of, host_of, join, normalize, spell

__all__ = [
    "PUBLIC_SUFFIX_DATE",
    "PUBLIC_SUFFIX_VERSION",
    "SPELLING_VERSION",
    "Scope",
    "authority_of",
    "fingerprints",
    "host_of",
    "join",
    "key",
    "normalize",
    "registrable_domain",
    "spell",
]
