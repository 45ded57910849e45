"""The start counters: an older copy of a data directory counts as a new disk, and a crash condemns none."""

import asyncio
import copy
import errno
from collections.abc import Mapping

import pytest

from engine.errors import Corrupt, StartRefused
from engine.testing.recording_disk import RecordingDisk
from replication.cluster import agent as cluster_agent
from replication.cluster import membership
from replication.cluster.agent import ClusterAgent
from replication.cluster.keys import partition_name, starts_key
from replication.cluster.start_counter import (
    StartCounter,
    StartCounters,
    StoredStarts,
    load_start_counter,
    save_start_counter,
    starts_from_bytes,
    starts_to_bytes,
)
from replication.cluster.values import TopicEntry
from tests.replication.clusters import Cluster, leaders, states_of


class Disks:
    """The counters on the disks of one node; the first one's directory id is in its registration state."""

    def __init__(self, *directory_ids: str) -> None:
        self.kept = {one: StartCounter() for one in directory_ids}
        self.is_full = False

    async def save(self, counters: Mapping[str, StartCounter]) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.kept.update(counters)

    def load(self) -> StartCounters:
        return StartCounters(next(iter(self.kept)), self.kept, self.save)


async def start(cluster: Cluster, node_id: int, disks: Disks, url: str = "", **more: object) -> ClusterAgent:
    """Start a process of the node with what its disks have; memberships on its disk are from its first registration."""
    agent = cluster.agents[node_id] = cluster.agent(node_id, directory=next(iter(disks.kept)))
    own = agent.own
    own.starts = disks.load()
    own.url = url or own.url
    kept = getattr(disks, "registration", None)
    own.registration_state = kept or own.registration_state

    async def keep(state: object) -> None:
        disks.registration = state  # type: ignore[attr-defined]

    own.save_registration_state = keep
    for name, value in more.items():
        setattr(own, name, value)
    await agent.join_cluster()
    await agent.start()
    return agent


async def test_every_registration_counts_on_the_disk_and_in_the_store(alone):
    disks = Disks("d")
    one = await start(alone, 1, disks)
    assert disks.kept["d"].number == 1
    stored = starts_from_bytes("k", (await one.session.get(starts_key(1))).value)
    assert stored.counters["d"] == disks.kept["d"]
    await alone.expire(1)
    await alone.until(lambda: disks.kept["d"].number == 2 and one.member is not None)
    await alone.end(1)
    assert disks.kept["d"].number == 3, "so that a snapshot of the running node is an old copy"


def eligible(agent: ClusterAgent, topic: TopicEntry) -> list[list[int]]:
    return [[member.node_id for member in state.eligible] for state in states_of(agent, topic)]


async def leave_eligible(cluster: Cluster, others: ClusterAgent, partitions: int, **settings: object) -> TopicEntry:
    """Create a topic of two replicas, then end node 1, which has everything that can be committed meanwhile."""
    await cluster.until(lambda: len(others.view.nodes) == 2)
    topic, _ = await others.create_topic("t", partitions, 2, {"min_insync_replicas": 2, **settings})
    await cluster.end(1)
    await cluster.until(lambda: eligible(others, topic) == [[1]] * partitions)
    return topic


async def test_the_newest_disk_is_trusted(alone):
    disks = Disks("d")
    await start(alone, 1, disks)
    two = await alone.start(2)
    topic = await leave_eligible(alone, two, 3)
    one = await start(alone, 1, disks)
    assert one.own.registration_state.disk_from < one.member.broker_epoch
    await alone.until(lambda: 1 in two.view.registrations)
    await asyncio.sleep(0.1)
    assert eligible(two, topic) == [[1]] * 3


@pytest.mark.parametrize("has_counter", [True, False], ids=["older", "from before there were counters"])
async def test_an_older_copy_is_trusted_for_no_membership(alone, has_counter, caplog):
    disks = Disks("d")
    await start(alone, 1, disks)
    old = copy.deepcopy(disks)
    two = await alone.start(2)
    topic = await leave_eligible(alone, two, 3)
    if not has_counter:
        old.kept["d"] = StartCounter()
    one = await start(alone, 1, old)
    assert one.own.registration_state.disk_from == one.member.broker_epoch
    await alone.until(lambda: eligible(two, topic) == [[]] * 3)
    assert leaders(two, topic) == [2, 2, 2]
    assert any("older than the coordination store knows" in line.message for line in caplog.records)


async def test_a_former_disk_that_is_put_back_is_not_trusted_whatever_it_has_counted(alone):
    former, present = Disks("former"), Disks("present")
    await start(alone, 1, former)
    await alone.end(1)
    await start(alone, 1, present)
    await alone.end(1)
    one = await start(alone, 1, former)
    assert one.own.registration_state.disk_from == one.member.broker_epoch


