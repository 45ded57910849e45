"""One run with a share group: the last partition has its state, callers share the records of the others.

The faults are those of a group, and one more: the coordinator pauses.
"""

from __future__ import annotations

from random import Random

from gateway.groups.share.partition import SharePartition
from tests.checking.group_history import ShareHistory
from tests.checking.share_checkers import check_share
from tests.simulation.groups.hosting import TOPIC
from tests.simulation.groups.run import group_options
from tests.simulation.run import HEAL_S, Options, Outcome, Run
from tests.simulation.share.callers import DELAY_MS, GROUP, Caller, key_of
from tests.simulation.world.store import STORE
from tests.simulation.world.world import LOGGED_EVENTS

CALLERS = 4
PAUSE_EVERY_S = 4.0
LATE_S = 0.5  # of the store's messages after a pause


class ShareRun(Run):
    def __init__(self, seed: int, options: Options, logged_events: int = LOGGED_EVENTS) -> None:
        super().__init__(seed, options, logged_events)
        self._groups = self.partitions.pop()  # the clients of records have this list too
        random = Random(f"share group of {seed}")
        self.share = ShareHistory(random.choice((2, 3, 5)), random.random() < 0.5, DELAY_MS / 1000)
        self.callers = [
            Caller(
                *self._client(f"s{number}"),
                groups=self._groups,
                topic_partitions=self.partitions,
                history_of_share=self.share,
            )
            for number in range(CALLERS)
        ]
        for number, caller in enumerate(self.callers):
            self.world.after(0.5 + 0.3 * number, caller.run)
        if "pause" in options.kinds:
            self.world.after(1.0 + 2.0 * random.random(), self._pause_coordinator)

    def _pause_coordinator(self) -> None:
        """Pause the coordinator until another node has replaced it; then it learns of its callers first.

        The connections to callers and to the store are apart. A process that goes on after a pause may answer the ones
        before it reads from the other that it leads nothing. Callers begin to ask any node again.
        """
        if self.faults.is_over:
            return
        leader = self.store.snapshot.partitions[self._groups].state.leader
        if leader is not None:
            node = self.nodes[leader.node_id]
            pause_s = self.store.timeout_s * (1.2 + self.world.random.random())
            link = (STORE, node.name)
            node.pause(pause_s)
            self.network.late_s[link] = pause_s + LATE_S
            self.world.after(pause_s, self._ask_any_node)
            self.world.after(pause_s + LATE_S, self.network.late_s.pop, link, None)
            self.world.count("coordinators paused")
        self.world.after(PAUSE_EVERY_S, self._pause_coordinator)

    def _ask_any_node(self) -> None:
        for caller in self.callers:
            caller.coordinator = None

    def _peace(self) -> list[str]:
        for caller in self.callers:
            caller.is_calm = True
        for node in self.nodes.values():
            node.clock.offset_ms = 0  # delays are of wall time: one may wait for a day that a wrong clock has given it
        problems = super()._peace()
        if problems:
            return problems
        self.world.run_until(self.world.now + HEAL_S, lambda: self.world.random.random() < 0.01 and self._is_done())
        for caller in self.callers:
            caller.is_stopped = True
        return [] if self._is_done() else [f"S7 unfinished: {self._windows()}"]

    def _judge(self) -> list[str]:
        keys = {}
        for number, partition in enumerate(self.partitions):
            records = self._final_logs(partition)[0].records
            keys.update({(number, at): key_of(value) for at, value in records.items()})
        return [*super()._judge(), *check_share(self.share, keys)]

    def _windows(self) -> dict[int, SharePartition]:
        leader = self.store.snapshot.partitions[self._groups].state.leader
        life = None if leader is None else self.nodes[leader.node_id].life
        core = None if life is None else life.coordinators.leading()
        group = None if core is None else core.groups.get(GROUP)
        if group is None or group.share is None:
            return {}
        return {number: partition for (topic, number), partition in group.share.partitions.items() if topic == TOPIC}

    def _is_done(self) -> bool:
        windows = self._windows()
        ends = {number: self._final_logs(partition)[0] for number, partition in enumerate(self.partitions)}
        return all(
            number in windows and windows[number].window.start == max(end.records, default=-1) + 1
            for number, end in ends.items()
        )


def run_share(seed: int, logged_events: int = LOGGED_EVENTS, options: Options | None = None) -> Outcome:
    return ShareRun(seed, options or group_options(seed), logged_events).execute()
