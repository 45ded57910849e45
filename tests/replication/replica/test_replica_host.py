"""Replicas of several nodes: records of one are copied to the others, through changes of leader, stops and absences."""

import asyncio
import errno
import logging
import shutil
from dataclasses import replace
from typing import Any

import pytest

from engine.errors import EngineError, StorageFailed, StorageFull, TooManyOpenFiles
from engine.log import truncation
from engine.partition.partition import Partition
from engine.partition.reader import Reader
from engine.runtime.tasks import failures
from replication.cores.role import Lead
from replication.errors import LeadershipLost, NotEnoughReplicas, NotLeader
from replication.replica import follower as following
from replication.replica import replica as replica_module
from replication.replica.acks import Acks
from tests.replication.hosts import LIMITS, batch_of, hosts
from tests.waiting import until


async def test_what_is_acknowledged_by_all_is_on_every_disk_byte_for_byte(three, monkeypatch):
    assert await three[1].produce(b"a", b"b") == 0, "the first fetches begin the cache of the leader"
    monkeypatch.delattr(Reader, "read_uncommitted_nowait")
    assert await three[1].produce(b"c") == 2
    monkeypatch.undo()
    for number in (1, 2, 3):
        assert three[number].values() == [b"a", b"b", b"c"]
        assert three[number].partition().durable_end == 3
        assert three[number].stored_bytes() == three[1].stored_bytes()
    await until(lambda: all(three[number].partition().high_watermark == 3 for number in (2, 3)))
    assert three[1].replica().in_sync == [1, 2, 3]


async def test_acks_all_waits_for_every_replica_in_sync_and_acks_1_for_none(three):
    await three.stop(3)
    assert await three[1].produce(b"a", acks=Acks.LEADER) == 0
    waiting = asyncio.ensure_future(three[1].produce(b"b"))
    await until(lambda: three[2].partition().log_end == 2)
    await asyncio.sleep(0.05)
    assert not waiting.done(), "3 may be elected: the store counts it as in sync"
    three.leave_out(3)
    assert await waiting == 1


async def test_a_follower_that_was_left_behind_is_left_out_and_taken_in_again(tmp_path):
    limits = replace(LIMITS, lag_s_max=0.4)
    async with hosts(tmp_path, limits=limits) as cluster:
        await cluster.create_topic()
        cluster.elect(1)
        await until(lambda: cluster[1].replica().is_leading)
        await cluster.stop(3)
        assert await cluster[1].produce(b"a") == 0, "once 3 has missed its time"
        await until(lambda: cluster[1].replica().in_sync == [1, 2])
        await cluster.start(3)
        await until(lambda: cluster[1].replica().in_sync == [1, 2, 3])
        assert cluster[3].values() == [b"a"]


async def test_followers_are_refused_by_name_of_the_leader(three):
    await until(lambda: three[2].replica().state is not None)
    with pytest.raises(NotLeader) as refused:
        three[2].replica().append(batch_of(b"x"), Acks.LEADER)
    assert refused.value.members == {"leader": 1}
    assert refused.value.no_side_effects


async def test_too_few_in_sync_are_refused_before_the_append(three):
    three.leave_out(2)
    three.leave_out(3)
    with pytest.raises(NotEnoughReplicas):
        three[1].replica().append(batch_of(b"x"), Acks.ALL)
    assert three[1].partition().log_end == 0
    assert await three[1].produce(b"y", acks=Acks.LEADER) == 0


async def test_a_new_leader_has_the_epoch_and_everything_and_the_others_follow_it(three):
    await three[1].produce(b"a")
    three.elect(2)
    await until(lambda: three[2].replica().is_leading)
    assert await three[2].produce(b"b") == 1
    assert three[1].replica().role.leader_epoch == 2  # type: ignore[union-attr]
    for number in (1, 2, 3):
        assert three[number].values() == [b"a", b"b"]
        assert [tuple(one) for one in three[number].partition().log.epochs] == [(1, 0), (2, 1)]


async def test_records_that_a_new_leader_never_had_are_cut_off(three):
    await three[1].produce(b"a")
    three.hold_fetches()
    lost = asyncio.ensure_future(three[1].produce(b"lost 1", b"lost 2"))
    await until(lambda: three[1].partition().log_end == 3)
    assert three[1].host.caches.size_bytes > 0
    three.elect(2, in_sync=(2, 3))
    assert three[1].host.caches.size_bytes == 0
    with pytest.raises(LeadershipLost) as error:
        await lost
    assert not error.value.no_side_effects
    three.let_fetches_go()
    await until(lambda: three[2].replica().is_leading)
    assert await three[2].produce(b"b") == 1
    await until(lambda: three[2].replica().in_sync == [1, 2, 3])
    assert await three[2].produce(b"c") == 2
    for number in (1, 2, 3):
        assert three[number].values() == [b"a", b"b", b"c"]
        assert three[number].stored_bytes() == three[2].stored_bytes()


