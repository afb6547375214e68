"""Makes a certificate for the hosts of a test web, and the authority that vouches for it."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

AUTHORITY_FILE = "root.pem"


def server_context(folder: Path, hosts: Iterable[str]) -> ssl.SSLContext:
    """A context for these hosts, by the certificate authority in `AUTHORITY_FILE` of the folder."""
    root, site = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = certificate(root, "Root", root, x509.BasicConstraints(ca=True, path_length=None))
    (folder / AUTHORITY_FILE).write_bytes(authority)
    names = x509.SubjectAlternativeName([x509.DNSName(name) for name in hosts])
    (folder / "site.pem").write_bytes(certificate(site, "site.test", root, names))
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "site.key").write_bytes(site.private_bytes(*form))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "site.pem", folder / "site.key")
    return context


def certificate(
    key: ec.EllipticCurvePrivateKey, name: str, root: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
) -> bytes:
    """A certificate of a key by the authority `Root`, for a day before and after now: TLS reads the clock."""
    subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (name, "Root"))
    now, day = datetime.now(UTC), timedelta(days=1)
    made = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), now - day, now + day)
    made = made.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return made.sign(root, hashes.SHA256()).public_bytes(Encoding.PEM)
