"""The replicas of one shard: makes them as partitions open, and connects them to the store and to other nodes.

Keeps one Fetcher for each shard of another node that a replica follows; the FetchServer answers other
nodes. The supervisor owns the coordination session: its events arrive by the synchronous `on_...` methods, and
proposals leave by `propose`. The transport is passed in too (`connect`). A standalone node uses standalone.py.
Invariant: on_session_lost ends every leadership before it returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from engine.directory.placement import shard_of
from engine.errors import EngineError, StorageFailed
from engine.log.batch_cache import BatchCaches
from engine.partition.partition import Partition
from engine.partition.spool import Spool
from engine.runtime.tasks import BackgroundTasks, keep_running
from engine.shard.served_topics import Topic
from engine.shard.shard import Shard
from replication.cluster.store_calls import Coalescer
from replication.cluster.values import Confirmed, Outcome, OutcomeUnknown, Proposal, Rejected
from replication.cores.leader import Leader, Propose, StepDown
from replication.cores.partition_state import Member, Registrations, VersionedState
from replication.cores.role import Follow, Lead, role_of
from replication.cores.session import Session, SessionEvent
from replication.replica.fetch_server import FetchServer
from replication.replica.fetcher import Exchange, Fetcher, FetchLimits
from replication.replica.follower import FollowerDriver
from replication.replica.leader_fetch import LeaderFetch
from replication.replica.replica import Replica
from replication.replica.standalone import StandaloneReplica
from replication.replica.unreadable import RepairMeans, UnreadableReplicas, damaged_segments

TICKS_IN_LAG = 8  # how often within `lag_s_max` a leader checks for followers that lag
TICK_S_MAX = 1.0
CONFIRM_S = 2.0  # a store answers within milliseconds; a client waits for this, then gets a retryable error

log = logging.getLogger("penstock.replication")

Proposing = Callable[[Sequence[Proposal]], Awaitable[Sequence[Outcome]]]
Confirming = Callable[[Sequence[tuple[str, int]]], Awaitable[Mapping[tuple[str, int], VersionedState]]]


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    lag_s_max: float = 10.0
    catchup_bytes_per_second: int = 0
    fetches: FetchLimits = field(default_factory=FetchLimits)
    session_timeout_s: float = inf  # of a coordination store in the node itself, which fails with it
    cache_bytes_max: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _LeaderAddress:
    """The address of a shard of another node, for its followers."""

    node_id: int
    shard: int
    url: str


@dataclass(slots=True)
class _Hosted:
    replica: Replica
    following: FollowerDriver
    serving: LeaderFetch
    topic_id: str
    number: int
    endpoint: _LeaderAddress | None = None


class ReplicaHost:
    """Hosts the replicas of a shard; see the module docstring."""

    def __init__(
        self,
        index: int,
        limits: ReplicaLimits,
        *,
        connect: Callable[[str], Exchange],
        propose: Proposing,
        confirm: Confirming | None,
        boottime: Callable[[], float],
        partition_offline: Callable[[str, int], None],
        distrust: Callable[[str, int], None],
        new_session: Callable[[], str],
        spool: Spool | None = None,
        partition_online: Callable[[str, int], None] = lambda *_: None,
    ) -> None:
        self.member: Member | None = None
        self.registrations: Registrations = {}
        self.lag_s_max = limits.lag_s_max
        self.spool = spool or Spool()
        self._index = index
        self._limits = limits
        self._connect = connect
        self._propose = propose
        self._confirmed = None if confirm is None else Coalescer(confirm)
        self._boottime = boottime
        self._session = Session(limits.session_timeout_s, -inf)
        self._partition_offline, self._partition_online = partition_offline, partition_online
        self._distrust = distrust
        self._new_session = new_session
        self._loop = asyncio.get_running_loop()
        self._urls: Mapping[int, Sequence[str]] = {}
        self._states: dict[str, VersionedState] = {}
        self._hosted: dict[str, _Hosted] = {}
        self.by_partition: dict[Partition, Replica] = {}
        self.lasting: dict[Partition, StandaloneReplica] = {}  # none: the controller elects the leaders
        self._fetchers: dict[_LeaderAddress, Fetcher] = {}
        self._proposals: list[tuple[Replica, Leader, Propose]] = []
        self._background = BackgroundTasks()
        self.caches = BatchCaches(limits.cache_bytes_max)
        self.server = FetchServer(self._serving, limits.catchup_bytes_per_second)
        self.now = self._loop.time
        means = RepairMeans(self.now, self.went_offline, self.came_back, self.send_position, self.leader_exchange)
        self.unreadable = UnreadableReplicas(means, new_session)
        self._ticker = keep_running(self._tick_forever, "ticking leaders")

    def __repr__(self) -> str:
        return f"ReplicaHost({self.member}, {len(self._hosted)} replicas, {len(self._fetchers)} fetchers)"

    async def stop(self) -> None:
        """Stops leading and following, before the shard stops."""
        self.on_session_lost()
        self.unreadable.stop()
        self._ticker.cancel()
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers))
        await self._background.wait_ended()

    @property
    def cached_bytes(self) -> int:
        """The memory of batches that followers in sync still lack."""
        return self.caches.size_bytes

    def replicas(self) -> Iterable[Replica]:
        return (hosted.replica for hosted in self._hosted.values())

    # From the shard (engine.shard.shard.ShardEvents).

    def on_opened(self, shard: Shard, topic: Topic, partition: Partition) -> None:
        key = f"{topic.record.topic_id}/{partition.number}"
        replica = Replica(partition, shard, key, self)
        following = FollowerDriver(replica, self._background)
        serving = LeaderFetch(replica, self.caches)
        self._hosted[key] = _Hosted(replica, following, serving, topic.record.topic_id, partition.number)
        self.by_partition[partition] = replica
        partition.is_replicated = True
        if partition.offline is not None:
            self.went_offline(replica)
        elif (state := self._states.get(key)) is not None and self.member is not None:
            replica.on_state(state)

    def on_closed(self, partitions: Iterable[Partition]) -> None:
        """Removes the replicas of partitions that were deleted or reassigned."""
        for partition in partitions:
            replica = self.by_partition.pop(partition, None)
            if replica is not None:
                replica.resign()
                self.unreadable.forget(replica.key)
                del self._hosted[replica.key]

    def on_positions_moved(self, partition: Partition) -> None:
        replica = self.by_partition.get(partition)
        if replica is not None:
            replica.on_positions_moved(self.now())
            if (cache := partition.log.batch_cache) is not None:
                cache.drop_below(partition.high_watermark)
            self.on_moved(replica)

    def partition_went_offline(self, partition: Partition) -> None:
        """Resign if the disk has failed: the partition was not just closed."""
        replica, offline = self.by_partition.get(partition), partition.offline
        if replica is not None and offline is not None and offline.code == StorageFailed.code:
            self.went_offline(replica)

    def on_damaged(self, partition: Partition, offset: int) -> None:
        """Repairs a follower. A leader is replaced once a read meets the damage, if the store does not help first."""
        if (replica := self.by_partition.get(partition)) is not None and isinstance(replica.role, Follow):
            self.on_read_failed(partition, offset)

    def on_read_failed(self, partition: Partition, offset: int) -> None:
        if (replica := self.by_partition.get(partition)) is not None:
            self.unreadable.on_failed_read(replica, self._hosted[replica.key].following, offset)

    def leading_epoch(self, partition: Partition) -> int | None:
        """Returns the leader epoch for the shipper; None on a follower. Raises KeyError if the partition is closed."""
        core = self.by_partition[partition].core
        return None if core is None else core.leader_epoch

    def compacted_by_all(self, partition: Partition) -> int:
        return partition.compacted_by_all

    # From the supervisor.

    def on_registered(self, member: Member) -> None:
        self.member = member
        for key, hosted in self._hosted.items():
            is_offline = hosted.replica.partition.offline is not None
            if is_offline or key in self.unreadable.reported:
                self._partition_offline(hosted.topic_id, hosted.number)  # the session that knew it has ended
            if not is_offline and (state := self._states.get(key)) is not None:
                hosted.replica.on_state(state)

    def on_session_lost(self) -> None:
        self.member = None
        for hosted in self._hosted.values():
            hosted.replica.resign()

    def on_contact(self, at: float) -> None:
        """Records contact with the store: it has answered a message that the supervisor sent at this time."""
        self._session.on(SessionEvent.ANSWERED, at)

    def on_nodes(self, registrations: Registrations, urls: Mapping[int, Sequence[str]]) -> None:
        """Takes the registered nodes, and the internal URLs of their shards, in the order of the shards."""
        self.registrations, self._urls = registrations, urls
        for hosted in self._hosted.values():
            hosted.replica.on_nodes()
            self._follow_leader(hosted)

    def on_states(self, changed: Iterable[tuple[str, int, VersionedState]]) -> None:
        for topic_id, number, versioned in changed:
            key = f"{topic_id}/{number}"
            old = self._states.get(key)
            if old is None or versioned.partition_epoch >= old.partition_epoch:
                self._states[key] = versioned
            if (hosted := self._hosted.get(key)) is not None and self.member is not None:
                hosted.replica.on_state(versioned)

    def on_deleted(self, topic_id: str) -> None:
        """Forgets the states of a topic that was deleted from the store."""
        for key in [key for key in self._states if key.startswith(f"{topic_id}/")]:
            del self._states[key]

    # From the replicas (replica.Host).

    @property
    def is_in_doubt(self) -> bool:
        return not self._session.may_acknowledge_locally(self._boottime())

    @property
    def store_age_s(self) -> float | None:
        return None if self._confirmed is None else self._session.age_s(self._boottime())

    @property
    def has_contact(self) -> bool:
        return self._session.has_contact(self._boottime())

    async def confirms(self, replica: Replica, leader_epoch: int) -> bool:
        if self._confirmed is None:
            return True
        try:
            async with asyncio.timeout(CONFIRM_S):
                versioned = await self._confirmed.answer(_split(replica.key))
        except (EngineError, TimeoutError):
            return False
        member = self.member
        return member is not None and versioned is not None and role_of(member, versioned.state) == Lead(leader_epoch)

    def on_moved(self, replica: Replica) -> None:
        self.server.on_change(replica.key)
        hosted = self._hosted.get(replica.key)
        if hosted is not None and hosted.endpoint is not None and (fetcher := self._fetchers.get(hosted.endpoint)):
            fetcher.include(replica.key)

    def on_role_changed(self, replica: Replica) -> None:
        hosted = self._hosted.get(replica.key)
        if hosted is not None:
            hosted.serving.end_cache()
            self._unfollow(hosted)
            self._follow_leader(hosted)
            if damaged := damaged_segments(replica.partition):  # also what was found before a restart
                self.on_damaged(replica.partition, damaged[0].base_offset)

    def propose(self, replica: Replica, change: Propose) -> None:
        core = replica.core
        assert core is not None
        if not self._proposals:
            self._loop.call_soon(self._start_proposing)
        self._proposals.append((replica, core, change))

    def went_offline(self, replica: Replica) -> None:
        """Resign after a failure of the disk, so that another node is elected and waiting acknowledgements fail."""
        replica.resign()
        self._partition_offline(*_split(replica.key))

    def step_down(self, replica: Replica, why: StepDown) -> None:
        """Resign, and register as one whose log of the partition is not trusted, so that a replica with the records
        leads.
        """
        log.error(
            "this leader lacks committed records that a follower has: its disk was rolled back; it steps down",
            extra={
                "partition": replica.partition.name,
                "log_end": replica.partition.log_end,
                "follower": why.node_id,
                "high_watermark": why.high_watermark,
            },
        )
        replica.resign()
        self._distrust(*_split(replica.key))

    def came_back(self, replica: Replica) -> None:
        """Withdraw the report of `went_offline`, if there is one."""
        self._partition_online(*_split(replica.key))

    def send_position(self, replica: Replica) -> None:
        """Go on fetching from the log's end: fetches of another session have changed the position at the leader."""
        hosted = self._hosted.get(replica.key)
        if hosted is not None and hosted.endpoint is not None and (fetcher := self._fetchers.get(hosted.endpoint)):
            fetcher.send_again(replica.key)

    def leader_exchange(self, replica: Replica) -> Exchange | None:
        """Returns the connection to the leader that a replica follows."""
        hosted = self._hosted.get(replica.key)
        address = None if hosted is None else self._address_of(hosted)
        return None if address is None else self._connect(address.url)

    # Inside.

    def _serving(self, key: str) -> LeaderFetch | None:
        hosted = self._hosted.get(key)
        return None if hosted is None else hosted.serving

    def _follow_leader(self, hosted: _Hosted) -> None:
        """Fetches from the present address of the leader, if the replica follows one that is registered."""
        endpoint = self._address_of(hosted)
        if endpoint == hosted.endpoint:
            return
        self._unfollow(hosted)
        hosted.endpoint = endpoint
        if endpoint is not None:
            if (fetcher := self._fetchers.get(endpoint)) is None:
                fetcher = self._fetchers[endpoint] = self._new_fetcher(endpoint)
            fetcher.add(hosted.following)

    def _address_of(self, hosted: _Hosted) -> _LeaderAddress | None:
        role = hosted.replica.role
        if not isinstance(role, Follow):
            return None
        urls = self._urls.get(role.leader)
        if not urls:
            return None
        shard = shard_of(hosted.topic_id, hosted.number, len(urls))
        return _LeaderAddress(role.leader, shard, urls[shard])

    def _unfollow(self, hosted: _Hosted) -> None:
        endpoint, hosted.endpoint = hosted.endpoint, None
        if endpoint is None:
            return
        fetcher = self._fetchers[endpoint]
        fetcher.remove(hosted.replica.key)
        if not len(fetcher) and endpoint.url not in self._urls.get(endpoint.node_id, ()):
            del self._fetchers[endpoint]  # a node that stays may lead another partition again
            self._background.start(fetcher.stop(), "stopping a fetcher")

    def _new_fetcher(self, endpoint: _LeaderAddress) -> Fetcher:
        exchange = self._connect(endpoint.url)
        return Fetcher(exchange, lambda: self.member, self._index, self._limits.fetches, self._new_session)

    def _start_proposing(self) -> None:
        proposals, self._proposals = self._proposals, []
        self._background.start(self._send_proposals(proposals), "proposing partition states")

    async def _send_proposals(self, changes: Sequence[tuple[Replica, Leader, Propose]]) -> None:
        proposals = [
            Proposal(*_split(replica.key), change.partition_epoch, change.state) for replica, _, change in changes
        ]
        outcomes: Sequence[Outcome]
        try:
            outcomes = await self._propose(proposals)
        except Exception as error:
            log.warning("proposals got no answer", extra={"reason": repr(error)})
            outcomes = [OutcomeUnknown()] * len(proposals)
        for (replica, core, change), outcome in zip(changes, outcomes, strict=True):
            match outcome:
                case Confirmed(partition_epoch):
                    replica.on_confirmed(core, VersionedState(change.state, partition_epoch))
                case Rejected(newer):
                    if newer is not None:
                        replica.on_state(newer)
                case OutcomeUnknown():
                    replica.on_outcome_unknown(core)

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(min(TICK_S_MAX, self.lag_s_max / TICKS_IN_LAG))
            for hosted in list(self._hosted.values()):
                try:
                    hosted.replica.tick()
                except Exception:  # a bug in one partition's leadership must not affect the others
                    log.exception("a tick of a replica failed", extra={"partition": hosted.replica.key})


def _split(key: str) -> tuple[str, int]:
    topic_id, number = key.rsplit("/", 1)
    return topic_id, int(number)
