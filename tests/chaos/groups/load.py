"""A consumer group and a share group that read the topic of a run, and what is known of their coordinators.

Both coordinators are among the victims of the faults. `judge` waits until both groups have read everything.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from zlib import crc32

from engine.format.paths import GROUPS_TOPIC
from tests.chaos.clients.node_client import NodeClient, now, open_session
from tests.chaos.groups.callers import Caller
from tests.chaos.groups.members import SESSION_S, Member
from tests.chaos.machines.cluster import AnyNode, HttpCluster
from tests.checking.group_checkers import Figures, check_group, figures_of
from tests.checking.group_history import GroupHistory, ShareHistory
from tests.checking.share_checkers import check_share

MEMBERS = 5
CALLERS = 5
DELIVERIES_MAX = 1000  # the chaos of a run never reaches it
DRAINED_S = 90.0
WATCH_S = 0.1
MARGIN_S = 1.0  # before and after the time in which another coordinator is seen


class GroupLoad:
    """`groups`: the consumer group and the share group of the topic."""

    def __init__(self, cluster: HttpCluster[AnyNode], topic: str, codes: Counter[str]) -> None:
        self.history, self.share = GroupHistory(SESSION_S), ShareHistory(DELIVERIES_MAX)
        self.groups = (f"members-of-{topic}", f"callers-of-{topic}")
        self._cluster, self._topic, self._codes = cluster, topic, codes
        self._calm = asyncio.Event()
        self._stopping = asyncio.Event()

    async def begin(self) -> None:
        """Creates the share group, and with it the groups topic."""
        config = b'{"config":{"kind":"share","deliveries_max":%d}}' % DELIVERIES_MAX
        while await self._cluster.request("PUT", f"/v1/groups/{self.groups[1]}", config) is None:
            await asyncio.sleep(0.2)
        await self._cluster.wait_until_healthy(GROUPS_TOPIC)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        urls = self._cluster.urls
        async with open_session() as session, asyncio.TaskGroup() as tasks:
            for number in range(MEMBERS):
                member = Member(self.groups[0], self._topic, number, NodeClient(session, urls, number), self._codes)
                tasks.create_task(member.run(self.history, self._stopping, self._calm))
            for number in range(CALLERS):
                caller = Caller(self.groups[1], self._topic, number, NodeClient(session, urls, number), self._codes)
                tasks.create_task(caller.run(self.share, self._stopping, self._calm))
            tasks.create_task(self._watch())
            try:
                yield
            finally:
                self._stopping.set()

    async def drain(self, ends: Mapping[int, int]) -> list[str]:
        """Ends the misbehaviour. Returns a finding for each group that does not read to the ends of the partitions."""
        self._calm.set()
        deadline = now() + DRAINED_S
        findings = ["G5 not asked"]
        while findings and now() < deadline:
            await asyncio.sleep(0.2)
            findings = [text for group in self.groups for text in await self._findings_left(group, ends)]
        return findings

    def judge(self, ends: Mapping[int, int]) -> tuple[list[str], Figures]:
        records = {(partition, offset): 0 for partition, end in ends.items() for offset in range(end)}
        findings = [*check_group(self.history, ends), *check_share(self.share, records)]
        return findings, figures_of(self.history, self.share)

    def note_fault(self, begin: float, end: float) -> None:
        """Notes the time of a fault, in which a coordinator may be replaced."""
        self.share.unsteady.append((begin - MARGIN_S, end + MARGIN_S))

    async def _findings_left(self, group: str, ends: Mapping[int, int]) -> list[str]:
        description = await self._cluster.request("GET", f"/v1/groups/{group}")
        rows = {row["partition"]: row for row in description["partitions"]} if description else {}
        states = {number: rows[number]["offset"] if number in rows else None for number in ends}
        lost = [row for row in rows.values() if row.get("dropped")]
        return [f"G5 not at the end: {group} is at {states} of {dict(ends)}"] * (states != dict(ends)) + [
            f"S1 dropped: {row}" for row in lost
        ]

    async def _watch(self) -> None:
        """Notes when a coordinator is replaced: the leader epoch of its partition has changed."""
        owners: dict[int, int] = {}
        seen_at = now()
        while not self._stopping.is_set():
            asked_at = now()
            rows = await self._cluster.rows(GROUPS_TOPIC)
            numbers = {crc32(group.encode()) % len(rows) for group in self.groups} if rows else set()
            epochs = {row["partition"]: row["leader_epoch"] for row in rows if row["partition"] in numbers}
            if any(epochs[number] > owners.get(number, epochs[number]) for number in epochs):
                self.note_fault(seen_at, now())
            if rows:
                owners |= {number: max(epoch, owners.get(number, 0)) for number, epoch in epochs.items()}
                seen_at = asked_at
            await asyncio.sleep(WATCH_S)
