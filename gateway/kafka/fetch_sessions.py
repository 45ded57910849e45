"""Sessions of fetches (KIP-227): requests name only what changes of the partitions that a client reads, answers too.

A session is of one connection, has its latest one in `client.session`, and ends with it: another process of the node
has other connections, and a client that comes back begins with a whole request. Pure: the time is an argument.
Invariants: an epoch moves with a request, never with an answer, so a lost answer is noticed by the next request; all
sessions together are bounded, and those of one owner by half of it. Refusing one, or ending one that is idle, is always
right: the client sends its next request whole.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from gateway.kafka.codec.fetch import NO_NODE, AskedPartition, FetchRequest, FetchRow, Key
from gateway.kafka.errors import Error

SESSIONS_BYTES_MAX = 64 * 1024 * 1024  # of a process: about 150,000 partitions
POSITION_BYTES = 400  # of a partition in a session, without its topic's name
IDLE_S = 120.0  # Kafka's own: a session that was used since is not ended for another one
NO_SESSION = 0
BEGIN, END = 0, -1  # epochs of requests that are whole
NOT_SENT = -1
_ID_MAX = 2**31 - 1


class FetchPosition:
    """A partition that a client reads: what it asks for, and the bounds that it was sent last."""

    __slots__ = ("asked", "key", "sent_log_start", "sent_watermark")

    def __init__(self, key: Key, asked: AskedPartition) -> None:
        self.key = key
        self.asked = asked
        self.sent_watermark = self.sent_log_start = NOT_SENT

    def __repr__(self) -> str:
        return f"FetchPosition({self.key!r}, {self.asked})"


class FetchSession:
    """The positions of one connection. `epoch` is that of its next request."""

    __slots__ = ("epoch", "has_ids", "id", "owner", "positions", "size_bytes", "used_at")

    def __init__(self, session_id: int, owner: str, *, has_ids: bool, now: float) -> None:
        self.id = session_id
        self.owner = owner
        self.has_ids = has_ids
        self.used_at = now
        self.epoch = 1
        self.size_bytes = 0
        self.positions: dict[tuple[Key, int], FetchPosition] = {}

    def __repr__(self) -> str:
        return f"FetchSession({self.id}, epoch={self.epoch}, positions={len(self.positions)})"

    def change(
        self, topics: Iterable[tuple[Key, Sequence[AskedPartition]]], forgotten: Iterable[tuple[Key, list[int]]]
    ) -> None:
        """Takes what a request names: new positions, changed ones, and ones to forget."""
        positions = self.positions
        for key, partitions in topics:
            for asked in partitions:
                place = key, asked.number
                present = positions.get(place)
                if present is not None:
                    present.asked = asked
                else:
                    positions[place] = FetchPosition(key, asked)
                    self.size_bytes += POSITION_BYTES + len(key)
        for key, numbers in forgotten:
            for number in numbers:
                if positions.pop((key, number), None) is not None:
                    self.size_bytes -= POSITION_BYTES + len(key)

    def note_sent(self, position: FetchPosition, row: FetchRow) -> bool:
        """Notes an answer for a position. Returns whether the client must get it: it has unchanged bounds already.

        A position with data becomes the last one, so that others are read before it the next time.
        """
        has_data = len(row.data) > 0
        has_moved = row.high_watermark != position.sent_watermark or row.log_start != position.sent_log_start
        is_sent = has_data or has_moved or row.error != 0 or row.diverging is not None or row.preferred != NO_NODE
        position.sent_watermark, position.sent_log_start = row.high_watermark, row.log_start
        place = position.key, position.asked.number
        if has_data and self.positions.pop(place, None) is not None:
            self.positions[place] = position
        return is_sent


class Holder(Protocol):
    """The client of a connection."""

    session: FetchSession | None


class Begun(NamedTuple):
    """The positions that a request reads, and its session, if it has one. `is_whole`: the answer has them all."""

    positions: Sequence[FetchPosition]
    session: FetchSession | None
    is_whole: bool


class FetchSessions:
    """All sessions of a process, least recently used first."""

    def __init__(self, bytes_max: int = SESSIONS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._by_id: OrderedDict[int, FetchSession] = OrderedDict()
        self._last_id = 0
        self.size_bytes = 0
        self._of_owners: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"FetchSessions({len(self._by_id)}, size_bytes={self.size_bytes})"

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, holder: Holder, request: FetchRequest, owner: str, now: float, *, has_ids: bool) -> Begun | Error:
        """Returns what a request reads, or why its session is not there."""
        session_id, epoch = request.session_id, request.session_epoch
        session = holder.session
        if epoch in (BEGIN, END):
            if session is not None and (epoch == BEGIN or session.id == session_id):
                self.close(holder)
            if epoch == BEGIN and request.topics:
                session = self._open(holder, request, owner, now, has_ids=has_ids)
                if session is not None:
                    return Begun(list(session.positions.values()), session, is_whole=True)
            return Begun(_positions_of(request), None, is_whole=True)
        if session is None or session.id != session_id or self._by_id.get(session_id) is not session:
            return Error.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return Error.INVALID_FETCH_SESSION_EPOCH
        if session.has_ids != has_ids:
            return Error.FETCH_SESSION_TOPIC_ID_ERROR
        session.epoch = 1 if epoch == _ID_MAX else epoch + 1
        session.used_at = now
        self._by_id.move_to_end(session_id)
        before = session.size_bytes
        session.change(request.topics, request.forgotten)
        self._count(session, session.size_bytes - before)
        if not session.positions:  # a client ends a session so, too
            self.close(holder)
            return Begun((), None, is_whole=True)
        if session.size_bytes > before and not self._has_room(session.owner, 0, now):
            self.close(holder)
            return Error.FETCH_SESSION_ID_NOT_FOUND
        return Begun(list(session.positions.values()), session, is_whole=False)

    def close(self, holder: Holder) -> None:
        """Ends the session of a connection. No-op without one."""
        session, holder.session = holder.session, None
        if session is not None and self._by_id.pop(session.id, None) is not None:
            self._count(session, -session.size_bytes)

    def _open(
        self, holder: Holder, request: FetchRequest, owner: str, now: float, *, has_ids: bool
    ) -> FetchSession | None:
        session_id = self._last_id % _ID_MAX + 1
        if session_id in self._by_id:  # one of 2^31 sessions ago
            return None
        session = FetchSession(session_id, owner, has_ids=has_ids, now=now)
        session.change(request.topics, ())
        if not self._has_room(owner, session.size_bytes, now):
            return None
        self._last_id = session_id
        self._by_id[session_id] = holder.session = session
        self._count(session, session.size_bytes)
        return session

    def _has_room(self, owner: str, size_bytes: int, now: float) -> bool:
        """Returns whether an owner may have more bytes, after ending sessions that are idle."""
        if self._of_owners.get(owner, 0) + size_bytes > self._bytes_max // 2:
            return False
        while self.size_bytes + size_bytes > self._bytes_max:
            oldest = next(iter(self._by_id.values()), None)
            if oldest is None or now - oldest.used_at < IDLE_S:
                return False
            del self._by_id[oldest.id]
            self._count(oldest, -oldest.size_bytes)
            oldest.positions.clear()  # its connection has it until its next fetch
        return True

    def _count(self, session: FetchSession, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        left = self._of_owners.get(session.owner, 0) + size_bytes
        if left:
            self._of_owners[session.owner] = left
        else:
            self._of_owners.pop(session.owner, None)


def _positions_of(request: FetchRequest) -> list[FetchPosition]:
    return [FetchPosition(key, asked) for key, partitions in request.topics for asked in partitions]
