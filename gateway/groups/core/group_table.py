"""The groups of one coordinator, and which of them have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gateway.groups.model.classic import CLASSIC
from gateway.groups.model.errors import GroupNotEmpty, GroupsFull, UnknownGroup, WrongGroupKind
from gateway.groups.model.records import take_rows
from gateway.groups.model.settings import SHARE, CoordinatorLimits
from gateway.groups.model.state import Group
from gateway.groups.model.values import Now, Row


class Ceilings(NamedTuple):
    """The checks of the ceilings of tenants: of a new group, and of a new member of a group. Raise QuotaExhausted."""

    check_new_group: Callable[[str], None]
    check_new_member: Callable[[str], None]


class GroupTable:
    """`woken` has the members whose open polls should look at their assignment again, as (group, member).

    A member of "" means the callers that wait for records of a share group.
    """

    def __init__(self, limits: CoordinatorLimits, ceilings: Ceilings | None = None) -> None:
        self.ceilings = ceilings
        self.groups: dict[str, Group] = {}
        self.woken: set[tuple[str, str]] = set()
        self.limits = limits
        self._touched: dict[str, Group] = {}
        self.acquired = self.settled = 0  # records of share groups, since the coordinator began

    def find(self, name: str) -> Group:
        """Returns a group. Raises UnknownGroup."""
        group = self.groups.get(name)
        if group is None:
            raise UnknownGroup(f"there is no group {name!r}", hint="its first member or its first commit creates it")
        return group

    def find_or_new(self, name: str, kind: str | None, now: Now) -> tuple[Group, bool]:
        """Returns the group of a call that may create it, and whether it is new. A kind of None: of any kind.

        The count of resets begins with the time, so that no token of a deleted group of this name is of the new one.
        Raises GroupsFull, WrongGroupKind, QuotaExhausted.
        """
        group = self.groups.get(name)
        if group is not None:
            if kind is not None:
                check_kind(group, kind)
            return group, False
        if len(self.groups) >= self.limits.groups_max:
            raise GroupsFull(f"this coordinator has {self.limits.groups_max} groups", limit=self.limits.groups_max)
        if self.ceilings is not None:
            self.ceilings.check_new_group(name)
        group = Group(name, resets=now.wall_ms)
        if kind == SHARE:
            group.set_config({"kind": kind})
        return group, True

    def check_new_member(self, group: Group) -> None:
        """Checks that a group may have a further member, of whatever kind. Raises QuotaExhausted."""
        if self.ceilings is not None:
            self.ceilings.check_new_member(group.name)

    def count(self, *, acquired: int = 0, settled: int = 0) -> None:
        """Counts records that were handed out, and records that got an outcome."""
        self.acquired += acquired
        self.settled += settled

    def add(self, group: Group) -> None:
        if group.name not in self.groups:
            self.groups[group.name] = group
            group.is_changed = True

    def note_change(self, group: Group) -> Group:
        self._touched[group.name] = group
        group.look_ms, group.idle_since_ms = 0, None
        return group

    def store_again(self, group: Group) -> None:
        """Stores a group once more, as it is. It stays as idle as it was."""
        self._touched[group.name] = group
        group.is_changed = True

    def take_rows(self) -> list[Row]:
        """Returns the records of all changes since the last call, and notes which members to wake."""
        rows: list[Row] = []
        for group in self._touched.values():
            self.woken.update((group.name, member_id) for member_id in group.changed_members)
            rows += take_rows(group)
        self._touched.clear()
        return rows


def check_kind(group: Group, kind: str) -> None:
    """Checks that a call is of the group's kind. Raises WrongGroupKind."""
    if group.kind != kind:
        if group.kind == CLASSIC:
            text = f"group {group.name!r} has members of Kafka's classic protocol"
            raise WrongGroupKind(text, hint="stop them first: their positions are then those of its next members")
        hint = "acquire and acknowledge its records" if group.settings.kind == SHARE else "poll it as a member"
        raise WrongGroupKind(f"group {group.name!r} is of kind {group.settings.kind}", hint=hint)


def check_empty(group: Group, hint: str) -> None:
    """Checks that a group has no members. Raises GroupNotEmpty."""
    if count := group.member_count:
        raise GroupNotEmpty(f"group {group.name!r} has {count} members", hint=hint)
