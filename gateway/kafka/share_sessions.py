"""Share sessions (KIP-932): which partitions a member of a share group reads at this process.

A session lives in the memory of one process. A client whose session is gone opens another one; the coordinator knows
what it holds by its member id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.kafka.codec.messages import Message
from gateway.kafka.errors import Error

OPEN, CLOSE = 0, -1  # in place of an epoch
EPOCH_MAX = 2**31 - 1
SESSIONS_MAX = 10_000  # of a process; a session is some 100 bytes, and 50 for each partition
PARTITIONS_MAX = 20_000
IDLE_S = 300.0  # a session that is older goes when there is no room

Place = tuple[bytes, int]  # the id of a topic, and a partition


@dataclass(slots=True)
class ShareSession:
    """`epoch` is that of the next request."""

    epoch: int
    used_at: float
    partitions: dict[Place, None] = field(default_factory=dict)


class ShareSessions:
    """The sessions of a process, by group and member, in the order of their last use."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __repr__(self) -> str:
        return f"ShareSessions({len(self._sessions)})"

    def use(self, group: str, member_id: str, epoch: int, now_s: float) -> ShareSession | Error:
        """Opens, continues or closes the session of a member."""
        key = group, member_id
        if epoch == OPEN:
            self._sessions.pop(key, None)
            self._make_room(now_s)
            if len(self._sessions) >= SESSIONS_MAX:
                return Error.SHARE_SESSION_LIMIT_REACHED
            session = self._sessions[key] = ShareSession(1, now_s)
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

    def _make_room(self, now_s: float) -> None:
        while len(self._sessions) >= SESSIONS_MAX:
            key, oldest = next(iter(self._sessions.items()))
            if oldest.used_at > now_s - IDLE_S:
                return
            del self._sessions[key]


def update(session: ShareSession, added: Iterable[Message], forgotten: Iterable[Message]) -> None:
    """Adds and removes the partitions that a request names."""
    for one in added:
        for row in one.partitions:
            if len(session.partitions) < PARTITIONS_MAX:
                session.partitions[one.topic_id, row.partition_index] = None
    for one in forgotten:
        for number in one.partitions:
            session.partitions.pop((one.topic_id, number), None)
