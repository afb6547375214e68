"""The access to a server: its address, the Host and Origin of a request, tokens and their roles."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from outrider.errors import NamedPathError, SettingsError
from outrider.limits import SERVICE_TOKENS_BYTES_MAX
from outrider.service.problems import Problem

PORT: Final = 7070
_LOCAL: Final = "localhost"
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_TOKEN = re.compile(r"[!-~]{16,512}\Z", re.ASCII)


class Role(IntEnum):
    """The rights of a token. Each role covers those before it."""

    READ = 1
    WORK = 2
    OPERATE = 3
    ADMIN = 4


@dataclass(frozen=True, slots=True)
class Listening:
    """The address of a server, with certificate and key for TLS."""

    host: str
    port: int
    certificate: str | None = None
    key: str | None = None

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect to it."""
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def url(self) -> str:
        """The address in the form of clients: `http://127.0.0.1:7070`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"

    def check_certificate(self) -> None:
        """Raises SettingsError for a certificate or key that cannot be used."""
        if self.certificate is None:
            return
        try:
            # A key with a password is refused: a server cannot ask for it at the terminal.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, password="")
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"--tls-cert {self.certificate}, --tls-key {self.key}: {error}; use a certificate and its own key, as "
                "PEM and without a password"
            ) from None


def listening(
    text: str,
    certificate: str | None,
    key: str | None,
    tokens: str | None,
    *,
    flag: str = "--http",
    default_port: int = PORT,
) -> Listening:
    """Reads `HOST:PORT`, the value of an option. Raises SettingsError for other text, and for an address that other
    machines reach without TLS and tokens."""
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    host = "127.0.0.1" if host in (_LOCAL, "") else host
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise SettingsError(f"{flag} {text!r:.80}: use HOST:PORT, with a port from 0 to 65535")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise SettingsError(
            f"{flag} {text!r:.80}: use an IP address or localhost, as 127.0.0.1:{default_port}"
        ) from None
    if (certificate is None) != (key is None):
        raise SettingsError("--tls-cert and --tls-key belong together: use both or neither")
    for name in (certificate, key):
        if name is not None and not os.path.isfile(name):
            raise NamedPathError(f"{name} is not a file")
    found = Listening(host, int(port), certificate, key)
    missing = [
        option
        for option, there in (("--tls-cert and --tls-key", certificate), ("--tokens", tokens))
        if not there and not found.loopback
    ]
    if missing:
        raise SettingsError(
            f"{flag} {text}: other machines reach this address; add {' and '.join(missing)}, or use 127.0.0.1"
        )
    return found


@dataclass(frozen=True, slots=True)
class TokenRoles:
    """Digests of tokens and their roles. Without a file every client has every role."""

    roles: tuple[tuple[bytes, Role], ...] = ()
    needed: bool = False

    @classmethod
    def read(cls, path: str | None) -> TokenRoles:
        """Reads a file of lines `ROLE TOKEN` (# begins a comment), which only its owner may read. Raises NamedPathError
        and SettingsError. No message contains a token."""
        if path is None:
            return cls()
        try:
            with open(path, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                octets = file.read(SERVICE_TOKENS_BYTES_MAX + 1)
        except OSError as error:
            raise NamedPathError(f"{path} cannot be read ({error.strerror})") from None
        if stat.S_IMODE(mode) & 0o077:
            raise SettingsError(f"--tokens {path}: other users can read it; run `chmod 600 {path}`")
        if len(octets) > SERVICE_TOKENS_BYTES_MAX:
            raise SettingsError(f"--tokens {path} has more than {SERVICE_TOKENS_BYTES_MAX:,} bytes; use a shorter file")
        roles = []
        for number, line in enumerate(octets.decode("utf-8", "replace").splitlines(), 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            if len(words) != 2 or words[0].upper() not in Role.__members__ or not _TOKEN.match(words[1]):
                names = ", ".join(role.name.lower() for role in Role)
                raise SettingsError(
                    f"--tokens {path}, line {number}: use one of {names}, and a token of 16 to 512 characters"
                )
            roles.append((_digest(words[1]), Role[words[0].upper()]))
        if not roles:
            raise SettingsError(f"--tokens {path} has no token; add a line `ROLE TOKEN`")
        return cls(tuple(roles), needed=True)

    def check(self, header: str | None, role: Role) -> str:
        """Returns a name for the client: the first digits of the token's digest. Raises Problem."""
        if not self.needed:
            return "local"
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Problem("token-missing", "send `Authorization: Bearer TOKEN`")
        asked = _digest(token.strip())
        found = None
        for digest, has in self.roles:
            if hmac.compare_digest(digest, asked):
                found = has
        if found is None:
            raise Problem("token-wrong", "the token of `Authorization` is not in the file of tokens")
        if found < role:
            raise Problem(
                "role-missing", f"this needs the role {role.name.lower()}, and the token has {found.name.lower()}"
            )
        return asked.hex()[:8]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


@dataclass(frozen=True, slots=True)
class ServerNames:
    """The names of this server in requests. A name that resolves to this server and is not among them is a page's trick
    to reach it from a browser (DNS rebinding)."""

    loopback: bool
    names: frozenset[str] = field(default_factory=frozenset)

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises Problem for a foreign Host, and for a request of a page of another origin. A request of such a page
        for an image or a script has no Origin. Browsers mark it with Sec-Fetch-Site (W3C Fetch Metadata), older ones
        with Referer. Sec-Fetch-Site is `none` for a typed address."""
        host, origin = headers.get("host"), headers.get("origin")
        name = _name_of(host or "")
        if not self._is_ours(name):
            raise Problem("wrong-host", f"Host is {host!r:.100}; use the address, localhost, or a --host-name")
        if origin is not None and origin.partition("://")[2].lower() != (host or "").lower():
            raise Problem("cross-origin", f"Origin {origin!r:.100} is not the Host {host!r:.100}")
        site, referer = headers.get("sec-fetch-site"), headers.get("referer")
        if site is not None and site.lower() not in _OWN_SITES:
            raise Problem("cross-origin", f"Sec-Fetch-Site is {site!r:.100}; pages of other sites have no access")
        if referer and _authority_of(referer) != (host or "").lower():
            raise Problem("cross-origin", f"Referer {referer!r:.100} is not the Host {host!r:.100}")

    def _is_ours(self, name: str) -> bool:
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name == _LOCAL and self.loopback
        return address.is_loopback or not self.loopback


def _authority_of(referer: str) -> str:
    """Returns the host and port of a URL of http or https, empty for any other text."""
    scheme, _, rest = referer.partition("://")
    return re.split("[/?#]", rest, maxsplit=1)[0].lower() if scheme.lower() in ("http", "https") else ""


def _name_of(host: str) -> str:
    host = host.lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
