"""Moves the leadership of a replica that cannot read its disk, and repairs its segments from the new leader.

A failed read is confirmed first: the segment is examined, so an error that does not come again moves nothing. Then, if
other replicas in sync are enough for acks=all, the node reports the partition as failed: another replica is elected,
and this one follows, outside of the in-sync set. Each damaged segment is fetched from the leader, checked batch by
batch, and put in place (engine/cleaning/quarantine.py); after the last one the node withdraws its report. A segment
that the leader has in the store only is repaired by the scrubber. A follower's segment is repaired when the scrubber
finds its damage, and after a restart. A segment of a compacted topic takes the leader's records, which may be others
(engine/compaction/leaders_copy.py). Standalone, and without another replica that may lead, nothing moves, and reads of
the damaged records fail.

Invariants: the leadership of a partition moves for this reason once per pause, which doubles each time, so that bad
disks on several nodes do not pass it around; a damaged file stays until its good copy is complete and durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import ParamSpec, TypeVar

from engine.compaction.leaders_copy import LeadersCopy
from engine.errors import Corrupt, EngineError
from engine.format import paths
from engine.format.batch import Buffer
from engine.format.checksum import checksum_of
from engine.log.epochs import epoch_before
from engine.log.segment import Segment
from engine.partition.partition import Partition
from engine.runtime.disk import write_fully
from engine.runtime.tasks import BackgroundTasks
from replication.cores.fetch import BatchesEnd
from replication.cores.partition_state import TopicRules
from replication.cores.role import Follow
from replication.replica.fetch_wire import FetchRequest, as_fetch_partition, decode_reply, encode_request
from replication.replica.fetcher import Exchange, PeerUnreachable
from replication.replica.follower import FollowerDriver
from replication.replica.replica import Replica
from replication.replica.segment_copy import check_equal, checked

MOVE_PAUSE_S, MOVE_PAUSE_S_MAX = 60.0, 3600.0  # doubles between them, for each partition
REPAIR_PAUSE_S, REPAIR_PAUSE_S_MAX = 1.0, 300.0
FETCH_BYTES = 8 * 1024 * 1024
CATCH_UP_S = 30.0  # that the log of this replica may need to reach the high watermark of a copy
CATCH_UP_CHECK_S = 0.02
FETCH_WAIT_MS = 1000  # the leader's throttle for replicas out of sync may hold an answer back

log = logging.getLogger("penstock.replication")

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RepairMeans:
    """The calls of the replica host. `leader_exchange`: the connection to the leader that a replica follows.
    `send_position` sends the leader the position of the replica, which the fetches of a repair have changed there.
    """

    now: Callable[[], float]
    went_offline: Callable[[Replica], None]
    came_back: Callable[[Replica], None]
    send_position: Callable[[Replica], None]
    leader_exchange: Callable[[Replica], Exchange | None]


@dataclass(slots=True)
class _Moves:
    """When the leadership of a partition may move the next time, and the pause after that."""

    not_before: float = 0.0
    pause_s: float = MOVE_PAUSE_S


class UnreadableReplicas:
    """The replicas of a shard whose reads have failed; see the module docstring."""

    def __init__(self, means: RepairMeans, new_session: Callable[[], str]) -> None:
        self._means = means
        self._new_session = new_session
        self._background = BackgroundTasks()
        self._examined: set[str] = set()  # keys of replicas with a running task
        self._moves: dict[str, _Moves] = {}
        self.reported: set[str] = set()  # keys of replicas that are reported as failed
        self.repaired = 0

    def __repr__(self) -> str:
        return f"UnreadableReplicas(reported={len(self.reported)}, repaired={self.repaired})"

    def on_failed_read(self, replica: Replica, following: FollowerDriver, offset: int) -> None:
        """Handles a failed read, or known damage, of a record in the background; one task per replica."""
        is_new, is_follower = replica.key not in self._examined, replica.core is None
        if is_new and replica.partition.offline is None and (is_follower or _can_another_lead(replica)):
            self._examined.add(replica.key)
            work = self._handle(replica, following, offset)
            self._background.start(work, "handling a failed read", of=replica.partition.name)

    def stop(self) -> None:
        """Ends the repairs: a damaged file stays as it is."""
        self._background.cancel()

    def forget(self, key: str) -> None:
        """Forgets a replica that was closed."""
        self._moves.pop(key, None)
        self.reported.discard(key)

    async def _handle(self, replica: Replica, following: FollowerDriver, offset: int) -> None:
        try:
            partition = replica.partition
            await replica.shard.quarantine.examine(partition, partition.log.segment_of(offset))
            if not damaged_segments(partition) or not self._leave(replica):
                return
            await self._repair(replica, following)
            if partition.offline is None:
                self.reported.discard(replica.key)
                self._means.came_back(replica)
        finally:
            self._examined.discard(replica.key)

    def _leave(self, replica: Replica) -> bool:
        """Gives up the leadership. Returns whether this replica is to be repaired."""
        if replica.core is None:
            return True
        moves, now = self._moves.setdefault(replica.key, _Moves()), self._means.now()
        if now < moves.not_before or not _can_another_lead(replica):
            return False
        moves.not_before, moves.pause_s = now + moves.pause_s, min(2 * moves.pause_s, MOVE_PAUSE_S_MAX)
        text = "this leader cannot read its disk: another replica is to lead, and this one is repaired from it"
        log.error(text, extra={"partition": replica.partition.name, "segments": _paths(replica.partition)})
        self.reported.add(replica.key)
        self._means.went_offline(replica)
        return True

    async def _repair(self, replica: Replica, following: FollowerDriver) -> None:
        """Repairs all damaged segments. Ends early if the replica leads, is closed or its disk has failed."""
        partition, pause_s, reason = replica.partition, REPAIR_PAUSE_S, ""
        while damaged := damaged_segments(partition):
            await self._pause(pause_s)
            if replica.core is not None or partition.offline is not None:
                return
            exchange = self._means.leader_exchange(replica)
            if exchange is None or not isinstance(replica.role, Follow):
                continue
            try:
                for segment in damaged:
                    await self._repair_segment(replica, following, segment, exchange)
                pause_s = REPAIR_PAUSE_S
            except (EngineError, OSError, PeerUnreachable) as error:
                pause_s = min(2 * pause_s, REPAIR_PAUSE_S_MAX)
                if str(error) != reason:
                    reason = str(error)
                    extra = {"partition": partition.name, "reason": reason}
                    log.error("a damaged segment is not repaired from the leader yet", extra=extra)
            finally:
                self._means.send_position(replica)

    async def _repair_segment(
        self, replica: Replica, following: FollowerDriver, segment: Segment, exchange: Exchange
    ) -> None:
        """Raises Corrupt if the leader does not have the segment, and the errors of the network and the disk."""
        partition, shard, role = replica.partition, replica.shard, replica.role
        path = paths.beside_log(segment.path, paths.REPAIRED + paths.TEMPORARY)
        if partition.settings.is_compacted:
            cuts = await shard.segment_swapper.begin_copy(partition, segment)
            watermark = await self._copy(replica, following, segment, exchange, path)
            self._means.send_position(replica)  # records behind the segment are fetched while this waits
            await _wait_caught_up(partition, max(watermark, segment.next_offset))
            if replica.role != role:
                raise Corrupt(f"{partition.name}: the leader has changed since the copy was begun")
            file = await self._in_thread(checksum_of, shard.disk, path)
            copy = LeadersCopy(segment, file, cuts, watermark)
            is_repaired = await shard.segment_swapper.replace_damaged(partition, copy)
            shard.quarantine.repaired += is_repaired
        else:
            await self._copy(replica, following, segment, exchange, path)
            is_repaired = await shard.quarantine.repair(partition, segment.base_offset, path)
        if is_repaired:
            self.repaired += 1
            extra = {"partition": partition.name, "segment": segment.path}
            log.warning("a damaged segment was repaired from the leader", extra=extra)

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **_: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, function, *args)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _copy(
        self, replica: Replica, following: FollowerDriver, segment: Segment, exchange: Exchange, path: str
    ) -> int:
        """Writes the leader's batches of a segment to a file, durably. Returns the leader's last high watermark.

        Raises as `_repair_segment` does, and leaves no file then.
        """
        disk, is_compacted = replica.shard.disk, replica.partition.settings.is_compacted
        begin, end = segment.base_offset, segment.next_offset
        handle = await self._in_thread(partial(disk.open, path, create=True, writable=True))
        position = watermark = 0
        try:
            try:
                await self._in_thread(disk.truncate, handle, 0)
                while begin < end:
                    fetched, watermark = await self._fetch(replica, following, begin, exchange)
                    data, following_offset = checked(fetched, begin, end, is_compacted=is_compacted)
                    await self._in_thread(write_fully, disk, handle, data, position)
                    begin, position = following_offset, position + len(data)
                await self._in_thread(disk.fdatasync, handle)
            finally:
                await self._in_thread(disk.close, handle)
            if not is_compacted:
                await self._in_thread(check_equal, disk, segment.path, path)
        except BaseException:
            with suppress(OSError):
                disk.unlink(path)
            raise
        return watermark

    async def _fetch(
        self, replica: Replica, following: FollowerDriver, offset: int, exchange: Exchange
    ) -> tuple[Buffer, int]:
        """Fetches batches from an offset on, in a session of its own; acknowledges nothing that the log does not have.

        Returns the leader's high watermark too.
        """
        epoch = epoch_before(replica.partition.log.epochs, offset)
        fetch, member = following.next_fetch(BatchesEnd(offset, epoch)), replica.host.member
        if fetch is None or member is None:
            raise Corrupt(f"{replica.partition.name}: this replica does not follow now")
        if epoch < 0:  # the log begins here
            fetch = replace(fetch, log_end=offset, durable_end=offset, last_epoch=None, ahead=None)
        request = FetchRequest(
            session=self._new_session(),
            session_epoch=0,
            is_full=True,
            node_id=member.node_id,
            broker_epoch=member.broker_epoch,
            shard=-1,  # not the session of a fetcher
            bytes_min=1,
            bytes_max=FETCH_BYTES,
            wait_ms=FETCH_WAIT_MS,
            partitions=[as_fetch_partition(replica.key, fetch)],
        )
        reply, data = decode_reply(await exchange(encode_request(request)))
        verdicts = [response.verdict for response in reply.responses if not response.size_bytes]
        piece_found = next(
            (piece for response, piece in zip(reply.responses, data, strict=True) if response.size_bytes), None
        )
        if piece_found is None or reply.responses[0].producer_state_offset:
            text = f"{replica.partition.name}: the leader has no batch at offset {offset} on its disk"
            raise Corrupt(f"{text} ({', '.join(verdicts) or 'no answer'})")
        return piece_found, reply.responses[0].first


async def _wait_caught_up(partition: Partition, end: int) -> None:
    """Waits until all records below `end` are committed and durable here. Raises Corrupt if that takes too long."""
    deadline = asyncio.get_running_loop().time() + CATCH_UP_S
    while min(partition.high_watermark, partition.durable_end) < end:
        if asyncio.get_running_loop().time() >= deadline:
            raise Corrupt(f"{partition.name}: this replica has not caught up with offset {end} of its leader")
        await asyncio.sleep(CATCH_UP_CHECK_S)


def _can_another_lead(replica: Replica) -> bool:
    """True if enough other replicas are in sync for acks=all, on nodes that are registered and stay."""
    member, nodes = replica.host.member, replica.host.registrations
    if member is None or replica.state is None:
        return False
    state, rules = replica.state.state, TopicRules.of(replica.partition.settings)
    others = [nodes[peer.node_id] for peer in state.in_sync if peer.node_id != member.node_id and peer.node_id in nodes]
    able = sum(not other.is_leaving and replica.key not in other.offline for other in others)
    return able >= max(1, rules.min_in_sync(state.counted_replicas))


def damaged_segments(partition: Partition) -> list[Segment]:
    """Returns the sealed segments with known damage. An active one is rolled before its damage is known."""
    return [segment for segment in partition.log.segments[:-1] if segment.damage]


def _paths(partition: Partition) -> list[str]:
    return [segment.path for segment in damaged_segments(partition)]
