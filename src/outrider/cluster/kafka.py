"""Kafka for a cluster: its topics, records of one partition, and which partitions this node should claim.

Only this file knows the library (`confluent-kafka`, extra `cluster`). Errors of the library become ours:
UnreachableError where a broker does not answer, SettingsError where it refuses.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from outrider.cluster.description import TOPICS, ClusterFile
from outrider.errors import DamagedStoreError, ForeignStoreError, SettingsError, UnreachableError
from outrider.limits import (
    CHANGELOG_READ_BYTES,
    KAFKA_AHEAD_BYTES,
    KAFKA_READ_RECORDS,
    KAFKA_SECONDS_MAX,
)

_KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of each topic: Kafka itself drops nothing."""
_TAKEN: Final = {"message.timestamp.type": "LogAppendTime"}
"""Settings of each topic: with the time of the sender Kafka refuses the records of a clock that is an hour fast."""
_SIZE: Final = "max.message.bytes"
"""The setting of a topic for its largest record, or batch of records."""
_REPLICAS_WANTED: Final = 3
_POLL_SECONDS: Final = 0.1


def _library(install: str) -> Any:
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise SettingsError(
            f"a cluster needs the package confluent-kafka, which is not installed; install it with {install}"
        ) from None
    return confluent_kafka


