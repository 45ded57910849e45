"""A rebuilt store: written whole or continued, never over another one; and how nodes register in it."""

import itertools

import pytest

from engine.errors import StartRefused
from replication.cluster import membership
from replication.cluster.keys import CLUSTER, DELETED, NODES, STARTS, TOPICS, starts_key
from replication.cluster.producer_ids import KEY
from replication.cluster.registration_state import RegistrationState
from replication.cluster.standalone_import import can_import
from replication.cluster.start_counter import StartCounter, starts_from_bytes
from replication.cluster.values import ClusterIdentity, identity_from_bytes, identity_to_bytes
from replication.coordination.interface import Create, SessionLost
from replication.rebuild.inventory import StartInventory
from replication.rebuild.plan import Choices, plan_rebuild
from replication.rebuild.writing import write_plan
from tests.replication.cluster.test_start_counter import Disks, start
from tests.replication.clusters import leaders, states_of
from tests.replication.rebuild.test_plan import log, node, topic

SAME = log((1, 0), (4, 6), end=9, watermark=9)
EARLIER = 10**6  # a broker epoch of the lost store


def ids():
    return iter(f"{number:032x}" for number in itertools.count(1)).__next__


def rebuilt(*node_ids: int, markers: tuple[str, ...] = ()):
    nodes = []
    for node_id in node_ids:
        starts = {name: StartInventory(number=5, nonce="n") for name in (f"d{node_id}", f"more{node_id}")}
        gone = topic(SAME, name="gone")
        nodes.append(node(node_id, topic(SAME, SAME, replication_factor=2), gone, starts=starts))
    return plan_rebuild(nodes, Choices(markers=markers))


def disks_of(node_id: int, number: int = 5, known_from: int = 0) -> Disks:
    disks = Disks(f"d{node_id}", f"more{node_id}")
    disks.kept = {name: StartCounter(number, ("n",), known_from) for name in disks.kept}
    disks.registration = RegistrationState(EARLIER, EARLIER, f"d{node_id}")
    return disks


async def test_nodes_register_as_intact_and_lead_the_epochs_after(alone):
    """Before: broker epochs of the lost store are above all of the new one, so every disk counted as new."""
    session = await alone.coordination.session()
    await write_plan(session, rebuilt(1, 2), ids(), 1)
    disks = disks_of(1, known_from=EARLIER)
    partitions_in = {"more1": frozenset({"id-t/1"})}
    one = await start(alone, 1, disks, partitions_in=partitions_in)
    two = await start(alone, 2, disks_of(2))
    topic_t = next(t for t in one.view.topics.values() if t.name == "t")
    await alone.until(lambda: sorted(leaders(two, topic_t), key=str) in ([1, 1], [1, 2]))
    created = (await session.get(CLUSTER)).created
    assert disks.registration == RegistrationState(created, created, "d1")
    assert one.own.log_from == {}
    for state in states_of(one, topic_t):
        assert {member.node_id for member in (*state.in_sync, *state.eligible)} == {1, 2}
        assert (state.leader_epoch, state.unclean_elections) == (4 + 1000 + 1, 0)
    assert not starts_from_bytes("k", (await session.get(starts_key(1))).value).is_rebuilt
    assert disks.kept["d1"].number == 6
    await alone.end(1)
    again = await start(alone, 1, disks)
    assert again.own.registration_state.disk_from == created


async def test_a_copy_that_was_put_back_after_the_rebuild_counts_as_a_new_disk(alone):
    await write_plan(await alone.coordination.session(), rebuilt(1, 2), ids(), 1)
    disks = disks_of(1, number=4)
    one = await start(alone, 1, disks)
    assert disks.registration.disk_from == one.member.broker_epoch


async def test_a_power_loss_since_then_counts(alone):
    session = await alone.coordination.session()
    await write_plan(session, rebuilt(1, 2), ids(), 1)
    disks = disks_of(1)
    disks.registration = RegistrationState(EARLIER, None, "d1")
    one = await start(alone, 1, disks)
    created = (await session.get(CLUSTER)).created
    assert disks.registration == RegistrationState(created, one.member.broker_epoch, "d1")


async def test_a_directory_that_the_rebuild_did_not_see_is_refused_and_a_new_one_is_not(alone):
    await write_plan(await alone.coordination.session(), rebuilt(1, 2), ids(), 1)
    with pytest.raises(StartRefused, match="rebuilt without the data directory of node 3"):
        await start(alone, 3, disks_of(3))
    disks = Disks("new")
    await start(alone, 3, disks)
    await alone.end(3)
    await start(alone, 3, disks)


async def test_it_continues_after_an_interruption_at_any_commit(alone):
    session = await alone.coordination.session()
    plan, commit = rebuilt(1, 2, markers=("id-gone",)), session.commit
    done = 0

    async def killed(*operations):
        nonlocal done
        if done == 0:
            raise SessionLost("killed")
        done -= 1
        await commit(*operations)

    session.commit = killed
    for allowed in range(2):
        done = allowed
        with pytest.raises(SessionLost):
            await write_plan(session, plan, ids(), 1)
        found = await session.get(CLUSTER)
        assert found is None or identity_from_bytes(CLUSTER, found.value).is_claimed
    session.commit = commit
    await write_plan(session, plan, ids(), 1)
    assert await session.children(TOPICS) == ["t"]
    assert await session.children(DELETED) == ["id-gone"]
    assert await session.children(STARTS) == ["1", "2"]
    assert int((await session.get(KEY)).value) == plan.producer_ids_end
    assert not identity_from_bytes(CLUSTER, (await session.get(CLUSTER)).value).is_claimed
    with pytest.raises(StartRefused, match="nothing is written over it"):
        await write_plan(session, plan, ids(), 1)


@pytest.mark.parametrize("key", [f"{TOPICS}/left", f"{STARTS}/9", f"{NODES}/1"])
async def test_a_store_that_is_not_empty_is_refused(alone, key):
    session = await alone.coordination.session()
    await session.commit(Create(key, b"{}"))
    with pytest.raises(StartRefused):
        await write_plan(session, rebuilt(1, 2), ids(), 1)
    assert await session.get(CLUSTER) is None


async def test_nodes_wait_for_a_rebuild_that_is_not_finished_and_name_the_command(alone, monkeypatch):
    monkeypatch.setattr(membership, "IMPORT_S", 0.01)
    session = await alone.coordination.session()
    claimed = ClusterIdentity("c", "secret", True, True)
    await session.commit(Create(CLUSTER, identity_to_bytes(claimed)))
    with pytest.raises(StartRefused, match="rebuild of cluster c was not finished") as caught:
        await start(alone, 1, disks_of(1))
    assert "penstock coordination rebuild" in caught.value.hint
    created = (await session.get(CLUSTER)).created
    assert not await can_import(session, "c", False, created), "broker epochs of two stores may be equal by chance"
