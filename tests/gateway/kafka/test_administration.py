"""Administration by single messages: descriptions in pieces, directories, producers, settings as a whole, moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.kafka.errors import Error
from node.node import Node
from tests.gateway.kafka.served import Connection, batch, connected, kafka_node, produce, request
from tests.gateway.kafka.test_topics import alter, configs_of, create


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with kafka_node(tmp_path) as (node, _):
        yield node


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Connection]:
    async with connected(node) as connection:
        yield connection


async def describe(client: Connection, names: list[str], limit: int, cursor: Any = None) -> Any:
    topics = [request("DescribeTopicPartitions", "topics", name=name) for name in names]
    return await client.ask("DescribeTopicPartitions", 0, topics=topics, response_partition_limit=limit, cursor=cursor)


async def test_partitions_are_described_in_pieces_each_once(client: Connection) -> None:
    await create(client, "b", "a", num_partitions=3)
    for names in ([], ["b", "absent", "a"]):
        found, cursor = [], None
        for _ in range(10):
            piece = await describe(client, names, 2, cursor)
            assert sum(len(topic.partitions) for topic in piece.topics) <= 2
            found += [(topic.name, one.partition_index) for topic in piece.topics for one in topic.partitions]
            if piece.next_cursor is None:
                break
            at = piece.next_cursor
            cursor = request(
                "DescribeTopicPartitions", "cursor", topic_name=at.topic_name, partition_index=at.partition_index
            )
        assert found == [(name, number) for name in ("a", "b") for number in range(3)]
    absent = (await describe(client, ["absent", "no/name"], 9)).topics
    assert [topic.error_code for topic in absent] == [Error.UNKNOWN_TOPIC_OR_PARTITION, Error.INVALID_TOPIC]
    strange = request("DescribeTopicPartitions", "cursor", topic_name="a", partition_index=-5)
    assert len((await describe(client, ["a"], 9, strange)).topics[0].partitions) == 3


async def test_directories_have_the_bytes_of_replicas(client: Connection, node: Node) -> None:
    await create(client, "t", "empty", num_partitions=1)
    await client.ask("Produce", 9, **fields(produce("t", {0: batch(b"x" * 1000)})))
    [directory] = (await client.ask("DescribeLogDirs", 4, topics=None)).results
    assert (directory.error_code, directory.log_dir) == (0, node.settings.directories[0])
    sizes = {topic.name: topic.partitions[0].partition_size for topic in directory.topics}
    assert sizes["t"] > 1000
    assert sizes["empty"] == 0
    one = request("DescribeLogDirs", "topics", topic="t", partitions=[0, 7])
    [directory] = (await client.ask("DescribeLogDirs", 1, topics=[one])).results
    assert [topic.name for topic in directory.topics] == ["t"]


async def test_moves_to_another_directory_are_checked_and_the_present_one_moves_nothing(
    client: Connection, node: Node
) -> None:
    await create(client, "t", num_partitions=1)

    async def move(path: str, name: str, number: int) -> int:
        topics = [request("AlterReplicaLogDirs", "dirs.topics", name=name, partitions=[number])]
        directory = request("AlterReplicaLogDirs", "dirs", path=path, topics=topics)
        [topic] = (await client.ask("AlterReplicaLogDirs", 2, dirs=[directory])).results
        return int(topic.partitions[0].error_code)

    home = node.settings.directories[0]
    assert await move(home, "t", 0) == Error.NONE
    assert await move("/nowhere", "t", 0) == Error.LOG_DIR_NOT_FOUND
    assert await move(home, "t", 7) == await move(home, "absent", 0) == Error.UNKNOWN_TOPIC_OR_PARTITION
    [directory] = (await client.ask("DescribeLogDirs", 4, topics=None)).results
    assert 0 < directory.usable_bytes < directory.total_bytes


def fields(message: Any) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__struct_fields__}


async def test_producers_of_a_partition_are_known_and_transactions_are_not(client: Connection) -> None:
    await create(client, "t", num_partitions=1)
    own = (await client.ask("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1)).producer_id
    written = batch(b"a", b"b", sequence=(own, 0, 0))
    answer = await client.ask("Produce", 9, **fields(produce("t", {0: written})))
    assert answer.responses[0].partition_responses[0].error_code == 0
    asked = request("DescribeProducers", "topics", name="t", partition_indexes=[0, 3])
    known, absent = (await client.ask("DescribeProducers", 0, topics=[asked])).topics[0].partitions
    [producer] = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (own, 0, 1)
    assert (producer.last_timestamp, producer.current_txn_start_offset) == (1000, -1)
    assert absent.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    listed = await client.ask("ListTransactions", 2, state_filters=["Ongoing", "Odd"])
    assert (listed.transaction_states, listed.unknown_state_filters) == ([], ["Odd"])
    [unknown] = (await client.ask("DescribeTransactions", 0, transactional_ids=["x"])).transaction_states
    assert unknown.error_code == Error.TRANSACTIONAL_ID_NOT_FOUND


async def replace(client: Connection, name: str, validate_only: bool = False, **given: str | None) -> int:
    configs = [
        request("AlterConfigs", "resources.configs", name=n.replace("_", "."), value=value)
        for n, value in given.items()
    ]
    one = request("AlterConfigs", "resources", resource_type=2, resource_name=name, configs=configs)
    answer = await client.ask("AlterConfigs", 2, resources=[one], validate_only=validate_only)
    code: int = answer.responses[0].error_code
    return code


async def test_alter_configs_restores_what_it_does_not_name(client: Connection, node: Node) -> None:
    await create(client, "t", configs={"retention.ms": "120000", "segment.bytes": "2097152"})
    node.shard.topic("t")
    assert await replace(client, "t", validate_only=True, segment_ms="60000") == 0
    assert (await configs_of(client, "t"))["retention.ms"] == "120000"
    assert await replace(client, "t", segment_bytes="4194304") == 0
    shown = await configs_of(client, "t")
    assert (shown["retention.ms"], shown["segment.bytes"]) == (str(7 * 86_400_000), "4194304")
    assert await replace(client, "t", segment_bytes="1") == Error.INVALID_CONFIG
    assert await replace(client, "t", odd="1") == Error.INVALID_CONFIG
    assert await replace(client, "absent") == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert (await configs_of(client, "t"))["segment.bytes"] == "4194304"
    code, _ = await alter(client, "t", ("segment.bytes", 1, None))
    assert code == 0
    assert node.shard.topic("t").settings.segment_bytes == 64 * 2**20


async def test_what_has_settings_is_listed(client: Connection) -> None:
    await create(client, "t")
    everything = (await client.ask("ListConfigResources", 1, resource_types=[])).config_resources
    assert {(row.resource_type, row.resource_name) for row in everything} == {(2, "t"), (4, "1"), (8, "1")}
    topics = (await client.ask("ListConfigResources", 1, resource_types=[2, 99])).config_resources
    assert [row.resource_name for row in topics] == ["t"]
    assert (await client.ask("ListConfigResources", 0)).config_resources == [], "metrics of clients"


async def test_a_standalone_node_has_nothing_to_move_and_nothing_to_elect(client: Connection) -> None:
    await create(client, "t", num_partitions=1)

    async def move(number: int, replicas: list[int] | None) -> int:
        row = request("AlterPartitionReassignments", "topics.partitions", partition_index=number, replicas=replicas)
        one = request("AlterPartitionReassignments", "topics", name="t", partitions=[row])
        answer = await client.ask("AlterPartitionReassignments", 0, topics=[one])
        code: int = answer.responses[0].partitions[0].error_code
        return code

    assert await move(0, [1]) == 0
    assert await move(0, [2]) == await move(0, []) == await move(0, [1, 1]) == Error.INVALID_REPLICA_ASSIGNMENT
    assert await move(0, None) == Error.NO_REASSIGNMENT_IN_PROGRESS
    assert await move(9, [1]) == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.ask("ListPartitionReassignments", 0, topics=None)).topics == []
    for kind in (0, 1):
        named = [request("ElectLeaders", "topic_partitions", topic="t", partitions=[0, 5])]
        answer = await client.ask("ElectLeaders", 2, election_type=kind, topic_partitions=named)
        codes = [row.error_code for row in answer.replica_election_results[0].partition_result]
        assert codes == [Error.ELECTION_NOT_NEEDED, Error.UNKNOWN_TOPIC_OR_PARTITION]
        answer = await client.ask("ElectLeaders", 2, election_type=kind, topic_partitions=None)
        assert answer.replica_election_results == []
    assert (
        await client.ask("ElectLeaders", 2, election_type=9, topic_partitions=None)
    ).error_code == Error.INVALID_REQUEST


async def test_a_node_without_tokens_has_quotas_and_no_rules(client: Connection) -> None:
    wanted = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "operation": 1}
    answer = await client.ask("DescribeAcls", 3, **wanted, permission_type=1, principal_filter=None, host_filter=None)
    assert answer.error_code == Error.SECURITY_DISABLED
    quota = [("user", None), ("client-id", None)]
    assert await set_quota(client, quota, producer_byte_rate=1e6, request_percentage=50.0) == 0
    assert await quotas(client) == {
        (("client-id", None), ("user", None)): {"producer_byte_rate": 1e6, "request_percentage": 50.0}
    }
    assert await set_quota(client, quota, producer_byte_rate=None) == 0
    assert await quotas(client, ("user", 1, None)) == {
        (("client-id", None), ("user", None)): {"request_percentage": 50.0}
    }
    assert await quotas(client, ("user", 0, "x")) == {}
    assert await quotas(client, ("user", 2, None), strict=True) == {}
    assert await set_quota(client, quota, request_percentage=None) == 0
    assert await set_quota(client, quota, request_percentage=None) == 0, "there is none any more"
    assert await quotas(client) == {}
    for entity, key, value in (
        ([("client-id", "app")], "producer_byte_rate", 1.0),
        ([("ip", "10.0.0.1")], "connection_creation_rate", 1.0),
        ([("user", None)], "controller_mutation_rate", 1.0),
        ([("user", None)], "producer_byte_rate", -1.0),
        ([("user", None)], "producer_byte_rate", float("nan")),
        ([], "producer_byte_rate", 1.0),
    ):
        assert await set_quota(client, entity, **{key: value}) == Error.INVALID_REQUEST


async def set_quota(client: Connection, entity: list[tuple[str, str | None]], **values: float | None) -> int:
    names = [
        request("AlterClientQuotas", "entries.entity", entity_type=kind, entity_name=name) for kind, name in entity
    ]
    ops = [
        request("AlterClientQuotas", "entries.ops", key=key, value=value or 0.0, remove=value is None)
        for key, value in values.items()
    ]
    one = request("AlterClientQuotas", "entries", entity=names, ops=ops)
    code: int = (await client.ask("AlterClientQuotas", 1, entries=[one], validate_only=False)).entries[0].error_code
    return code


async def quotas(
    client: Connection, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    given = [
        request("DescribeClientQuotas", "components", entity_type=kind, match_type=how, match=name)
        for kind, how, name in components
    ]
    answer = await client.ask("DescribeClientQuotas", 1, components=given, strict=strict)
    assert answer.error_code == 0
    return {
        tuple(sorted((one.entity_type, one.entity_name) for one in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


async def test_throttles_of_moves_end_and_other_settings_of_a_broker_stay(client: Connection) -> None:
    async def change(name: str, operation: int) -> int:
        config = request(
            "IncrementalAlterConfigs", "resources.configs", name=name, config_operation=operation, value=None
        )
        one = request("IncrementalAlterConfigs", "resources", resource_type=4, resource_name="1", configs=[config])
        code: int = (await client.ask("IncrementalAlterConfigs", 1, resources=[one])).responses[0].error_code
        return code

    assert await change("leader.replication.throttled.rate", 1) == 0
    assert await change("leader.replication.throttled.rate", 0) == Error.INVALID_CONFIG
    assert await change("num.partitions", 1) == Error.INVALID_CONFIG


async def test_a_request_has_its_line_in_the_log_of_requests(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "penstock.requests")
    async with kafka_node(tmp_path, request_log=True) as (node, _), connected(node) as client:
        await client.ask("Metadata", 9, topics=None)
    lines = [record for record in caplog.records if record.name == "penstock.requests"]
    assert [(vars(line)["operation"], vars(line)["error"]) for line in lines] == [("kafka_Metadata", "NONE")]
