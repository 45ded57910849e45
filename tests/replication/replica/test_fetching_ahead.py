"""A follower that catches up sends the next fetch while it writes, and never acknowledges what is not in its log."""

import errno
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from engine.format.batch import Buffer
from engine.runtime.disk import RealDisk
from replication.replica import follower as following
from replication.replica.acks import Acks
from replication.replica.fetch_wire import FetchPartition, decode_request
from replication.replica.fetcher import FetchLimits
from tests.replication.hosts import LIMITS, Hosts, batch_of, hosts
from tests.waiting import until

ONE_BATCH = replace(LIMITS, fetches=FetchLimits(bytes_max=1, wait_ms=200))
BATCHES = 12


@pytest.fixture
async def two(tmp_path) -> AsyncIterator[Hosts]:
    async with hosts(tmp_path, nodes=2, limits=ONE_BATCH) as cluster:
        await cluster.create_topic()
        cluster.elect(1)
        await until(lambda: cluster[1].replica().is_leading)
        await cluster[1].produce(b"first")
        yield cluster


class RecordedFetches:
    """Compares the fetches of node 2 to node 1 with its log at that moment."""

    def __init__(self, cluster: Hosts) -> None:
        self.partitions: list[FetchPartition] = []
        self.untrue: list[FetchPartition] = []
        self._follower = cluster[2].partition()
        self._fetch = cluster[1].host.server.fetch
        cluster[1].host.server.fetch = self._record  # type: ignore[method-assign]

    async def _record(self, body: Buffer) -> list[Buffer]:
        for one in decode_request(body).partitions:
            self.partitions.append(one)
            if one.log_end > self._follower.log_end or one.durable_end > self._follower.durable_end:
                self.untrue.append(one)
        return await self._fetch(body)

    @property
    def ahead(self) -> Sequence[FetchPartition]:
        return [one for one in self.partitions if one.ahead is not None]


def write_at_once(cluster: Hosts) -> None:
    """Write one group, so that the first answer is a part of the log."""
    for number in range(BATCHES):
        data = batch_of(b"%020000d" % number)  # larger than the distance of index entries
        cluster[1].replica().produce(data, Acks.NONE, 0)


async def test_the_next_batches_come_while_the_last_are_written(two):
    recorded, follower = RecordedFetches(two), two[2].partition()
    async with two[2].shard.committer.pause(follower):
        write_at_once(two)
        await until(lambda: recorded.ahead)
        assert (recorded.ahead[0].log_end, recorded.ahead[0].ahead) == (1, (2, 1))
        assert two[1].partition().high_watermark == 1, "what is on its way is not acknowledged"
    await until(lambda: two[1].partition().high_watermark == follower.log_end == 1 + BATCHES)
    assert two[2].stored_bytes() == two[1].stored_bytes()
    assert len(recorded.ahead) > 2
    assert recorded.untrue == []


async def test_a_failed_write_drops_what_was_asked_for_behind_it(two, monkeypatch):
    recorded, follower, write, failed = RecordedFetches(two), two[2].partition(), RealDisk.pwritev, []

    def full_once(self: RealDisk, handle: int, buffers: Sequence[Buffer], position: int) -> int:
        if not failed and handle == follower.log.segments[-1].handle:
            failed.append(position)
            raise OSError(errno.ENOSPC, "no space is left")
        return write(self, handle, buffers, position)

    monkeypatch.setattr(RealDisk, "pwritev", full_once)
    monkeypatch.setattr(following, "AFTER_ERROR_S", 3600)
    write_at_once(two)
    await until(lambda: failed and recorded.ahead)
    (fetcher,) = two[2].host._fetchers.values()
    taken = fetcher.rounds
    await until(lambda: fetcher.rounds >= taken + 3)
    assert (len(recorded.ahead), follower.log_end) == (1, 1), (
        "what came from ahead is not written, and nothing asked for"
    )
    two.elect(1)  # ends the wait
    await until(lambda: two[1].partition().high_watermark == follower.log_end == 1 + BATCHES)
    assert two[2].stored_bytes() == two[1].stored_bytes()
    assert recorded.untrue == []


async def test_another_leader_is_asked_from_where_the_log_ends(two):
    recorded, follower = RecordedFetches(two), two[2].partition()
    async with two[2].shard.committer.pause(follower):
        write_at_once(two)
        await until(lambda: recorded.ahead)
        begin = len(recorded.partitions)
        two.elect(1)
        await until(lambda: two[1].replica().is_leading)
    await two[1].produce(b"of the next epoch", acks=Acks.ALL)
    of_next_epoch = [one for one in recorded.partitions[begin:] if one.leader_epoch == 2]
    assert of_next_epoch[0].ahead is None
    assert two[2].stored_bytes() == two[1].stored_bytes()
    assert recorded.untrue == []


async def test_what_is_written_is_acknowledged_at_once_though_a_leader_gathers_more(tmp_path):
    gathering = FetchLimits(bytes_min=100_000, bytes_max=1, wait_ms=3_600_000)
    async with hosts(tmp_path, nodes=2, limits=replace(LIMITS, fetches=gathering)) as cluster:
        await cluster.create_topic()
        cluster.elect(1)
        await until(lambda: cluster[1].replica().is_leading)
        recorded = RecordedFetches(cluster)
        # the first is larger than the distance of index entries
        for value in (b"%020000d" % 1, b"%0200000d" % 2, b"small"):
            cluster[1].replica().produce(batch_of(value), Acks.NONE, 0)
        await until(lambda: cluster[1].partition().high_watermark == 3)
        assert recorded.ahead
        assert recorded.untrue == []
