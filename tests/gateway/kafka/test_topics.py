"""Topics and their settings by Kafka's names, by single messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.errors import InvalidConfig
from engine.topic_settings import TopicSettings, topic_settings
from gateway.kafka.errors import Error
from gateway.kafka.topic_configs import CONFIGS, parse_configs
from node.node import Node
from tests.gateway.kafka.served import Connection, connected, kafka_node, request


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with kafka_node(tmp_path) as (node, _):
        yield node


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Connection]:
    async with connected(node) as connection:
        yield connection


async def create(client: Connection, *names: str, validate_only: bool = False, **fields: Any) -> list[Any]:
    configs = [request("CreateTopics", "topics.configs", name=n, value=v) for n, v in fields.pop("configs", {}).items()]
    fields = {"num_partitions": 2, "replication_factor": 1, **fields}
    topics = [request("CreateTopics", "topics", name=name, configs=configs, **fields) for name in names]
    answer = await client.ask("CreateTopics", 7, topics=topics, timeout_ms=1000, validate_only=validate_only)
    return list(answer.topics)


async def alter(client: Connection, name: str, *changes: tuple[str, int, str | None]) -> tuple[int, str | None]:
    configs = [
        request("IncrementalAlterConfigs", "resources.configs", name=n, config_operation=op, value=value)
        for n, op, value in changes
    ]
    one = request("IncrementalAlterConfigs", "resources", resource_type=2, resource_name=name, configs=configs)
    row = (await client.ask("IncrementalAlterConfigs", 1, resources=[one])).responses[0]
    return row.error_code, row.error_message


async def configs_of(client: Connection, name: str, kind: int = 2, keys: list[str] | None = None) -> dict[str, str]:
    one = request("DescribeConfigs", "resources", resource_type=kind, resource_name=name, configuration_keys=keys)
    result = (await client.ask("DescribeConfigs", 4, resources=[one])).results[0]
    assert result.error_code == 0
    return {config.name: config.value for config in result.configs}


async def test_a_topic_is_created_with_its_settings(client: Connection, node: Node) -> None:
    given = {"cleanup.policy": "compact , delete", "retention.ms": "-1", "segment.jitter.ms": "7"}
    [row] = await create(client, "t", configs=given)
    assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 2, 1)
    topic = node.shard.topic("t")
    assert row.topic_id.hex() == topic.record.topic_id
    assert (topic.settings.cleanup_policy, topic.settings.retention_ms) == ("compact,delete", None)
    shown = {config.name: config.value for config in row.configs}
    assert (shown["cleanup.policy"], shown["retention.ms"]) == ("compact,delete", "-1")
    assert shown == await configs_of(client, "t")
    assert (await create(client, "t"))[0].error_code == Error.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("name", "fields", "error"),
    [
        ("no/name", {}, Error.INVALID_TOPIC),
        ("__groups", {}, Error.INVALID_TOPIC),
        ("t", {"num_partitions": 0}, Error.INVALID_PARTITIONS),
        ("t", {"replication_factor": 3}, Error.INVALID_REPLICATION_FACTOR),
        ("t", {"configs": {"no.such": "1"}}, Error.INVALID_CONFIG),
        ("t", {"configs": {"retention.ms": "soon"}}, Error.INVALID_CONFIG),
        ("t", {"configs": {"segment.bytes": "1"}}, Error.INVALID_CONFIG),
    ],
)
async def test_what_cannot_be_created_is_refused_with_the_reason(
    client: Connection, node: Node, name: str, fields: dict[str, Any], error: Error
) -> None:
    for validate_only in (True, False):
        [row] = await create(client, name, validate_only=validate_only, **fields)
        assert row.error_code == error
        assert row.error_message
    assert not list(node.shard.topics)


async def test_defaults_and_assignments(client: Connection, node: Node) -> None:
    [row] = await create(client, "t", num_partitions=-1, replication_factor=-1, validate_only=True)
    assert (row.error_code, row.num_partitions) == (0, node.settings.default_partitions)
    assert not list(node.shard.topics)
    own = [request("CreateTopics", "topics.assignments", partition_index=0, broker_ids=[node.settings.node_id])]
    other = [request("CreateTopics", "topics.assignments", partition_index=0, broker_ids=[99])]
    [row] = await create(client, "a", num_partitions=-1, replication_factor=-1, assignments=other)
    assert row.error_code == Error.INVALID_REPLICA_ASSIGNMENT
    [row] = await create(client, "a", num_partitions=-1, replication_factor=-1, assignments=own)
    assert row.error_code == 0
    assert [row.error_code for row in await create(client, "x", "x")] == [Error.INVALID_REQUEST] * 2


async def test_topics_are_deleted_by_name_and_by_id(client: Connection, node: Node) -> None:
    await create(client, "a", "b")
    b = bytes.fromhex(node.shard.topic("b").record.topic_id)
    topics = [
        request("DeleteTopics", "topics", name="a"),
        request("DeleteTopics", "topics", name=None, topic_id=b),
        request("DeleteTopics", "topics", name="absent"),
        request("DeleteTopics", "topics", name=None, topic_id=b"x" * 16),
    ]
    rows = (await client.ask("DeleteTopics", 6, topics=topics, timeout_ms=1000)).responses
    unknown = [Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID]
    assert [row.error_code for row in rows] == [0, 0, *unknown]
    assert not list(node.shard.topics)
    await create(client, "c")
    assert [row.error_code for row in (await client.ask("DeleteTopics", 1, topic_names=["c"])).responses] == [0]


async def test_partitions_are_added(client: Connection, node: Node) -> None:
    await create(client, "t")

    async def grow(count: int, *, validate_only: bool = False) -> int:
        one = request("CreatePartitions", "topics", name="t", count=count, assignments=None)
        answer = await client.ask("CreatePartitions", 3, topics=[one], validate_only=validate_only)
        code: int = answer.results[0].error_code
        return code

    assert await grow(2) == Error.INVALID_PARTITIONS
    assert await grow(5, validate_only=True) == 0
    assert node.shard.topic("t").record.partitions == 2
    assert await grow(5) == 0
    assert node.shard.topic("t").record.partitions == 5


async def test_settings_change_one_by_one(client: Connection, node: Node) -> None:
    await create(client, "t")
    settings, delete, append, subtract = 0, 1, 2, 3
    changes = (("retention.ms", settings, "3600000"), ("max.message.bytes", settings, "4000000"))
    assert (await alter(client, "t", *changes))[0] == 0
    topic = node.shard.topic("t")
    assert (topic.settings.retention_ms, topic.settings.record_bytes_max) == (3_600_000, 4_000_000)
    assert (await alter(client, "t", ("cleanup.policy", append, "compact")))[0] == 0
    assert topic.settings.cleanup_policy == "compact,delete"
    assert (await alter(client, "t", ("cleanup.policy", subtract, "delete")))[0] == 0
    assert (await alter(client, "t", ("retention.ms", delete, None)))[0] == 0
    assert (topic.settings.cleanup_policy, topic.settings.retention_ms) == ("compact", TopicSettings().retention_ms)
    assert (await alter(client, "t", ("preallocate", settings, "true")))[0] == 0
    assert (await alter(client, "t", ("retention.ms", append, "1")))[0] == Error.INVALID_CONFIG
    assert (await alter(client, "t", ("no.such", settings, "1")))[0] == Error.INVALID_CONFIG
    assert (await alter(client, "absent", ("retention.ms", settings, "1")))[0] == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert await configs_of(client, "t", keys=["cleanup.policy"]) == {"cleanup.policy": "compact"}
    assert (await configs_of(client, str(node.settings.node_id), kind=4))["num.partitions"] == "1"


@pytest.mark.parametrize("name", CONFIGS)
def test_a_value_that_is_shown_can_be_sent_back(name: str) -> None:
    config, settings = CONFIGS[name], TopicSettings()
    again = topic_settings(parse_configs({name: config.shown(settings)}))
    assert config.shown(again) == config.shown(settings)
    assert topic_settings(parse_configs({name: None})) == settings


@pytest.mark.parametrize(
    ("name", "value", "own"),
    [
        ("retention.ms", str(2**63 - 1), {"retention_ms": None}),
        ("min.cleanable.dirty.ratio", "0.0", {"min_cleanable_dirty_percent": 1}),
        ("max.compaction.lag.ms", str(2**63 - 1), {"max_compaction_lag_ms": None}),
        ("flush.ms", str(2**63 - 1), {"flush_ms": 20}),
        ("compression.type", "producer", {"compression": "none"}),
        ("message.timestamp.type", "LogAppendTime", {"timestamp_type": "append"}),
        ("unclean.leader.election.enable", "TRUE", {"unclean_election": True}),
    ],
)
def test_values_of_kafka_mean_what_ours_do(name: str, value: str, own: dict[str, object]) -> None:
    assert parse_configs({name: value}) == own
    topic_settings(own)


def test_values_that_are_no_values_are_named() -> None:
    for name in ("unclean.leader.election.enable", "message.timestamp.type", "min.cleanable.dirty.ratio"):
        with pytest.raises(InvalidConfig, match=name.replace(".", r"\.")):
            parse_configs({name: "maybe"})