class Brokers:
    """The connection of one node to the brokers of a cluster. Any thread may call it."""

    def __init__(self, file: ClusterFile, *, client: str, install: str = "") -> None:
        """client: the name of this node in the logs of brokers. install: the command that installs the library."""
        self._library = _library(install)
        self.file = file
        self._denied: tuple[float, str] | None = None  # when and why brokers refused the last connection
        self._settings = {
            **file.kafka_settings,
            "error_cb": self._note_error,
            "bootstrap.servers": file.kafka,
            "client.id": client,
            "log_level": 0,  # its lines would go to standard error
            "socket.timeout.ms": int(KAFKA_SECONDS_MAX * 1_000),
            "socket.connection.setup.timeout.ms": int(KAFKA_SECONDS_MAX * 1_000),
            "reconnect.backoff.max.ms": 1_000,
        }
        self._producer: Any = None
        self._admin: Any = None
        self._reader: Any = None
        self._read_at: tuple[str, int, int] | None = None
        self._making, self._reading = threading.Lock(), threading.Lock()
        self._closed = threading.Event()
        self._polling: threading.Thread | None = None

    # -- topics -------------------------------------------------------------------------------------------------------

    def make_topics(self, partitions: int) -> bool:
        """Makes the topics of a cluster. Topics that are there must fit. Returns whether it has made `facts`. Raises
        SettingsError, UnreachableError."""
        admin = self._administrator()
        known = self._described(admin)
        counts = {"facts": partitions, "urls": partitions, "words": 1, "dead": 1}
        replicas = min(_REPLICAS_WANTED, len(known.brokers))
        new = []
        for which in TOPICS:
            name = self.file.topic(which)
            found = known.topics.get(name)
            if found is None or found.error is not None:
                config = {**_KEPT, **_TAKEN, _SIZE: str(CHANGELOG_READ_BYTES)}
                config["min.insync.replicas"] = str(max(1, replicas - 1))
                new.append(
                    self._library.admin.NewTopic(
                        name, num_partitions=counts[which], replication_factor=replicas, config=config
                    )
                )
            elif len(found.partitions) != counts[which]:
                raise ForeignStoreError(
                    f"the topic {name} has {len(found.partitions)} partitions and not {counts[which]}; it belongs to "
                    f"something else, so choose another name in {self.file.path}"
                )
        if new:
            for name, future in admin.create_topics(new, operation_timeout=KAFKA_SECONDS_MAX).items():
                with self._ours(f"the topic {name} cannot be made"):
                    try:
                        future.result(KAFKA_SECONDS_MAX)
                    except self._library.KafkaException as error:
                        if error.args[0].code() != self._library.KafkaError.TOPIC_ALREADY_EXISTS:
                            raise
        self.check_topics(partitions)
        return any(one.topic == self.file.topic("facts") for one in new)

    def check_topics(self, partitions: int) -> None:
        """Checks that the topics of a cluster are there, take all records and keep them. Raises SettingsError,
        UnreachableError."""
        admin = self._administrator()
        end = time.monotonic() + KAFKA_SECONDS_MAX
        while True:
            topics = self._described(admin).topics
            missing = [name for name in map(self.file.topic, TOPICS) if name not in topics or topics[name].error]
            if not missing:
                break
            if time.monotonic() > end:
                raise SettingsError(
                    f"Kafka at {self.file.kafka} has no topic {missing[0]}; run `outrider cluster init "
                    f"{self.file.path}` first"
                )
            time.sleep(_POLL_SECONDS)  # a new topic is not known to all brokers at once
        found = len(topics[self.file.topic("facts")].partitions)
        if found != partitions:
            raise ForeignStoreError(
                f"the topic {self.file.topic('facts')} has {found} partitions, but the cluster has {partitions}"
            )
        for which in TOPICS:
            config = self._settings_of(self.file.topic(which), end)
            self._check_setting(which, config, _TAKEN, "refuse records of a machine whose clock is fast")
            if which != "dead":  # orders in `words` wait for the owners of their partitions
                self._check_setting(which, config, _KEPT, "drop records that are needed")
            self._check_size(which, int(config[_SIZE].value))

    def _check_setting(self, which: str, config: Any, settings: Mapping[str, str], would: str) -> None:
        for name, wanted in settings.items():
            if config[name].value != wanted:
                topic = self.file.topic(which)
                raise SettingsError(
                    f"the topic {topic} has {name}={config[name].value}, so Kafka would {would}; set {name}={wanted} "
                    f"with `kafka-configs.sh --alter --topic {topic} --add-config {name}={wanted}`"
                )

    def _check_size(self, which: str, most: int) -> None:
        if most < CHANGELOG_READ_BYTES:
            topic = self.file.topic(which)
            raise SettingsError(
                f"the topic {topic} has {_SIZE}={most}, so Kafka would refuse records of this cluster; set "
                f"{_SIZE}={CHANGELOG_READ_BYTES} or more with `kafka-configs.sh --alter --topic {topic} --add-config "
                f"{_SIZE}={CHANGELOG_READ_BYTES}`"
            )

    def _settings_of(self, topic: str, end: float) -> Any:
        """Returns the settings of a topic. A new topic is not known to all brokers at once: tries until `end`."""
        kinds = self._library.admin
        while True:
            resource = kinds.ConfigResource(kinds.ResourceType.TOPIC, topic)
            asked = self._administrator().describe_configs([resource], request_timeout=KAFKA_SECONDS_MAX)
            with self._ours(f"the settings of the topic {topic} cannot be read"):
                try:
                    return asked[resource].result(KAFKA_SECONDS_MAX)
                except self._library.KafkaException as error:
                    unknown = error.args[0].code() == self._library.KafkaError.UNKNOWN_TOPIC_OR_PART
                    if not unknown or time.monotonic() > end:
                        raise
            time.sleep(_POLL_SECONDS)

    def _administrator(self) -> Any:
        with self._making:
            if self._admin is None:
                self._admin = self._client(self._library.admin.AdminClient, self._settings)
            return self._admin

    def _client(self, kind: Any, settings: Mapping[str, Any]) -> Any:
        """Returns a new client of the library. Raises SettingsError for settings that it refuses, UnreachableError if
        the system gives it no threads or sockets."""
        try:
            return kind(settings)
        except self._library.KafkaException as error:
            if error.args[0].code() != self._library.KafkaError._INVALID_ARG:
                raise UnreachableError(f"no client of Kafka can be made ({_words(error)})") from None
            raise SettingsError(
                f"the client of Kafka refuses the settings in {self.file.path}: {_words(error)}; correct kafka_settings"
            ) from None

    def _note_error(self, error: Any) -> None:
        """Keeps why a broker refused a connection; the error of the call that needed it does not say so."""
        if error.code() in (self._library.KafkaError._AUTHENTICATION, self._library.KafkaError._SSL):
            self._denied = time.monotonic(), str(error.str()).partition(": ")[2]

    def _described(self, admin: Any) -> Any:
        with self._ours(f"no broker answers at {self.file.kafka}"):
            return admin.list_topics(timeout=KAFKA_SECONDS_MAX)

    # -- records ------------------------------------------------------------------------------------------------------

    def changelog(self, partition: int) -> KafkaTopic:
        """Returns the changelog of a partition."""
        return self.records("facts", partition)

    def records(self, which: str, partition: int = 0) -> KafkaTopic:
        """Returns one partition of a topic."""
        return KafkaTopic(self, self.file.topic(which), partition)

    def reader(self, which: str) -> KafkaReader:
        """Returns a reader of many partitions of a topic."""
        return KafkaReader(self, which)

    def send(self, topic: str, partition: int, record: bytes) -> KafkaSent:
        """Begins to append a record."""
        sent = KafkaSent(self.file.kafka)
        try:
            self._sender().produce(topic, value=record, partition=partition, on_delivery=sent.delivered)
        except (BufferError, self._library.KafkaException) as error:
            sent.delivered(error, None)
        return sent

    def read(self, topic: str, partition: int, offset: int) -> list[tuple[int, bytes]]:
        """Returns (offset, record) from an offset on, some at a time; [] at the end. Raises UnreachableError, and
        DamagedStoreError where records were dropped."""
        with self._reading:
            try:
                with self._ours(f"no broker answers at {self.file.kafka}"):
                    return self._read(topic, partition, offset)
            except UnreachableError:
                # A consumer that has met a fenced leader epoch may answer with it for ever; a new one does not.
                reader, self._reader, self._read_at = self._reader, None, None
                if reader is not None:
                    reader.close()
                raise

    def _read(self, topic: str, partition: int, offset: int) -> list[tuple[int, bytes]]:
        if self._reader is None:
            self._reader = self._consumer(f"{self.file.name}-reads-{id(self)}", {})
        reader, there = self._reader, self._library.TopicPartition(topic, partition, offset)
        low, high = reader.get_watermark_offsets(there, timeout=KAFKA_SECONDS_MAX)
        if offset < low:
            raise DamagedStoreError(
                f"the topic {topic} has dropped the records of partition {partition} up to offset {low}; offset "
                f"{offset} is needed"
            )
        if offset >= high:
            return []
        if self._read_at != (topic, partition, offset):
            reader.assign([there])
        self._read_at = None
        end = time.monotonic() + KAFKA_SECONDS_MAX
        found: list[tuple[int, bytes]] = []
        while not found:
            for message in reader.consume(KAFKA_READ_RECORDS, timeout=_POLL_SECONDS):
                if message.error() is not None:
                    raise self._library.KafkaException(message.error())
                found.append((message.offset(), message.value() or b""))
            if not found and time.monotonic() > end:
                raise UnreachableError(f"no broker of {self.file.kafka} sends records of {topic}")
        self._read_at = topic, partition, found[-1][0] + 1
        return found

    def ends(self, which: str, partitions: Collection[int]) -> dict[int, int]:
        """Returns the offset after the last record of each partition. Raises UnreachableError."""
        admin = self._library.admin
        wanted = {
            self._library.TopicPartition(self.file.topic(which), one): admin.OffsetSpec.latest() for one in partitions
        }
        try:
            with self._ours(f"no broker answers at {self.file.kafka}"):
                found = self._administrator().list_offsets(wanted, request_timeout=KAFKA_SECONDS_MAX)
                return {there.partition: future.result(KAFKA_SECONDS_MAX).offset for there, future in found.items()}
        except UnreachableError:
            with self._making:
                self._admin = None  # after a restart of all brokers it may answer with the same error for ever
            raise

    def trim(self, which: str, partition: int, offset: int) -> None:
        """Has Kafka delete the records of a partition before an offset. Raises UnreachableError."""
        there = self._library.TopicPartition(self.file.topic(which), partition, offset)
        with self._ours(f"old records of {self.file.topic(which)} cannot be deleted"):
            asked = self._administrator().delete_records([there], request_timeout=KAFKA_SECONDS_MAX)
            for future in asked.values():
                future.result(KAFKA_SECONDS_MAX)

    def _sender(self) -> Any:
        with self._making:
            if self._producer is None:
                # Not idempotent: who sends waits for each record, and readers recognise repetitions.
                self._producer = self._client(
                    self._library.Producer,
                    {
                        **self._settings,
                        "acks": "all",
                        "linger.ms": 0,
                        "message.timeout.ms": int(KAFKA_SECONDS_MAX * 1_000),
                        "request.timeout.ms": int(KAFKA_SECONDS_MAX * 1_000),
                        "message.max.bytes": CHANGELOG_READ_BYTES,
                    },
                )
                self._polling = threading.Thread(target=self._poll, name="outrider-kafka", daemon=True)
                self._polling.start()
            return self._producer

    def _poll(self) -> None:
        """Receives the answers of brokers."""
        while not self._closed.is_set():
            self._producer.poll(_POLL_SECONDS)

    def consumer(self, group: str) -> Any:
        """Returns a consumer of the library in a group."""
        return self._consumer(group, {"group.protocol": "consumer"})

    def _consumer(self, group: str, more: Mapping[str, Any]) -> Any:
        return self._client(
            self._library.Consumer,
            {
                **self._settings,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
                "fetch.wait.max.ms": int(_POLL_SECONDS * 1_000),
                "fetch.message.max.bytes": CHANGELOG_READ_BYTES,
                **more,
            },
        )

    def place(self, which: str, partition: int, offset: int) -> Any:
        """Returns a place of the library."""
        return self._library.TopicPartition(self.file.topic(which), partition, offset)

    @contextlib.contextmanager
    def _ours(self, what: str) -> Any:
        try:
            yield
        except (self._library.KafkaException, TimeoutError) as error:
            if self._admin is not None:
                self._admin.poll(0)  # calls `_note_error`
            raise UnreachableError(f"{what} ({self._refusal() or _words(error)})") from None

    def _refusal(self) -> str:
        """Returns why brokers refused a connection within the last calls, "" if they did not."""
        if self._denied is None or time.monotonic() - self._denied[0] > 2 * KAFKA_SECONDS_MAX:
            return ""
        return f"{self._denied[1][:300]}; check kafka_settings in {self.file.path}"

    def close(self) -> None:
        """Ends all connections."""
        self._closed.set()
        if self._polling is not None:
            self._polling.join()
        with self._reading:
            if self._reader is not None:
                self._reader.close()
                self._reader = None


