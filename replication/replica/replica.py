"""One partition on a node of a cluster: its leader, a follower, or neither, as the store's state demands.

Drives the leader and follower cores, and takes the gateway's appends. The committer writes, fetcher.py fetches. Role
changes: leading ends at once; a new role starts after the work on the log in progress (`log_work`), so that no batch of
one epoch is copied after a later epoch has started.
Invariants: clients append only while `_core` leads; batches queued when leadership ends are rejected (definite),
batches appended and not acknowledged fail with LeadershipLost (indeterminate).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from engine.errors import EngineError, StorageFull, TooManyOpenFiles
from engine.partition.partition import Partition
from engine.partition.spool import Spool
from engine.producers.appends import Appended
from engine.runtime.tasks import in_background, log_failure
from engine.shard.shard import Shard
from replication.cores.leader import AdvanceWatermark, Leader, LeaderEffect, Propose, StepDown
from replication.cores.partition_state import Member, Registrations, TopicRules, VersionedState
from replication.cores.role import Follow, Lead, Role, Wait, role_of
from replication.errors import NotLeader, OffsetNotAvailable
from replication.replica import append_errors
from replication.replica.acks import FINAL, Acks
from replication.replica.appends import AppendingReplica, PendingAppend

LEADER_CHANGE_S = 3.0  # a new leader that has all of the log commits within a few fetches
NO_ROOM_S = 1.0  # between two attempts on a full disk: as followers wait after an error, with few log lines

log = logging.getLogger("penstock.replication")


class Host(Protocol):
    """A replica's interface to the other nodes and to the store."""

    member: Member | None
    registrations: Registrations
    lag_s_max: float
    spool: Spool

    @property
    def is_in_doubt(self) -> bool: ...  # by the time since the last contact with the store
    @property
    def has_contact(self) -> bool: ...  # less than the session timeout ago

    def now(self) -> float: ...
    def on_moved(self, replica: Replica) -> None: ...  # positions or the role: for the fetch server and the fetcher
    def on_role_changed(self, replica: Replica) -> None: ...  # begins or stops fetching
    # on_confirmed, on_state or on_outcome_unknown answers
    def propose(self, replica: Replica, change: Propose) -> None: ...
    async def confirms(self, replica: Replica, leader_epoch: int) -> bool: ...  # asks the store after this call
    def went_offline(self, replica: Replica) -> None: ...
    def step_down(self, replica: Replica, why: StepDown) -> None: ...


