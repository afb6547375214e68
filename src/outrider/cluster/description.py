"""The description of a cluster: its file on each machine (TOML: name, kafka, objects, kafka_settings), and its manifest
in object storage.

The manifest is written once, by `outrider cluster init`. It pins what all nodes must have alike: the number of
partitions, the keys of fingerprints and slots, and the versions of spelling and rules.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from outrider.cluster.owning import Partition
from outrider.errors import DamagedStoreError, ForeignStoreError, NamedPathError, SettingsError
from outrider.limits import CLUSTER_FILE_BYTES_MAX, PARTITIONS_MAX, SLOTS
from outrider.url import PUBLIC_SUFFIX_VERSION, SPELLING_VERSION, UrlBatch
from outrider.url.keys import slots_of_spans

MANIFEST_OBJECT: Final = "cluster.json"
MANIFEST_FORMAT: Final = 1
PARTITIONS_DEFAULT: Final = 64
TOPICS: Final = ("facts", "urls", "words", "dead")
"""The topics of a cluster: changelogs, links to other partitions, what nodes tell each other, refused messages."""

_FILE_END: Final = ".toml"  # by it commands know the file of a cluster from the directory of a crawl
_FIELDS: Final = ("name", "kafka", "objects")
_SETTINGS: Final = "kafka_settings"
_SECURITY: Final = ("security.", "sasl.", "ssl.")
"""Beginnings of the settings of the client of Kafka that a file may contain. The others are for Outrider to decide."""
_FROM_ENVIRONMENT: Final = "env:"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}").fullmatch
_KEY: Final = re.compile(r"[0-9a-f]{32}").fullmatch
_KAFKA: Final = re.compile(r"[A-Za-z0-9.-]{1,255}:\d{1,5}(,[A-Za-z0-9.-]{1,255}:\d{1,5}){0,31}").fullmatch


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The file of a cluster. path: where it is. name: prefix of its topics. kafka: HOST:PORT of some brokers, with
    commas. objects: the address of object storage. kafka_settings: of the client of Kafka, for TLS and SASL."""

    path: str
    name: str
    kafka: str
    objects: str
    kafka_settings: Mapping[str, str] = field(default_factory=dict, repr=False)  # with passwords

    def topic(self, which: str) -> str:
        """Returns the name of a topic."""
        return f"{self.name}.{which}"


def is_cluster_file(place: str) -> bool:
    """Whether a word names the file of a cluster rather than a directory."""
    return place.endswith(_FILE_END) and not os.path.isdir(place)


