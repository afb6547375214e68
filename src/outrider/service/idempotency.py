"""Idempotency-Key: a repeated request gets the first answer, and another request under the same key is refused."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from outrider.errors import InvalidUrlError, SettingsError
from outrider.journey import RequestId
from outrider.limits import SERVICE_KEYS_MAX
from outrider.service.problems import Problem

_CLIENTS: Final = 64  # windows of request ids for each verb, so that one busy client does not evict all the rest


class IdempotencyKeys:
    """The keys of recent requests, each with a digest of its request. A key belongs to the path, the token and the
    worker of its first request.

    The frontier keeps the answers under a number made of key and request (which names its worker or lease), also after
    a restart. Another request has another number, so no answer of a different request is ever repeated.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, bytes] = OrderedDict()

    @contextmanager
    def used(self, verb: str, who: str, worker: str, key: str | None, request: bytes) -> Iterator[RequestId | None]:
        """Yields the request id under which the frontier keeps the answer, None without a key. A refused request
        leaves its key free. Raises Problem for a key of another request."""
        if key is None:
            yield None
            return
        owner, whole = _digest(verb, who, key, worker), hashlib.blake2b(request, digest_size=16).digest()
        known = self._known.get(owner)
        if known is not None and known != whole:
            raise Problem("key-reused", f"Idempotency-Key {key[:50]!r} belongs to another request; use a new key")
        if known is None:
            self._known[owner] = whole
            if len(self._known) > SERVICE_KEYS_MAX:
                self._known.popitem(last=False)
        # The number does not contain the worker: a restarted server cannot say which worker has an old lease.
        number = int.from_bytes(hashlib.blake2b(_digest(verb, who, key) + whole, digest_size=8).digest(), "big") >> 1
        try:
            yield f"http.{verb}.{number % _CLIENTS}", number
        except (Problem, SettingsError, InvalidUrlError) as error:
            if known is None and not (isinstance(error, Problem) and error.status >= 500):
                self._known.pop(owner, None)
            raise


def _digest(*texts: str) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        octets = text.encode("utf-8", "surrogatepass")
        digest.update(len(octets).to_bytes(4, "big") + octets)
    return digest.digest()
