"""The manifest: the identity and the settings of a store, as JSON for people with a checksum for machines.

File `manifest.json`, written once when the store is made. It pins values that may never change silently: the keys of
slots and fingerprints, the spelling of URLs, the versions of rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from outrider.errors import DamagedStoreError, ForeignStoreError, SettingsError
from outrider.kernels import crc32c
from outrider.limits import MANIFEST_BYTES_MAX, SLOTS
from outrider.storage.files import LOCK_NAME, TEMPORARY_SUFFIX, Files, read_whole, replace

MANIFEST_NAME = "manifest.json"
MANIFEST_FORMAT = 2
"""1 kept all rows in the log and its checkpoint, 2 keeps URLs in a ledger of sorted runs."""

_KIND = "outrider store"
_HEX_32 = re.compile(r"[0-9a-f]{32}")
_RANGES = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The settings that a store was made with. Keys and the store's id are 32 hex digits each."""

    store: str
    created: str
    """RFC 3339."""
    fingerprint_key: str
    slot_key: str
    spelling: str
    """The version of the canonical spelling of URLs."""
    rules: Mapping[str, str] = field(default_factory=dict)
    """Versions of the data and rules in force: name → version."""
    slots: str = ""
    """The slots of the store, as ranges (`0-63` or `0-63,70`); "" for all."""
    format: int = MANIFEST_FORMAT

    def __post_init__(self) -> None:
        for name in ("store", "fingerprint_key", "slot_key"):
            if not _HEX_32.fullmatch(getattr(self, name)):
                raise ValueError(f"{name} must be 32 hex digits, not {getattr(self, name)!r}")
        if self.slots:
            slots_of(self.slots)

    @property
    def store_bytes(self) -> bytes:
        """The store's id as 16 bytes, as in the headers of its files."""
        return bytes.fromhex(self.store)

    @property
    def fingerprint_key_bytes(self) -> bytes:
        """The key of fingerprints as 16 bytes."""
        return bytes.fromhex(self.fingerprint_key)

    @property
    def slot_key_bytes(self) -> bytes:
        """The key of slots as 16 bytes."""
        return bytes.fromhex(self.slot_key)

    @property
    def owned(self) -> frozenset[int] | None:
        """The slots of the store, None for all."""
        return slots_of(self.slots) if self.slots else None

    @classmethod
    def create(
        cls,
        files: Files,
        *,
        store: str,
        created: str,
        fingerprint_key: str,
        slot_key: str,
        spelling: str,
        rules: Mapping[str, str],
        slots: str = "",
    ) -> Manifest:
        """Writes the manifest of a new store, durably. Call it under the directory's lock.

        Raises ForeignStoreError when the directory is not empty, SettingsError for rules that are too long to store,
        StoreFullError, StoreFailedError.
        """
        _refuse_foreign(files)
        manifest = cls(store, created, fingerprint_key, slot_key, spelling, dict(rules), slots)
        data = manifest._encode()
        if len(data) > MANIFEST_BYTES_MAX:
            texts = {**rules, "slots": slots}
            longest = max(texts, key=lambda name: len(texts[name]))
            raise SettingsError(
                f"{longest} has {len(texts[longest]):,} characters, and the manifest that keeps it would have "
                f"{len(data):,} bytes; it may have {MANIFEST_BYTES_MAX:,}: make {longest} shorter"
            )
        replace(files, MANIFEST_NAME, data)
        return manifest

    @classmethod
    def load(cls, files: Files) -> Manifest | None:
        """Returns the manifest of the store in this directory; None when the directory is empty and may become one.

        Raises ForeignStoreError when the directory contains something else or another format, DamagedStoreError when
        the manifest differs from the written one.
        """
        try:
            data = read_whole(files, MANIFEST_NAME, bytes_max=MANIFEST_BYTES_MAX)
        except FileNotFoundError:
            _refuse_foreign(files)
            return None
        where = files.describe(MANIFEST_NAME)
        try:
            written = json.loads(data.decode("utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            at = error.start if isinstance(error, UnicodeDecodeError) else error.pos
            raise DamagedStoreError(f"{where} at byte {at} is not JSON: {error}; restore a copy of it") from None
        except RecursionError:
            raise DamagedStoreError(f"{where} is nested too deeply to be a manifest; restore a copy of it") from None
        if not isinstance(written, dict) or written.get("kind") != _KIND:
            raise ForeignStoreError(f"{where} is not the manifest of an Outrider store; choose another directory")
        version = written.get("format")
        if isinstance(version, int) and version > MANIFEST_FORMAT:
            raise ForeignStoreError(
                f"{where} has store format {version}; this version opens up to {MANIFEST_FORMAT}, use a newer Outrider"
            )
        if isinstance(version, int) and version < MANIFEST_FORMAT:
            raise ForeignStoreError(
                f"{where} has store format {version}; this version opens only format {MANIFEST_FORMAT}. Export the"
                " store with the version that made it, and import that file into a new store"
            )
        crc = written.pop("crc32c", None)
        if crc != _checksum(written):
            raise DamagedStoreError(f"{where} fails its checksum; it was changed, restore a copy of it")
        known = {one.name for one in fields(cls)}
        try:
            return cls(**{name: value for name, value in written.items() if name in known})
        except (TypeError, ValueError) as error:
            raise DamagedStoreError(f"{where}: {error}; restore a copy of it") from None

    def _encode(self) -> bytes:
        written: dict[str, Any] = {
            "kind": _KIND,
            "format": self.format,
            "store": self.store,
            "created": self.created,
            "fingerprint_key": self.fingerprint_key,
            "slot_key": self.slot_key,
            "spelling": self.spelling,
            "rules": dict(self.rules),
        }
        if self.slots:
            written["slots"] = self.slots
        written["crc32c"] = _checksum(written)
        return (json.dumps(written, indent=2, ensure_ascii=True) + "\n").encode("ascii")


def slot_ranges(slots: Iterable[int]) -> str:
    """Returns slots as ranges, in order: `0-63,70`."""
    ranges: list[list[int]] = []
    for slot in sorted(slots):
        if ranges and ranges[-1][1] == slot - 1:
            ranges[-1][1] = slot
        else:
            ranges.append([slot, slot])
    return ",".join(f"{first}-{last}" if first < last else f"{first}" for first, last in ranges)


def slots_of(ranges: str) -> frozenset[int]:
    """Returns the slots of a text of `slot_ranges`. Raises ValueError."""
    if not _RANGES.fullmatch(ranges):
        raise ValueError(f"slots must be ranges such as 0-63,70, not {ranges!r:.80}")
    bounds = [[int(bound) for bound in one.split("-")] for one in ranges.split(",")]
    if any(one[0] > one[-1] or one[-1] >= SLOTS for one in bounds):
        raise ValueError(f"slots must be whole numbers below {SLOTS}, not {ranges!r:.80}")
    return frozenset(slot for one in bounds for slot in range(one[0], one[-1] + 1))


def is_manifest(data: bytes) -> bool:
    """Whether this is a manifest with the right checksum."""
    try:
        written = json.loads(data)
    except (ValueError, RecursionError):
        return False
    if not isinstance(written, dict) or written.get("kind") != _KIND:
        return False
    return bool(written.pop("crc32c", None) == _checksum(written))


def _checksum(written: Mapping[str, Any]) -> str:
    """CRC-32C, 8 hex digits, of the fields without the checksum: sorted, ASCII, no spaces."""
    plain = json.dumps(written, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"{crc32c(plain.encode('ascii')):08x}"


def _refuse_foreign(files: Files) -> None:
    """Checks that the directory is empty, or contains only the rest of a failed attempt to make a store."""
    left = [name for name in files.names() if name not in (LOCK_NAME, MANIFEST_NAME + TEMPORARY_SUFFIX)]
    if left:
        some = ", ".join(repr(name) for name in left[:3]) + (" …" if len(left) > 3 else "")
        why = "has a manifest already" if MANIFEST_NAME in left else f"contains {some} but no {MANIFEST_NAME}"
        inside = "; the store of a crawl is the folder `frontier` in it" if "frontier" in left else ""
        raise ForeignStoreError(
            f"{files.describe()} {why}; choose another directory, or bring the manifest back{inside}"
        )
