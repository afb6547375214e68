"""The downloader of a process: the fetch kernel with libcurl in reserve, or libcurl with plain kernels."""

from __future__ import annotations

from importlib.util import find_spec

from outrider.clock import ClockFunction
from outrider.fetch.downloader import Downloader
from outrider.kernels import in_use
from outrider.limits import CONNECTIONS_MAX


def make_downloader(
    *, clock: ClockFunction, ca_file: str | None = None, connections_max: int = CONNECTIONS_MAX
) -> Downloader:
    """Returns a downloader that matches the kernels in use. Raises SettingsError for a file without roots."""
    if in_use() == "native":
        from outrider.fetch.native import NativeDownloader

        native = NativeDownloader(clock=clock, ca_file=ca_file, connections_max=connections_max)
        if find_spec("pycurl") is None:
            return native
        from outrider.fetch.tls_fallback import TlsFallback

        def make_curl() -> Downloader:
            from outrider.fetch.curl import CurlDownloader

            return CurlDownloader(clock=clock, ca_file=ca_file, connections_max=connections_max)

        return TlsFallback(native, make_curl)
    from outrider.fetch.curl import CurlDownloader

    return CurlDownloader(clock=clock, ca_file=ca_file, connections_max=connections_max)
