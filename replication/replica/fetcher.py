"""Fetches from one shard of another node for all local replicas that follow partitions it leads: one loop, one session.

The transport is passed in (`Exchange`); each replica's `FollowerDriver` handles the answers. A round has only the
changes; the first round of a session, and so the first after any failure, has everything.

A replica that begins to follow while a fetch is held at the leader is fetched at once: the next round is sent before
the answer of this one, and the leader then ends its wait. At most two rounds are in flight. If the leader had more than
it sent, the rest is requested while that is written (`_prefetch`), so a follower that catches up waits for the network
or for its disk, not for one after the other.

Invariants: answers are handled in the order of their rounds; a partition answered with batches is requested again;
besides the answer being written at most two are in memory, each of `bytes_max` or one batch; every position that a
fetch sends is in the log, and an answer requested ahead is dropped if the one before it could not be written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.errors import Invalid
from engine.format.batch import Buffer
from engine.runtime.tasks import keep_running, start_task
from replication.cores.fetch import BatchesEnd, FetchAnswer, FollowerFetch, Send
from replication.cores.partition_state import Member
from replication.replica.fetch_wire import (
    FetchRequest,
    PartitionResponse,
    as_fetch_partition,
    decode_reply,
    encode_request,
)
from replication.replica.follower import FetchedData, FollowerDriver

BACKOFF_S, BACKOFF_S_MAX = 0.05, 1.0
GATHER_S = 0.002  # replicas that begin to follow together share a round

log = logging.getLogger("penstock.replication")

Exchange = Callable[[bytes], Awaitable[Buffer]]
"""Send the body of a fetch, return that of its answer. Raises PeerUnreachable."""


class PeerUnreachable(Exception):
    """The other node did not answer, or not with a valid answer. Retry after a moment."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    bytes_min: int = 1
    bytes_max: int = 8 * 1024 * 1024
    wait_ms: int = 500


@dataclass(slots=True)
class _FollowedPartition:
    following: FollowerDriver
    sent: FollowerFetch | None = None  # the fetch that the leader holds; None: the partition must be requested again
    sent_in: int = -1  # the round
    ahead: BatchesEnd | None = None  # the end of the answer that is about to be written, for the next round
    is_in_work: bool = False  # an answer is being written; without `ahead` the next request follows that
    is_delayed: bool = False  # writing failed, and the next request is delayed

    @property
    def is_prefetched(self) -> bool:
        return self.sent is not None and self.sent.ahead is not None


class _Work(NamedTuple):
    """Holds an answer to handle, and its fetch. `is_over`: the leader does not hold that fetch any more."""

    key: str
    followed: _FollowedPartition
    fetch: FollowerFetch
    answer: FetchAnswer
    fetched: FetchedData
    is_over: bool