async def test_only_the_partitions_of_an_older_further_directory_leave(alone):
    disks = Disks("d", "e")
    await start(alone, 1, disks)
    old = disks.kept["e"]
    two = await alone.start(2)
    topic = await leave_eligible(alone, two, 2)
    disks.kept["e"] = old
    on_e = frozenset({partition_name(topic.topic_id, 1)})
    one = await start(alone, 1, disks, partitions_in={"e": on_e})
    await alone.until(lambda: eligible(two, topic) == [[1], []])
    epoch = one.member.broker_epoch
    assert disks.kept["e"].known_from == epoch
    assert one.own.registration_state.disk_from < epoch
    await alone.end(1)
    one = await start(alone, 1, disks, partitions_in={"e": on_e})
    await alone.until(lambda: 1 in one.view.registrations)
    assert one.view.registrations[1].log_from == dict.fromkeys(on_e, epoch), "as long as the directory is there"


@pytest.mark.parametrize(
    "of_e", ["newest", "older too", "never counted", "too many partitions", "not fsynced", "not opened"]
)
async def test_of_an_older_first_directory_only_those_partitions_stay_that_another_disk_proves(
    alone, of_e, monkeypatch
):
    """Partition 0 is in the first directory, 1 in the other one, and the old list of topics does not have 2."""
    disks = Disks("d", "e")
    await start(alone, 1, disks)
    old = copy.deepcopy(disks)
    two = await alone.start(2)
    durability = "os" if of_e == "not fsynced" else "group"
    topic = await leave_eligible(alone, two, 3, durability=durability)
    disks.kept["d"], disks.registration = old.kept["d"], old.registration
    if of_e == "older too":
        disks.kept["e"] = old.kept["e"]
    elif of_e == "never counted":
        disks.kept["f"] = disks.kept.pop("e")
    elif of_e == "too many partitions":
        monkeypatch.setattr(membership, "LISTED_MAX", 0)
    on_e = frozenset({partition_name(topic.topic_id, 1)})
    found = {"": frozenset({partition_name(topic.topic_id, 0)}), "e": on_e, "f": on_e}
    unopened = on_e if of_e == "not opened" else frozenset()
    one = await start(alone, 1, disks, partitions_in=found, unopened=unopened)
    await alone.until(lambda: eligible(two, topic) == [[], [1] if of_e == "newest" else [], []])
    registration = two.view.registrations[1]
    assert registration.disk_from == registration.survives_from == one.member.broker_epoch
    if of_e == "newest":
        await alone.end(1)
        one = await start(alone, 1, disks, partitions_in=found)
        await alone.until(lambda: 1 in one.view.registrations)
        assert one.view.registrations[1].intact_from == dict.fromkeys(on_e, 0), "as long as the directory is there"
        assert one.view.registrations[1].disk_from == registration.disk_from


async def test_a_further_directory_with_very_many_partitions_condemns_the_node(alone, monkeypatch):
    monkeypatch.setattr(membership, "LISTED_MAX", 1)
    disks = Disks("d", "e")
    await start(alone, 1, disks)
    await alone.end(1)
    disks.kept["e"] = StartCounter()
    one = await start(alone, 1, disks, partitions_in={"e": frozenset({"a/0", "a/1"})})
    await alone.until(lambda: 1 in one.view.registrations)
    registration = one.view.registrations[1]
    assert registration.disk_from == registration.survives_from == one.member.broker_epoch
    assert not registration.log_from


def test_a_crash_between_the_two_writes_condemns_no_disk():
    before = StoredStarts("d", {"d": StartCounter(4, ("x",))})
    disks = Disks("d")
    disks.kept["d"] = StartCounter(4, ("x",))
    for nonce in ("y", "z"):  # two crashes before the store has it
        starts = disks.load()
        assert starts.older(before) == set()
        counted = asyncio.run(starts.count(before, nonce))
        assert disks.kept["d"].number == 5, "at most one ahead, so that no copy overtakes the disk by failing"
    assert disks.load().older(counted) == set()
    assert disks.load().older(before) == set()
    late = StoredStarts("d", {"d": StartCounter(5, ("y",))})
    assert disks.load().older(late) == set(), "the last request of a killed process arrives after its disk was read"