async def test_a_leader_that_wrote_nothing_is_not_said_to_be_cut_back(three, caplog):
    await three[1].produce(b"a", acks=Acks.ALL)
    three.elect(2)
    await until(lambda: three[2].replica().is_leading)
    three.elect(1)
    await until(lambda: three[1].replica().is_leading)
    await three[1].produce(b"b", acks=Acks.ALL)
    assert [line.message for line in caplog.records if "cut back" in line.message] == []


@pytest.mark.parametrize("where", ["on the disk", "in memory"])
async def test_a_node_that_cannot_become_leader_for_an_unforeseen_reason_is_replaced(three, monkeypatch, where):
    """Before the fix its task ended silently, and the partition had no leader while the node ran."""
    failures.clear()
    if where == "on the disk":
        monkeypatch.setattr(three[2].shard, "start_epoch", a_bug)
    else:
        monkeypatch.setattr("replication.replica.replica.Leader", a_bug)
    three.elect(2)
    await until(lambda: three[2].offline == [(three.topic_id, 0)])
    assert not three[2].replica().is_leading
    assert failures["becoming leader"] == 1
    monkeypatch.undo()
    three.elect(3)
    await until(lambda: three[3].replica().is_leading)
    assert await three[3].produce(b"a") == 0


def a_bug(*_: object, **__: object) -> None:
    raise KeyError("a bug")


async def test_what_was_queued_when_leadership_ended_is_refused_for_certain(three):
    replica = three[1].replica()
    queued = replica.produce(batch_of(b"x"), Acks.ALL, 5000)
    three.elect(2)
    with pytest.raises(NotLeader) as error:
        await queued
    assert error.value.no_side_effects
    await until(lambda: three[2].replica().is_leading)
    assert await three[2].produce(b"y") == 0
    assert three[1].values() == [b"y"]
    assert three[1].shard.committer.queued_bytes == 0


async def test_long_polls_are_woken_when_the_leader_changes(three):
    poll = three[1].partition().watermark.polls.wait_for(1)
    three.elect(2)
    assert await asyncio.wait_for(poll, 60) == 0


async def test_a_lost_session_ends_leading_before_anything_else(three):
    waiting = three[1].replica().append(batch_of(b"x"), Acks.LEADER)
    three[1].host.on_session_lost()
    assert not three[1].replica().is_leading
    with pytest.raises(NotLeader):
        await waiting
    with pytest.raises(NotLeader):
        three[1].replica().produce(batch_of(b"x"), Acks.NONE, 0)


async def test_a_follower_that_was_restarted_continues_and_is_in_sync_again(three):
    await three[1].produce(b"a")
    await three.stop(3)
    three.leave_out(3)
    await three[1].produce(b"b")
    await three.start(3)
    await until(lambda: three[1].replica().in_sync == [1, 2, 3])
    assert three[3].values() == [b"a", b"b"]
    assert await three[1].produce(b"c") == 2
    assert three[3].values()[-1] == b"c"


async def test_a_leader_that_was_restarted_waits_for_an_election(three):
    await three[1].produce(b"a")
    node = await three.restart(1)
    await asyncio.sleep(0.05)
    assert not node.replica().is_leading, "the state names its earlier life"
    three.elect(1)
    await until(lambda: node.replica().is_leading)
    assert node.replica().role == Lead(2)
    assert await node.produce(b"b") == 1
    assert three[2].values() == [b"a", b"b"]


async def test_a_follower_behind_the_leaders_log_start_begins_there(three):
    await three.stop(3)
    three.leave_out(3)
    await three[1].produce(b"a", b"b", b"c", b"d")
    await three[1].produce(b"e")
    await three[1].shard.delete_before(three[1].partition(), 4)
    await three.start(3)
    await until(lambda: three[1].replica().in_sync == [1, 2, 3])
    assert three[3].partition().log.log_start == 4
    assert three[3].values() == [b"e"]
    assert await three[1].produce(b"f") == 5
    assert three[3].values() == [b"e", b"f"]