class Replica(AppendingReplica):
    """Drives the role of one partition; see the module docstring."""

    def __init__(self, partition: Partition, shard: Shard, key: str, host: Host) -> None:
        super().__init__(partition, shard.committer, host.spool)
        self.shard = shard
        self.key = key
        self.role: Role = Wait(0)
        self.state: VersionedState | None = None
        self.log_work = asyncio.Lock()
        self.host = host
        self._core: Leader | None = None
        self._settings = partition.settings
        self._accepts_all = self._accepts_one = False  # appends with acks=all, and with the others
        self._is_paused = self._is_outcome_unknown = False  # whether the store has the last proposal
        self._starting: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Replica({self.partition!r}, {self.role}, {self._core or ''})"

    @property
    def in_sync(self) -> list[int]:
        """The nodes that hold all committed records, as far as this node knows."""
        return [] if self.state is None else [member.node_id for member in self.state.state.in_sync]

    @property
    def lag(self) -> dict[str, int]:
        """How many records each other replica lacks, by its leader; empty if this node does not lead."""
        return {} if self._core is None else {str(node): lag for node, lag in self._core.statistics().lags}

    @property
    def is_leading(self) -> bool:
        return self._core is not None

    @property
    def role_epoch(self) -> int:
        """The newest leader epoch that this replica knows."""
        return -1 if self.state is None else self.state.state.leader_epoch

    # For clients.

    def check_append(self, acks: Acks) -> None:
        """Checks whether an append would be accepted now.

        Raises NotLeader, NoLeader, NotEnoughReplicas, SpoolFull.
        """
        if self._accepts_all if acks is Acks.ALL else self._accepts_one and not self.host.is_in_doubt:
            if self._spool.is_full:
                self._spool.check(self.partition)
            return
        core, name = self._core, self.partition.name
        if core is None:
            raise self._not_leading()
        if self._is_paused:
            raise NotLeader(f"{name}: this node is stopping, and its leaderships move")
        if acks is Acks.ALL:
            raise append_errors.too_few_in_sync(name, self.in_sync, core)
        raise append_errors.in_doubt(name)

    def on_written(self, pending: PendingAppend) -> None:
        """Decide what an acknowledgement waits for. The wait goes on across a change of leader."""
        if isinstance(pending.outcome, FINAL):
            pending.stop_deadline()  # it would give out the rejection of a leader that may have been replaced
            in_background(self._confirm_rejection(pending), "confirming a rejection", of=self.partition.name)
            return
        core = pending.leader
        is_led_on = core is not None and self._core is core
        if isinstance(pending.outcome, BaseException):
            pending.finish()
        elif not is_led_on and not isinstance(self.role, Follow | Lead):
            pending.fail(append_errors.leadership_lost(self.partition.name))
        elif pending.acks is Acks.ALL or not is_led_on or self.host.is_in_doubt:
            pending.wait_committed()  # after a leadership ends, only the next leader's commits are certain
        else:
            pending.finish()

    def on_committed(self, pending: PendingAppend) -> None:
        core, appended = pending.leader, pending.outcome
        if core is not None and self._core is core and not self._accepts_all and isinstance(appended, Appended):
            try:
                append_errors.check_acknowledged(self.partition.name, core, appended.end)
            except EngineError as error:
                pending.fail(error)
                return
        pending.finish()

    async def _confirm_rejection(self, pending: PendingAppend) -> None:
        """Ends an append with its rejection once the store has confirmed that this replica leads."""
        try:
            await self.confirm_leading()
        except Exception as error:
            pending.outcome = error
        pending.finish()

    async def confirm_leading(self) -> None:
        """Returns once the store has confirmed, after this call, that this replica leads. Raises NotLeader, NoLeader.

        Rejects at once a leader whose last contact with the store is older than its session timeout.
        """
        core, host = self._core, self.host
        if core is None:
            raise self._not_leading()
        is_confirmed = host.has_contact and await host.confirms(self, core.leader_epoch)
        if not is_confirmed or self._core is not core:
            raise append_errors.without_contact(self.partition.name)

    def check_latest(self) -> None:
        """Checks that the high watermark is the end (KIP-207). Raises NotLeader, NoLeader, OffsetNotAvailable."""
        if self._core is None:
            raise self._not_leading()
        if not self.host.has_contact:
            raise append_errors.without_contact(self.partition.name)
        if self._core.latest_offset is None:
            raise OffsetNotAvailable(f"{self.partition.name}: the new leader does not know the high watermark yet")

    def check_serves_reads(self, least_epoch: int = 0, *, from_follower: bool = False) -> None:
        """Checks that consumers may read here: from the leader or, with `from_follower`, from a replica in sync.

        Raises NotLeader, NoLeader, also if this node does not know the caller's epoch yet.
        """
        if self.role_epoch < least_epoch:
            raise self._not_leading()
        if self._core is not None:
            return
        member = self.host.member
        is_in_sync = member is not None and self.state is not None and self.state.state.is_in_sync(member.node_id)
        if not (from_follower and is_in_sync and isinstance(self.role, Follow)):
            raise self._not_leading()

    # From the store. A state counts if it is newer than the one before.

    def on_state(self, versioned: VersionedState) -> None:
        old = self.state
        if old is not None and versioned.partition_epoch <= old.partition_epoch:
            if self._is_outcome_unknown and self._core is not None and versioned.partition_epoch == old.partition_epoch:
                self._is_outcome_unknown = False
                self._core.on_proposal_rejected()  # this state was read after the proposal and does not have it
            return
        self.state = versioned
        core = self._core
        if core is not None and versioned.state.leader_epoch == core.leader_epoch:
            self._is_outcome_unknown = False
            self.do(core.on_state(versioned, self.host.now()))
            self._refresh_conditions()
        elif self.host.member is not None:
            role = role_of(self.host.member, versioned.state)
            if role != self.role:
                self._apply_role(role)
        self.host.on_moved(self)

    def on_confirmed(self, core: Leader, versioned: VersionedState) -> None:
        """Applies a proposal of this leader that the store has taken. Usually the new state has arrived before."""
        if core is self._core and self.state is not None and versioned.partition_epoch > self.state.partition_epoch:
            self.state = versioned
            self.do(core.on_confirmed(versioned.partition_epoch, self.host.now()))
            self._refresh_conditions()

    def on_outcome_unknown(self, core: Leader) -> None:
        """Notes that the outcome of the proposal is unknown. The next state from the store decides it."""
        self._is_outcome_unknown = self._is_outcome_unknown or core is self._core

    def on_nodes(self) -> None:
        """Applies a change of the host's registrations."""
        if self._core is not None:
            self._core.on_nodes(self.host.registrations)
            self._refresh_conditions()

    def resign(self) -> None:
        """Gives up the role after the end of the session: the leader is unknown."""
        self._apply_role(Wait(0))
        self.state = None

    def pause(self, is_paused: bool) -> None:  # takes no appends, so that the next leader has all of them
        self._is_paused = is_paused
        self._update_acceptance()

    @property
    def is_fully_committed(self) -> bool:
        """True if no appended record would be missing on the next leader."""
        return self._core is None or self.partition.high_watermark >= self.partition.log_end

    def tick(self) -> None:
        """Advances time in the leader core. Called a few times within `lag_s_max`."""
        if self._core is not None:
            self.note_log_start(self._core)
            self.note_compacted(self._core)
            self.do(self._core.on_tick(self.host.now()))
            self._refresh_conditions()

    # For the fetch server.

    @property
    def core(self) -> Leader | None:
        """The core of the present leadership, or None."""
        return self._core

    def do(self, effects: list[LeaderEffect]) -> None:
        if effects:
            self._carry_out(effects)
            self.host.on_moved(self)

    def note_log_start(self, core: Leader) -> None:
        log_start, local_log_start = self.partition.log.log_start, self.partition.log.local_log_start
        has_moved = core.log_start < log_start or core.local_log_start < local_log_start
        if has_moved and local_log_start <= core.high_watermark:
            core.on_log_start(log_start, local_log_start)
            self.host.on_moved(self)

    def note_compacted(self, core: Leader) -> None:
        core.on_compacted(self.partition.compacted_end)
        if core.compacted_by_all > self.partition.compacted_by_all:
            self.partition.compacted_by_all = core.compacted_by_all
            self.host.on_moved(self)

    def _apply_role(self, role: Role) -> None:
        self._end_leading(role)
        self.role, self.kept_from = role, None
        if isinstance(role, Lead):
            self._starting = in_background(self._begin_leading(role), "becoming leader", of=self.partition.name)
        self.host.on_role_changed(self)
        self.host.on_moved(self)

    async def _begin_leading(self, role: Lead) -> None:
        """Starts leading, and retries while the disk is full, still elected and rejecting appends: no record is lost.

        Going offline would exclude even an only replica from elections for the life of this process.
        """
        while await self._lead_or_retry(role):  # noqa: ASYNC110 - no event reports free disk space
            await asyncio.sleep(NO_ROOM_S)

    async def _lead_or_retry(self, role: Lead) -> bool:
        """Starts leading if the role still holds. Returns whether the disk is full, so that the caller must retry."""
        async with self.log_work:
            if self.role is not role or self.partition.offline is not None:
                return False
            log_ = self.partition.log
            if log_.leader_epoch >= role.leader_epoch:  # this process has lost what it acknowledged as this leader
                words = {"partition": self.partition.name, "epoch": role.leader_epoch}
                log.warning("cannot lead twice in one leader epoch", extra=words)
                return False
            try:
                await self.shard.start_epoch(self.partition, role.leader_epoch)
                if self.role is role and self.host.member is not None:
                    self._lead(self.host.member)
                    self.host.on_moved(self)
            except (StorageFull, TooManyOpenFiles) as error:
                log.warning("cannot lead yet", extra={"partition": self.partition.name, "reason": str(error)})
                return self.role is role
            except Exception as error:  # any kind of error: otherwise no other node would be elected
                log_failure("becoming leader", error, of=self.partition.name)
                self.host.went_offline(self)
            return False

    def _lead(self, member: Member) -> None:
        assert self.state is not None
        partition = self.partition
        self._settings = partition.settings
        host = self.host
        self._core = Leader(
            member,
            self.state,
            TopicRules.of(partition.settings),
            partition=self.key,
            lag_s_max=host.lag_s_max,
            log_start=partition.log.log_start,
            local_log_start=partition.log.local_log_start,
            log_end=partition.log_end,
            durable_end=partition.durable_end,
            watermark=partition.high_watermark,
            epochs=partition.log.epochs,
            now=host.now(),
        )
        self._core.on_nodes(host.registrations)
        self.do(self._core.on_written(partition.log_end, host.now()))
        self._update_acceptance()
        if partition.unsynced_since is not None:
            self._committer.include(partition, sync=True)

    def _end_leading(self, role: Role) -> None:
        """End leading at once: reject queued batches, and wake the long polls, which then ask the new leader.

        On a follower, acknowledgements continue to wait: the new leader may commit the records (acks.py).
        """
        if self._core is None:
            return
        self._core = None
        self._is_outcome_unknown = False
        self._update_acceptance()
        self._committer.fail_queued(self.partition, self._not_leading())
        if isinstance(role, Follow | Lead):
            asyncio.get_running_loop().call_later(LEADER_CHANGE_S, self._fail_acks)
        else:
            self._fail_acks()
        self.partition.wake_all()

    def _fail_acks(self) -> None:
        if self._core is None:  # otherwise it leads again, with all records that are waited for
            self.partition.watermark.acks.fail_present(append_errors.leadership_lost(self.partition.name))

    def on_positions_moved(self, now: float) -> None:
        """Pass the new ends of the log to the leader core, and apply its effects."""
        core, partition = self._core, self.partition
        if core is not None:
            if partition.settings is not self._settings:
                self._apply_settings(core)
            log_end = partition.log_end
            if log_end != core.log_end and (effects := core.on_written(log_end, now)):
                self._carry_out(effects)
            if partition.durable_end != core.durable_end and (effects := core.on_synced(partition.durable_end, now)):
                self._carry_out(effects)

    def _carry_out(self, effects: list[LeaderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, AdvanceWatermark):
                self.partition.watermark.advance(effect.position)
            elif isinstance(effect, Propose):
                self.host.propose(self, effect)
            else:
                self.host.step_down(self, effect)

    def _refresh_conditions(self) -> None:
        """Update the conditions for appends after a change."""
        core = self._core
        if core is not None and self.partition.settings is not self._settings:
            self._apply_settings(core)
        self._update_acceptance()

    def _apply_settings(self, core: Leader) -> None:
        self._settings, core.rules = self.partition.settings, TopicRules.of(self.partition.settings)
        self._update_acceptance()

    def _update_acceptance(self) -> None:
        """Stores whether appends are accepted now, because every append checks it."""
        core = None if self._is_paused else self._core
        self._accepts_one = core is not None
        self._accepts_all = core is not None and core.has_enough_replicas

    def _not_leading(self) -> EngineError:
        return append_errors.not_leading(self.partition.name, self.role, is_known=self.state is not None)
