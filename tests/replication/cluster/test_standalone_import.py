"""The import of a standalone directory into a cluster is atomic, and no other node interferes."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from engine.directory.topics import TopicRecord
from engine.errors import StartRefused
from replication.cluster import membership
from replication.cluster.keys import CLUSTER, TOPICS, topic_key
from replication.cluster.producer_ids import StoredBlocks
from replication.cluster.registration_state import RegistrationState
from replication.cluster.standalone_import import StandaloneImport, can_import
from replication.coordination.interface import CommitUnknown, Create, Session
from tests.replication.clusters import Cluster, leaders, states_of
from tests.replication.coordinations import embedded, zookeeper

STORES = {"embedded": embedded, "zookeeper": zookeeper}
SETTINGS = {"retention_ms": 10**9}
TOPICS_OF_1 = [TopicRecord("big", "a" * 32, 250, overrides=SETTINGS, created_ms=7), TopicRecord("t", "b" * 32, 1)]
EPOCHS = {("b" * 32, 0): 5}


@pytest.fixture(params=STORES)
async def cluster(request, tmp_path) -> AsyncIterator[Cluster]:
    async with STORES[request.param](tmp_path, request) as coordination:
        made = Cluster(coordination)
        yield made
        await made.stop()


def new_id() -> str:
    return "5" * 32


async def import_topics(
    session: Session, topics: list[TopicRecord] = TOPICS_OF_1, until: str = "the end"
) -> StandaloneImport:
    imported = StandaloneImport(session, "blue")
    await imported.claim(new_id)
    if until != "the claim":
        await imported.write(1, topics, EPOCHS, 3000)
    if until == "the end":
        await imported.finish()
    return imported


async def test_the_topics_are_there_and_are_led_by_the_node_that_brought_them(cluster):
    session = await cluster.coordination.session()
    assert await can_import(session, "blue", True)
    assert not await can_import(session, "blue", False), "it was in a cluster: the store was wiped"
    imported = await import_topics(session)
    assert not await can_import(session, "blue", True)
    one = cluster.agents[1] = cluster.agent(1)
    one.own.registration_state = RegistrationState(imported.broker_epoch, imported.broker_epoch, "directory 1")
    assert (await one.join_cluster("blue", "blue")).cluster_id == "blue"
    await one.start(EPOCHS)
    big, small = await one.find_topic("big"), await one.find_topic("t")
    assert (big.topic_id, big.partitions, big.replication_factor, big.config) == ("a" * 32, 250, 1, SETTINGS)
    await cluster.until(lambda: leaders(one, big) == [1] * 250 and leaders(one, small) == [1])
    assert states_of(one, small)[0].leader_epoch == 6, "no epoch that the log knows is given out again"
    assert (await StoredBlocks(session).take()).start == 3000


async def test_another_disk_than_the_one_that_was_adopted_does_not_lead(cluster):
    await import_topics(await cluster.coordination.session())
    one = await cluster.start(1)
    topic = await one.find_topic("t")
    await cluster.until(lambda: states_of(one, topic)[0].in_sync == ())
    assert leaders(one, topic) == [None]


@pytest.mark.parametrize("until", ["the claim", "the writing"])
async def test_what_was_interrupted_is_done_again_by_its_directory_alone(cluster, until, monkeypatch):
    monkeypatch.setattr(membership, "IMPORT_S", 0.05)
    session = await cluster.coordination.session()
    first = await import_topics(session, until=until)
    with pytest.raises(StartRefused, match="into cluster blue was not finished"):
        await cluster.agent(2).join_cluster()
    with pytest.raises(StartRefused, match="is that of cluster blue"):
        await StandaloneImport(session, "red").claim(new_id)
    assert await can_import(session, "blue", True)
    noted = first.broker_epoch
    assert await can_import(session, "blue", False, noted), (
        "its last step in the directory is before the last in the store"
    )
    assert not await can_import(session, "blue", False, noted + 1), "it has been in another cluster since"
    assert not await can_import(session, "red", True)
    meanwhile = [TopicRecord("t", "b" * 32, 1, overrides=SETTINGS), TopicRecord("new", "c" * 32, 1)]
    again = await import_topics(session, meanwhile)
    assert again.broker_epoch == first.broker_epoch
    assert await session.children(TOPICS) == ["new", "t"]
    two = await cluster.start(2)
    assert {name: topic.config for name, topic in two.view.topics.items()} == {"new": {}, "t": SETTINGS}
    assert len(two.view.states) == 2


async def test_who_comes_meanwhile_waits_for_the_end(cluster):
    session = await cluster.coordination.session()
    imported = await import_topics(session, until="the writing")
    joining = asyncio.create_task(cluster.agent(2).join_cluster())
    await asyncio.sleep(0.05)
    assert not joining.done()
    await imported.finish()
    assert (await joining).cluster_id == "blue"
    await cluster.coordination.expire(cluster.sessions[2][0])


async def test_a_store_that_was_wiped_in_part_is_left_alone(cluster):
    session = await cluster.coordination.session()
    await session.commit(Create(topic_key("t"), b"{}"))
    with pytest.raises(StartRefused, match="topics and no cluster"):
        await import_topics(session)
    assert await session.get(CLUSTER) is None


async def test_a_commit_whose_answer_was_lost_is_looked_for(cluster, monkeypatch):
    session = await cluster.coordination.session()
    commit = session.commit

    async def forgetful(*operations):
        await commit(*operations)
        raise CommitUnknown("the answer was lost")

    monkeypatch.setattr(session, "commit", forgetful)
    await import_topics(session)
    assert await session.children(TOPICS) == ["big", "t"]
    assert not await can_import(session, "blue", True)
