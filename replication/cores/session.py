"""The state of the coordination session, and what a leader may do while the session is in doubt.

The driver turns kazoo's callbacks into these events. A session that does not answer may have expired in the store, and
another leader may have been elected. Acks=all stays safe, since no follower serves two leaders. Acks=1 does not, so a
leader stops giving it before the session can have expired. A leader without contact for the whole timeout does not
report its high watermark as the end of the partition.

The supervisor and every shard each keep a session and compare its times with their own clock, so each judges correctly
after a pause, before it has read any message. `now` is Clock.boottime, which includes suspended time.
"""

from __future__ import annotations

from enum import Enum

_DOUBT_SHARE = 2 / 3  # of the session timeout: the store counts from the last message it received, which is earlier


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"  # unknown: the registrations may still exist
    LOST = "lost"  # expired: every registration is gone; read and register again


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
    """One session from its registration to its end. A new one is made after LOST."""

    def __init__(self, timeout_s: float, now: float) -> None:
        self.state = SessionState.CONNECTED
        self._timeout_s = timeout_s
        self._contact_at = now

    def __repr__(self) -> str:
        return f"Session({self.state.value}, contact_at={self._contact_at})"

    def on(self, event: SessionEvent, now: float) -> SessionState:
        """Applies an event. ANSWERED carries the time at which the answered question was sent."""
        self.state = TRANSITIONS[self.state, event]
        if event is SessionEvent.ANSWERED:
            self._contact_at = max(self._contact_at, now)
        return self.state

    def may_acknowledge_locally(self, now: float) -> bool:
        """True if acks=1 may be given: no other leader can have been elected yet."""
        return self._has_contact_within(self._timeout_s * _DOUBT_SHARE, now)

    def age_s(self, now: float) -> float:
        """Returns how long ago the store answered, which is the age of the view; infinite without an answer."""
        return max(0.0, now - self._contact_at)

    def has_contact(self, now: float) -> bool:
        """True if the session was alive less than its timeout ago, as far as this process knows."""
        return self._has_contact_within(self._timeout_s, now)

    def _has_contact_within(self, seconds: float, now: float) -> bool:
        return self.state is not SessionState.LOST and now - self._contact_at < seconds
