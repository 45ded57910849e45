"""Two tenants use every API of Kafka's protocol; no byte that one receives names the other, or its own prefix."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.kafka.codec.messages import Message
from gateway.kafka.codec.tables import TABLES
from gateway.kafka.errors import Error
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.node_process import running_process
from tests.gateway.kafka.served import Connection, batch, fetch, produce, request
from tests.scenarios.http.test_tenants import Caller, Hook, Node
from tests.tokens import add_token

TOPIC, GROUP, BROKER = 2, 32, 4  # types of resources
ANY = 1
NOT_HERE = "no/name"
NAMES_LAST = 12  # of Produce and Fetch: later versions have ids


class Tenant(Connection):
    """A connection that keeps all that it receives, and notes what it has asked."""

    def __init__(self, reader: Any, writer: Any) -> None:
        super().__init__(reader, writer)
        self.received: list[tuple[str, bytes]] = []
        self.asked: set[str] = set()
        self.asking = ""
        self.ids: dict[str, bytes] = {}
        self.offered: set[str] = set()

    async def frame(self) -> bytes:
        data = await super().frame()
        self.received.append((self.asking, data))
        return data

    async def put(self, api: str, message: Message, version: int | None = None) -> Message:
        """Asks by a version, the last one if none is given, and returns the answer."""
        self.asking = api
        self.asked.add(api)
        self.send(api, TABLES[api].last if version is None else version, message)
        return await self.receive()

    async def put_all(self, api: str, *messages: Message) -> list[Message]:
        """Asks by the first and the last version, and returns the answers to the last one."""
        for message in messages:
            await self.put(api, message, TABLES[api].first)
        return [await self.put(api, message) for message in messages]

    def faults(self, *canaries: str) -> list[str]:
        return [f"{api}: {data!r}" for api, data in self.received for canary in canaries if canary.encode() in data]


@pytest.fixture(scope="module")
def node(tmp_path_factory) -> Iterator[tuple[Node, str]]:
    directory, address = tmp_path_factory.mktemp("tenants"), free_address()
    path = directory / "tokens.toml"
    every = {"read": [""], "write": [""], "admin": [""], "group": [""]}
    boss = add_token(path, "boss", **every, metrics=True)
    settings = {"tokens_file": path, "superusers": "token:boss", "kafka_listen": address, "shards": 2}
    with running_process(directory, **settings) as process:
        yield Node(process.port, boss, Hook.__new__(Hook)), address


async def connect(address: str, token: str) -> Tenant:
    host, _, port = address.rpartition(":")
    client = Tenant(*await asyncio.open_connection(host, int(port)))
    names = {table.key: name for name, table in TABLES.items()}
    client.offered = {
        names[one.api_key] for one in (await client.put("ApiVersions", request("ApiVersions"), 0)).api_keys
    }
    assert (await client.put("SaslHandshake", request("SaslHandshake", mechanism="PLAIN"))).error_code == 0
    given = f"\0user\0{token}".encode()
    assert (await client.put("SaslAuthenticate", request("SaslAuthenticate", auth_bytes=given))).error_code == 0
    return client


def part(api: str, path: str, /, **fields: Any) -> Message:
    return request(api, path, **fields)


def by_topic(api: str, names: list[str], **fields: Any) -> Message:
    """Returns a request with one partition of each topic."""
    key = "topic" if api == "OffsetForLeaderEpoch" else "name"
    topics = [
        part(api, "topics", **{key: name}, partitions=[part(api, "topics.partitions", **fields)]) for name in names
    ]
    return request(api, topics=topics)


async def use_topics(client: Tenant, other: str) -> None:
    names = ["orders", "absent", f"{other}.orders", "__groups", NOT_HERE, "x" * 249]
    created = [
        part("CreateTopics", "topics", name=n, num_partitions=2, replication_factor=1) for n in [*names, "state"]
    ]
    (answer,) = await client.put_all("CreateTopics", request("CreateTopics", topics=created, timeout_ms=5000))
    codes = {row.name: row.error_code for row in answer.topics}
    assert codes["orders"] == codes["absent"] == Error.TOPIC_ALREADY_EXISTS, "the first version has made them"
    assert codes[NOT_HERE] == codes["x" * 249] == codes["__groups"] == Error.INVALID_TOPIC
    everything, named = await client.put_all(
        "Metadata",
        request("Metadata", topics=[]),
        request("Metadata", topics=[part("Metadata", "topics", name=n) for n in names]),
    )
    everything = await client.put("Metadata", request("Metadata", topics=None))
    assert {row.name for row in everything.topics} == {"orders", "absent", "state", f"{other}.orders"}
    assert [row.name for row in named.topics] == names
    client.ids = ids = {row.name: row.topic_id for row in everything.topics}
    by_id = await client.put(
        "Metadata", request("Metadata", topics=[part("Metadata", "topics", name=None, topic_id=ids["orders"])])
    )
    assert by_id.topics[0].name == "orders"
    await client.put_all(
        "DescribeTopicPartitions",
        request("DescribeTopicPartitions", topics=[]),
        request("DescribeTopicPartitions", topics=[part("DescribeTopicPartitions", "topics", name=n) for n in names]),
        request("DescribeTopicPartitions", topics=[], response_partition_limit=1),
    )
    grown = [part("CreatePartitions", "topics", name=n, count=3, assignments=None) for n in names]
    await client.put_all("CreatePartitions", request("CreatePartitions", topics=grown, timeout_ms=5000))
    resources = [(TOPIC, n) for n in names] + [(GROUP, "g"), (BROKER, "1"), (BROKER, "")]
    for api, path in (
        ("DescribeConfigs", "resources"),
        ("AlterConfigs", "resources"),
        ("IncrementalAlterConfigs", "resources"),
    ):
        fields: dict[str, Any] = {"configuration_keys": None} if api == "DescribeConfigs" else {"configs": []}
        if api != "DescribeConfigs":
            fields["configs"] = [part(api, "resources.configs", name="retention.ms", value="-7")]
        rows = [part(api, path, resource_type=kind, resource_name=n, **fields) for kind, n in resources]
        await client.put_all(api, request(api, resources=rows))
    listed = (await client.put_all("ListConfigResources", request("ListConfigResources", resource_types=[])))[0]
    assert {row.resource_name for row in listed.config_resources} >= {"orders", "state"}


async def use_records(client: Tenant, other: str) -> None:
    names = ["orders", "nowhere", f"{other}.x", "__groups", NOT_HERE]
    for version in (3, NAMES_LAST):
        for name in names:
            answer = await client.put("Produce", produce(name, {0: batch(b"a"), 9: batch(b"b")}), version)
            assert answer.responses[0].name == name
    for version in (4, NAMES_LAST):
        for name in names:
            answer = await client.put("Fetch", fetch(name, {0: 0, 9: 0}), version)
            assert answer.responses[0].topic == name
    opened = await client.put("Fetch", fetch("orders", {0: 0}, session=(0, 0)), NAMES_LAST)
    assert b"a" in bytes(opened.responses[0].partitions[0].records)
    again = await client.put("Fetch", fetch("orders", {}, session=(opened.session_id, 1)), NAMES_LAST)
    assert [topic.topic for topic in again.responses] == ["orders"], "a session has visible names"
    found = await client.put("Metadata", request("Metadata", topics=[part("Metadata", "topics", name="orders")]))
    topic_id = found.topics[0].topic_id
    produced = await client.put("Produce", produce(topic_id, {0: batch(b"a")}))
    assert produced.responses[0].partition_responses[0].error_code == 0
    fetched = await client.put("Fetch", fetch(topic_id, {0: 0}))
    assert b"a" in bytes(fetched.responses[0].partitions[0].records)
    await client.put_all("ListOffsets", by_topic("ListOffsets", names, timestamp=-1))
    await client.put_all("OffsetForLeaderEpoch", by_topic("OffsetForLeaderEpoch", names, leader_epoch=0))
    await client.put_all("DeleteRecords", by_topic("DeleteRecords", names, offset=1))
    topics = [part("DescribeProducers", "topics", name=name, partition_indexes=[0]) for name in names]
    await client.put_all("DescribeProducers", request("DescribeProducers", topics=topics))
    await client.put_all(
        "InitProducerId", request("InitProducerId", transactional_id=None, transaction_timeout_ms=1000)
    )
    await client.put_all("ListTransactions", request("ListTransactions", state_filters=["Ongoing", "None"]))
    await client.put_all("DescribeTransactions", request("DescribeTransactions", transactional_ids=["t"]))


async def use_groups(client: Tenant, other: str) -> None:
    groups = ["g", "h", "", "nowhere", f"{other}.g"]
    found = await client.put("FindCoordinator", request("FindCoordinator", key_type=0, coordinator_keys=groups))
    assert [row.key for row in found.coordinators] == groups
    await client.put_all("FindCoordinator", request("FindCoordinator", key="g", key_type=0, coordinator_keys=["t"]))
    await client.put("FindCoordinator", request("FindCoordinator", key="t", key_type=1, coordinator_keys=["t"]))
    protocols = [part("JoinGroup", "protocols", name="range", metadata=b"orders")]
    joining = request(
        "JoinGroup", group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
        group_instance_id=None, protocol_type="consumer", protocols=protocols,
    )  # fmt: skip
    required = await client.put("JoinGroup", joining)
    joining.member_id = required.member_id
    joined = await client.put("JoinGroup", joining)
    assert joined.error_code == 0, joined
    who = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
    assignments = [part("SyncGroup", "assignments", member_id=joined.member_id, assignment=b"orders")]
    synced = await client.put("SyncGroup", request("SyncGroup", **who, group_instance_id=None, assignments=assignments))
    assert bytes(synced.assignment) == b"orders"
    await client.put_all("Heartbeat", request("Heartbeat", **who, group_instance_id=None))
    position = part("OffsetCommit", "topics.partitions", committed_offset=1, committed_metadata="m")
    names = ["orders", "nowhere", f"{other}.x", NOT_HERE]
    topics = [
        part("OffsetCommit", "topics", name=name, topic_id=client.ids.get(name, bytes(16)), partitions=[position])
        for name in names
    ]
    commit = request(
        "OffsetCommit", group_id="g", generation_id_or_member_epoch=joined.generation_id, member_id=joined.member_id,
        group_instance_id=None, topics=topics,
    )  # fmt: skip
    await client.put_all("OffsetCommit", commit)  # the last version has ids of topics
    committed = await client.put("OffsetCommit", commit, 9)
    assert [(row.name, row.partitions[0].error_code != 0) for row in committed.topics] == [
        ("orders", False), *((name, True) for name in names[1:])
    ]  # fmt: skip
    of_group = [part("OffsetFetch", "groups", group_id=g, topics=None) for g in groups]
    await client.put("OffsetFetch", request("OffsetFetch", groups=of_group))
    fetched = await client.put("OffsetFetch", request("OffsetFetch", groups=of_group), 9)
    assert [one.group_id for one in fetched.groups] == groups
    assert [topic.name for topic in fetched.groups[0].topics] == ["orders"]
    old = [part("OffsetFetch", "topics", name=name, partition_indexes=[0]) for name in names]
    await client.put("OffsetFetch", request("OffsetFetch", group_id="g", topics=old), 1)
    described = (await client.put_all("DescribeGroups", request("DescribeGroups", groups=groups)))[0]
    assert [one.group_id for one in described.groups] == groups
    listed = (await client.put_all("ListGroups", request("ListGroups")))[0]
    assert {row.group_id for row in listed.groups} >= {"g", "h"}
    for group, given in (("k", {"names": ["orders"]}), ("r", {"regex": "o.*"}), ("x", {"regex": "a)|(?:.*"})):
        beat = request(
            "ConsumerGroupHeartbeat", group_id=group, member_id="m", member_epoch=0, instance_id=None, rack_id=None,
            rebalance_timeout_ms=10_000, subscribed_topic_names=given.get("names", []),
            subscribed_topic_regex=given.get("regex"), server_assignor=None, topic_partitions=[],
        )  # fmt: skip
        (beaten,) = await client.put_all("ConsumerGroupHeartbeat", beat)
        assert (beaten.error_code == 0) == (group != "x"), beaten
    kept = ["k", "r", "h", "nowhere"]
    (consumers,) = await client.put_all("ConsumerGroupDescribe", request("ConsumerGroupDescribe", group_ids=kept))
    assert [one.group_id for one in consumers.groups] == kept
    by_name, by_expression = (one.members[0] for one in consumers.groups[:2])
    assert (by_name.subscribed_topic_names, by_expression.subscribed_topic_regex) == (["orders"], "o.*")
    forgotten = [
        part("OffsetDelete", "topics", name=n, partitions=[part("OffsetDelete", "topics.partitions")]) for n in names
    ]
    await client.put_all("OffsetDelete", request("OffsetDelete", group_id="g", topics=forgotten))
    leaving = [part("LeaveGroup", "members", member_id=joined.member_id, group_instance_id=None)]
    await client.put_all("LeaveGroup", request("LeaveGroup", group_id="g", member_id="none", members=leaving))
    await client.put_all("DeleteGroups", request("DeleteGroups", groups_names=groups))


async def use_share_groups(client: Tenant, other: str) -> None:
    names = ["orders", "nowhere", f"{other}.x", NOT_HERE]
    of_group = [
        part("DescribeShareGroupOffsets", "groups", group_id=group, topics=[
            part("DescribeShareGroupOffsets", "groups.topics", topic_name=name, partitions=[0]) for name in names
        ])
        for group in ("s", "nowhere")
    ]  # fmt: skip
    start = [part("AlterShareGroupOffsets", "topics.partitions")]
    altered = [part("AlterShareGroupOffsets", "topics", topic_name=name, partitions=start) for name in names]
    deleted = [part("DeleteShareGroupOffsets", "topics", topic_name=name) for name in names]
    member = {"group_id": "s", "member_id": "m"}
    partitions = {"topic_id": client.ids["orders"]}
    reading = part("ShareFetch", "topics", **partitions, partitions=[part("ShareFetch", "topics.partitions")])
    done = part("ShareAcknowledge", "topics", **partitions, partitions=[part("ShareAcknowledge", "topics.partitions")])
    bounds = {"max_wait_ms": 100, "min_bytes": 1, "max_records": 9, "batch_size": 9}
    for name, message in (
        *(
            ("ShareGroupHeartbeat", request("ShareGroupHeartbeat", **member, subscribed_topic_names=[name]))
            for name in names[::-1]
        ),
        ("ShareFetch", request("ShareFetch", **member, **bounds, topics=[reading])),
        ("ShareAcknowledge", request("ShareAcknowledge", **member, share_session_epoch=1, topics=[done])),
        ("ShareGroupDescribe", request("ShareGroupDescribe", group_ids=["s", "nowhere", "k"])),
        ("DescribeShareGroupOffsets", request("DescribeShareGroupOffsets", groups=of_group)),
        ("AlterShareGroupOffsets", request("AlterShareGroupOffsets", group_id="s", topics=altered)),
        ("DeleteShareGroupOffsets", request("DeleteShareGroupOffsets", group_id="s", topics=deleted)),
    ):
        if name in client.offered:
            await client.put_all(name, message)


async def use_rest(client: Tenant, other: str) -> None:
    await client.put_all("DescribeCluster", request("DescribeCluster"))
    topics = [part("DescribeLogDirs", "topics", topic="orders", partitions=[0])]
    await client.put_all(
        "DescribeLogDirs", request("DescribeLogDirs", topics=topics), request("DescribeLogDirs", topics=None)
    )
    moved = [part("AlterReplicaLogDirs", "dirs.topics", name=name, partitions=[0]) for name in ("orders", other)]
    directories = [part("AlterReplicaLogDirs", "dirs", path="/data", topics=moved)]
    (refused,) = await client.put_all("AlterReplicaLogDirs", request("AlterReplicaLogDirs", dirs=directories))
    codes = {row.error_code for topic in refused.results for row in topic.partitions}
    assert codes == {Error.CLUSTER_AUTHORIZATION_FAILED}, refused
    acl = {"principal": "User:all", "host": "*", "operation": 3, "permission_type": 3}
    creations = [
        part("CreateAcls", "creations", resource_type=TOPIC, resource_name=name, resource_pattern_type=3, **acl)
        for name in ("orders", f"{other}.orders", NOT_HERE)
    ]
    (created,) = await client.put_all("CreateAcls", request("CreateAcls", creations=creations))
    assert [row.error_code for row in created.results] == [0, 0, Error.INVALID_REQUEST], created
    wanted = {
        "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY, "host_filter": None,
        "operation": ANY, "permission_type": ANY,
    }  # fmt: skip
    everything = request("DescribeAcls", **wanted, principal_filter=None)
    (found,) = await client.put_all("DescribeAcls", everything)
    assert {row.resource_name for row in found.resources} >= {"orders"}
    own = part("DeleteAcls", "filters", **(wanted | {"resource_name_filter": "orders"}), principal_filter="User:all")
    (deleted,) = await client.put_all("DeleteAcls", request("DeleteAcls", filters=[own]))
    assert deleted.filter_results[0].matching_acls == [], "the first version has removed them"
    await client.put_all("DescribeClientQuotas", request("DescribeClientQuotas", components=[]))
    await client.put_all("AlterClientQuotas", request("AlterClientQuotas", entries=[]))
    await client.put_all("DescribeUserScramCredentials", request("DescribeUserScramCredentials", users=None))
    election = [part("ElectLeaders", "topic_partitions", topic="orders", partitions=[0])]
    await client.put_all("ElectLeaders", request("ElectLeaders", topic_partitions=election))
    move = [part("AlterPartitionReassignments", "topics.partitions", partition_index=0, replicas=[1])]
    moved = [part("AlterPartitionReassignments", "topics", name="orders", partitions=move)]
    await client.put_all("AlterPartitionReassignments", request("AlterPartitionReassignments", topics=moved))
    await client.put_all("ListPartitionReassignments", request("ListPartitionReassignments", topics=None))


async def delete(client: Tenant, other: str) -> None:
    names = ["absent", "nowhere", f"{other}.orders", f"{other}.x", "__groups", NOT_HERE]
    topics = [part("DeleteTopics", "topics", name=name) for name in names]
    (deleted,) = await client.put_all(
        "DeleteTopics", request("DeleteTopics", topics=topics, topic_names=names, timeout_ms=5000)
    )
    assert [row.name for row in deleted.responses] == names


async def test_no_byte_that_a_tenant_receives_names_another_one_or_its_own_prefix(node: tuple[Node, str]) -> None:
    at, address = node
    ids = [f"q{secrets.token_hex(8)}" for _ in range(3)]
    tokens = [at.tenant(tenant) for tenant in ids]
    over_http: list[Caller] = [at.caller(token) for token in tokens]
    assert over_http[2]("PUT", "/v1/topics/orders").status_code == 201
    clients = []
    for ask, token in zip(over_http[:2], tokens, strict=False):
        clients.append(client := await connect(address, token))
        assert ask("PUT", "/v1/topics/http").status_code == 201
        joined = ask("POST", "/v1/groups/h/heartbeat", {"topics": ["http"]}).json()
        assert joined["member_id"]
        assert (await client.put("DeleteTopics", request("DeleteTopics", topic_names=["http"]), 1)).responses[
            0
        ].error_code == 0
        assert ask("PUT", "/v1/topics/http").status_code == 201
    for client in clients:  # both have what the other one could see
        await client.put("DeleteTopics", request("DeleteTopics", topic_names=["http"]), 1)
        for use in (use_topics, use_records, use_groups, use_share_groups, use_rest):
            await use(client, ids[2])
    boss = await connect(address, at.boss)
    await boss.put("Metadata", request("Metadata", topics=None))
    assert len(boss.faults(*ids)) == 3, "the search finds what is there"
    for client, own, another in ((clients[0], ids[0], ids[1]), (clients[1], ids[1], ids[0])):
        await delete(client, ids[2])
        assert client.faults(another, f"{own}.", own) == []
        assert client.offered - client.asked == set(), "an API that the story leaves out"
    stored = {row.name for row in (await boss.put("Metadata", request("Metadata", topics=None))).topics}
    assert {f"{ids[0]}.orders", f"{ids[1]}.orders", f"{ids[2]}.orders"} <= stored
    for client in (*clients, boss):
        client.close()
