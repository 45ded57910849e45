"""Fetches from one shard of another node for all replicas here that follow partitions it leads: one loop, one session.

The transport is given (`Exchange`); what an answer means is each replica's `FollowerDriver`. A round names only what
has changed; the first of a session, and so the first after anything failed, names all.
While a fetch is held at the leader, a replica that has just begun to follow is asked for at once: the next round goes
out before the answer to this one has come, and the leader then ends the wait of this one. At most two are under way.
Where the leader had more than it sent, what follows is asked for while that is being written (`_ask_ahead`), so that
who catches up waits for the network or for its disk, not for one after the other.
Invariants: answers are taken in the order of their rounds; what was answered with batches is asked for again; besides
the answer that is being written at most two are in memory, each of `bytes_max` or one batch; what a fetch tells of
the log is in it, and an answer that was asked for ahead is dropped if the one before it could not be written.
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
from replication.replica.fetch_wire import Answered, FetchRequest, as_asked, decode_reply, encode_request
from replication.replica.follower import FollowerDriver, Sent

BACKOFF_S, BACKOFF_S_MAX = 0.05, 1.0
GATHER_S = 0.002  # replicas that begin to follow together are asked for together

log = logging.getLogger("penstock.replication")

Exchange = Callable[[bytes], Awaitable[Buffer]]
"""Send the body of a fetch, return that of its answer. Raises PeerUnreachable."""


class PeerUnreachable(Exception):
    """The other node did not answer, or not with an answer. Try again after a moment."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    bytes_min: int = 1
    bytes_max: int = 8 * 1024 * 1024
    wait_ms: int = 500


@dataclass(slots=True)
class _Followed:
    following: FollowerDriver
    sent: FollowerFetch | None = None  # what the leader waits with; None: it is to be asked for again
    sent_in: int = -1  # the round
    ahead: BatchesEnd | None = None  # where the answer ends that is about to be written, for the next round
    is_in_work: bool = False  # an answer is being written; apart from `ahead` it is asked for afterwards
    is_delayed: bool = False  # that has failed, and it is asked for after a while

    @property
    def is_asked_ahead(self) -> bool:
        return self.sent is not None and self.sent.ahead is not None


class _Work(NamedTuple):
    """An answer that counts, and the fetch that it answers. `is_over`: the leader waits with that no more."""

    key: str
    followed: _Followed
    fetch: FollowerFetch
    answer: FetchAnswer
    sent: Sent
    is_over: bool


