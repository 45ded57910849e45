"""The coordination session as the node's drivers see it, and what a leader may still do while it is in doubt.

Not kazoo's callbacks: the driver turns those into these events (engine.md 1.15). A session that does not answer may
have expired in the store already, and another leader be elected. Acks=all needs no care for that: no follower serves
two leaders. Acks=1 does, so a leader gives it up before the session can have expired. A leader that has no contact for
the whole timeout does not report its high watermark as the end of the partition.

The supervisor and every shard keep a session of their own and compare its times with their own clock. So each of them
judges correctly when it continues after a pause, before it has read any message. `now` is Clock.boottime: it includes
the time for which the machine was suspended.
"""

from __future__ import annotations

from enum import Enum

_DOUBT_SHARE = 2 / 3  # of the session's timeout: the store counts from what it heard last, which is earlier


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"  # nothing is known; registrations may still be there
    LOST = "lost"  # expired: every registration is gone, everything is read and made anew


class SessionEvent(Enum):
    ANSWERED = "answered"
    DISCONNECTED = "disconnected"
    EXPIRED = "expired"


TRANSITIONS = {
    (SessionState.CONNECTED, SessionEvent.ANSWERED): SessionState.CONNECTED,
    (SessionState.CONNECTED, SessionEvent.DISCONNECTED): SessionState.SUSPENDED,
    (SessionState.CONNECTED, SessionEvent.EXPIRED): SessionState.LOST,
    (SessionState.SUSPENDED, SessionEvent.ANSWERED): SessionState.CONNECTED,
    (SessionState.SUSPENDED, SessionEvent.DISCONNECTED): SessionState.SUSPENDED,
    (SessionState.SUSPENDED, SessionEvent.EXPIRED): SessionState.LOST,
    (SessionState.LOST, SessionEvent.ANSWERED): SessionState.LOST,
    (SessionState.LOST, SessionEvent.DISCONNECTED): SessionState.LOST,
    (SessionState.LOST, SessionEvent.EXPIRED): SessionState.LOST,
}


class Session:
    """One session, from its registration to its end; a new one is made after LOST."""

    def __init__(self, timeout_s: float, now: float) -> None:
        self.state = SessionState.CONNECTED
        self._timeout_s = timeout_s
        self._heard_at = now

    def __repr__(self) -> str:
        return f"Session({self.state.value}, heard_at={self._heard_at})"

    def on(self, event: SessionEvent, now: float) -> SessionState:
        """ANSWERED carries the time at which what was answered had been sent: the store heard of us then."""
        self.state = TRANSITIONS[self.state, event]
        if event is SessionEvent.ANSWERED:
            self._heard_at = max(self._heard_at, now)
        return self.state

    def may_acknowledge_alone(self, now: float) -> bool:
        """Whether acks=1 may be given: no other leader can have been elected yet."""
        return self._has_contact_within(self._timeout_s * _DOUBT_SHARE, now)

    def has_contact(self, now: float) -> bool:
        """Whether the session was alive less than its timeout ago, as far as this process knows."""
        return self._has_contact_within(self._timeout_s, now)

    def _has_contact_within(self, seconds: float, now: float) -> bool:
        return self.state is not SessionState.LOST and now - self._heard_at < seconds
