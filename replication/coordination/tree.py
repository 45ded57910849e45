"""The keys of a coordination store in memory, and the rules of a commit. A core: no disk, no clock, no waiting.

A commit is planned and applied in two steps, so that a driver can make the plan durable in between. Invariants: a plan
is applied to the tree that it was made for; `number` grows with every plan and never repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from engine.errors import Invalid
from replication.coordination.interface import Conflict, Create, Delete, Operation, Put, Versioned, parents_of


class Entry(NamedTuple):
    """A key of the tree. `owner` is the session of an ephemeral key, None for a persistent one."""

    value: bytes
    version: int
    created: int
    owner: int | None = None

    def seen(self) -> Versioned:
        return Versioned(self.value, self.version, self.created)


class Plan(NamedTuple):
    """The new entry of each key that a commit changes; None: deleted."""

    number: int
    changes: dict[str, Entry | None]

    def durable_changes(self, before: Mapping[str, Entry]) -> dict[str, Entry | None]:
        """Return the changes of persistent keys."""
        return {
            key: entry
            for key, entry in self.changes.items()
            if (_stays(entry) if entry is not None else _stays(before.get(key)))
        }


class Tree:
    """All keys. `number` is that of the last plan that was applied."""

    def __init__(self, number: int = 0, entries: Mapping[str, Entry] | None = None) -> None:
        self.number = number
        self.entries: dict[str, Entry] = {}
        self._names: dict[str, dict[str, int]] = {}  # children of a key, with the number of keys at or below each
        self._apply(entries or {})

    def __repr__(self) -> str:
        return f"Tree(keys={len(self.entries)}, number={self.number})"

    def get(self, key: str) -> Versioned | None:
        entry = self.entries.get(key)
        return None if entry is None else entry.seen()

    def children(self, key: str) -> list[str]:
        return sorted(self._names.get(key, ()))

    def plan(self, operations: Iterable[Operation], session: int) -> Plan:
        """Plan a commit. Raises Conflict if a key is not as required, Invalid if it may not exist there."""
        plan = Plan(self.number + 1, {})
        for operation in operations:
            entry = plan.changes.get(operation.key, self.entries.get(operation.key))
            plan.changes.update(self._change(operation, entry, plan, session))
        return plan

    def apply(self, plan: Plan) -> None:
        assert plan.number == self.number + 1, (plan.number, self.number)
        self.number = plan.number
        self._apply(plan.changes)

    def ended(self, session: int) -> list[str]:
        """Delete the ephemeral keys of a session; returns them."""
        gone = [key for key, entry in self.entries.items() if entry.owner == session]
        self._apply(dict.fromkeys(gone))
        return gone

    def durable_entries(self) -> dict[str, Entry]:
        return {key: entry for key, entry in self.entries.items() if _stays(entry)}

    def _apply(self, changes: Mapping[str, Entry | None]) -> None:
        for key, entry in changes.items():
            if entry is not None:
                if key not in self.entries:
                    self._count(key, 1)
                self.entries[key] = entry
            elif self.entries.pop(key, None) is not None:
                self._count(key, -1)

    def _count(self, key: str, by: int) -> None:
        names = key.split("/")[1:]
        for parent, name in zip(parents_of(key), names[1:], strict=True):
            below = self._names.setdefault(parent, {})
            below[name] = below.get(name, 0) + by
            if not below[name]:
                del below[name]
            if not below:
                del self._names[parent]

    def _change(self, operation: Operation, entry: Entry | None, plan: Plan, session: int) -> dict[str, Entry | None]:
        key = operation.key
        if isinstance(operation, Create):
            if entry is not None:
                raise Conflict(f"{key} exists already")
            self._check_position(key, plan)
            owner = session if operation.is_ephemeral else None
            return {key: Entry(operation.value, 0, plan.number, owner)}
        if entry is None:
            raise Conflict(f"{key} does not exist")
        if entry.version != operation.version:
            raise Conflict(f"{key} has version {entry.version}, not {operation.version}")
        if isinstance(operation, Put):
            return {key: entry._replace(value=operation.value, version=entry.version + 1)}
        return {key: None} if isinstance(operation, Delete) else {}

    def _check_position(self, key: str, plan: Plan) -> None:
        """Raises Invalid: a key has a value or keys below it, never both."""
        taken = next((one for one in parents_of(key) if plan.changes.get(one, self.entries.get(one)) is not None), None)
        if taken is not None:
            raise Invalid(f"{key} cannot be created: {taken} has a value")
        below = sum(self._names.get(key, {}).values())
        for name, entry in plan.changes.items():
            if name.startswith(key + "/"):
                below += (entry is not None) - (name in self.entries)
        if below:
            raise Invalid(f"{key} cannot have a value: there are keys below it")


def _stays(entry: Entry | None) -> bool:
    return entry is not None and entry.owner is None