async def test_an_interrupted_reset_is_repeated_and_loses_nothing(three, monkeypatch, caplog):
    await three[1].produce(b"a")
    await three.stop(3)
    three.leave_out(3)
    three.elect(2)
    await until(lambda: three[2].replica().is_leading)
    await three[2].produce(b"b", b"c", b"d")
    await three[2].produce(b"e")
    await three[2].shard.delete_before(three[2].partition(), 4)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space is left")

    with monkeypatch.context() as patch:
        patch.setattr(truncation, "save_epochs", full)  # the last step of becoming leader
        await three.start(3)
        await until(lambda: three[3].partition().offline)
    await three.restart(3)
    await until(lambda: three[2].replica().in_sync == [1, 2, 3])
    assert three[3].values() == [b"e"]
    assert [line.message for line in caplog.records if "committed records are truncated" in line.message] == []


async def test_deleted_records_are_deleted_on_followers_too(three):
    await three[1].produce(b"a", b"b")
    await three[1].produce(b"c")
    await three[1].shard.delete_before(three[1].partition(), 2)
    await until(lambda: three[2].partition().log.log_start == three[3].partition().log.log_start == 2)


async def test_a_leader_whose_disk_fails_steps_down_and_says_so(three):
    waiting = asyncio.ensure_future(three[1].produce(b"a"))
    await asyncio.sleep(0)
    three[1].partition().go_offline(StorageFailed("the disk is gone"))
    with pytest.raises(EngineError):
        await waiting
    assert not three[1].replica().is_leading
    assert three[1].offline == [(three.topic_id, 0)]
    three.elect(2, in_sync=(2, 3))
    await until(lambda: three[2].replica().is_leading)
    await three[2].produce(b"b")
    with pytest.raises(NotLeader):
        three[1].replica().append(batch_of(b"x"), Acks.LEADER)
    three[1].register()
    assert three[1].offline == [(three.topic_id, 0)] * 2, "a new registration starts without it"


async def test_who_cannot_begin_to_lead_lets_another(three, monkeypatch):
    async def failed(partition: Partition, epoch: int) -> None:
        raise StorageFailed("the disk is gone")

    monkeypatch.setattr(three[2].shard, "start_epoch", failed)
    three.elect(2)
    await until(lambda: three[2].offline == [(three.topic_id, 0)])
    assert not three[2].replica().is_leading
    three.elect(3, in_sync=(1, 3))
    await until(lambda: three[3].replica().is_leading)
    assert await three[3].produce(b"a") == 0


@pytest.mark.parametrize("refusal", [StorageFull, TooManyOpenFiles])
async def test_who_has_no_room_to_begin_leads_once_there_is_some(three, monkeypatch, refusal):
    monkeypatch.setattr(replica_module, "NO_ROOM_S", 0.01)
    begin, tries, is_full = three[2].shard.start_epoch, [], True

    async def full(partition: Partition, epoch: int) -> None:
        tries.append(epoch)
        if is_full:
            raise refusal("no room is left")
        await begin(partition, epoch)

    monkeypatch.setattr(three[2].shard, "start_epoch", full)
    three.elect(2)
    await until(lambda: len(tries) >= 3)
    with pytest.raises(NotLeader, match="is becoming the leader") as refused:
        three[2].replica().append(batch_of(b"x"), Acks.ALL)
    assert refused.value.retryable
    three.elect(2)
    await until(lambda: len([epoch for epoch in tries if epoch == 3]) >= 3)
    before = tries.count(2)
    await until(lambda: tries.count(3) >= 6)
    assert tries.count(2) == before, "that leadership is over"
    is_full = False
    await until(lambda: three[2].replica().is_leading)
    assert three[2].offline == []
    assert await three[2].produce(b"a") == 0


async def test_a_follower_with_a_full_disk_logs_it_once_and_when_it_follows_again(three, monkeypatch, caplog):
    monkeypatch.setattr(following, "AFTER_ERROR_S", 0.01)
    caplog.set_level(logging.INFO, "penstock.replication")
    append, tries, is_full = three[2].shard.committer.append_as_follower, 0, True

    def full(*arguments: Any, **how: Any) -> Any:
        nonlocal tries
        tries += 1
        if is_full:
            raise StorageFull("no space is left")
        return append(*arguments, **how)

    def logged_count(message: str) -> int:
        return sum(line.message == message for line in caplog.records)

    monkeypatch.setattr(three[2].shard.committer, "append_as_follower", full)
    await three[1].produce(b"a", acks=Acks.LEADER)
    await until(lambda: tries >= 5)
    assert (logged_count("following failed"), logged_count("following resumed")) == (1, 0)
    is_full = False
    await until(lambda: three[2].partition().log_end == three[1].partition().log_end)
    await until(lambda: logged_count("following resumed") == 1)


async def test_a_partition_that_is_closed_is_not_offline(three):
    await three[1].shard.close_topic("t")
    assert three[1].offline == []
    assert list(three[1].host.replicas()) == []


