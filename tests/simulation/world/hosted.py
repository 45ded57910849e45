"""One partition on one simulated node: the cores, with a driver in virtual time in place of the network driver.

replication.cores decides everything. This file carries out effects in virtual time and keeps a driver's state: produces
that wait for an acknowledgement, delayed fetches, and the outstanding fetch.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import Corrupt, DuplicateOlderThanWindow, EngineError, ProducerFenced, SequenceGap, StorageFull
from replication.cores.fetch import FetchAnswer, FetchError, FollowerFetch, OutOfRange, Send
from replication.cores.leader import AdvanceWatermark, Leader, LeaderEffect, Propose, StepDown
from replication.cores.partition_state import VersionedState
from replication.cores.progress import AckVerdict
from replication.cores.role import Follow, Lead, Leave, Role, Wait, role_of
from replication.replica.replica import NO_ROOM_S
from tests.simulation.world.following import FollowerDriver
from tests.simulation.world.replica_log import READ_BYTES, ReplicaLog
from tests.simulation.world.tier import Tier

if TYPE_CHECKING:
    from tests.simulation.world.node import Life

Reply = Callable[..., None]
FETCH_WAIT_S = 0.25


@dataclass
class Waiter:
    """An acks=all produce that is in the log and not yet committed."""

    base_offset: int
    end: int
    reply: Reply


@dataclass
class Held:
    """A delayed fetch that waits for data."""

    fetch: FollowerFetch
    reply: Reply


class Hosted:
    """One hosted partition. See the head of the file."""

    def __init__(self, life: Life, partition: str, log: ReplicaLog) -> None:
        self.life = life
        self.partition = partition
        self.log = log
        self.known: VersionedState | None = None
        self.role: Role = Wait(0)
        self.leader: Leader | None = None
        self._waiters: list[Waiter] = []
        self._held: dict[int, Held] = {}
        self._fetched: dict[int, FollowerFetch] = {}  # the last fetch state of each follower
        self._is_syncing = False
        self.following = FollowerDriver(self)
        self.tier = Tier(self)

    def __repr__(self) -> str:
        return f"{self.partition} {self.role} {self.log} high_watermark={self.high_watermark} {self.leader or ''}"

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @high_watermark.setter
    def high_watermark(self, position: int) -> None:
        self.log.high_watermark = position

    @property
    def _now(self) -> float:
        return self.life.world.now

    # Messages of the store.

    def on_state(self, versioned: VersionedState) -> None:
        """Apply a state if it is newer than the known one."""
        if self.known is not None and versioned.partition_epoch <= self.known.partition_epoch:
            return
        self.known = versioned
        if self.leader is not None and versioned.state.leader_epoch == self.leader.leader_epoch:
            for node in [node for node in self._fetched if node not in versioned.state.replicas]:
                # a replica that leaves also leaves the fetch session; if it returns, it starts a new one
                del self._fetched[node]
            self._do(self.leader.on_state(versioned, self._now))
            return
        role = role_of(self.life.member, versioned.state)
        if role != self.role or isinstance(role, Lead):
            self._apply_role(role, versioned)

    def on_confirmed(self, tag: object, versioned: VersionedState) -> None:
        """The store has this leader's proposal; usually the change itself arrived before."""
        if self.leader is tag and self.leader is not None and versioned.partition_epoch > self.known.partition_epoch:
            self.known = versioned
            self._do(self.leader.on_confirmed(versioned.partition_epoch, self._now))

    def on_read_again(self, versioned: VersionedState) -> None:
        """Handle a read on a new connection: proposals of the old one are stored by now or never will be."""
        if (
            self.leader is not None
            and self.known is not None
            and versioned.partition_epoch == self.known.partition_epoch
        ):
            self.leader.on_proposal_rejected()
        self.on_state(versioned)

    def resign(self) -> None:
        """The session has expired: this node leads nothing, and does not know the leader."""
        self._end_leading()
        self.known, self.role = None, Wait(0)
        self.following.forget()

    def _apply_role(self, role: Role, versioned: VersionedState) -> None:
        self._end_leading()
        self.role = role
        self.following.forget()
        self.life.log("%s: %s", self.partition, role)
        if self.log.offline or isinstance(role, Wait | Leave):
            return
        if isinstance(role, Follow):
            self.following.fetch()
            return
        self._begin_leading(role, versioned)

    def _begin_leading(self, role: Lead, versioned: VersionedState) -> None:
        """Start to lead; on a full disk retry later, unless a newer state arrives."""
        if self.role is not role or self.log.offline:
            return
        try:
            self.log.start_epoch(role.leader_epoch)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                self.went_offline(error)
                return
            self.life.world.count("elected on a full disk")
            self.life.after(NO_ROOM_S, self._begin_leading, role, versioned)
            return
        log = self.log.log
        self.leader = Leader(
            self.life.member,
            versioned,
            self.life.rules,
            partition=self.partition,
            lag_s_max=self.life.options.lag_s_max,
            log_start=log.log_start,
            local_log_start=log.local_log_start,
            log_end=log.log_end,
            durable_end=self.log.durable_end,
            watermark=self.high_watermark,
            epochs=log.epochs,
            now=self._now,
        )
        self.leader.on_nodes(self.life.registrations)
        self._do(self.leader.on_written(log.log_end, self._now))
        self.sync_soon()

    def _end_leading(self) -> None:
        if self.leader is None:
            return
        self.leader = None
        self._fetched.clear()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.reply("info", "not_leader")
        held, self._held = self._held, {}
        for fetch in held.values():
            fetch.reply(FetchError.NOT_LEADER, b"")

    # Requests to a leader.

    def produce(self, batch: bytearray, count: int, acks: str, reply: Reply) -> None:
        """Append a batch. Errors here are definite: nothing was appended."""
        leader = self.leader
        if leader is None or self.log.offline:
            reply("fail", "not_leader")
            return
        if acks == "all" and not leader.has_enough_replicas:
            self.life.world.count("refused: not enough replicas")
            reply("fail", "not_enough_replicas")
            return
        if acks == "1" and not self.life.session.may_acknowledge_locally(self._now):
            self.life.world.count("refused: session in doubt")
            reply("fail", "not_leader")
            return
        before = self.log.log.log_end
        try:
            base_offset = self.log.append(batch, self.life.clock.steady_ms())
        except EngineError as error:
            if not isinstance(error, ProducerFenced | SequenceGap | DuplicateOlderThanWindow | StorageFull):
                self.went_offline(error)
            self.life.world.count(f"refused: {error.code}")
            reply("fail" if error.no_side_effects else "info", error.code)
            return
        if base_offset < before:
            self.life.world.count("repeats recognised")
        self.life.log("%s: appended %d..%d acks=%s", self.partition, base_offset, base_offset + count, acks)
        if acks == "1":
            reply("ok", base_offset)
        else:
            self._waiters.append(Waiter(base_offset, base_offset + count, reply))
        self._do(leader.on_written(self.log.log.log_end, self._now))
        self.sync_soon()
        self._serve_held()
        self._answer_waiters()

    def on_fetch(self, fetch: FollowerFetch, reply: Reply) -> None:
        leader = self.leader
        if leader is None:
            reply(FetchError.NOT_LEADER, b"")
            return
        if self.log.offline:
            return
        answer = self._record_fetch(leader, fetch)
        if isinstance(answer, Send) and not self._has_changes(fetch):
            held = Held(fetch, reply)
            self._held[fetch.node_id] = held
            self.life.after(FETCH_WAIT_S, self._serve, held)
            return
        self._answer(fetch, leader.answer_to(fetch) if self.leader is leader else FetchError.NOT_LEADER, reply)

    def _record_fetch(self, leader: Leader, fetch: FollowerFetch) -> FetchAnswer:
        """Record fetch positions. A fetch of a session contains only the partitions that have changed."""
        if fetch == self._fetched.get(fetch.node_id):
            return leader.answer_to(fetch)
        answer, effects = leader.on_fetch(fetch, self._now)
        if isinstance(answer, Send):
            self._fetched[fetch.node_id] = fetch
        self._do(effects)
        return answer

    def tick(self) -> None:
        if self.leader is not None:
            self.leader.on_compacted(self.log.compacted_end)
            self._do(self.leader.on_tick(self._now))

    def trim(self, share: float) -> None:
        """Delete records: raise log_start, at most to the high watermark."""
        leader = self.leader
        if leader is None or self.log.offline:
            return
        log_start = self.log.log.log_start
        log_start += int((leader.high_watermark - log_start) * share)
        self.life.node.deleted(self.partition, log_start)
        self.trim_to(log_start, log_start)

    def trim_to(self, log_start: int, local: int) -> None:
        """Delete records below log_start on all replicas, and segments below `local` on this disk."""
        log = self.log.log
        if log_start <= log.log_start and not log.has_segments_below(local):
            return
        self.life.world.counts["segments dropped for the store"] += log_start < local
        try:
            self.log.trim(log_start, local)
        except OSError as error:
            self.went_offline(error)
            return
        if self.leader is not None:
            self.leader.on_log_start(log.log_start, log.local_log_start)
        self.life.log("%s: log_start=%d, local from %d", self.partition, log.log_start, log.local_log_start)

    def read(self, offset: int, reply: Reply) -> None:
        """Answer a consumer's fetch, as the leader or an in-sync follower: committed records only."""
        is_readable = self.leader is not None or (isinstance(self.role, Follow) and self._is_in_sync())
        if not is_readable or self.log.offline:
            reply("not_leader", b"", 0, 0, 0)
            return
        epoch, log_start = self.role.leader_epoch, self.log.log.log_start
        if offset < log_start:
            reply("below", b"", log_start, self.high_watermark, epoch)
            return
        if offset > self.high_watermark:
            self._refuse_above(offset, reply)
            return
        if offset < self.log.log.local_log_start:
            self._read_from_store(offset, reply)
            return
        try:
            data = self.log.read(offset, self.high_watermark) if offset < self.high_watermark else b""
        except (Corrupt, OSError):
            self.life.repairs.read_failed(self, offset)
            reply("not_leader", b"", 0, 0, 0)
            return
        reply("ok", data, log_start, self.high_watermark, epoch)

    def _refuse_above(self, offset: int, reply: Reply) -> None:
        """Reject as gateway/fetch/reader.py does: permanently only if the store has confirmed this leader."""
        leader, life = self.leader, self.life
        if leader is None or leader.latest_offset is None or not life.session.has_contact(self._now):
            reply("not_leader", b"", 0, 0, 0)
            return

        def on_confirmed(versioned: VersionedState) -> None:
            if self.leader is not leader or role_of(life.member, versioned.state) != Lead(leader.leader_epoch):
                life.world.count("permanent refusals withheld")
                reply("not_leader", b"", 0, 0, 0)
            else:
                is_above = offset > self.high_watermark
                reply("above" if is_above else "ok", b"", 0, self.high_watermark, leader.leader_epoch)

        life.confirm(self.partition, on_confirmed)

    def _read_from_store(self, offset: int, reply: Reply) -> None:
        epoch, log_start, watermark = self.role.leader_epoch, self.log.log.log_start, self.high_watermark
        data = self.tier.read(offset, READ_BYTES)
        if data is None:
            reply("store_unavailable", b"", 0, 0, 0)
            return
        self.life.world.count("reads from the store")
        reply("ok", data, log_start, watermark, epoch)

    def latest(self, reply: Reply) -> None:
        """Return the log end for a consumer that starts there."""
        has_contact = self.life.session.has_contact(self._now)
        latest = self.leader.latest_offset if self.leader is not None and has_contact else None
        reply("not_available" if latest is None else "ok", latest, self.leader.leader_epoch if self.leader else 0)

    def _is_in_sync(self) -> bool:
        return self.known is not None and self.known.state.is_in_sync(self.life.node_id)

    def _has_changes(self, fetch: FollowerFetch) -> bool:
        return self.leader is not None and (
            self.leader.log_end > fetch.wanted or self.leader.high_watermark > fetch.high_watermark
        )

    def _serve_held(self) -> None:
        for held in list(self._held.values()):
            if self._has_changes(held.fetch):
                self._serve(held)

    def _serve(self, held: Held) -> None:
        if self._held.get(held.fetch.node_id) is held and self.leader is not None:
            del self._held[held.fetch.node_id]
            self._answer(held.fetch, self.leader.answer_to(held.fetch), held.reply)

    def _answer(self, fetch: FollowerFetch, answer: FetchAnswer, reply: Reply) -> None:
        data = b""
        if isinstance(answer, Send) and fetch.wanted >= self.log.log.local_log_start:  # else a repair asks too low
            try:
                data = self.log.read(fetch.wanted)
            except (Corrupt, OSError):
                self.life.repairs.read_failed(self, fetch.wanted)
                return
        elif isinstance(answer, OutOfRange):
            data = self.log.producer_state()
        reply(answer, data)

    def _answer_waiters(self) -> None:
        leader = self.leader
        if leader is None or not self._waiters:
            return
        left = []
        for waiter in self._waiters:
            match leader.ack_verdict(waiter.end):
                case AckVerdict.WAITING:
                    left.append(waiter)
                case AckVerdict.COMMITTED:
                    waiter.reply("ok", waiter.base_offset)
                case AckVerdict.TOO_FEW_AFTER_APPEND:
                    waiter.reply("info", "not_enough_replicas_after_append")
        self._waiters = left

    def _do(self, effects: list[LeaderEffect]) -> None:
        for effect in effects:
            match effect:
                case AdvanceWatermark(position):
                    self._on_committed(position)
                    self._answer_waiters()
                    self._serve_held()
                case Propose(state, partition_epoch):
                    self.life.log("%s: proposes in_sync %s", self.partition, [m.node_id for m in state.in_sync])
                    self.life.propose(self.partition, partition_epoch, state)
                case StepDown(node_id, high_watermark):
                    self.life.log("%s: node %d has %d committed", self.partition, node_id, high_watermark)
                    self.life.world.count("leaders that lacked committed records")
                    self._end_leading()
                    self.life.distrust(self.partition)

    def _on_committed(self, position: int) -> None:
        self.high_watermark = position
        self.life.node.saw_watermark(self.partition, self.leader.leader_epoch, position)

    # Disk.

    def sync_soon(self) -> None:
        """Start a sync soon, one at a time. The delay lets appends gather; the duration is the disk's."""
        if not self._is_syncing and self.log.has_unsynced:
            self._is_syncing = True
            self.life.after(self.life.options.linger_s, self._begin_sync)

    def _begin_sync(self) -> None:
        self.life.after(self.life.node.sync_s(), self._end_sync, self.log.begin_sync())

    def _end_sync(self, sync: Any) -> None:
        self._is_syncing = False
        has_moved = self.log.end_sync(sync)
        if self.log.offline:
            self.went_offline(self.log.offline)
            return
        self.sync_soon()
        if self.leader is not None:
            self._do(self.leader.on_synced(self.log.durable_end, self._now))
        elif has_moved:
            self.following.fetch()  # the leader's acks=all produces wait for this acknowledgement

    def stop_leading(self) -> None:
        """The disk fails reads of records: register that, so that another replica becomes leader."""
        self._end_leading()
        self.life.register()

    def went_offline(self, error: Exception) -> None:
        """The disk has failed this partition: register that, so that another replica becomes leader."""
        self.log.offline = self.log.offline or error  # type: ignore[assignment]
        self.life.log("%s: offline: %s", self.partition, error)
        self.life.world.count("partitions offline")
        self._end_leading()
        self.life.register()
