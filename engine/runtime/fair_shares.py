"""Divides the time of a loop among the owners of its clients, turn by turn. Pure: it is given times, and asks no clock.

Deficit round robin in the form of a virtual time. A turn gives each owner the same share, and an owner that has taken
more waits until later turns have given it as much. A turn without work gives the largest share, so that the loop rests
for a moment at most while work waits. While only one owner works, nothing is divided.
Invariant: of two owners that always have work, neither has had more than the other by more than a share and its last
piece of work.
"""

from __future__ import annotations

from collections.abc import Hashable

# The share of a turn is what the modest owners of the last one used: then a client with one request at a time waits for
# about one request of each other owner. It grows while there are none, for requests of one turn share appends.
SHARE_S_LEAST, SHARE_S_MAX = 0.000025, 0.0002  # about one request, and six
GROWTH = 1.25
ALONE_S = 1.0  # after the last change of owners, the last one has the loop to itself
PIECE_S_MAX = 0.005  # of what a piece of work counts: where one takes longer, the process has mostly not run
FREE_MAX = 1024  # owners; beyond it, those that are not used up are forgotten


class FairShares:
    """The shares of the present turn. `_free_s` and `_end_s` are of a virtual time: the sum of the shares so far."""

    def __init__(self) -> None:
        self.share_s = SHARE_S_MAX
        self._end_s = SHARE_S_MAX  # of this turn
        self._free_s: dict[Hashable, float] = {}  # when an owner has paid for what it has used
        self._used_s: dict[Hashable, float] = {}  # in this turn
        self._alone_s = SHARE_S_LEAST  # of an owner that is alone in a turn
        self._early_s = 0.0  # which it had since the last turn with several
        self._last: Hashable = None
        self._divided_until = float("-inf")

    def __repr__(self) -> str:
        return f"FairShares({self.share_s * 1e6:.0f} µs, {len(self._free_s)} owners)"

    def is_used_up(self, owner: Hashable) -> bool:
        """Returns whether an owner has used its share of this turn."""
        return self._free_s.get(owner, 0.0) >= self._end_s

    def spend(self, owner: Hashable, seconds: float, now_s: float) -> None:
        """Notes that the loop has worked for an owner, until `now_s`."""
        seconds = min(seconds, PIECE_S_MAX)
        if owner != self._last:
            self._last, self._divided_until = owner, now_s + ALONE_S
        if now_s < self._divided_until:
            self._free_s[owner] = max(self._free_s.get(owner, 0.0), self._end_s - self.share_s) + seconds
        self._used_s[owner] = self._used_s.get(owner, 0.0) + seconds

    def next_turn(self) -> None:
        """Begins the next turn, in which each owner gets what the last one shows."""
        used_s, self._used_s = self._used_s, {}
        if not used_s:  # 1. no owner had work that may begin
            self._end_s += SHARE_S_MAX
        elif len(used_s) == 1:  # 2. the others may come at any time
            self._end_s += self._alone_s
            self._early_s += self._alone_s
            self._alone_s = min(self._alone_s * GROWTH, SHARE_S_MAX)
        else:  # 3. several had work
            modest = [used for owner, used in used_s.items() if not self.is_used_up(owner)]
            share_s = sum(modest) / len(modest) if modest else self.share_s * GROWTH
            self.share_s = min(max(share_s, SHARE_S_LEAST), SHARE_S_MAX)
            self._end_s += max(self.share_s - self._early_s, 0.0)
            self._alone_s, self._early_s = SHARE_S_LEAST, 0.0
        if len(self._free_s) > FREE_MAX:
            self._free_s = {owner: free_s for owner, free_s in self._free_s.items() if free_s > self._end_s}

    def forget(self) -> None:
        """Forgets what owners have used: the loop has time for all."""
        self._free_s.clear()
        self._used_s.clear()