async def test_idle_partitions_are_asked_for_once(tmp_path):
    async with hosts(tmp_path, nodes=2) as cluster:
        await cluster.create_topic(partitions=200)
        for number in range(200):
            cluster.elect(1, number=number)
        await until(lambda: all(cluster[1].replica(number).is_leading for number in range(200)))
        (fetcher,) = cluster[2].host._fetchers.values()
        await cluster[1].produce(b"a", number=7)
        rounds, asked = fetcher.rounds, fetcher.fetched_partitions
        await until(lambda: fetcher.rounds >= rounds + 3)
        assert fetcher.fetched_partitions - asked <= 4, "of the one that was written to; the others have nothing to say"
        assert fetcher.fetched_partitions < 3 * 200
        await cluster[1].produce(b"b", number=8)
        assert cluster[2].values(8) == [b"b"]


async def test_many_partitions_are_copied_in_one_round(tmp_path):
    async with hosts(tmp_path, nodes=2) as cluster:
        await cluster.create_topic(partitions=50)
        for number in range(50):
            cluster.elect(1, number=number)
        await until(lambda: all(cluster[1].replica(number).is_leading for number in range(50)))
        (fetcher,) = cluster[2].host._fetchers.values()
        rounds = fetcher.rounds
        await asyncio.gather(*(cluster[1].produce(b"a", number=number) for number in range(50)))
        assert fetcher.rounds - rounds < 25


async def test_a_leader_that_is_not_there_is_tried_again(three):
    listener = three[1].listener
    await listener.close()
    waiting = asyncio.ensure_future(three[1].produce(b"a"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    three[1].listener = type(listener)(listener._credentials, {}, three[1]._answer)
    await three[1].listener.open("127.0.0.1", int(three[1].url.rsplit(":", 1)[1]))
    assert await waiting == 0


async def test_a_follower_keeps_committed_records_that_its_leader_lacks_and_the_leader_steps_down(tmp_path, caplog):
    """Node 2 comes back with an old copy, which nothing else has shown."""
    async with hosts(tmp_path) as cluster:
        await cluster.create_topic()
        cluster.elect(1)
        await until(lambda: cluster[1].replica().is_leading)
        await cluster[1].produce(b"a")
        await until(lambda: all(cluster[n].partition().high_watermark == 1 for n in (2, 3)))
        await cluster.stop(2)
        shutil.copytree(tmp_path / "2", tmp_path / "old")
        await cluster.start(2)
        cluster.elect(1)
        await until(lambda: cluster[1].replica().is_leading)
        await cluster[1].produce(b"b", b"c")
        await until(lambda: all(cluster[n].partition().high_watermark == 3 for n in (1, 2, 3)))
        await cluster.stop(2)
        shutil.rmtree(tmp_path / "2")
        shutil.move(tmp_path / "old", tmp_path / "2")
        await cluster.start(2)
        cluster.elect(2, in_sync=[1, 2, 3])
        await until(lambda: cluster[2].distrusted)
        assert cluster[2].distrusted == [(cluster.topic_id, 0)]
        assert not cluster[2].replica().is_leading
        cluster.elect(1, in_sync=[1, 3])
        await until(lambda: cluster[2].values() == [b"a", b"b", b"c"])
        assert [cluster[n].values() for n in (1, 3)] == [[b"a", b"b", b"c"]] * 2
        assert any("lacks committed records that a follower has" in line.message for line in caplog.records)


async def test_a_follower_that_is_no_member_keeps_committed_records_and_says_so_once(tmp_path, caplog):
    async with hosts(tmp_path, 2) as cluster:
        await cluster.create_topic(min_insync_replicas=1)
        await cluster.stop(1)
        shutil.copytree(tmp_path / "1", tmp_path / "old")
        await cluster.start(1)
        cluster.elect(1, in_sync=[1, 2])
        await until(lambda: cluster[1].replica().is_leading)
        await cluster[1].produce(b"a", b"b")
        await until(lambda: cluster[2].partition().high_watermark == 2)
        await cluster.stop(1)
        shutil.rmtree(tmp_path / "1")
        shutil.move(tmp_path / "old", tmp_path / "1")
        await cluster.start(1)
        cluster.elect(1, in_sync=[1])
        replica = cluster[2].replica()
        await until(lambda: replica.kept_from == 0)
        assert cluster[2].values() == [b"a", b"b"]
        assert not cluster[1].distrusted
        cluster.elect(2, in_sync=[2])
        await until(lambda: replica.is_leading)
        assert replica.kept_from is None
        await until(lambda: cluster[1].values() == [b"a", b"b"])
        assert [line.levelname for line in caplog.records if "lacks committed records" in line.message] == ["ERROR"]
