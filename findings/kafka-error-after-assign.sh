#!/bin/sh
# After `assign`, a Kafka consumer still returns the offset error of a partition that it does not have any more.
#
# `Consumer.assign` of confluent-kafka replaces the assignment, and records of the former one are not returned after it.
# An error is: with auto.offset.reset=error, a former partition whose offset is out of range is reported by `consume`
# although `assignment()` does not list it. An application that keeps a state for each assigned partition must check.
# The broker is the mock of librdkafka, in the process of the consumer.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet confluent-kafka==2.16.1
"$folder/venv/bin/python" - <<'PROGRAM'
import time

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, TopicPartition

settings = {
    "test.mock.num.brokers": 1, "group.id": "one", "auto.offset.reset": "error", "allow.auto.create.topics": True,
    "log_level": 0,
}  # fmt: skip


def answers(consumer, rounds):
    return [message for _ in range(rounds) for message in consumer.consume(10, 0.05)]


late = []
for _ in range(10):
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("topic", 0, 0), TopicPartition("topic", 1, 0)])
    answers(consumer, 20)  # the mock has made the topic
    consumer.assign([TopicPartition("topic", 0, 1_000), TopicPartition("topic", 1, 0)])
    ends = time.monotonic() + 1
    while time.monotonic() < ends:  # the broker answers that the offset is out of range
        consumer.list_topics(timeout=5)
    consumer.assign([TopicPartition("topic", 1, 0)])
    assert [place.partition for place in consumer.assignment()] == [1]
    late = [one for one in answers(consumer, 20) if one.partition() == 0]
    consumer.close()
    if late:
        break
print("confluent-kafka", confluent_kafka.version(), "librdkafka", confluent_kafka.libversion()[0])
print("assigned: partition 1; returned for partition 0:", [message.error().name() for message in late])
assert [message.error().code() for message in late] == [KafkaError._AUTO_OFFSET_RESET], "this has changed"
PROGRAM
