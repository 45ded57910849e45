"""Reduces repetition: the first of a kind in a minute is reported at once, the others as one number at its end.

A core: it is given times of a clock that does not go back. Invariants: at most KEYS_MAX kinds are kept; what comes
beyond them in the same minute is one number for each group; each occurrence is reported once, alone or in a number.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

PERIOD_S = 60.0
KEYS_MAX = 1000  # of one process: their lines are 0.5 MB a minute at most

K = TypeVar("K", bound=Hashable)
G = TypeVar("G", bound=Hashable)


class Ended(NamedTuple, Generic[K, G]):
    """The numbers of a minute that is over: of the kept kinds beyond their first, and of what was beyond those."""

    kept: list[tuple[K, int]]
    others: list[tuple[G, int]]


class Repeats(Generic[K, G]):
    """The occurrences of this minute."""

    def __init__(self) -> None:
        self._counts: dict[K, int] = {}
        self._others: dict[G, int] = {}
        self._ends_at = 0.0

    def __repr__(self) -> str:
        return f"Repeats(kept={len(self._counts)}, others={sum(self._others.values())})"

    @property
    def is_empty(self) -> bool:
        return not self._counts

    def add(self, key: K, group: G, now: float) -> bool:
        """Notes one occurrence. Returns whether it is to be reported at once. `end` is first, if a minute is over."""
        if not self._counts:
            self._ends_at = now + PERIOD_S
        known = self._counts.get(key)
        if known is not None:
            self._counts[key] = known + 1
        elif len(self._counts) < KEYS_MAX:
            self._counts[key] = 0
            return True
        else:
            self._others[group] = self._others.get(group, 0) + 1
        return False

    def left_s(self, now: float) -> float:
        """Returns how long this minute lasts; 0: it is over."""
        return max(0.0, self._ends_at - now)

    def end(self) -> Ended[K, G]:
        """Returns the numbers of this minute, and begins with none."""
        ended = Ended([(key, more) for key, more in self._counts.items() if more], list(self._others.items()))
        self._counts, self._others = {}, {}
        return ended
