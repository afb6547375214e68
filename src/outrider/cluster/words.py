"""The records of the topic `words`: the messages of nodes and commands. Each is a JSON object:

{"node": …, "counts": […]}                  a node sends the counts of its partitions
{"ask": …, "mark": …, "question": {…}}      a command sends a question or an order to the owners of partitions
{"answers": …, "partition": 3, …}           the owner of a partition answers
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from outrider.engine.process_queries import LOOKS, ORDERS, READS
from outrider.limits import INSTANT_MAX

VERIFY: Final = "verify"
"""The question for which a store is counted again."""
URL_ORDERS: Final = ("reprioritise", "requeue", "delete_urls", "put", "restore")
"""Orders about single URLs. Each partition carries out the rows of its own URLs."""
ROWS: Final = "rows"
"""The field of such an order with the numbers of the rows of each partition."""
ORDERS_ASKED: Final = (
    "host",
    "retry",
    "pause",
    "resume",
    "block_until",
    "set_delay",
    "set_limit",
    "delete",
    "recheck",
    *URL_ORDERS,
)
"""Orders that the owner of each partition carries out once. New URLs go through the topic `urls`."""
REPORT: Final = "report"
"""The order with outcomes of leases, from a node that does not own their partition."""
assert set(ORDERS_ASKED) <= set(ORDERS)
QUESTIONS_ASKED: Final = (*LOOKS, *(name for name in READS if name not in ORDERS_ASKED), VERIFY)


def rows_field(name: str) -> str:
    """Returns the field with the URLs of an order about single URLs."""
    return "records" if name in ("put", "restore") else "urls"


def own_part(name: str, question: dict[str, Any], partition: int) -> dict[str, Any]:
    """Returns the part of an order about single URLs that a partition carries out. Raises LookupError, TypeError and
    ValueError for an order that no command of ours sends."""
    field = rows_field(name)
    given = question[field]
    every = [*given.items()] if isinstance(given, dict) else given
    rows = msgspec.convert(question[ROWS][str(partition)], list[int])
    some = [every[row] for row in rows]
    part = {key: value for key, value in question.items() if key != ROWS}
    return part | {field: dict(some) if isinstance(given, dict) else some}


_Natural = Annotated[int, msgspec.Meta(ge=0, le=INSTANT_MAX)]


class PartitionCounts(msgspec.Struct, frozen=True):
    """The counts of one partition, sent by its owner. received: the offset up to which it has received links. heard:
    the offset of `words` up to which its store says that it has carried out orders."""

    partition: _Natural
    epoch: _Natural
    received: _Natural
    finished: bool
    numbers: dict[str, int]
    heard: _Natural = 0


class RateLoan(msgspec.Struct, frozen=True):
    """The share of the rate of a partition, lent to the node that has asked with this mark."""

    partition: int
    mark: str


class NodeMessage(msgspec.Struct, frozen=True):
    """The regular message of a node to the others. at: by its clock, for people. round: grows with each message.
    ended: it leaves. needs_rate: the mark of a question for shares of the rate. loans: the shares that it lends. run:
    of this process; a later one of the same node has a greater text."""

    node: str
    at: _Natural
    round: int
    counts: list[PartitionCounts]
    address: str = ""
    ended: bool = False
    needs_rate: str = ""
    loans: list[RateLoan] = []
    run: str = ""


class Question(msgspec.Struct, frozen=True):
    """A question or an order. mark: a text that no other one has. partitions: whose owners it is for; None: all."""

    ask: str
    mark: str
    question: dict[str, Any]
    partitions: list[int] | None = None

    @property
    def is_order(self) -> bool:
        """Whether it changes something."""
        return self.ask in ORDERS_ASKED or self.ask == REPORT

    def concerns(self, partition: int) -> bool:
        """Whether it is for the owner of a partition."""
        return self.partitions is None or partition in self.partitions


class Answer(msgspec.Struct, frozen=True):
    """The answer of the owner of a partition. answers: the mark of the question. code: the exit code of an error."""

    answers: str
    partition: int
    node: str
    answer: dict[str, Any] | None = None
    error: str = ""
    code: int = 0


Word = NodeMessage | Question | Answer
_DECODERS: Final[tuple[msgspec.json.Decoder[Any], ...]] = (
    msgspec.json.Decoder(NodeMessage),
    msgspec.json.Decoder(Question),
    msgspec.json.Decoder(Answer),
)


def unpacked_word(octets: bytes) -> Word | None:
    """Returns the content of a record; None for that of another program."""
    for decoder in _DECODERS:
        try:
            word: Word = decoder.decode(octets)
            return word
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return None
