"""Topics with settings that would lose or refuse records are found before a node joins."""

from __future__ import annotations

import pytest

from outrider.cluster.description import read_cluster_file
from outrider.cluster.kafka import Brokers
from outrider.errors import SettingsError

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]
PARTITIONS = 2


@pytest.fixture
def brokers(kafka, tmp_path):
    file = tmp_path / "cluster.toml"
    file.write_text(f'name = "checked"\nkafka = "{kafka.address}"\nobjects = "file:{tmp_path}"\n')
    brokers = Brokers(read_cluster_file(str(file)), client="checks")
    brokers.make_topics(PARTITIONS)
    yield brokers
    brokers.close()


def altered(brokers, which, **settings):
    kinds = brokers._library.admin
    changes = [
        kinds.ConfigEntry(name.replace("_", "."), value, incremental_operation=kinds.AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = kinds.ConfigResource(
        kinds.ResourceType.TOPIC, brokers.file.topic(which), incremental_configs=changes
    )  # fmt: skip
    brokers._administrator().incremental_alter_configs([resource])[resource].result(10)


def test_a_topic_that_drops_or_refuses_records_is_named_with_the_command_that_mends_it(brokers):
    brokers.check_topics(PARTITIONS)
    for which, settings, name in (
        ("facts", {"retention_ms": "1000000"}, "retention.ms=-1"),
        ("words", {"message_timestamp_type": "CreateTime"}, "message.timestamp.type=LogAppendTime"),
    ):
        altered(brokers, which, **settings)
        with pytest.raises(SettingsError, match=rf"kafka-configs.*--topic checked\.{which} --add-config {name}"):
            brokers.check_topics(PARTITIONS)
        altered(brokers, which, **dict([name.replace(".", "_").split("=")]))
    brokers.check_topics(PARTITIONS)
