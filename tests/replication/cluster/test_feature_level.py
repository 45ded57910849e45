"""The feature level of a cluster: raised last and by command, never lowered, and a bound for what nodes write."""

import asyncio
import json
import re
import uuid
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from engine.errors import Corrupt, InvalidConfig, InvalidTopicName
from loadtests.cluster.zookeeper import START_S
from node.commands.coordination import coordination
from replication.cluster.feature_level import LEVEL_MAX, level_of_topic, raise_level, read_level
from replication.cluster.keys import CLUSTER, NODES, topic_key
from replication.cluster.values import (
    ClusterIdentity,
    identity_from_bytes,
    identity_to_bytes,
    node_to_bytes,
    topic_from_bytes,
)
from replication.coordination.interface import Create, Put
from replication.coordination.zookeeper import Address, ZookeeperSession
from tests.replication.cluster.test_values import NODE
from tests.replication.coordinations import SESSION_TIMEOUT_MS

LONG_NAMES = ("n" * 201, "__debezium-heartbeat.x")


async def set_level(session, level: int) -> None:
    """Make the cluster one of an older version, or of a newer one."""
    seen = await session.get(CLUSTER)
    identity = identity_from_bytes(CLUSTER, seen.value)
    await session.commit(Put(CLUSTER, identity_to_bytes(identity.at_level(level)), seen.version))


async def test_a_new_cluster_begins_with_all_that_its_version_has(alone):
    one, _ = await alone.start_all(1, 2)
    identity, nodes = await read_level(one.session)
    assert identity.level == LEVEL_MAX
    assert [node.level for node in nodes] == [LEVEL_MAX, LEVEL_MAX]
    for name in LONG_NAMES:
        await one.create_topic(name, 1, 1, {})


async def test_until_the_level_is_raised_nothing_is_made_that_the_older_version_does_not_know(cluster):
    one, _ = await cluster.start_all(1, 2)
    await set_level(one.session, 1)
    await one.create_topic("n" * 200, 1, 1, {})
    await one.create_topic("__groups", 1, 1, {})
    for name in LONG_NAMES:
        with pytest.raises(InvalidTopicName, match="needs feature level 2, and the cluster has 1") as refused:
            await one.create_topic(name, 1, 1, {})
        assert "feature-level --raise-to 2" in refused.value.hint
    assert await raise_level(one.session, 2) == []
    assert await raise_level(one.session, 2) == [], "repeated"
    for name in LONG_NAMES:
        await one.create_topic(name, 1, 1, {})


async def test_until_the_level_is_raised_no_topic_has_a_setting_that_the_older_version_does_not_know(cluster):
    one, _ = await cluster.start_all(1, 2)
    await set_level(one.session, 1)
    described = {"retention_ms": 100000, "value_schema": "", "value_schema_version": 1, "trace_headers": "sampled"}
    described |= {"value_schema_type": "none", "value_schema_subject": ""}
    await one.create_topic("copied", 1, 1, described)
    await one.alter_topic("copied", {**described, "retention_ms": 200000}, None)
    stored = await one.session.get_latest(topic_key("copied"))
    assert topic_from_bytes("", stored.value).config == {"retention_ms": 200000}
    refused = pytest.raises(InvalidConfig, match="value_schema needs feature level 2, and the cluster has 1")
    with refused:
        await one.create_topic("typed", 1, 1, {"value_schema": "{}"})
    with refused as with_hint:
        await one.alter_topic("copied", {"value_schema": "{}"}, None)
    assert "feature-level --raise-to 2" in with_hint.value.hint
    with pytest.raises(InvalidConfig, match="trace_headers needs feature level 2"):
        await one.create_topic("untraced", 1, 1, {"trace_headers": "none"})
    await raise_level(one.session, 2)
    await one.create_topic("typed", 1, 1, {"value_schema": "{}"})
    await one.alter_topic("copied", {"value_schema": "{}"}, None)


async def test_a_node_of_an_older_version_holds_the_level_back_by_its_name(alone):
    (one,) = await alone.start_all(1)
    await set_level(one.session, 1)
    older = replace(NODE, node_id=7, version="0.1.0", level=1)
    assert b"level" not in node_to_bytes(older), "as the version before this one writes it"
    await one.session.commit(Create(f"{NODES}/7", node_to_bytes(older)))
    with pytest.raises(InvalidConfig, match=r"level 2 is not served by node 7 \(0\.1\.0\)"):
        await raise_level(one.session, 2)
    assert (await read_level(one.session))[0].level == 1


@pytest.mark.parametrize(("level", "match"), [(1, "never lowered"), (0, "never lowered"), (99, "does not exist")])
async def test_a_level_is_not_lowered_and_none_is_invented(alone, level, match):
    (one,) = await alone.start_all(1)
    with pytest.raises(InvalidConfig, match=match):
        await raise_level(one.session, level)
    assert (await read_level(one.session))[0].level == LEVEL_MAX


async def test_a_node_that_does_not_serve_the_level_does_not_start(alone):
    (one,) = await alone.start_all(1)
    await set_level(one.session, LEVEL_MAX + 1)
    with pytest.raises(Corrupt, match=f"has feature level {LEVEL_MAX + 1}, and this version .* to {LEVEL_MAX} "):
        await alone.start(2)
    with pytest.raises(Corrupt, match="feature level"):
        await raise_level(one.session, LEVEL_MAX)


def test_the_key_of_level_1_is_what_the_first_version_wrote():
    value = b'{"cluster_id":"c","secret":"s","format":1}'
    identity = identity_from_bytes(CLUSTER, value)
    assert (identity.level, identity_to_bytes(identity)) == (1, value)
    assert identity.rotated("new").level == 1


@pytest.mark.parametrize(
    ("name", "level"), [("n" * 200, 1), ("n" * 201, 2), ("_n", 1), ("__n", 2), ("__groups", 1), ("n__", 1)]
)
def test_a_name_needs_the_level_of_the_versions_that_know_it(name, level):
    assert level_of_topic(name) == level


def test_the_command_shows_the_level_and_raises_it(zookeeper_server):
    address = Address(f"127.0.0.1:{zookeeper_server.port}", f"/{uuid.uuid4().hex}")

    async def put_an_older_cluster() -> None:
        session = await ZookeeperSession.open(
            address, session_timeout_ms=SESSION_TIMEOUT_MS, new_id=lambda: uuid.uuid4().hex, start_s=START_S
        )
        await session.commit(Create(CLUSTER, identity_to_bytes(ClusterIdentity("c", "s", level=1))))
        await session.close()

    def run(*flags: str) -> Result:
        place = ["--coordination", f"zookeeper://{address.hosts}{address.root}"]
        return CliRunner().invoke(coordination, ["feature-level", *place, *flags])

    asyncio.run(put_an_older_cluster())
    assert json.loads(run("--json").stdout) == {"cluster_id": "c", "feature_level": 1, "nodes": []}
    assert "feature level 2" in re.sub(" +", " ", run("--raise-to", "2").stdout)
    refused = run("--raise-to", "1")
    assert refused.exit_code == 1
    assert "never lowered" in refused.stderr
