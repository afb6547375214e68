"""One spelling for every URL, its parts, keys and lossy rules, and the scope of a crawl: batches in, batches out."""

from outrider.url.archive_key import archive_key
from outrider.url.batch import UrlBatch
from outrider.url.keys import (
    PUBLIC_SUFFIX_DATE,
    PUBLIC_SUFFIX_VERSION,
    domain_spans,
    fingerprints,
    key,
    registrable_domain,
    registrable_domains,
)
from outrider.url.lossy_rules import RULES_VERSION, HostRules, LossyRules, canonical_target
from outrider.url.parts import Url
from outrider.url.scope import Scope, span_of
from outrider.url.spelling import (
    SPELLING_VERSION,
    as_received,
    authorities_of,
    authority_of,
    clock_host,
    host_key,
    host_of,
    hosts_of,
    is_host_of,
    join,
    normalize,
    spell,
    spelled_host,
    undotted,
)
from outrider.url.surt import surt, surt_as_written

__all__ = [
    "PUBLIC_SUFFIX_DATE",
    "PUBLIC_SUFFIX_VERSION",
    "RULES_VERSION",
    "SPELLING_VERSION",
    "HostRules",
    "LossyRules",
    "Scope",
    "Url",
    "UrlBatch",
    "archive_key",
    "as_received",
    "authorities_of",
    "authority_of",
    "canonical_target",
    "clock_host",
    "domain_spans",
    "fingerprints",
    "host_key",
    "host_of",
    "hosts_of",
    "is_host_of",
    "join",
    "key",
    "normalize",
    "registrable_domain",
    "registrable_domains",
    "span_of",
    "spell",
    "spelled_host",
    "surt",
    "surt_as_written",
    "undotted",
]