class KafkaTopic:
    """One partition of a topic, with the methods of `RecordTopic`."""

    def __init__(self, brokers: Brokers, topic: str, partition: int) -> None:
        self._brokers, self._topic, self._partition = brokers, topic, partition

    def send(self, record: bytes) -> KafkaSent:
        """As `RecordTopic.send`."""
        return self._brokers.send(self._topic, self._partition, record)

    def read(self, offset: int) -> list[tuple[int, bytes]]:
        """As `RecordTopic.read`."""
        return self._brokers.read(self._topic, self._partition, offset)


class KafkaReader:
    """Reads the new records of many partitions of a topic. One thread calls it."""

    def __init__(self, brokers: Brokers, which: str) -> None:
        self._brokers, self._which, self._library = brokers, which, brokers._library
        self._consumer: Any = None
        self._at: dict[int, int] = {}  # the next offset that the library returns, by partition
        self._checked = 0.0  # when it last returned records, or the brokers confirmed that it has all of them

    def read(self, places: Mapping[int, int]) -> dict[int, list[tuple[int, bytes]] | None]:
        """Waits a moment for new records. Returns (offset, record) of each partition that has some, in their order, and
        None for one whose next record was dropped. places: the next offset of each partition. Raises
        UnreachableError."""
        found: dict[int, list[tuple[int, bytes]] | None] = {}
        try:
            with self._brokers._ours(f"no broker answers at {self._brokers.file.kafka}"):
                self._read(places, found)
            if found:
                self._checked = time.monotonic()
            elif time.monotonic() - self._checked > 2 * KAFKA_SECONDS_MAX:
                ends = self._brokers.ends(self._which, list(places))
                if any(offset < ends[number] for number, offset in places.items()):
                    raise UnreachableError(f"no broker of {self._brokers.file.kafka} sends records of {self._which}")
                self._checked = time.monotonic()
        except UnreachableError:
            self.close()  # a consumer that has met a fenced leader epoch may return this error until it is closed
            raise
        return found

    def _read(self, places: Mapping[int, int], found: dict[int, list[tuple[int, bytes]] | None]) -> None:
        if self._consumer is None:
            settings = {"auto.offset.reset": "error", "queued.max.messages.kbytes": KAFKA_AHEAD_BYTES >> 10}
            self._consumer = self._brokers._consumer(f"{self._brokers.file.name}-reads-{id(self)}", settings)
            self._checked = time.monotonic()
        if places != self._at:
            self._consumer.assign([self._brokers.place(self._which, *place) for place in places.items()])
            self._at = dict(places)
        for message in self._consumer.consume(KAFKA_READ_RECORDS, timeout=_POLL_SECONDS):
            number, error = message.partition(), message.error()
            if error is None:
                records = found.setdefault(number, [])
                if records is not None:
                    records.append((message.offset(), message.value() or b""))
                    self._at[number] = message.offset() + 1
            elif error.code() != self._library.KafkaError._AUTO_OFFSET_RESET:
                raise self._library.KafkaException(error)
            elif number in places:
                # An error may be late and belong to an earlier assignment, so the broker is asked
                # (findings/kafka-error-after-assign.sh).
                self._at.pop(number, None)
                there = self._brokers.place(self._which, number, places[number])
                if places[number] < self._consumer.get_watermark_offsets(there, timeout=KAFKA_SECONDS_MAX)[0]:
                    found[number] = None

    def close(self) -> None:
        """Ends its connections; the next `read` makes new ones."""
        consumer, self._consumer, self._at = self._consumer, None, {}
        if consumer is not None:
            consumer.close()


