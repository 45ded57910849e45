"""Fetches from one shard of another node for all replicas here that follow partitions it leads: one loop, one session.

The transport is given (`Exchange`); what an answer means is each replica's `Following`. A round names only what has
changed; the first of a session, and so the first after anything failed, names all.
While a fetch is held at the leader, a replica that has just begun to follow is asked for at once: the next round goes
out before the answer to this one has come, and the leader then ends the wait of this one. At most two are under way.
Invariants: answers are taken in the order of their rounds; what was answered with batches is asked for again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from engine.batch import Buffer
from engine.errors import Invalid
from replication.cores.fetch import FollowerFetch, Send
from replication.cores.partition_state import Member
from replication.fetch_wire import Answered, FetchRequest, as_asked, decode_reply, encode_request
from replication.following import Following, Sent

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
    following: Following
    sent: FollowerFetch | None = None  # what the leader waits with; None: it is to be asked for again
    sent_in: int = -1  # the round


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
        self._session, self._round = "", -1
        self._next: asyncio.Future[Buffer] | None = None  # the answer to the round behind the one that is held
        self._is_held = self._is_stopping = False
        self._interruption: asyncio.TimerHandle | None = None
        self._wanted = asyncio.Event()
        self._task = self._loop.create_task(self._run())
        self._can_be_ended = True
        self.rounds = 0
        self.failures = 0
        self.asked = 0  # partitions, over all rounds
        self.bytes_received = 0

    def __repr__(self) -> str:
        return f"Fetcher({len(self._followed)} followed, session={self._session}, round={self._round})"

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, following: Following) -> None:
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
            if self._interruption is None:
                self._interruption = self._loop.call_later(GATHER_S, self._interrupt)

    def _interrupt(self) -> None:
        self._interruption = None
        if self._is_held and self._next is None and self._own() is not None and not self._is_stopping:
            self._next = asyncio.ensure_future(self._exchange(self._request()))

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
        is_whole = not self._session
        if is_whole:
            self._session, self._round = self._new_session(), -1
            self._changed = dict.fromkeys(self._followed)
            self._forgotten.clear()
        self._round += 1
        asked = []
        for key in self._changed:
            one = self._followed[key]
            fetch = one.following.next_fetch()
            if fetch is not None and (is_whole or one.sent is None or not _is_same(fetch, one.sent)):
                one.sent, one.sent_in = fetch, self._round
                asked.append(as_asked(key, fetch))
        forgotten = list(self._forgotten)
        self._changed, self._forgotten = {}, {}
        self.asked += len(asked)
        return encode_request(
            FetchRequest(
                session=self._session,
                round=self._round,
                is_whole=is_whole,
                node_id=own.node_id,
                incarnation=own.incarnation,
                shard=self._shard,
                bytes_min=self._limits.bytes_min,
                bytes_max=self._limits.bytes_max,
                wait_ms=self._limits.wait_ms,
                asked=asked,
                forgotten=forgotten,
            )
        )

    async def _take(self, body: Buffer, round_: int) -> None:
        reply, data = decode_reply(body)
        if not reply.is_session_known:
            await self._end_session()
            return
        work = [self._apply(one, batches, round_) for one, batches in zip(reply.answered, data, strict=True)]
        if len(work) == 1:
            await work[0]
        elif work:
            await asyncio.gather(*work)

    async def _apply(self, one: Answered, batches: Buffer, round_: int) -> None:
        """Of a partition that was asked for anew meanwhile the leader will answer that."""
        followed = self._followed.get(one.key)
        if followed is None or followed.sent is None or followed.sent_in > round_:
            return
        fetch = followed.sent
        answer = one.answer_to(fetch)
        is_over = one.size_bytes > 0 or not isinstance(answer, Send)
        if is_over:
            followed.sent = None
        delay_s = await followed.following.on_answer(
            fetch, answer, Sent(batches, one.log_end, one.is_segment_start, one.handed_offset)
        )
        if is_over and self._followed.get(one.key) is followed:
            if delay_s:
                self._loop.call_later(delay_s, self._ask, one.key)
            else:
                self._changed[one.key] = None


def _is_same(fetch: FollowerFetch, sent: FollowerFetch) -> bool:
    """Whether it tells the leader nothing new: what it told us of the watermark it knows."""
    return replace(fetch, high_watermark=sent.high_watermark) == sent