class Fetcher:
    """See the head of the file."""

    def __init__(
        self,
        exchange: Exchange,
        own: Callable[[], Member | None],
        shard: int,
        limits: FetchLimits,
        new_session: Callable[[], str],
    ) -> None:
        self._exchange = exchange
        self._own = own
        self._shard = shard
        self._limits = limits
        self._new_session = new_session
        self._loop = asyncio.get_running_loop()
        self._followed: dict[str, _Followed] = {}
        self._changed: dict[str, None] = {}  # to be looked at before the next round
        self._forgotten: dict[str, None] = {}  # to be told with the next round
        self._ahead: list[str] = []  # asked ahead in a round that is under way
        self._session, self._round = "", -1
        self._taken = -1  # the last round whose answer has come
        self._next: asyncio.Future[Buffer] | None = None  # the answer to the round behind the one that is held
        self._is_held = self._is_stopping = False
        self._interruption: asyncio.TimerHandle | None = None
        self._wanted = asyncio.Event()
        self._task = keep_running(self._run, "fetching from a leader")
        self._can_be_ended = True
        self.rounds = 0
        self.failures = 0
        self.asked = 0  # partitions, over all rounds
        self.bytes_received = 0

    def __repr__(self) -> str:
        return f"Fetcher({len(self._followed)} followed, session={self._session}, round={self._round})"

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, following: FollowerDriver) -> None:
        key = following.replica.key
        self._followed[key] = _Followed(following)
        self._forgotten.pop(key, None)
        self._ask(key)

    def forget(self, key: str) -> None:
        if self._followed.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def moved(self, key: str) -> None:
        """The replica's position may have changed: the next round tells, whenever that is."""
        if key in self._followed:
            self._changed[key] = None

    async def stop(self) -> None:
        """Ask no more. What has been received is appended first: a cut must not find it under way."""
        self._is_stopping = True
        if self._can_be_ended:
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _ask(self, key: str) -> None:
        """With a round of its own, if one is held."""
        if key in self._followed:
            self._changed[key] = None
            self._wanted.set()
            self._interrupt_soon()

    def _interrupt_soon(self) -> None:
        if self._interruption is None:
            self._interruption = self._loop.call_later(GATHER_S, self._interrupt)

    def _interrupt(self) -> None:
        self._interruption = None
        if self._is_held and self._next is None and self._own() is not None and not self._is_stopping:
            self._next = start_task(self._exchange(self._request()))

    async def _run(self) -> None:
        backoff_s = BACKOFF_S
        while not self._is_stopping:
            rounds = self.rounds
            try:
                await self._fetch_for_ever()
            except (PeerUnreachable, Invalid) as error:
                log.info("a leader is out of reach", extra={"reason": str(error)})
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

    async def _fetch_for_ever(self) -> None:
        while not self._is_stopping:
            if self._next is None and (not self._followed or self._own() is None):
                self._wanted.clear()
                await self._wanted.wait()
                continue
            begun: Awaitable[Buffer]
            if self._next is not None:
                begun, self._next, round_ = self._next, None, self._round
            else:
                begun, round_ = self._exchange(self._request()), self._round
            self._is_held = True
            body = await begun
            self._is_held = self._can_be_ended = False
            self.rounds += 1
            self.bytes_received += len(body)
            await self._take(body, round_)
            self._can_be_ended = True

    def _request(self) -> bytes:
        """The next round. What it tells counts as sent: if it does not arrive, the session is over."""
        own = self._own()
        assert own is not None
        is_full = not self._session
        if is_full:
            self._session, self._round, self._taken = self._new_session(), -1, -1
            self._changed = dict.fromkeys(self._followed)
            self._forgotten.clear()
        self._round += 1
        asked = []
        for key in self._changed:
            one = self._followed[key]
            if is_full:
                one.sent, one.ahead, one.is_in_work = None, None, False
            fetch = self._news_of(one)
            one.ahead = None
            if fetch is not None:
                one.sent, one.sent_in, one.is_delayed = fetch, self._round, False
                asked.append(as_asked(key, fetch))
        forgotten = list(self._forgotten)
        self._changed, self._forgotten = {}, {}
        self.asked += len(asked)
        return encode_request(
            FetchRequest(
                session=self._session,
                round=self._round,
                is_full=is_full,
                node_id=own.node_id,
                incarnation=own.incarnation,
                shard=self._shard,
                bytes_min=1 if self._ahead else self._limits.bytes_min,  # what is being written is told after this one
                bytes_max=self._limits.bytes_max,
                wait_ms=self._limits.wait_ms,
                asked=asked,
                forgotten=forgotten,
            )
        )

    def _news_of(self, one: _Followed) -> FollowerFetch | None:
        """What to ask for a replica now. None if it must not, the leader knows it all, or an answer is on its way."""
        if one.is_in_work and one.ahead is None:
            return None
        fetch = one.following.next_fetch(one.ahead)
        if fetch is None or one.sent is None:
            return fetch
        is_same_leadership = fetch.leader_epoch == one.sent.leader_epoch
        if one.is_asked_ahead and one.sent_in > self._taken and is_same_leadership and not one.is_delayed:
            return None
        return None if _is_same(fetch, one.sent) else fetch

    async def _take(self, body: Buffer, round_: int) -> None:
        reply, data = decode_reply(body)
        if not reply.is_session_known:
            await self._end_session()
            return
        work = [
            found
            for one, batches in zip(reply.answered, data, strict=True)
            if (found := self._counted(one, batches, round_)) is not None
        ]
        self._taken = round_
        self._look_after_those_asked_ahead()
        if self._next is None and self._own() is not None and not self._is_stopping:
            self._ask_ahead(work)
        if len(work) == 1:
            await self._apply(work[0])
        elif work:
            await asyncio.gather(*map(self._apply, work))
        if self._next is not None and any(self._news_of(self._followed[key]) for key in self._changed):
            self._interrupt_soon()  # what was written is to be told, should the leader hold the round under way

    def _counted(self, one: Answered, batches: Buffer, round_: int) -> _Work | None:
        """None for what does not count: of a partition that was asked for anew meanwhile the leader will answer that,
        and behind what could not be written nothing can be.
        """
        followed = self._followed.get(one.key)
        if followed is None or followed.sent is None or followed.sent_in > round_:
            return None
        fetch, answer = followed.sent, one.answer_to(followed.sent)
        is_over = one.size_bytes > 0 or not isinstance(answer, Send)
        if is_over:
            followed.sent = None
            if followed.is_delayed:
                return None
        followed.is_in_work = is_over
        sent = Sent(batches, one.log_end, one.is_segment_start, one.handed_offset, one.end)
        return _Work(one.key, followed, fetch, answer, sent, is_over)

    def _look_after_those_asked_ahead(self) -> None:
        """The leader held their round to its end, and waits with what they told before the last answer was written."""
        ahead, self._ahead = self._ahead, []
        for key in ahead:
            followed = self._followed.get(key)
            if followed is None or not followed.is_asked_ahead:
                continue
            if followed.sent_in > self._taken:
                self._ahead.append(key)
            else:
                self._changed[key] = None

    def _ask_ahead(self, work: Sequence[_Work]) -> None:
        """The next round at once, if the leader had more than it sent: it comes while this answer is written."""
        for one in work:
            if one.is_over and isinstance(one.answer, Send) and (end := one.sent.end_of_part) is not None:
                one.followed.ahead = end
                self._changed[one.key] = None
                self._ahead.append(one.key)
        if any(one.followed.ahead is not None for one in work):
            self._next = start_task(self._exchange(self._request()))

    async def _apply(self, work: _Work) -> None:
        followed, key = work.followed, work.key
        delay_s = await followed.following.on_answer(work.fetch, work.answer, work.sent)
        if not work.is_over or self._followed.get(key) is not followed:
            return
        followed.is_in_work = False
        if delay_s:
            followed.is_delayed = True
            self._loop.call_later(delay_s, self._ask, key)
        elif not followed.is_asked_ahead:
            self._changed[key] = None


def _is_same(fetch: FollowerFetch, sent: FollowerFetch) -> bool:
    """Whether it tells the leader nothing new: what it told us of the watermark it knows."""
    return replace(fetch, high_watermark=sent.high_watermark) == sent
