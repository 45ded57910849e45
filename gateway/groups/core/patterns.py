"""The topics that match the regular expressions of members, found as topics come.

Each expression is matched with each name once. The matches of one look are bounded, and the next looks go on, so that
neither many topics nor many expressions stop the event loop. Compiled expressions are not kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, field

from gateway.groups.core.expressions import compile_expression
from gateway.groups.model.values import TopicPattern

MATCHES_AT_ONCE = 2_000  # of one look: 10 to 20 ms
COMPILING = 5  # matches that take as long as to compile an expression


@dataclass(slots=True)
class Matches:
    """The names that match an expression. `version` is another one after each change."""

    names: set[str] = field(default_factory=set)
    version: int = 0
    looked: int = 0  # at how many arrivals


class Patterns:
    """`_arrivals`: all names, in the order in which this coordinator learnt of them; `_places`: their numbers."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._arrivals: list[str] = []
        self._matches: dict[tuple[str, str], Matches] = {}
        self._versions = itertools.count(1)
        self._left = MATCHES_AT_ONCE
        self.sequence = 0

    def __repr__(self) -> str:
        return f"Patterns({len(self._matches)} expressions, {len(self._places)} topics)"

    @property
    def is_used(self) -> bool:
        return bool(self._matches)

    def begin_look(self, names: Collection[str]) -> None:
        """Takes the present names, and allows for another MATCHES_AT_ONCE."""
        self._left = MATCHES_AT_ONCE
        present = set(names)
        if present == self._places.keys():
            return
        gone = self._places.keys() - present
        for matches in self._matches.values() if gone else ():
            if not matches.names.isdisjoint(gone):
                matches.names -= gone
                matches.version = next(self._versions)
        for name in gone:
            del self._places[name]
        for name in sorted(present - self._places.keys()):
            self._arrivals.append(name)
            self._places[name] = self.sequence
            self.sequence += 1
        if len(self._arrivals) > 2 * len(present) + 1000:
            self._forget_gone()

    def is_new(self, name: str, sequence: int) -> bool:
        """Returns whether a name came after the sequence had this value."""
        return self._places.get(name, 0) >= sequence

    def matches(self, pattern: TopicPattern) -> Matches:
        """Returns the matches so far. Raises InvalidPattern, PatternsUnavailable."""
        key = (pattern.include, pattern.exclude)
        matches = self._matches.get(key) or Matches()
        if matches.looked < len(self._arrivals) and self._left > 0:
            self._look(*key, matches)
        self._matches[key] = matches
        return matches

    def keep(self, patterns: Collection[TopicPattern]) -> None:
        """Forgets the matches of other expressions."""
        keys = {(pattern.include, pattern.exclude) for pattern in patterns}
        self._matches = {key: matches for key, matches in self._matches.items() if key in keys}

    def _look(self, include: str, exclude: str, matches: Matches) -> None:
        is_included = compile_expression(include)
        is_excluded = compile_expression(exclude, "topics_exclude") if exclude else None
        self._left -= COMPILING
        end = min(len(self._arrivals), matches.looked + max(1, self._left))
        self._left -= end - matches.looked
        names = {
            name
            for name in self._arrivals[matches.looked : end]
            if name in self._places and is_included(name) and not (is_excluded and is_excluded(name))
        }
        matches.looked = end
        if not matches.names.issuperset(names):
            matches.names |= names
            matches.version = next(self._versions)

    def _forget_gone(self) -> None:
        count = len(self._arrivals)
        self._arrivals = sorted(self._places, key=self._places.__getitem__)
        for matches in self._matches.values():
            matches.looked = len(self._arrivals) if matches.looked == count else 0
