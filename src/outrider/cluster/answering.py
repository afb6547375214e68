"""A node reads the topic `words`: it hears the counts of other nodes, carries out orders, and answers questions.

Each store has a place in the topic, up to which it has carried out orders. The place is noted in the store after each
order, so a store carries out each order once, whichever nodes own it in turn. If a node dies between an order and its
note, the next owner repeats the order: the orders after it follow in the same sequence. Questions are answered by who
owns the partition when they are read.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from outrider.cluster.kafka import Brokers
from outrider.cluster.stores import OwnStore, OwnStores
from outrider.cluster.words import (
    ORDERS_ASKED,
    QUESTIONS_ASKED,
    REPORT,
    URL_ORDERS,
    VERIFY,
    Answer,
    NodeMessage,
    Question,
    own_part,
    unpacked_word,
)
from outrider.engine.messages import OutcomeBody
from outrider.engine.process_queries import LOOKS, ORDERS, READS, as_sent
from outrider.engine.sent_outcomes import outcome_from_body
from outrider.errors import ClosedError, DamagedStoreError, OutriderError, SettingsError, StoreError
from outrider.limits import (
    CHANGELOG_RECORD_BYTES_MAX,
    CLUSTER_QUESTIONS_MAX,
    CONTROL_PAGE_ROWS_MAX,
    WORDS_BEFORE_NOTE,
    WORDS_KEPT_RECORDS,
)

_WORDS: Final = "words"
"""The topic, and the name of the place of a store in it."""
_ANSWERED: Final = {**READS, **LOOKS}


class Answering:
    """The work of one node with the topic `words`. Two threads of the node call it: `read` and `answer`."""

    def __init__(self, brokers: Brokers, stores: OwnStores, node: str, heard: Callable[[NodeMessage], None]) -> None:
        """heard: receives what nodes tell, also this one."""
        self._brokers, self._stores, self._node, self._heard = brokers, stores, node, heard
        self._at = self._trimmed = 0
        self.begun = 0
        """The offset of the topic at the start of this node. Its stores have earlier orders to carry out."""
        self._asked: queue.Queue[Question] = queue.Queue(CLUSTER_QUESTIONS_MAX)

    def begin(self) -> None:
        """Begins at the end of the topic: earlier counts and questions are past. Raises UnreachableError."""
        self._at = self.begun = self._brokers.ends(_WORDS, [0])[0]

    def opened(self, store: OwnStore) -> None:
        """Takes the place of a store that was opened."""
        store.heard = store.heard_noted = int(store.frontier.watermarks().get(_WORDS, b"0"))

    def note(self, store: OwnStore, *, if_passed: int = 1) -> None:
        """Notes the place of a store, if it has passed `if_passed` records since its last note."""
        if store.heard - store.heard_noted >= if_passed:
            store.frontier.note_watermark(_WORDS, str(store.heard).encode())
            store.heard_noted = store.heard

    def note_sometimes(self, store: OwnStore) -> None:
        """Notes the place of a store without an order from time to time, so that its next owner reads less."""
        self.note(store, if_passed=WORDS_BEFORE_NOTE)

    def read(self) -> int:
        """Reads some records, from the first one that an own store has not heard. Returns how many."""
        stores = [store for store in self._stores.all() if not store.leaves]
        at = min([self._at, *(store.heard for store in stores)])
        try:
            records = self._brokers.records(_WORDS).read(at)
        except DamagedStoreError:
            self._skip_deleted(stores, at)
            return 0
        for offset, octets in records:
            word = unpacked_word(octets)
            if isinstance(word, Question) and word.is_order:
                for store in stores:
                    if store.heard <= offset and word.concerns(store.number):
                        self._carry_out(store, offset, word)
            for store in stores:
                store.heard = max(store.heard, offset + 1)
            if offset >= self._at:
                self._at = offset + 1
                if isinstance(word, NodeMessage):
                    self._heard(word)
                elif isinstance(word, Question) and not word.is_order and not self._asked.full():
                    self._asked.put(word)
        return len(records)

    def _skip_deleted(self, stores: Sequence[OwnStore], at: int) -> None:
        """Goes on at the end of the topic after a long pause of this node: others own its partitions, and records that
        those have read are deleted. Raises DamagedStoreError if a store of this node needs one of them."""
        for store in stores:
            with self._stores.may_be_lost(store):
                store.owned.changelog.keep()
        if any(store.heard <= at and store.holds() for store in stores):
            raise DamagedStoreError(f"records of {self._brokers.file.topic(_WORDS)} were deleted before they were read")
        self.begin()

    def trim(self, heard: int) -> None:
        """Deletes records before the place that all partitions have noted. The newest ones stay: nodes and commands may
        still read them."""
        through = min(heard, self._at - WORDS_KEPT_RECORDS)
        if through > self._trimmed:
            self._brokers.trim(_WORDS, 0, through)
            self._trimmed = through

    def _carry_out(self, store: OwnStore, offset: int, word: Question) -> None:
        with self._stores.may_be_lost(store):
            answer = self._answered(store, word)
            store.heard = offset + 1
            self.note(store)
            store.touch()
            self._send(answer)

    def answer(self, wait_seconds: float) -> None:
        """Answers the next question, if there is one within some time."""
        try:
            word = self._asked.get(timeout=wait_seconds)
        except queue.Empty:
            return
        for store in self._stores.all():
            if word.concerns(store.number):
                with self._stores.may_be_lost(store):
                    self._send(self._answered(store, word))

    def _answered(self, store: OwnStore, word: Question) -> Answer:
        """Returns the answer of a store. An answer that is too large for a record is made of fewer rows."""
        question = dict(word.question)
        try:
            while True:
                found = _made(store, word.ask, question)
                answer = Answer(word.mark, store.number, self._node, found)
                if len(msgspec.json.encode(answer)) <= CHANGELOG_RECORD_BYTES_MAX:
                    return answer
                rows = len(found.get("rows", ()))
                if rows < 2:
                    raise SettingsError("the answer is too large for a record of Kafka")
                question["limit"] = min(rows, CONTROL_PAGE_ROWS_MAX) // 2
        except (StoreError, ClosedError):
            raise
        except OutriderError as error:
            return Answer(word.mark, store.number, self._node, None, error.facts, error.exit_code)
        except (TypeError, ValueError, LookupError) as error:  # arguments that no command of ours sends
            refused = SettingsError(f"{word.ask}: its arguments are not understood ({error!r:.200})")
            return Answer(word.mark, store.number, self._node, None, refused.facts, refused.exit_code)

    def _send(self, answer: Answer) -> None:
        self._brokers.send(self._brokers.file.topic(_WORDS), 0, msgspec.json.encode(answer)).offset()


def _made(store: OwnStore, name: str, question: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer of a store. Raises OutriderError."""
    frontier = store.frontier
    if name in URL_ORDERS:
        question = own_part(name, question, store.number)
    if name == VERIFY:
        found: dict[str, Any] = as_sent(frontier.verify())
        return found
    if name == REPORT:
        return _reported(frontier, question)
    made = ORDERS[name] if name in ORDERS_ASKED else _ANSWERED.get(name)
    if made is None:
        raise SettingsError(f"unknown question {name!r:.80}; use one of {', '.join(sorted(QUESTIONS_ASKED))}")
    return made(frontier, question)


def _reported(frontier: Any, question: Mapping[str, Any]) -> dict[str, Any]:
    """Reports outcomes. The same request has the same answer, also in the next owner's store."""
    outcomes = [outcome_from_body(one) for one in msgspec.convert(question["outcomes"], list[OutcomeBody])]
    client, number = msgspec.convert(question["request"], tuple[str, int])
    report = frontier.report(outcomes, request_id=(client, number))
    return {"codes": list(map(str, report.outcomes)), "links": [list(map(str, row)) for row in report.links]}
