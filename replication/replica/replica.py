"""One partition on this node, as what the store's state makes of this node: its leader, a follower, or neither.

The driver around the leader and follower cores, and what the gateway appends to. The committer writes, fetcher.py
fetches. Role changes: leading ends at once, whatever comes next; a new role starts behind the work on the log that is
under way (`_log_work`), so that no batch of one epoch is copied after a later epoch has started.
Invariants: clients append only while `_core` leads; what is queued when leadership ends is refused (definite), what was
appended and not acknowledged fails with LeadershipLost (indeterminate).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Protocol

from engine.errors import EngineError, StorageFailed, StorageFull, TooManyOpenFiles
from engine.format.batch import Buffer
from engine.log.epochs import EpochStart
from engine.partition.committer import Committer
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from engine.producers.append_validator import AppendConditions, Appended
from engine.runtime.tasks import in_background, note_failure
from replication import refusals
from replication.cores.leader import AdvanceWatermark, Leader, LeaderEffect, LeaderStatistics, Propose
from replication.cores.partition_state import Member, PartitionState, Registrations, TopicRules, VersionedState
from replication.cores.role import Follow, Lead, Role, Wait, role_of
from replication.errors import NotLeader, OffsetNotAvailable
from replication.replica import leader_start as beginning
from replication.replica.acknowledgement import acknowledged, forget
from replication.replica.acks import Acks

HANDOVER_S = 3.0  # a new leader that has all of it commits within a few fetches

log = logging.getLogger("penstock.replication")


class Host(Protocol):
    """What a replica needs of the shard that it lies on, and tells it."""

    member: Member | None
    registrations: Registrations
    lag_s_max: float

    @property
    def is_in_doubt(self) -> bool: ...  # by the time since the last contact with the store
    @property
    def has_contact(self) -> bool: ...  # less than the session's timeout ago

    def now(self) -> float: ...
    def moved(self, replica: Replica) -> None:
        """Positions or the role have changed: whoever fetches from it, or for it, must look."""

    def role_taken(self, replica: Replica) -> None:
        """It follows now, or does not any more."""

    def propose(self, replica: Replica, change: Propose) -> None:
        """Answered by on_confirmed, on_state or on_unsure."""

    async def confirms(self, replica: Replica, leader_epoch: int) -> bool:
        """Whether the store says, at some time after this call, that the replica leads in this epoch."""

    def went_offline(self, replica: Replica) -> None: ...
    async def start_epoch(self, partition: Partition, epoch: int) -> None: ...
    async def truncate(self, partition: Partition, offset: int) -> None: ...
    async def reset_log(self, partition: Partition, offset: int, log_start: int, handed_over: Buffer) -> None: ...
    async def hand_over(self, partition: Partition, offset: int) -> tuple[int, bytes]: ...
    def raise_log_start(self, partition: Partition, offset: int) -> None: ...
    def read_uncommitted_nowait(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None: ...
    async def read_uncommitted(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None: ...


class Replica:
    """See the head of the file."""

    def __init__(self, partition: Partition, committer: Committer, key: str, host: Host) -> None:
        self.partition = partition
        self.key = key
        self.role: Role = Wait(0)
        self.state: VersionedState | None = None
        self.log_work = asyncio.Lock()
        self.host = host
        self._committer = committer
        self._core: Leader | None = None
        self._settings = partition.settings
        self._takes_all = self._takes_one = False  # appends with acks=all, and with the others
        self._is_paused = False
        self._is_unsure = False  # whether the store has what was proposed
        self._beginning: asyncio.Task[None] | None = None
        partition.when_positions_move = self._positions_moved
        partition.when_waited_for = self._waited_for
        partition.when_offline = self._went_offline

    def __repr__(self) -> str:
        return f"Replica({self.partition!r}, {self.role}, {self._core or ''})"

    @property
    def in_sync(self) -> list[int]:
        """Who holds all that is committed, as far as this node knows."""
        return [] if self.state is None else [member.node_id for member in self.state.state.in_sync]

    @property
    def lag(self) -> dict[str, int]:
        """How many records each other replica lacks, as its leader knows; empty where this node does not lead."""
        return {} if self._core is None else {str(node): lag for node, lag in self._core.statistics().lags}

    @property
    def is_leading(self) -> bool:
        return self._core is not None

    @property
    def role_epoch(self) -> int:
        """The leader epoch that this replica has heard of."""
        return -1 if self.state is None else self.state.state.leader_epoch

    def statistics(self) -> LeaderStatistics | None:
        """What the leader knows of its followers; None where this node does not lead."""
        return None if self._core is None else self._core.statistics()

    # For clients.

    def check_append(self, acks: Acks) -> None:
        """Raises what an append would be refused with now, before anything of it is queued."""
        if self._takes_all if acks is Acks.ALL else self._takes_one and not self.host.is_in_doubt:
            return
        core, name = self._core, self.partition.name
        if core is None:
            raise self._not_leading()
        if self._is_paused:
            raise NotLeader(f"{name}: this node is stopping, and gives its leaderships away")
        raise refusals.too_few_in_sync(name, self.in_sync, core) if acks is Acks.ALL else refusals.in_doubt(name)

    def append_nowait(self, batch: bytes | bytearray, conditions: AppendConditions | None = None) -> None:
        """acks=0: queue the batch and never look back. Raises as `append`."""
        self.check_append(Acks.NONE)
        self._committer.append(self.partition, batch, conditions, wants_sync=False).add_done_callback(forget)

    def append(
        self, batch: bytes | bytearray, acks: Acks, conditions: AppendConditions | None = None
    ) -> asyncio.Future[Appended]:
        """Queue a batch now, so that calls keep their order; the future is its positions once log_end passed them.

        Raises NotLeader, NoLeader, NotEnoughReplicas, with nothing queued.
        """
        self.check_append(acks)
        wants_sync = acks is Acks.ALL and self.partition.settings.durability == "group"
        return self._committer.append(self.partition, batch, conditions, wants_sync=wants_sync)

    def produce(
        self, batch: bytes | bytearray, acks: Acks, timeout_ms: int, conditions: AppendConditions | None = None
    ) -> Awaitable[Appended]:
        """Queue a batch now; what is returned is to be awaited for its positions."""
        return self.acknowledged(self.append(batch, acks, conditions), acks, timeout_ms)

    def acknowledged(self, written: asyncio.Future[Appended], acks: Acks, timeout_ms: int) -> Awaitable[Appended]:
        """Wait for what `acks` asks; gives the positions. Of a duplicate that is what it asks of the first one's.

        Raises what the append met (nothing stored), or AckTimeout, LeadershipLost, NotEnoughReplicasAfterAppend (it
        may be). A timeout or a cancel gives up the wait only: the future is how the append reports, not what does it.
        """
        return acknowledged(self, self._core, written, acks, timeout_ms)

    def check_latest(self) -> None:
        """Check that the high watermark is the end (KIP-207). Raises NotLeader, NoLeader, OffsetNotAvailable."""
        if self._core is None:
            raise self._not_leading()
        if not self.host.has_contact:
            raise refusals.without_contact(self.partition.name)
        if self._core.latest_offset is None:
            raise OffsetNotAvailable(f"{self.partition.name}: the new leader does not know yet what is committed")

    def check_serves_reads(self, least_epoch: int = 0, *, from_follower: bool = False) -> None:
        """Whether consumers may read here: from the leader, or, if they said so, from a replica in sync.

        Raises NotLeader, NoLeader; also when this node has not heard of an epoch that the asker knows.
        """
        if self.role_epoch < least_epoch:
            raise self._not_leading()
        if self._core is not None:
            return
        own = self.host.member
        is_in_sync = own is not None and self.state is not None and self.state.state.is_in_sync(own.node_id)
        if not (from_follower and is_in_sync and isinstance(self.role, Follow)):
            raise self._not_leading()

    # From the store. A state counts if it is newer than the one before.

    def on_state(self, found: VersionedState) -> None:
        known = self.state
        if known is not None and found.partition_epoch <= known.partition_epoch:
            if self._is_unsure and self._core is not None and found.partition_epoch == known.partition_epoch:
                self._is_unsure = False
                self._core.on_not_taken()  # read behind a proposal of which nobody knew: it is not there
            return
        self.state = found
        core = self._core
        if core is not None and found.state.leader_epoch == core.leader_epoch:
            self._is_unsure = False
            self.do(core.on_state(found, self.host.now()))
            self._look_again()
        elif self.host.member is not None:
            role = role_of(self.host.member, found.state)
            if role != self.role:
                self._take_up(role)
        self.host.moved(self)

    def on_confirmed(self, core: Leader, found: VersionedState) -> None:
        """The store has taken what this leader proposed; as a rule the change itself was heard of first."""
        if core is self._core and self.state is not None and found.partition_epoch > self.state.partition_epoch:
            self.state = found
            self.do(core.on_confirmed(found.partition_epoch, self.host.now()))
            self._look_again()

    def on_unsure(self, core: Leader) -> None:
        """Whether the store has what was proposed will be seen by the state that is read next."""
        self._is_unsure = self._is_unsure or core is self._core

    def on_nodes(self) -> None:
        """The host's registrations have changed."""
        if self._core is not None:
            self._core.on_nodes(self.host.registrations)
            self._look_again()

    def resign(self) -> None:
        """The session is over: whoever leads, it is not known to be us."""
        self._take_up(Wait(0))
        self.state = None

    def pause(self, is_paused: bool) -> None:  # take no appends, so that the next leader has all there is
        self._is_paused = is_paused
        self._judge()

    @property
    def takes_all(self) -> bool:
        return self._takes_all

    @property
    def is_settled(self) -> bool:
        """Whether a move of the leadership now would leave nothing behind."""
        return self._core is None or self.partition.high_watermark >= self.partition.log_end

    def tick(self) -> None:
        """Called a few times in `lag_s_max`."""
        if self._core is not None:
            self.note_log_start(self._core)
            self.do(self._core.on_tick(self.host.now()))
            self._look_again()

    # For who serves followers.

    @property
    def core(self) -> Leader | None:
        """Who decides in the present leadership."""
        return self._core

    def do(self, effects: list[LeaderEffect]) -> None:
        if effects:
            self._carry_out(effects)
            self.host.moved(self)

    def note_log_start(self, core: Leader) -> None:
        log_start, local_log_start = self.partition.log.log_start, self.partition.log.local_log_start
        has_moved = core.log_start < log_start or core.local_log_start < local_log_start
        if has_moved and local_log_start <= core.high_watermark:
            core.on_log_start(log_start, local_log_start)
            self.host.moved(self)

    # Roles.

    def lead_standalone(self, node_id: int) -> None:
        """For ever, as the only replica: the state is a constant, and the log goes on in the epoch that it has."""
        log, own = self.partition.log, Member(node_id, 0)
        state = PartitionState((node_id,), own, log.leader_epoch, (own,))
        self.state, self.role = VersionedState(state, 0), Lead(log.leader_epoch)
        epochs = [one for one in log.epochs if one.epoch < log.leader_epoch]
        self._lead(own, [*epochs, EpochStart(log.leader_epoch, log.epochs[-1].start_offset if log.epochs else 0)])

    def _take_up(self, role: Role) -> None:
        self._end_leading(role)
        self.role = role
        if isinstance(role, Lead):
            self._beginning = in_background(self._begin_leading(role), "becoming leader", of=self.partition.name)
        self.host.role_taken(self)
        self.host.moved(self)

    async def _begin_leading(self, role: Lead) -> None:
        """A full disk loses nothing, and room comes back: until then it stays elected, and refuses what is appended.

        Offline, it could be elected no more in the life of this process, though it were the only one.
        """
        while await self._finds_no_room(role):  # noqa: ASYNC110 - room comes back without telling anybody
            await asyncio.sleep(beginning.NO_ROOM_S)

    async def _finds_no_room(self, role: Lead) -> bool:
        """To begin to lead; if it does, it leads, or is not to."""
        async with self.log_work:
            if self.role is not role or self.partition.offline is not None:
                return False
            log_ = self.partition.log
            if log_.leader_epoch >= role.leader_epoch:  # this process has forgotten what it had said as this leader
                log.warning("not led again", extra={"partition": self.partition.name, "epoch": role.leader_epoch})
                return False
            try:
                await self.host.start_epoch(self.partition, role.leader_epoch)
                if self.role is role and self.host.member is not None:
                    self._lead(self.host.member, log_.epochs)
                    self.host.moved(self)
            except (StorageFull, TooManyOpenFiles) as error:
                log.warning("cannot lead yet", extra={"partition": self.partition.name, "reason": str(error)})
                return self.role is role
            except Exception as error:  # of any kind: nobody else would be elected
                note_failure("becoming leader", error, of=self.partition.name)
                self.host.went_offline(self)
            return False

    def _lead(self, own: Member, epochs: list[EpochStart]) -> None:
        assert self.state is not None
        partition = self.partition
        self._settings = partition.settings
        host = self.host
        self._core = beginning.leader_of(partition, self.key, own, self.state, epochs, host.lag_s_max, host.now())
        self._core.on_nodes(self.host.registrations)
        self.do(self._core.on_written(partition.log_end, self.host.now()))
        self._judge()
        if partition.unsynced_since is not None:
            self._committer.look_at(partition, sync=True)

    def _end_leading(self, role: Role) -> None:
        """At once: refuse what is queued, wake the long polls, so that they ask the new leader. Who waits for an
        acknowledgement is told later where this node follows: the new leader may commit it (acknowledging.py).
        """
        if self._core is None:
            return
        self._core = None
        self._is_unsure = False
        self._judge()
        self._committer.refuse_queued(self.partition, self._not_leading())
        if isinstance(role, Follow | Lead):
            asyncio.get_running_loop().call_later(HANDOVER_S, self._give_up_acks)
        else:
            self._give_up_acks()
        self.partition.wake_all()

    def _give_up_acks(self) -> None:
        if self._core is None:  # else it leads again, and has all that is waited for
            self.partition.fail_acks(refusals.leadership_lost(self.partition.name))

    # The core at work.

    def _positions_moved(self) -> None:
        core, partition = self._core, self.partition
        if core is not None:
            if partition.settings is not self._settings:
                self._settings_changed(core)
            now, log_end = self.host.now(), partition.log.log_end
            if log_end != core.log_end and (effects := core.on_written(log_end, now)):
                self._carry_out(effects)
            if partition.durable_end != core.durable_end and (effects := core.on_synced(partition.durable_end, now)):
                self._carry_out(effects)
        self.host.moved(self)

    def _carry_out(self, effects: list[LeaderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, AdvanceWatermark):
                self.partition.advance_high_watermark(effect.position)
            else:
                self.host.propose(self, effect)

    def _look_again(self) -> None:
        """Something has changed that appends are judged by."""
        core = self._core
        if core is not None and self.partition.settings is not self._settings:
            self._settings_changed(core)
        self._judge()

    def _settings_changed(self, core: Leader) -> None:
        self._settings, core.rules = self.partition.settings, TopicRules.of(self.partition.settings)
        self._judge()

    def _waited_for(self) -> None:
        """A long poll or ack waits for bytes that are written but not fsynced: do not leave them to the flush timer."""
        if self.partition.unsynced_since is not None:
            self._committer.look_at(self.partition)

    def _went_offline(self) -> None:
        offline = self.partition.offline
        if offline is not None and offline.code == StorageFailed.code:  # it is not just closed
            self.host.went_offline(self)

    # Refusals.

    def _judge(self) -> None:
        """Notes what may be appended now, since every append asks."""
        core = None if self._is_paused else self._core
        self._takes_one = core is not None
        self._takes_all = core is not None and core.has_enough_replicas

    def _not_leading(self) -> EngineError:
        return refusals.not_leading(self.partition.name, self.role, is_known=self.state is not None)
