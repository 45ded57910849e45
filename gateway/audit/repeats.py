"""Reduces repetition: the first of a kind in a minute is reported at once, the others as one number at its end.

A core: it is given times of a clock that does not go back. Kinds belong to groups, which are callers: one of them
cannot use up the room of all, and hide among its own what another one does. Invariants: at most KEYS_MAX kinds and
GROUPS_MAX groups are kept, and GROUP_KEYS_MAX kinds of each group; further occurrences in the same minute are a number
of their group, or of none; each occurrence is reported once, alone or in a number.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

PERIOD_S = 60.0
KEYS_MAX = 1000  # of one process: their lines are 1 MB a minute at most, with those of the groups
GROUP_KEYS_MAX = 100
GROUPS_MAX = 500

K = TypeVar("K", bound=Hashable)
G = TypeVar("G", bound=Hashable)


class Ended(NamedTuple, Generic[K, G]):
    """The numbers of a minute that is over: of the kept kinds beyond their first, of groups, and of all other ones."""

    kept: list[tuple[K, int]]
    groups: list[tuple[G, int]]
    others: int


class Repeats(Generic[K, G]):
    """The occurrences of this minute."""

    def __init__(self) -> None:
        self._counts: dict[K, int] = {}
        self._keys: dict[G, int] = {}  # the number of kept kinds
        self._beyond: dict[G, int] = {}
        self._others = 0
        self._ends_at = 0.0

    def __repr__(self) -> str:
        return f"Repeats(kept={len(self._counts)}, beyond={sum(self._beyond.values())}, others={self._others})"

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
        elif len(self._counts) < KEYS_MAX and (count := self._keys.get(group, 0)) < GROUP_KEYS_MAX:
            self._keys[group] = count + 1
            self._counts[key] = 0
            return True
        elif group in self._beyond or len(self._beyond) < GROUPS_MAX:
            self._beyond[group] = self._beyond.get(group, 0) + 1
        else:
            self._others += 1
        return False

    def left_s(self, now: float) -> float:
        """Returns how long this minute lasts; 0: it is over."""
        return max(0.0, self._ends_at - now)

    def end(self) -> Ended[K, G]:
        """Returns the numbers of this minute, and begins with none."""
        kept = [(key, more) for key, more in self._counts.items() if more]
        ended = Ended(kept, list(self._beyond.items()), self._others)
        self._counts, self._keys, self._beyond, self._others = {}, {}, {}, 0
        return ended
