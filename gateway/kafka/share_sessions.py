"""Share sessions (KIP-932): which partitions a member of a share group reads at this process.

A session lives in the memory of one process. A client whose session is gone opens another one; the coordinator knows
what it holds by its member id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gateway.kafka.codec.messages import Message
from gateway.kafka.errors import Error

OPEN, CLOSE = 0, -1  # in place of an epoch
EPOCH_MAX = 2**31 - 1
SESSIONS_MAX = 2000  # of a process, as many as Kafka has
PARTITIONS_MAX = 500_000  # of all sessions of a process: 50 MB
IDLE_S = 300.0  # a session that is older goes when there is no room

Place = tuple[bytes, int]  # the id of a topic, and a partition


@dataclass(slots=True)
class ShareSession:
    """`epoch` is that of the next request."""

    owner: str
    epoch: int
    used_at: float
    partitions: dict[Place, None] = field(default_factory=dict)


class ShareSessions:
    """The sessions of a process, by group and member, in the order of their last use."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __repr__(self) -> str:
        return f"ShareSessions({len(self._sessions)})"

    def use(self, group: str, member_id: str, epoch: int, owner: str, now_s: float) -> ShareSession | Error:
        """Opens, continues or closes the session of a member."""
        key = group, member_id
        if epoch == OPEN:
            self._sessions.pop(key, None)
            if not self._make_room(owner, 1, SESSIONS_MAX, lambda _: 1, now_s):
                return Error.SHARE_SESSION_LIMIT_REACHED
            session = self._sessions[key] = ShareSession(owner, 1, now_s)
            return session
        found = self._sessions.get(key)
        if found is None:
            return Error.SHARE_SESSION_NOT_FOUND
        if epoch not in (CLOSE, found.epoch):
            return Error.INVALID_SHARE_SESSION_EPOCH
        del self._sessions[key]
        if epoch != CLOSE:
            found.epoch, found.used_at = (1 if epoch == EPOCH_MAX else epoch + 1), now_s
            self._sessions[key] = found
        return found

    def update(self, session: ShareSession, added: Iterable[Message], forgotten: Iterable[Message]) -> Error:
        """Adds and removes the partitions that a request names. Returns why they are too many."""
        asked = ((one.topic_id, row.partition_index) for one in added for row in one.partitions)
        if new := [place for place in asked if place not in session.partitions]:
            if not self._make_room(session.owner, len(new), PARTITIONS_MAX, _count_partitions, session.used_at):
                return Error.SHARE_SESSION_LIMIT_REACHED
            session.partitions |= dict.fromkeys(new)
        for one in forgotten:
            for number in one.partitions:
                session.partitions.pop((one.topic_id, number), None)
        return Error.NONE

    def _make_room(self, owner: str, new: int, most: int, size_of: Callable[[ShareSession], int], now_s: float) -> bool:
        """Ends sessions that are idle, and those of an owner with more than half of the room for one with less.

        Returns whether there is room.
        """
        held: Counter[str] = Counter()
        for one in self._sessions.values():
            held[one.owner] += size_of(one)
        excess, is_small = held.total() + new - most, held[owner] + new <= most // 2
        for key, one in list(self._sessions.items()) if excess > 0 else ():
            if one.used_at <= now_s - IDLE_S or (is_small and held[one.owner] > most // 2):
                del self._sessions[key]
                held[one.owner] -= size_of(one)
                excess -= size_of(one)
            if excess <= 0:
                break
        return excess <= 0


def _count_partitions(session: ShareSession) -> int:
    return len(session.partitions)
