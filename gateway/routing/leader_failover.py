"""Hands batches to leaders that may move: what was surely not stored is handed over again, until its time is over.

Only in a cluster; a node that is alone appends without coming here (gateway/produce/appending.py). So a failover is a
pause for producers, not an error. What must hold: (1) the batches of a partition that wait here are handed over in the
order in which they came, those of one connection therefore in theirs, and none that comes later overtakes them; (2) a
batch of which nobody knows whether it is stored goes again only if the leader would recognise it, by a sequence or a
key;
(3) such a doubt is never answered with a later refusal that says nothing was stored; (4) while nobody can take batches,
the leader is asked by one call a partition, however many wait.
Not promised: that of two batches under way the first is in front, if the leader refused it and took the second, having
begun to lead in between, or if their acks differ. A batch with a sequence is refused there, and comes again behind it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from engine.errors import Draining, EngineError
from engine.format import batch as record_batch
from engine.producers.append_validator import AppendConditions, Appended
from engine.runtime.loop_waits import loop_waits
from engine.runtime.tasks import in_background, start_task
from gateway.links.link import LinkDown, LinkLost
from gateway.routing.peers import Peers, RemoteLeader
from replication.errors import (
    LeadershipLost,
    NoLeader,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
)
from replication.replica.acks import Acks
from replication.replica.replica import Replica

ASK_S = 5.0  # for the answer of a leader that is asked whether it would append
PAUSE_S = 0.02  # before the second asking; leaders that move end a pause early
PAUSE_S_MAX = 0.25

# Refusals after which the same may succeed elsewhere or soon. A node that drains gives its leaderships away.
_PASSING = {kind.code for kind in (NotLeader, NoLeader, NotEnoughReplicas, OffsetNotAvailable, Draining)}
_DOUBTS = {kind.code for kind in (LeadershipLost, NotEnoughReplicasAfterAppend)}

AnyLeader = Replica | RemoteLeader


def will_pass(error: EngineError) -> bool:
    """Whether nothing was done because leadership moves, and trying again is ours to do."""
    return isinstance(error, LinkDown) or (error.code in _PASSING and error.no_side_effects)


def is_doubt(error: EngineError) -> bool:
    """Whether it is unknown what became of it because leadership moved."""
    return isinstance(error, LinkLost) or error.code in _DOUBTS


@dataclass(slots=True, eq=False)
class PendingProduce:
    """A batch for one partition, and until when (loop time) it may be handed over."""

    topic_id: str
    partition: int
    batch: bytes | bytearray
    acks: Acks
    conditions: AppendConditions | None
    deadline: float
    find_leader: Callable[[], AnyLeader]
    ticket: int = 0

    @property
    def is_recognised(self) -> bool:
        """Whether a leader that has it already would know. Not by an end that is expected: that has moved."""
        has_key = self.conditions is not None and self.conditions.key is not None
        return has_key or record_batch.read_header(self.batch).producer_id >= 0


class _Place(NamedTuple):
    """Of a batch in its line; the future is what the leader was then asked to do."""

    parcel: PendingProduce
    handed_over: asyncio.Future[Awaitable[Appended | None]]


@dataclass(slots=True)
class _PartitionQueue:
    """Those who wait for one partition to be led, by their tickets."""

    places: dict[int, _Place] = field(default_factory=dict)
    asking: asyncio.Task[None] | None = None


_Which = tuple[str, int, bool]


class LeaderFailover:
    """The lines of all partitions that refuse batches now: usually none."""

    def __init__(self, peers: Peers, random: Random) -> None:
        self.repeats = 0
        self._peers = peers
        self._random = random
        self._tickets = itertools.count(1)
        self._lines: dict[_Which, _PartitionQueue] = {}

    def __repr__(self) -> str:
        return f"LeaderFailover(lines={len(self._lines)}, repeats={self.repeats})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """For the metrics."""
        waiting = sum(len(line.places) for line in self._lines.values())
        yield "penstock_failover_waiting_batches", "Batches that wait for a leader that takes them", waiting
        text = "Batches that were to be handed over again, since leadership moved or too few replicas were in sync"
        yield "penstock_failover_retries_total", text, self.repeats

    def begin(self, parcel: PendingProduce) -> Awaitable[Appended | None]:
        """Hand it over now, or take its place in the line; await the outcome. Raises what no other try would mend."""
        parcel.ticket = next(self._tickets)
        if _which(parcel) in self._lines:
            return self._see_through(parcel, self._join(parcel), None)
        try:
            return self._see_through(parcel, None, _handed_over(parcel))
        except EngineError as error:
            if not will_pass(error):
                raise
            return self._see_through(parcel, self._join(parcel), None, error)

    async def _see_through(
        self,
        parcel: PendingProduce,
        place: _Place | None,
        waiting: Awaitable[Appended | None] | None,
        refusal: EngineError | None = None,
    ) -> Appended | None:
        doubt: EngineError | None = None
        while True:
            if waiting is None:
                waiting = await self._come(place or self._join(parcel), doubt or refusal)
            try:
                return await waiting
            except EngineError as error:
                if is_doubt(error):
                    doubt = error
                    if not parcel.is_recognised:
                        raise
                elif not will_pass(error):
                    raise (doubt or error) from None
                place, waiting, refusal = self._join(parcel), None, error

    def _join(self, parcel: PendingProduce) -> _Place:
        self.repeats += 1
        which = _which(parcel)
        line = self._lines.setdefault(which, _PartitionQueue())
        place = _Place(parcel, asyncio.get_running_loop().create_future())
        line.places[parcel.ticket] = place
        if line.asking is None:
            line.asking = in_background(self._ask(which, line), "asking a leader whether it takes batches")
        return place

    async def _come(self, place: _Place, refusal: EngineError | None) -> Awaitable[Appended | None]:
        """Wait until the leader takes batches again, and those with earlier tickets have been handed over."""
        parcel, handed_over = place
        try:
            return await loop_waits().deadlines.done_by(parcel.deadline, handed_over)
        except TimeoutError:
            raise refusal or NoLeader(f"{parcel.topic_id}/{parcel.partition}: no leader took it in time") from None
        finally:
            handed_over.cancel()
            line = self._lines.get(_which(parcel))
            if line is not None and line.places.get(parcel.ticket) is place:
                del line.places[parcel.ticket]

    async def _ask(self, which: _Which, line: _PartitionQueue) -> None:
        """Ask the leader again and again, and hand over once it is willing."""
        pause_s = PAUSE_S
        try:
            while line.places:
                have_moved = await self._peers.wait_for_leaders(self._random.uniform(pause_s / 2, pause_s))
                pause_s = PAUSE_S if have_moved else min(pause_s * 2, PAUSE_S_MAX)  # a new leader begins within moments
                if line.places and await self._is_willing(next(iter(line.places.values())).parcel):
                    _hand_over_all(line)
        finally:
            del self._lines[which]

    async def _is_willing(self, parcel: PendingProduce) -> bool:
        try:
            leader = parcel.find_leader()
            if isinstance(leader, RemoteLeader):
                await leader.check_append(parcel.acks, ASK_S)
            else:
                leader.check_append(parcel.acks)
        except EngineError as error:
            return not (will_pass(error) or is_doubt(error))  # what else is wrong, each batch is told itself
        return True


def _which(parcel: PendingProduce) -> _Which:
    """With acks=all apart: when too few replicas are in sync, that alone has to wait."""
    return parcel.topic_id, parcel.partition, parcel.acks is Acks.ALL


def _hand_over_all(line: _PartitionQueue) -> None:
    """Without a pause between them, so that nobody else comes in between. Ends at the first that is refused."""
    for ticket, place in sorted(line.places.items()):
        if not place.handed_over.done():
            try:
                place.handed_over.set_result(_watched(_handed_over(place.parcel)))
            except EngineError as error:
                if will_pass(error):
                    return
                place.handed_over.set_exception(error)
        del line.places[ticket]


def _handed_over(parcel: PendingProduce) -> Awaitable[Appended | None]:
    leader = parcel.find_leader()
    if parcel.acks is Acks.NONE:
        leader.append_nowait(parcel.batch, parcel.conditions)
        return _nothing()
    left_ms = max(1, round((parcel.deadline - asyncio.get_running_loop().time()) * 1000))
    return leader.produce(parcel.batch, parcel.acks, left_ms, parcel.conditions)


async def _nothing() -> None:
    """acks=0: nobody waits."""


def _watched(waiting: Awaitable[Appended | None]) -> asyncio.Future[Appended | None]:
    """Goes on when the client that would await it has left meanwhile."""
    return start_task(waiting)
