"""The subscriptions of this process: those whose group it coordinates, each with its runner.

Looks at every partition of the groups topic that this process leads, so that deliveries go on after a restart or a
change of leaders without any request. A call that changes a subscription stops its runner in the same step. The next
one starts once the change is stored; if it cannot be, the next look runs what is stored.
A runner starts if the owner of its subscription has the rights that it needs, and is checked again after each change of
the rules (gateway/access/waits.py). Whether it may run is not stored: it follows from the rules of this process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from engine.errors import EngineError
from engine.format.paths import GROUPS_TOPIC
from engine.partition.partition import Partition
from engine.runtime.tasks import keep_running
from gateway.access.owners import Owners
from gateway.access.waits import Wait
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.hosting.host import GroupHost
from gateway.groups.hosting.hosted import Hosted
from gateway.groups.hosting.lags import sum_by_name
from gateway.groups.model.settings import PUSH_PREFIX
from gateway.groups.model.state import Group
from gateway.groups.model.values import PushCall, ResetCall, Slot
from gateway.metrics.metrics import Numbers
from gateway.routing.partitions import Partitions, Topics
from gateway.subscriptions.core.definition import Definition, decode
from gateway.subscriptions.runner import Counts, Means, Runner

LOOK_S = 0.5

log = logging.getLogger("penstock.gateway")


class PushHost:
    """Runs nothing before `start`, which only follows where the operator has allowed push."""

    def __init__(self, groups: GroupHost, topics: Topics, partitions: Partitions, owners: Owners) -> None:
        self._groups = groups
        self._topics = topics
        self._partitions = partitions
        self._owners = owners
        self._forbidden: dict[str, str] = {}  # the right that the owner lacks, by subscription
        self._means: Means | None = None
        self._runners: dict[str, Runner] = {}
        self._changing: Counter[str] = Counter()  # changes that are not stored yet
        self._ended: dict[str, Counts] = {}  # of runners that were stopped, by subscription
        self._gone = Counts()  # of subscriptions that this process does not run any more
        self._looking: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"PushHost({list(self._runners.values())})"

    def start(self, means: Means) -> None:
        """Begins to run what this process coordinates."""
        self._means = means
        self._looking = keep_running(self._reconcile_often, "looking for subscriptions")

    async def stop(self) -> None:
        """Ends all deliveries."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        for name in list(self._runners):
            self._stop(name)
        if self._means is not None:
            await self._means.sender.close()

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each metric."""
        now = [self._gone, *self._ended.values(), *(runner.counts for runner in self._runners.values())]
        yield "penstock_subscriptions", "Push subscriptions that this process delivers", len(self._runners)
        text = "Push subscriptions that wait because their owners lack a right"
        yield "penstock_subscriptions_forbidden", text, len(self._forbidden)
        waiting = sum(runner.waiting for runner in self._runners.values())
        yield "penstock_push_waiting_requests", "Failed requests of push that wait for a retry", waiting
        yield "penstock_push_records_total", "Records delivered by push", sum(counts.delivered for counts in now)
        yield "penstock_push_failures_total", "Requests of push that failed", sum(counts.failed for counts in now)
        letters = sum(counts.dead_lettered for counts in now)
        yield "penstock_push_dead_letters_total", "Records that push gave up and stored elsewhere", letters

    def failing(self) -> Iterator[tuple[str, str]]:
        """Yields the subscriptions with requests that failed and wait for a retry, and the last error of each."""
        for name, runner in self._runners.items():
            if runner.waiting and runner.last_error:
                yield _subscription_name(name), runner.last_error

    def families(self) -> Iterator[Numbers]:
        """Yields the metrics of each subscription that this process delivers."""
        counts = self._counts()
        label = "subscription"
        letters = sum_by_name((_subscription_name(name), total.dead_lettered) for name, total in counts.items())
        text = "Records that a subscription gave up and stored in its dead-letter topic"
        yield Numbers("penstock_subscription_dead_letters_total", text, label, letters)
        failed = sum_by_name((_subscription_name(name), total.failed) for name, total in counts.items())
        yield Numbers("penstock_subscription_failures_total", "Requests of a subscription that failed", label, failed)
        waiting = sum_by_name((_subscription_name(name), runner.waiting) for name, runner in self._runners.items())
        text = "Failed requests of a subscription that wait for a retry"
        yield Numbers("penstock_subscription_waiting_requests", text, label, waiting)

    def dead_letters(self) -> dict[str, int]:
        """Returns how many records each subscription gave up, of those that this process delivers."""
        return {_subscription_name(name): counts.dead_lettered for name, counts in self._counts().items()}

    def _counts(self) -> dict[str, Counts]:
        counts = {name: Counts() for name in (*self._ended, *self._runners)}
        for name, total in counts.items():
            for part in (self._ended.get(name), self._runners[name].counts if name in self._runners else None):
                total.add(part or Counts())
        return counts

    async def put(self, partition: Partition, call: PushCall) -> bool | None:
        """Creates or changes a subscription. Returns whether it is new; None: nothing changed (Coordinator.push)."""
        hosted = await self._groups.at(partition)
        is_new, sequence = hosted.decide(lambda core, now, source: core.push(call, now, source))
        await self._change(hosted, call.group, sequence)
        return is_new

    async def reset(self, partition: Partition, call: ResetCall) -> None:
        """Moves a subscription to other positions."""
        hosted = await self._groups.at(partition)
        _, sequence = hosted.decide(lambda core, now, source: core.reset(call, now, source))
        await self._change(hosted, call.group, sequence)

    async def delete(self, partition: Partition, name: str) -> None:
        """Deletes a subscription and its positions."""
        hosted = await self._groups.at(partition)
        _, sequence = hosted.decide(lambda core, now, source: core.delete(name, now, source))
        await self._change(hosted, name, sequence)

    def waits(self) -> Iterator[Wait]:
        """Yields the subscriptions that run, to check the rights of their owners."""
        for name in self._runners:
            yield _OwnerCheck(self, name)

    def recheck(self, name: str) -> None:
        """Stops a subscription whose owner has lost a right. The looks start it once the right is back."""
        runner = self._runners.get(name)
        if runner is not None and not self._may_run(name, runner.definition):
            self._stop(name)

    def forbidden(self, name: str) -> str:
        """Returns the right that the owner of a subscription lacks; empty: none."""
        return self._forbidden.get(name, "")

    async def find(self, partition: Partition, name: str) -> tuple[Group, Runner | None]:
        """Returns a subscription and its runner. Raises UnknownGroup."""
        hosted = await self._groups.at(partition)
        return hosted.coordinator.find(name), self._runners.get(name)

    async def load_coordinator(self, partition: Partition) -> Coordinator:
        """Returns the coordinator of a partition."""
        return (await self._groups.at(partition)).coordinator

    async def _reconcile_often(self) -> None:
        while True:
            await self._reconcile()
            await asyncio.sleep(LOOK_S)

    async def _reconcile(self) -> None:
        topic = self._topics.get(GROUPS_TOPIC)
        coordinators: list[Hosted] = []
        topic_id, count = ("", 0) if topic is None else (topic.record.topic_id, topic.record.partitions)
        for number in range(count):
            try:
                partition = self._partitions.owned_partition(GROUPS_TOPIC, topic_id, number)
                coordinators.append(await self._groups.at(partition))
            except EngineError:
                continue  # another process leads it, or the log cannot be read now
        led = {  # only now: a call may have made a subscription at one while another was loaded
            name: hosted
            for hosted in coordinators
            for name, group in hosted.coordinator.groups.items()
            if group.definition is not None
        }
        for name in set(self._runners) - set(led):
            self._stop(name)
        for name in set(self._ended) - set(led):
            self._gone.add(self._ended.pop(name))
        for name in set(self._forbidden) - set(led):
            del self._forbidden[name]
        for name, hosted in led.items():
            self._update(hosted, name, is_stored=name not in self._changing)

    async def _change(self, hosted: Hosted, name: str, sequence: int) -> None:
        """Changes the runner of a subscription after a call. Raises the error of its append."""
        self._changing[name] += 1
        try:
            self._update(hosted, name, is_stored=False)
            await hosted.wait_stored(sequence)
        finally:
            self._changing -= Counter([name])  # without those at 0
        self._update(hosted, name, is_stored=name not in self._changing)

    def _update(self, hosted: Hosted, name: str, *, is_stored: bool = True) -> None:
        """Starts, stops or restarts the runner of a subscription by what the coordinator has of it.

        A state that is not stored yet only stops it.
        """
        group, runner = hosted.coordinator.groups.get(name), self._runners.get(name)
        if self._means is None:
            return
        if group is None or group.definition is None:
            self._forbidden.pop(name, None)
            self._stop(name)
            return
        definition = decode(group.definition)
        state = (hosted, definition, group.resets)
        if runner is not None and (runner.hosted, runner.definition, runner.resets) != state:
            self._stop(name)
            runner = None
        if definition.is_paused or hosted.error is not None or not is_stored:
            self._forbidden.pop(name, None)
            return
        places = self._places(definition)
        if runner is not None and any(places.get(slot, topic_id) != topic_id for slot, topic_id in runner.places):
            self._stop(name)  # a topic was deleted, and a new one has its name
            runner = None
        if runner is None:
            if not (self._owners.can_decide and self._may_run(name, definition)):
                return
            runner = self._runners[name] = Runner(hosted, name, definition, group.resets, self._means)
        runner.follow(places)
        runner.missing = tuple(name for name in definition.topics if self._topics.get(name) is None)

    def _may_run(self, name: str, definition: Definition) -> bool:
        """Returns whether the owner of a subscription has the rights that it needs, and notes what it lacks."""
        reason = self._owners.lost_right(definition.owner, definition.needed(_subscription_name(name)))
        before = self._forbidden.pop(name, "")
        if reason:
            self._forbidden[name] = reason
        if reason and reason != before:
            log.warning("a subscription waits for its owner's right", extra={"subscription": name, "reason": reason})
        elif before and not reason:
            log.info("a subscription goes on: its owner has its rights", extra={"subscription": name})
        return not reason

    def _places(self, definition: Definition) -> dict[Slot, str]:
        """Returns the partitions of a subscription with the ids of their topics."""
        topics = [topic for name in definition.topics if (topic := self._topics.get(name)) is not None]
        return {
            Slot(topic.record.name, number): topic.record.topic_id
            for topic in topics
            for number in range(topic.record.partitions)
        }

    def _stop(self, name: str) -> None:
        if (runner := self._runners.pop(name, None)) is not None:
            runner.stop()
            self._ended.setdefault(name, Counts()).add(runner.counts)


class _OwnerCheck(NamedTuple):
    """A subscription that runs, as a wait whose right is checked."""

    host: PushHost
    name: str

    def recheck(self) -> None:
        self.host.recheck(self.name)


def _subscription_name(name: str) -> str:
    return name.removeprefix(PUSH_PREFIX)