class Fetcher:
    """Follows partitions of one leader shard; see the module docstring."""

    def __init__(
        self,
        exchange: Exchange,
        own_member: Callable[[], Member | None],
        shard: int,
        limits: FetchLimits,
        new_session: Callable[[], str],
    ) -> None:
        self._exchange = exchange
        self._own_member = own_member
        self._shard = shard
        self._limits = limits
        self._new_session = new_session
        self._loop = asyncio.get_running_loop()
        self._followed: dict[str, _FollowedPartition] = {}
        self._changed: dict[str, None] = {}  # to be checked before the next round
        self._forgotten: dict[str, None] = {}  # to be sent with the next round
        self._ahead: list[str] = []  # requested ahead in a round that is in flight
        self._session, self._session_epoch = "", -1
        self._taken = -1  # the last round whose answer has come
        self._next: asyncio.Future[Buffer] | None = None  # the answer to the round after the one that is held
        self._is_held = self._is_stopping = False
        self._interruption: asyncio.TimerHandle | None = None
        self._fetch_due = asyncio.Event()
        self._task = keep_running(self._run, "fetching from a leader")
        self._can_be_ended = True
        self.rounds = 0
        self.failures = 0
        self.fetched_partitions = 0  # partitions, over all rounds

    def __repr__(self) -> str:
        return f"Fetcher({len(self._followed)} followed, session={self._session}, session_epoch={self._session_epoch})"

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, following: FollowerDriver) -> None:
        key = following.replica.key
        self._followed[key] = _FollowedPartition(following)
        self._forgotten.pop(key, None)
        self._send_now(key)

    def remove(self, key: str) -> None:
        if self._followed.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def include(self, key: str) -> None:
        """Includes the replica in the next round, whenever that is sent: its position may have changed."""
        if key in self._followed:
            self._changed[key] = None

    def send_again(self, key: str) -> None:
        """Sends the position of a replica, also an unchanged one: the leader has another."""
        if key in self._followed:
            self._followed[key].sent = None
            self._send_now(key)

    async def stop(self) -> None:
        """Stops fetching. Appends what was received first, so that a truncation never runs concurrently."""
        self._is_stopping = True
        if self._can_be_ended:
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _send_now(self, key: str) -> None:
        """Sends a round for this partition at once, even if one is held."""
        if key in self._followed:
            self._changed[key] = None
            self._fetch_due.set()
            self._interrupt_soon()

    def _interrupt_soon(self) -> None:
        if self._interruption is None:
            self._interruption = self._loop.call_later(GATHER_S, self._interrupt)

    def _interrupt(self) -> None:
        self._interruption = None
        if self._is_held and self._next is None and self._own_member() is not None and not self._is_stopping:
            self._next = start_task(self._exchange(self._request()))

    async def _run(self) -> None:
        backoff_s = BACKOFF_S
        while not self._is_stopping:
            rounds = self.rounds
            try:
                await self._fetch_forever()
            except (PeerUnreachable, Invalid) as error:
                log.info("a leader cannot be reached", extra={"reason": str(error)})
            except Exception:  # a bug in one answer must not end all following
                log.exception("a fetcher failed")
            finally:
                await self._end_session()
            self.failures += 1
            backoff_s = BACKOFF_S if self.rounds > rounds else min(backoff_s * 2, BACKOFF_S_MAX)
            await asyncio.sleep(backoff_s)

    async def _end_session(self) -> None:
        self._session, self._is_held, self._can_be_ended = "", False, True
        begun, self._next = self._next, None
        if begun is not None:
            begun.cancel()
            await asyncio.gather(begun, return_exceptions=True)

    async def _fetch_forever(self) -> None:
        while not self._is_stopping:
            if self._next is None and (not self._followed or self._own_member() is None):
                self._fetch_due.clear()
                await self._fetch_due.wait()
                continue
            begun: Awaitable[Buffer]
            if self._next is not None:
                begun, self._next, session_epoch = self._next, None, self._session_epoch
            else:
                begun, session_epoch = self._exchange(self._request()), self._session_epoch
            self._is_held = True
            body = await begun
            self._is_held = self._can_be_ended = False
            self.rounds += 1
            await self._apply_reply(body, session_epoch)
            self._can_be_ended = True

    def _request(self) -> bytes:
        """Encodes the next round. Its changes count as sent: if it does not arrive, the session ends."""
        member = self._own_member()
        assert member is not None
        is_full = not self._session
        if is_full:
            self._session, self._session_epoch, self._taken = self._new_session(), -1, -1
            self._changed = dict.fromkeys(self._followed)
            self._forgotten.clear()
        self._session_epoch += 1
        partitions = []
        for key in self._changed:
            followed = self._followed[key]
            if is_full:
                followed.sent, followed.ahead, followed.is_in_work = None, None, False
            fetch = self._next_fetch_of(followed)
            followed.ahead = None
            if fetch is not None:
                followed.sent, followed.sent_in, followed.is_delayed = fetch, self._session_epoch, False
                partitions.append(as_fetch_partition(key, fetch))
        forgotten = list(self._forgotten)
        self._changed, self._forgotten = {}, {}
        self.fetched_partitions += len(partitions)
        return encode_request(
            FetchRequest(
                session=self._session,
                session_epoch=self._session_epoch,
                is_full=is_full,
                node_id=member.node_id,
                broker_epoch=member.broker_epoch,
                shard=self._shard,
                bytes_min=1 if self._ahead else self._limits.bytes_min,  # a short wait: the next round acknowledges
                bytes_max=self._limits.bytes_max,
                wait_ms=self._limits.wait_ms,
                partitions=partitions,
                forgotten=forgotten,
            )
        )

    def _next_fetch_of(self, followed: _FollowedPartition) -> FollowerFetch | None:
        """Returns a replica's fetch; None if it must not fetch, has nothing to send, or an answer is in flight."""
        if followed.is_in_work and followed.ahead is None:
            return None
        fetch = followed.following.next_fetch(followed.ahead)
        if fetch is None or followed.sent is None:
            return fetch
        is_same_leadership = fetch.leader_epoch == followed.sent.leader_epoch
        if followed.is_prefetched and followed.sent_in > self._taken and is_same_leadership and not followed.is_delayed:
            return None
        return None if _is_same(fetch, followed.sent) else fetch

    async def _apply_reply(self, body: Buffer, session_epoch: int) -> None:
        reply, data = decode_reply(body)
        if not reply.is_session_known:
            await self._end_session()
            return
        work = [
            counted
            for response, batches in zip(reply.responses, data, strict=True)
            if (counted := self._counted(response, batches, session_epoch)) is not None
        ]
        self._taken = session_epoch
        self._requeue_prefetched()
        if self._next is None and self._own_member() is not None and not self._is_stopping:
            self._prefetch(work)
        if len(work) == 1:
            await self._apply(work[0])
        elif work:
            await asyncio.gather(*map(self._apply, work))
        if self._next is not None and any(self._next_fetch_of(self._followed[key]) for key in self._changed):
            self._interrupt_soon()  # reports the new positions, if the leader holds the round in flight

    def _counted(self, response: PartitionResponse, batches: Buffer, session_epoch: int) -> _Work | None:
        """Returns the answer if it counts, or None.

        If the partition was requested again meanwhile, the leader will answer that. After an answer that could not be
        written, none can be.
        """
        followed = self._followed.get(response.key)
        if followed is None or followed.sent is None or followed.sent_in > session_epoch:
            return None
        fetch, answer = followed.sent, response.answer_to(followed.sent)
        is_over = response.size_bytes > 0 or not isinstance(answer, Send)
        if is_over:
            followed.sent = None
            if followed.is_delayed:
                return None
        followed.is_in_work = is_over
        fetched = FetchedData(
            batches, response.log_end, response.is_segment_start, response.producer_state_offset, response.end
        )
        return _Work(response.key, followed, fetch, answer, fetched, is_over)

    def _requeue_prefetched(self) -> None:
        """Queues replicas whose ahead round was held to its end: the leader lacks their positions since then."""
        ahead, self._ahead = self._ahead, []
        for key in ahead:
            followed = self._followed.get(key)
            if followed is None or not followed.is_prefetched:
                continue
            if followed.sent_in > self._taken:
                self._ahead.append(key)
            else:
                self._changed[key] = None

    def _prefetch(self, work: Sequence[_Work]) -> None:
        """Sends the next round at once if the leader had more than it sent: it travels while this answer is written."""
        for item in work:
            if item.is_over and isinstance(item.answer, Send) and (end := item.fetched.end_of_part) is not None:
                item.followed.ahead = end
                self._changed[item.key] = None
                self._ahead.append(item.key)
        if any(item.followed.ahead is not None for item in work):
            self._next = start_task(self._exchange(self._request()))

    async def _apply(self, work: _Work) -> None:
        followed, key = work.followed, work.key
        delay_s = await followed.following.on_answer(work.fetch, work.answer, work.fetched)
        if not work.is_over or self._followed.get(key) is not followed:
            return
        followed.is_in_work = False
        if delay_s:
            followed.is_delayed = True
            self._loop.call_later(delay_s, self._send_now, key)
        elif not followed.is_prefetched:
            self._changed[key] = None


def _is_same(fetch: FollowerFetch, sent: FollowerFetch) -> bool:
    """True if the fetch has nothing new for the leader, which knows the watermark that it sent."""
    return replace(fetch, high_watermark=sent.high_watermark) == sent