class KafkaSent:
    """A record on its way, with the method of `Sent`."""

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka
        self._over = threading.Event()
        self._offset = -1
        self._error: object = None

    def delivered(self, error: object, message: Any) -> None:
        """Notes the answer of the broker."""
        self._error = error
        if error is None:
            self._offset = message.offset()
        self._over.set()

    def offset(self) -> int:
        """As `Sent.offset`."""
        if not self._over.wait(2 * KAFKA_SECONDS_MAX) or self._offset < 0:
            raise UnreachableError(f"no broker of {self._kafka} has acknowledged a record ({_words(self._error)})")
        return self._offset


class NewAssignment(Protocol):
    """The reaction of a node to the partitions that the group gives it."""

    def __call__(self, partitions: frozenset[int], *, wait: bool = False) -> None: ...


class Membership:
    """Which partitions this node should own, by the group of nodes. One thread polls it. It is only advice: the claim
    in the changelog decides."""

    def __init__(self, brokers: Brokers, changed: NewAssignment) -> None:
        """changed: is called with the partitions that this node should own. With `wait` it returns when the others are
        given up: then the group gives them to other nodes."""
        self._changed = changed
        self._wanted: set[int] = set()
        self._consumer = brokers.consumer(brokers.file.name)
        self._library = brokers._library
        self._consumer.subscribe(
            [brokers.file.topic("facts")], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def poll(self, seconds: float) -> str:
        """Takes part in the group for some time. Returns in words what went wrong."""
        message = self._consumer.poll(seconds)
        if message is not None and message.error() is not None and not message.error().retriable():
            return str(message.error().str())
        return ""

    def _assigned(self, consumer: Any, places: list[Any]) -> None:
        consumer.incremental_assign(places)
        consumer.pause(places)  # the group is about owners; the records are read elsewhere
        self._wanted |= {place.partition for place in places}
        self._changed(frozenset(self._wanted))

    def _revoked(self, consumer: Any, places: list[Any]) -> None:
        self._give_up(consumer, places, wait=True)

    def _lost(self, consumer: Any, places: list[Any]) -> None:
        self._give_up(consumer, places, wait=False)

    def _give_up(self, consumer: Any, places: list[Any], *, wait: bool) -> None:
        self._wanted -= {place.partition for place in places}
        self._changed(frozenset(self._wanted), wait=wait)
        with contextlib.suppress(self._library.KafkaException):
            consumer.incremental_unassign(places)

    def close(self) -> None:
        """Leaves the group: the other nodes share the partitions."""
        self._consumer.close()


def _words(error: object) -> str:
    """Returns the words of an error of the library, or says that there was no answer."""
    cause = error.args[0] if isinstance(error, Exception) and error.args else error
    text = getattr(cause, "str", None)
    return (str(text() if text is not None else cause or "") or "no answer")[:200]