def read_cluster_file(path: str, environment: Mapping[str, str] | None = None) -> ClusterFile:
    """Reads the file of a cluster. environment: default `os.environ`. Raises NamedPathError, SettingsError."""
    path = os.path.abspath(os.path.expanduser(path))
    if not path.endswith(_FILE_END):
        raise NamedPathError(f"{path}: the name of the file of a cluster ends with {_FILE_END}; rename it")
    try:
        with open(path, "rb") as file:
            octets = file.read(CLUSTER_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise NamedPathError(f"{path} cannot be read ({error.strerror}); name the file of a cluster") from None
    wanted = 'write three lines: name = "crawl", kafka = "HOST:9092", objects = "s3://BUCKET/PREFIX"'
    if len(octets) > CLUSTER_FILE_BYTES_MAX:
        raise SettingsError(f"{path} is too large for the file of a cluster; {wanted}")
    try:
        told = tomllib.loads(octets.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path} is not TOML ({error}); {wanted}") from None
    unknown = sorted(set(told) - {*_FIELDS, _SETTINGS})
    if unknown:
        raise SettingsError(f"{path} has {unknown[0]!r:.80}, which is not known; {wanted}")
    for key in _FIELDS:
        if not isinstance(told.get(key), str) or not told[key].strip():
            raise SettingsError(f"{path}: {key} is missing or is not a text; {wanted}")
    name, kafka, objects = (told[key].strip() for key in _FIELDS)
    if not _NAME(name):
        raise SettingsError(f"{path}: name is {name!r:.80}; use up to 63 of a-z, 0-9 and dash")
    if not _KAFKA(kafka):
        # Without the text itself: it may contain a password.
        raise SettingsError(f"{path}: kafka is not a list of brokers; use HOST:PORT, several with commas")
    settings = _kafka_settings(path, told.get(_SETTINGS, {}), os.environ if environment is None else environment)
    return ClusterFile(path, name, kafka, objects, settings)


def _kafka_settings(path: str, table: object, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of the client of Kafka in a file. Raises SettingsError, without any value: it may be a
    password."""
    if not isinstance(table, dict):
        raise SettingsError(f'{path}: {_SETTINGS} is not a table; write [{_SETTINGS}] and security.protocol = "SSL"')
    found = {}
    for name, value in _dotted(table):
        where = f"{path}: {name!r:.80} in {_SETTINGS}"
        if not name.startswith(_SECURITY):
            raise SettingsError(f"{where} is not for TLS or SASL; use names that begin with {' '.join(_SECURITY)}")
        if isinstance(value, bool):
            value = str(value).lower()
        if not isinstance(value, str | int):
            raise SettingsError(f"{where} is not a text, a number or true or false")
        text = str(value)
        if text.startswith(_FROM_ENVIRONMENT):
            variable = text.removeprefix(_FROM_ENVIRONMENT)
            if variable not in environment:
                raise SettingsError(f"{where} needs the environment variable {variable!r:.80}, which is not set")
            text = environment[variable]
        found[name] = text
    return found


def _dotted(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yields the values of a table. TOML reads a name with dots as tables in tables."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


class ClusterManifest(msgspec.Struct, frozen=True):
    """The facts that all nodes have alike. cluster and keys: 32 hex digits each. created: RFC 3339."""

    format: int
    cluster: str
    name: str
    partitions: int
    fingerprint_key: str
    slot_key: str
    created: str
    spelling: str
    public_suffixes: str
    url_rules: str = ""

    @classmethod
    def of_octets(cls, octets: bytes, where: str) -> ClusterManifest:
        """Reads a manifest. where: names it in errors. Raises DamagedStoreError, ForeignStoreError."""
        try:
            found = _MANIFESTS.decode(octets)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedStoreError(f"{where} is not a manifest of a cluster ({error})") from None
        if found.format > MANIFEST_FORMAT:
            raise ForeignStoreError(
                f"{where} has format {found.format}; this version reads up to {MANIFEST_FORMAT}, use a newer Outrider"
            )
        check_partitions(found.partitions)
        if not all(map(_KEY, (found.cluster, found.fingerprint_key, found.slot_key))):
            raise DamagedStoreError(f"{where} has a key that is not 32 hex digits; restore it")
        for name, there, here in (
            ("the spelling of URLs", found.spelling, SPELLING_VERSION),
            ("the list of public suffixes", found.public_suffixes, PUBLIC_SUFFIX_VERSION),
        ):
            if there != here:
                raise ForeignStoreError(
                    f"{where} was made with version {there:.80} of {name}, and this node has {here}; all nodes need "
                    "the release of Outrider that made the cluster"
                )
        return found

    def octets(self) -> bytes:
        """Returns the manifest as it is stored."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def partition(self, number: int) -> Partition:
        """Returns a partition by its number."""
        keys = bytes.fromhex(self.fingerprint_key), bytes.fromhex(self.slot_key)
        return Partition(number, self.partitions, bytes.fromhex(self.cluster), keys, self.created, self.url_rules)

    def partition_of_host(self, host: str) -> int:
        """Returns the number of the partition of a host; -1 for what is no host."""
        return int(self.partitions_of(UrlBatch.of([f"http://{host}/"]))[0])

    def partitions_of(self, urls: UrlBatch) -> npt.NDArray[np.intp]:
        """Returns the number of the partition of each URL; -1 for one that is not valid."""
        starts, ends = urls.clock_hosts()
        found = np.full(len(urls), -1, np.intp)
        rows = urls.valid.nonzero()[0]
        if len(rows):
            slots = slots_of_spans(urls.arena, starts[rows], ends[rows], bytes.fromhex(self.slot_key))
            found[rows] = slots.astype(np.intp) // (SLOTS // self.partitions)
        return found


_MANIFESTS: Final = msgspec.json.Decoder(ClusterManifest)


def check_partitions(count: int) -> int:
    """Returns a valid number of partitions. Raises SettingsError."""
    if not 1 <= count <= PARTITIONS_MAX or count & (count - 1):
        raise SettingsError(f"partitions is {count}: use a power of two from 1 to {PARTITIONS_MAX:,}")
    return count


def new_manifest(
    name: str, partitions: int, *, created: str, random_bytes: bytes, url_rules: str = ""
) -> ClusterManifest:
    """Returns the manifest of a new cluster. random_bytes: 48 of them."""
    return ClusterManifest(
        MANIFEST_FORMAT,
        random_bytes[:16].hex(),
        name,
        check_partitions(partitions),
        random_bytes[16:32].hex(),
        random_bytes[32:48].hex(),
        created,
        SPELLING_VERSION,
        PUBLIC_SUFFIX_VERSION,
        url_rules,
    )
