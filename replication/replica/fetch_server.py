"""Answers the fetches of other nodes' followers for partitions that this shard leads. No HTTP: bodies in, pieces out.

Holds a fetch until there is something to send. Batches and errors are sent at once. A high watermark alone waits up to
WATERMARK_S for batches to go with it. After `wait_ms` the answer is empty. Replicas report changes (`on_change`), so an
idle partition costs nothing. The leader core decides, through the Replica; the session holds what a follower has.
Invariants: one fetch of a session is held at a time, and a newer one ends the wait of the one before; batches read
while leadership ended are not sent; followers in sync come first, the others within their replication throttle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.errors import EngineError
from engine.format.batch import Buffer
from replication.cores.fetch import FetchAnswer, FetchError, FollowerFetch, OutOfRange, Send
from replication.cores.fetch_session import FetchSession
from replication.cores.throttle import TokenBucket
from replication.replica.fetch_wire import (
    FetchReply,
    FetchRequest,
    PartitionResponse,
    as_partition_response,
    decode_request,
    encode_reply,
)
from replication.replica.leader_fetch import FetchData, LeaderFetch

WATERMARK_S = 0.05  # how long a watermark waits for batches to go with; no acks=all produce waits for it
SESSIONS_MAX = 4096  # of follower shards; beyond it the oldest is dropped and begins a new one

log = logging.getLogger("penstock.replication")


@dataclass(slots=True)
class _Answer:
    """Collects the parts of one answer."""

    responses: list[PartitionResponse] = field(default_factory=list)
    batches: list[Buffer] = field(default_factory=list)
    ended: list[tuple[str, FetchAnswer]] = field(default_factory=list)  # the follower will ask again
    sent: list[tuple[str, Send]] = field(default_factory=list)  # a watermark alone
    size_bytes: int = 0
    has_refused: bool = False
    is_cut: bool = False  # not everything fits
    retry_s: float | None = None  # more is available once the throttle allows it

    def is_due(self, bytes_min: int) -> bool:
        """True if the answer must be sent now: it has enough bytes, an error, or is full."""
        return self.size_bytes >= bytes_min or self.has_refused or self.is_cut


class FetchServer:
    """Serves the fetch sessions of follower shards; see the module docstring."""

    def __init__(self, replica_of: Callable[[str], LeaderFetch | None], catchup_bytes_per_second: int = 0) -> None:
        self._replica_of = replica_of
        self._loop = asyncio.get_running_loop()
        self._token_bucket = TokenBucket(catchup_bytes_per_second, self._loop.time())
        self._sessions: dict[tuple[int, int], FetchSession] = {}
        self._held: dict[FetchSession, asyncio.Future[None]] = {}
        self._failing: dict[str, str] = {}  # the error of a partition's last read, until a read succeeds
        self.fetches = 0

    def __repr__(self) -> str:
        return f"FetchServer(sessions={len(self._sessions)}, held={len(self._held)}, fetches={self.fetches})"

    def on_change(self, key: str) -> None:
        """Wake the sessions of a partition after a change of log end, high watermark, log start or leader."""
        for session in self._sessions.values():
            if session.on_change(key):
                self._wake(session)

    async def fetch(self, body: Buffer) -> list[Buffer]:
        """Answers one fetch. Returns the pieces of the answer. Raises Invalid."""
        request = decode_request(body)
        self.fetches += 1
        session = self._session_of(request)
        if session is None:
            return encode_reply(FetchReply(is_session_known=False))
        self._wake(session)
        session.on_fetch(request.session_epoch, request.fetches(), request.forgotten)
        for partition in request.partitions:
            self._acknowledge(session, partition.key)
        answer = await self._answer(session, request)
        return encode_reply(FetchReply(is_session_known=True, responses=answer.responses), answer.batches)

    def _session_of(self, request: FetchRequest) -> FetchSession | None:
        follower = (request.node_id, request.shard)
        session = self._sessions.get(follower)
        if request.is_full:
            if session is not None:
                self._wake(session)
            elif len(self._sessions) >= SESSIONS_MAX:
                self._wake(self._sessions.pop(next(iter(self._sessions))))
            session = self._sessions[follower] = FetchSession(request.session, request.session_epoch)
        return session if session is not None and session.follows(request.session, request.session_epoch) else None

    def _acknowledge(self, session: FetchSession, key: str) -> None:
        """Pass a fetch to the leader as an acknowledgement. It may arrive before this node has become leader."""
        replica = self._replica_of(key)
        verdict = FetchError.UNKNOWN_LEADER_EPOCH if replica is None else replica.on_fetch(session.partitions[key])
        session.acknowledge(key, is_acknowledged=verdict is not FetchError.UNKNOWN_LEADER_EPOCH)

    async def _answer(self, session: FetchSession, request: FetchRequest) -> _Answer:
        deadline = self._loop.time() + request.wait_ms / 1000
        while True:
            answer = await self._gather(session, request)
            if session.epoch != request.session_epoch or session is not self._sessions.get(
                (request.node_id, request.shard)
            ):
                return _Answer()  # a newer fetch is held now, and gets the same data
            now = self._loop.time()
            if answer.sent:
                deadline = min(deadline, now + WATERMARK_S)
            if answer.is_due(request.bytes_min) or now >= deadline:
                return self._finish(session, answer)
            await self._wait_changes(
                session, deadline if answer.retry_s is None else min(deadline, now + answer.retry_s)
            )

    async def _gather(self, session: FetchSession, request: FetchRequest) -> _Answer:
        """Gather everything to send now. Does not change the session except for what can be requested again."""
        answer = _Answer()
        keys = list(session.ready)
        if len(keys) > 1:  # followers that acks=all waits for come first
            keys.sort(key=lambda key: not self._is_in_sync(key, request.node_id))
        for key in keys:
            if key in session.unacknowledged:
                self._acknowledge(session, key)
            if key in session.partitions:
                await self._collect(session, key, answer, request)
        return answer

    async def _collect(self, session: FetchSession, key: str, answer: _Answer, request: FetchRequest) -> None:
        fetch, replica = session.partitions[key], self._replica_of(key)
        verdict = FetchError.UNKNOWN_LEADER_EPOCH if replica is None else replica.answer_to(fetch)
        if verdict is FetchError.UNKNOWN_LEADER_EPOCH:
            session.mark_unchanged(key)  # held until this node leads, or learns that another node does
            return
        if replica is None or not isinstance(verdict, Send):
            answer.ended.append((key, verdict))
            answer.responses.append(await self._refuse(replica, key, fetch, verdict, answer))
            return
        if replica.has_more(fetch):
            if data := await self._read(replica, key, fetch, answer, request):
                answer.responses.append(
                    as_partition_response(
                        key,
                        verdict,
                        data.size_bytes,
                        data.log_end,
                        data.is_segment_start,
                        end=data.end,
                    )
                )
                answer.batches += data.pieces
                answer.size_bytes += data.size_bytes
                answer.is_cut |= data.end.offset < data.log_end
                answer.ended.append((key, verdict))
                return
        elif not session.has_changes(key, verdict):
            session.mark_unchanged(key)
            return
        if key in session.partitions and session.has_changes(key, verdict):
            answer.responses.append(as_partition_response(key, verdict))
            answer.sent.append((key, verdict))

    async def _refuse(
        self, replica: LeaderFetch | None, key: str, fetch: FollowerFetch, verdict: FetchAnswer, answer: _Answer
    ) -> PartitionResponse:
        """Answer with an error. A follower that must begin in the middle of the log also gets the state before that."""
        answer.has_refused = True
        if replica is None or not isinstance(verdict, OutOfRange) or verdict.log_end < fetch.log_end:
            return as_partition_response(key, verdict)
        offset, handed = await replica.export_producer_state(verdict.local_log_start)
        answer.batches.append(handed)
        return as_partition_response(key, verdict, len(handed), verdict.log_end, False, offset)

    async def _read(
        self, replica: LeaderFetch, key: str, fetch: FollowerFetch, answer: _Answer, request: FetchRequest
    ) -> FetchData | None:
        room = request.bytes_max - answer.size_bytes
        is_catching_up = self._token_bucket.bytes_per_second and not replica.is_in_sync(request.node_id)
        if is_catching_up:
            left = self._token_bucket.left(self._loop.time())
            room = min(room, left or 0)
            if not left:
                answer.retry_s = self._token_bucket.wait_s()
        if room <= 0:
            return None
        try:
            data = await replica.read_for(fetch, room)
        except EngineError as error:
            if self._failing.get(key) != str(error):  # a follower retries several times a second
                self._failing[key] = str(error)
                log.error("a replica fetch failed", extra={"partition": key, "reason": str(error)})
            return None
        self._failing.pop(key, None)
        if data is not None and is_catching_up:
            self._token_bucket.take(data.size_bytes)
        return data

    def _finish(self, session: FetchSession, answer: _Answer) -> _Answer:
        for key, verdict in answer.ended:
            session.on_answer(key, verdict)
        for key, sent in answer.sent:
            session.record_positions(key, sent)
        return answer

    def _is_in_sync(self, key: str, node_id: int) -> bool:
        replica = self._replica_of(key)
        return replica is not None and replica.is_in_sync(node_id)

    async def _wait_changes(self, session: FetchSession, deadline: float) -> None:
        future = self._held[session] = self._loop.create_future()
        expiry = self._loop.call_at(deadline, self._wake, session)
        try:
            await future
        finally:
            expiry.cancel()
            if self._held.get(session) is future:
                del self._held[session]

    def _wake(self, session: FetchSession) -> None:
        future = self._held.pop(session, None)
        if future is not None and not future.done():
            future.set_result(None)
