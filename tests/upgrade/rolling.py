"""A rolling replacement: three nodes under load, stopped one after the other and restarted from other code.

Load, histories and judges are those of tests/chaos. Nothing is broken here, so the demands are higher: no client gets
an error, and acks=1 loses nothing either. Needs no root: all nodes are on this host.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loadtests.cluster.nodes import ClusterNode
from loadtests.cluster.zookeeper import Zookeeper, reserve_port
from tests.chaos.clients.final import judge_what_is_left
from tests.chaos.clients.load import Load
from tests.chaos.clients.node_client import NOT_SENT, now
from tests.chaos.judge import Verdict
from tests.chaos.machines.cluster import NODES, PARTITIONS, HttpCluster

TOPIC = "rolled"
EXIT_OK = 0  # of a node that was stopped by SIGTERM


@dataclass
class Replacement:
    """The result. `errors` are those that clients received; `turned_away` counts failed connections, after which
    clients use the next node.
    """

    verdict: Verdict
    errors: Counter[str] = field(default_factory=Counter)
    turned_away: int = 0
    longest_pause_s: float = 0.0

    @property
    def findings(self) -> list[str]:
        found = list(self.verdict.findings)
        found += [f"an error that a client saw: {what}, {count} times" for what, count in self.errors.items()]
        if self.verdict.lost_acks_1:
            found.append(f"{self.verdict.lost_acks_1} records that acks=1 had acknowledged are lost")
        return found

    def __str__(self) -> str:
        verdict = self.verdict
        return (
            f"{verdict.acknowledged} acknowledged with acks=all, {verdict.lost} lost; "
            f"{verdict.acknowledged_acks_1} with acks=1, {verdict.lost_acks_1} lost; {verdict.duplicates} duplicates, "
            f"{self.errors.total()} errors, {verdict.others} other findings; longest pause of a partition "
            f"{self.longest_pause_s:.2f} s; {self.turned_away} times a node that was being replaced was not there"
        )


@contextmanager
def running_nodes(
    directory: Path, source: Path, zookeeper: Zookeeper | None = None, **settings: object
) -> Iterator[dict[int, ClusterNode]]:
    """Run ZooKeeper and three nodes with the code in `source`, at fixed URLs."""
    zookeeper = zookeeper or Zookeeper(directory / "zookeeper")
    (directory / "store").mkdir()
    coordination = f"zookeeper://127.0.0.1:{zookeeper.port}/penstock"
    nodes, ports = {}, {number: reserve_port() for number in NODES}
    for number in NODES:
        port = ports[number].getsockname()[1]
        given = {"port": port, "store": (directory / "store").as_uri(), "log-level": "info", **settings}
        nodes[number] = ClusterNode(number, directory, coordination, given, source)
    try:
        zookeeper.start()
        for node in nodes.values():
            node.begin_start()
        for node in nodes.values():
            node.wait_until_ready()
        yield nodes
    finally:
        for node in nodes.values():
            node.kill()
        zookeeper.kill()
        for reserved in ports.values():
            reserved.close()


async def replace_in_turn(
    nodes: dict[int, ClusterNode], sources: Sequence[Path], commit: str, calm_s: float
) -> Replacement:
    """Replace each node by one of the code in the first source, then each by one of the next."""

    def replace_by(source: Path) -> Callable[[ClusterNode], None]:
        def replace(node: ClusterNode) -> None:
            node.source = source

        return replace

    return await restart_in_turn(nodes, [replace_by(source) for source in sources], commit, calm_s)


async def restart_in_turn(
    nodes: dict[int, ClusterNode],
    steps: Sequence[Callable[[ClusterNode], None]],
    commit: str,
    calm_s: float,
    after_step: Callable[[int], None] = lambda _: None,
) -> Replacement:
    """Restart every node once for each step, changed by the step, when all are in sync.

    `calm_s`: load before, between and after. `after_step` is called in a thread, with the number of the step.
    """
    cluster = HttpCluster(nodes)
    load = Load(TOPIC, PARTITIONS, cluster.urls)
    verdict = Verdict("rolling-upgrade", 0, calm_s, commit)
    began: list[float] = []
    await cluster.create(TOPIC)
    await cluster.wait_until_healthy(TOPIC)
    async with load.running():
        await asyncio.sleep(calm_s)
        for number, change in enumerate(steps, 1):
            for node in nodes.values():
                began.append(now())
                if (code := await asyncio.to_thread(node.stop)) != EXIT_OK:
                    verdict.findings.append(f"{node} ended with {code}")
                change(node)
                node.begin_start()
                await asyncio.to_thread(node.wait_until_ready)
                await cluster.wait_until_healthy(TOPIC)
                await asyncio.sleep(calm_s)
            await asyncio.to_thread(after_step, number)
    await judge_what_is_left(verdict, cluster, TOPIC, load.history, began)
    codes = load.codes + load.errors
    turned_away = codes.pop(f"0 {NOT_SENT}", 0) + codes.pop(f"poll: 0 {NOT_SENT}", 0)
    verdict.client_errors = codes.total()
    return Replacement(verdict, codes, turned_away, max(verdict.pauses_s))
