"""One run with a group: the last partition has the state of the group, members read the others.

The faults are those of every run, but for what removes records: the judges of groups need logs that begin at 0.
"""

from __future__ import annotations

from dataclasses import replace

from tests.checking.group_checkers import check_group, committed_ends
from tests.checking.group_history import GroupHistory
from tests.simulation.groups.members import SESSION_MS, Member
from tests.simulation.run import HEAL_S, Options, Outcome, Run, options_for
from tests.simulation.world.world import LOGGED_EVENTS

MEMBERS = 4
REMOVING = ("trim", "alter")
NOT_MODELLED = ("read_error",)  # the coordinator replays its log when it begins


def group_options(seed: int) -> Options:
    options = options_for(seed)
    kinds = tuple(kind for kind in options.kinds if kind not in REMOVING + NOT_MODELLED) or ("kill", "lose_power")
    rules = replace(options.rules, is_unclean_allowed=False)
    return replace(options, partitions=5, kinds=kinds, rules=rules, retention_bytes=None, local_retention_bytes=None)


class GroupRun(Run):
    def __init__(self, seed: int, options: Options, logged_events: int = LOGGED_EVENTS) -> None:
        super().__init__(seed, options, logged_events)
        groups = self.partitions.pop()  # the clients of records have this list too
        self.groups = GroupHistory(SESSION_MS / 1000)
        self.members = [
            Member(*self._client(f"m{number}"), groups=groups, polls=self.groups) for number in range(MEMBERS)
        ]
        for number, member in enumerate(self.members):
            self.world.after(0.5 + 0.5 * number, member.run)

    def _peace(self) -> list[str]:
        for member in self.members:
            member.is_calm = True
        problems = super()._peace()
        if problems:
            return problems
        ends = self._ends()
        self.world.run_until(self.world.now + HEAL_S, lambda: self.world.random.random() < 0.01 and self._is_read(ends))
        for member in self.members:
            member.is_stopped = True
        return [] if self._is_read(ends) else [f"G5 not at the end: {committed_ends(self.groups)} of {ends}"]

    def _judge(self) -> list[str]:
        return [*super()._judge(), *check_group(self.groups, self._ends())]

    def _ends(self) -> dict[int, int]:
        ends = {}
        for number, partition in enumerate(self.partitions):
            state = self.store.snapshot.partitions[partition].state
            assert state.leader is not None
            leading = self.nodes[state.leader.node_id].hosted(partition)
            assert leading is not None
            ends[number] = leading.high_watermark
        return ends

    def _is_read(self, ends: dict[int, int]) -> bool:
        return committed_ends(self.groups) == {number: end for number, end in ends.items() if end}


def run_groups(seed: int, logged_events: int = LOGGED_EVENTS, options: Options | None = None) -> Outcome:
    return GroupRun(seed, options or group_options(seed), logged_events).execute()
