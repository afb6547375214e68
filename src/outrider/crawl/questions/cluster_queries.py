"""Questions and orders of commands to a cluster: the same table as of a directory, through the topic `words`.

The owners of the partitions answer there, so no node has a port for questions, and only who may use the topics of the
cluster may ask. An order is kept in the topic until each of its partitions has carried it out.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final

import msgspec

from outrider.cluster.description import ClusterFile, ClusterManifest, read_cluster_file
from outrider.cluster.kafka import Brokers
from outrider.cluster.links import send_links
from outrider.cluster.words import REPORT, URL_ORDERS, VERIFY, Answer, NodeMessage, Question, unpacked_word
from outrider.crawl.output.cluster_objects import ClusterObjects, read_manifest
from outrider.crawl.output.summary import counted
from outrider.crawl.questions.cluster_answers import JOINED, joined_count, joined_domains
from outrider.crawl.questions.cluster_url_orders import orders_of
from outrider.engine.messages import OutcomeBody
from outrider.errors import SettingsError, UnreachableError
from outrider.install_hints import install_command
from outrider.journey import Code, Link, RequestId, Verification
from outrider.limits import (
    CHANGELOG_RECORD_BYTES_MAX,
    CLUSTER_PARTITIONS_ASKED,
    CONTROL_ANSWER_SECONDS_MAX,
    CONTROL_PAGE_ROWS_MAX,
    CONTROL_SLOW_SECONDS_MAX,
    NODE_COUNT_SECONDS,
    NODE_SILENT_SECONDS_MAX,
)
from outrider.url import host_of

_LISTS: Final = ("hosts", "urls", "queues")
_OF_ONE_URL: Final = ("explain", "status")
_POLL_SECONDS: Final = 0.1
_FIRST_MESSAGE_SECONDS_MAX: Final = 3 * NODE_COUNT_SECONDS


@contextmanager
def asking_cluster(path: str) -> Iterator[Callable[[str, Mapping[str, Any]], Any]]:
    """Sends questions and orders to the cluster in the file `path`, for the length of a block. Raises SettingsError,
    UnreachableError, and the errors of the questions."""
    questions = questions_to(path, client="outrider-asks")
    try:
        yield questions.ask
    finally:
        questions.close()


def questions_to(path: str, *, client: str) -> ClusterQuestions:
    """Connects to the cluster in the file `path`. client: the name for the brokers. Raises SettingsError,
    UnreachableError."""
    file = read_cluster_file(path)
    manifest = read_manifest(ClusterObjects(file.objects), file)
    with ExitStack() as opened:
        brokers = opened.enter_context(closing(Brokers(file, client=client, install=install_command("cluster"))))
        brokers.check_topics(manifest.partitions)
        opened.pop_all()  # `ClusterQuestions.close` closes them
    return ClusterQuestions(file, manifest, brokers)


def verify_cluster(path: str) -> Verification:
    """Has each owner count its stores again. Raises SettingsError, UnreachableError."""
    with asking_cluster(path) as ask:
        found: Verification = ask(VERIFY, {})
        return found


def start_of_node(path: str) -> str:
    """Returns how to start a node of the cluster in the file `path`."""
    return (
        f"start one: outrider crawl --cluster {path} -o DIR, or after the end of the crawl: outrider serve --cluster "
        f"{path}"
    )


class ClusterQuestions:
    """One command and a cluster."""

    def __init__(self, file: ClusterFile, manifest: ClusterManifest, brokers: Brokers) -> None:
        self._file, self._manifest, self._brokers = file, manifest, brokers

    def close(self) -> None:
        """Ends the connections."""
        self._brokers.close()

    def ask(self, name: str, question: Mapping[str, Any]) -> Any:
        """Returns the answer of the cluster, in the shape of the answer of one crawl."""
        if name == "add":
            codes = Counter(map(str, self.add([Link(str(url)) for url in question["urls"]])))
            return {"codes": dict(codes)}
        if name in URL_ORDERS:
            return {"answer": self._order_urls(name, question)}
        if name in _LISTS:
            return self._rows(name, question)
        answers = self._answers(name, question, self._partitions_for(name, question))
        return JOINED.get(name, joined_count)(answers)

    def _order_urls(self, name: str, question: Mapping[str, Any]) -> Any:
        """Has the owners carry out an order about single URLs. Returns an answer for each row, or how many."""
        found = [
            one.joined(self._answers(name, one.question, one.rows)) for one in orders_of(name, question, self._manifest)
        ]
        return [answer for some in found for answer in some] if name != "restore" else sum(found)

    def add(self, links: Sequence[Link]) -> list[Code]:
        """Sends links to the partitions of their hosts. They are durable there, and the owners add them."""
        return send_links(self._brokers, self._manifest, links)

    def report(self, partition: int, outcomes: Sequence[OutcomeBody], request: RequestId) -> Mapping[str, Any]:
        """Reports outcomes to the owner of a partition: their codes, and those of their links. The next owner answers
        if there is none now. Raises UnreachableError if it takes too long; then the same report may be sent again."""
        found: list[str] = []
        links: list[list[str]] = []
        for number, some in enumerate(_in_records(outcomes)):
            # The first part has the id under which the owner would keep the same report, had it received it directly.
            part = (f"{request[0]}.{number}" if number else request[0]), request[1]
            question = {"outcomes": msgspec.to_builtins(some), "request": part}
            answer = self._answers(REPORT, question, [partition])[partition]
            found += answer["codes"]
            links += answer["links"]
        return {"codes": found, "links": links}

    def fullest_domains(self, partitions: Collection[int], limit: int) -> list[dict[str, Any]]:
        """Returns the domains of some partitions with the most queued URLs. Raises as `ask`."""
        found: list[dict[str, Any]] = joined_domains(self._answers("domains", {"limit": limit}, partitions))["rows"]
        return found[:limit]

    # -- whom to ask --------------------------------------------------------------------------------------------------

    def _partitions_for(self, name: str, question: Mapping[str, Any]) -> list[int]:
        """Returns the partitions that a question concerns."""
        everywhere = range(self._manifest.partitions)
        host = question.get("name" if name == "hosts" else "host")
        if name in _OF_ONE_URL and not any(question.get(one) for one in ("queue_key", "unique_key", "crawl")):
            host = host_of(str(question["url"]))
        number = -1 if host is None else self._manifest.partition_of_host(str(host))
        return [*everywhere] if number < 0 else [number]

    # -- lists --------------------------------------------------------------------------------------------------------

    def _rows(self, name: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """Returns some rows of a list: those of the partitions in their order. The cursor names a partition, and the
        place in its list."""
        numbers = self._partitions_for(name, question)
        begin, inner = _cursor_of(question.get("after"), self._manifest.partitions)
        numbers = [number for number in numbers if number >= begin]
        some = numbers[:CLUSTER_PARTITIONS_ASKED]
        limit = question.get("limit") or CONTROL_PAGE_ROWS_MAX
        rows: list[dict[str, Any]] = []
        if not some:
            return {"rows": rows, "cursor": None}
        # The first partition may have all rows, so the other ones are asked only if its list ends.
        asked = [some[:1], some[1:]] if inner is not None else [some]
        for part in asked:
            after = inner if part == asked[0] else None
            answers = self._answers(name, {**question, "after": after, "limit": limit}, part) if part else {}
            for number in part:
                found = answers[number]
                room = limit - len(rows)
                if len(found["rows"]) > room:
                    # Its rows have no cursors of their own: this partition is asked again from its beginning.
                    return {"rows": rows, "cursor": f"{number}:"}
                rows += found["rows"]
                if found["cursor"] is not None:
                    return {"rows": rows, "cursor": f"{number}:{found['cursor']}"}
        left = numbers[len(some) :]
        return {"rows": rows, "cursor": f"{left[0]}:" if left else None}

    # -- questions and answers ----------------------------------------------------------------------------------------

    def _answers(
        self, name: str, question: Mapping[str, Any], partitions: Collection[int]
    ) -> dict[int, dict[str, Any]]:
        """Returns the answer of each partition, in their order. Raises the first error, and UnreachableError for a
        partition that does not answer. The key of an order may be known to one partition only."""
        words = self._brokers.records("words")
        at = self._brokers.ends("words", [0])[0]
        asked = Question(name, os.urandom(8).hex(), {**question}, sorted(partitions))
        words.send(msgspec.json.encode(asked)).offset()
        found: dict[int, Answer] = {}
        nodes: set[str] = set()
        owners = _Owners()
        began = time.monotonic()
        while len(found) < len(partitions):
            records = words.read(at)
            for offset, octets in records:
                at = offset + 1
                word = unpacked_word(octets)
                if isinstance(word, Answer) and word.answers == asked.mark:
                    found.setdefault(word.partition, word)
                elif isinstance(word, NodeMessage) and not word.ended:
                    nodes.add(word.node)
                    newer = owners.newer(word, time.monotonic() - began)
                    again = [number for number in asked.partitions or () if number in newer and number not in found]
                    if again and not asked.is_order:  # an order waits in the topic for every next owner
                        words.send(msgspec.json.encode(msgspec.structs.replace(asked, partitions=again))).offset()
            if not records:
                self._check_time(asked, time.monotonic() - began, set(partitions) - set(found), nodes)
                time.sleep(_POLL_SECONDS)
        answers = {number: one.answer for number, one in sorted(found.items()) if one.answer is not None}
        refused = next((one for _, one in sorted(found.items()) if one.answer is None), None)
        # A host's key may be known to one partition only; of single URLs each partition has its own ones.
        if refused is not None and not (answers and asked.is_order and name not in URL_ORDERS):
            raise (SettingsError if refused.code == SettingsError.exit_code else UnreachableError)(refused.error)
        return answers

    def _check_time(self, asked: Question, passed: float, missing: set[int], nodes: set[str]) -> None:
        """Raises UnreachableError if it is in vain to wait longer."""
        kept = "; the order is kept, and the next owner carries it out" if asked.is_order else ""
        if not nodes and passed > NODE_SILENT_SECONDS_MAX:
            raise UnreachableError(
                f"no node of the cluster {self._file.name} runs{kept}; {start_of_node(self._file.path)}"
            )
        if passed > (CONTROL_SLOW_SECONDS_MAX if asked.ask == VERIFY else CONTROL_ANSWER_SECONDS_MAX):
            raise UnreachableError(
                f"partition {min(missing)} of the cluster {self._file.name} did not answer within {passed:.0f} s, and "
                f"{counted(len(missing) - 1, 'other one', 'other ones')}{kept}; `outrider status {self._file.path}` "
                "shows which node has it"
            )


def _in_records(outcomes: Sequence[OutcomeBody]) -> Iterator[list[OutcomeBody]]:
    """Yields some outcomes at a time, which fit into a record."""
    some: list[OutcomeBody] = []
    size = 0
    for outcome in outcomes:
        length = len(msgspec.json.encode(outcome))
        if some and size + length > CHANGELOG_RECORD_BYTES_MAX // 2:
            yield some
            some, size = [], 0
        some.append(outcome)
        size += length
    yield some


class _Owners:
    """The owners of partitions since a question, by the epochs of their messages. A node that gives a partition up may
    leave a question unanswered, and the next owner begins after it."""

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}

    def newer(self, word: NodeMessage, passed: float) -> set[int]:
        """Returns the partitions whose owner has not heard the question. passed: the seconds since the question."""
        found = set()
        for one in word.counts:
            known = self._epochs.get(one.partition)
            # An owner sends a message each second: one that sends its first later was none when the question was sent.
            if passed > _FIRST_MESSAGE_SECONDS_MAX if known is None else one.epoch > known:
                found.add(one.partition)
            self._epochs[one.partition] = max(one.epoch, known or 0)
        return found


def _cursor_of(after: object, partitions: int) -> tuple[int, str | None]:
    """Returns the partition of a cursor, and the cursor in its list. Raises SettingsError."""
    if after is None:
        return 0, None
    number, divided, inner = str(after).partition(":")
    if not divided or not number.isdecimal() or len(number) > len(str(partitions)) or int(number) >= partitions:
        raise SettingsError(f"after is {after!r:.80}: use the cursor at the end of the previous list")
    return int(number), inner or None