def test_of_two_copies_that_count_at_once_the_second_is_older():
    stored = StoredStarts("d", {"d": StartCounter(4, ("x",))})
    first, second = Disks("d"), Disks("d")
    first.kept["d"] = second.kept["d"] = StartCounter(4, ("x",))
    counted = asyncio.run(first.load().count(stored, "1"))
    asyncio.run(second.load().count(stored, "2"))
    assert first.load().older(counted) == set()
    assert second.load().older(counted) == {"d"}


def test_a_store_that_was_restored_from_old_data_condemns_no_disk_and_trusts_no_copy():
    disks = Disks("d")
    disks.kept["d"] = StartCounter(9, ("x",))
    restored = StoredStarts("d", {"d": StartCounter(3, ("y",))})
    assert disks.load().older(restored) == set()
    counted = asyncio.run(disks.load().count(restored, "z"))
    copied = Disks("d")
    copied.kept["d"] = StartCounter(5, ("w",))
    assert copied.load().older(counted) == {"d"}


async def test_a_full_disk_counts_nothing_and_registers(alone):
    disks = Disks("d")
    one = await start(alone, 1, disks)
    disks.is_full = True
    await alone.expire(1)
    await alone.until(lambda: one.member is not None and len(alone.listeners[1].members) == 2)
    assert disks.kept["d"].number == 1
    disks.is_full = False
    await alone.end(1)
    assert disks.kept["d"].number == 2


def test_a_full_disk_that_is_older_does_not_register():
    disks = Disks("d")
    disks.is_full = True
    with pytest.raises(OSError, match="No space"):
        asyncio.run(disks.load().count(StoredStarts("d", {"d": StartCounter(4, ("x",))}), "y"))


async def test_a_copy_that_starts_while_the_node_runs_is_refused(alone, monkeypatch):
    disks = Disks("d")
    await start(alone, 1, disks)
    snapshot = copy.deepcopy(disks)
    running = alone.agents.pop(1)
    member = running.member
    monkeypatch.setattr(membership.Membership, "_wait_until_expired", _at_once(membership.Membership))
    for url in ("http://elsewhere:1", "http://elsewhere:2"):  # at the same count, and at an older one
        with pytest.raises(StartRefused, match="node 1 runs at http://node1:8080 with a newer copy"):
            await start(alone, 1, snapshot, url=url)
        await running._active.membership.advance()
    assert running.member == member
    await running.stop()


def _at_once(kind: type) -> object:
    wait = kind._wait_until_expired

    async def shortly(self: membership.Membership) -> object:
        self._wait_s = 0.05
        return await wait(self)

    return shortly


async def test_a_process_whose_place_a_copy_has_taken_is_fenced(alone, monkeypatch):
    monkeypatch.setattr(cluster_agent, "RETRY_S", (0.01,))
    disks = Disks("d")
    first = await start(alone, 1, disks)
    snapshot = copy.deepcopy(disks)
    listener = alone.listeners[1]
    second = await start(alone, 1, snapshot)  # at the same address: the first one must be gone, as far as it knows
    await alone.until(lambda: listener.fenced)
    assert "another process runs as node 1" in str(listener.fenced[0])
    assert first.member is None
    assert second.member is not None
    await asyncio.sleep(0.1)
    assert len(listener.members) == 1, "it does not register again"
    await first.stop()


async def test_a_partition_that_is_distrusted_leaves_and_the_others_stay(alone):
    one, two = await alone.start_all(1, 2)
    topic, _ = await one.create_topic("t", 2, 2, {"min_insync_replicas": 2})
    epoch = one.member.broker_epoch
    one.distrust(topic.topic_id, 0)
    await alone.until(lambda: one.member is not None and one.member.broker_epoch > epoch)
    await alone.until(lambda: [m.node_id for m in states_of(two, topic)[0].in_sync] == [2])
    await alone.until(lambda: eligible(two, topic)[0] == [])
    assert leaders(two, topic)[0] == 2
    assert 1 in (*eligible(two, topic)[1], *(m.node_id for m in states_of(two, topic)[1].in_sync))


def test_what_is_on_the_disk_and_in_the_store():
    disk = RecordingDisk()
    disk.mkdir("/d")
    assert load_start_counter(disk, "/d") == StartCounter()
    for counter in (StartCounter(7, ("x",), 0), StartCounter(7, ("x",), None), StartCounter(8, ("y", "x"), 5)):
        save_start_counter(disk, "/d", counter)
        assert load_start_counter(disk, "/d") == counter
    starts = StoredStarts("d", {"d": StartCounter(1, ("x",)), "e": StartCounter(2, ("y",))})
    assert starts_from_bytes("/starts/1", starts_to_bytes(starts)) == starts
    with pytest.raises(Corrupt, match="/starts/1"):
        starts_from_bytes("/starts/1", b'{"first":1}')
