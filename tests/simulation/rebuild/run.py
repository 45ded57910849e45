"""One run whose coordination store loses all content while the nodes run, and is rebuilt from their disks.

The nodes end their sessions and keep their data. Some time later all are stopped, and an operator does what
`penstock coordination inventory` and `rebuild` do: the logs are read, the content is decided and written by the
product's code. The faults go on before, meanwhile and afterwards. The guarantee is that of every run: nothing that was
acknowledged is lost.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from engine.directory.data_directory import DataDirectory, Identity
from engine.log.recovery import Checkpoint, LastShutdown
from replication.cluster.start_counter import load_start_counter
from replication.coordination.interface import Operation, Versioned
from replication.coordination.tree import Tree
from replication.rebuild.directories import read_log
from replication.rebuild.inventory import NodeInventory, StartInventory, TopicInventory
from replication.rebuild.plan import Choices, plan_rebuild
from replication.rebuild.writing import write_plan
from tests.simulation.run import Options, Outcome, Run, options_for
from tests.simulation.world.node import DATA_DIR, Node
from tests.simulation.world.store import TOPIC, number_of
from tests.simulation.world.store_client import DIRECTORY
from tests.simulation.world.world import LOGGED_EVENTS

KEEPING = (  # the faults that keep all directories and need no topic in the store
    "kill",
    "lose_power",
    "lose_power_everywhere",
    "pause",
    "cut_two_ways",
    "cut_one_way",
    "isolate",
    "cut_from_store",
    "late_changes",
    "bad_weather",
    "slow_disk",
    "full_disk",
    "expire_session",
    "stop_store",
    "idle",
    "jump_clock",
)
EPOCHS_BEFORE = 1_000_000  # more than the partition epochs of the lost store
T = TypeVar("T")


class Refused(Exception):
    """The rebuild asks for a decision although all directories are there."""


def rebuild_options(seed: int) -> Options:
    options = options_for(seed)
    kinds = tuple(kind for kind in options.kinds if kind in KEEPING and kind != "kill")
    rules = replace(options.rules, is_unclean_allowed=False, is_fsync_demanded=True)
    return replace(options, kinds=("kill", *kinds), rules=rules)


class TreeSession:
    """A session of the operator's command with the store of the simulation; nothing in it waits."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    async def get(self, key: str) -> Versioned | None:
        return self._tree.get(key)

    async def children(self, key: str) -> list[str]:
        return self._tree.children(key)

    async def commit(self, *operations: Operation) -> None:
        self._tree.apply(self._tree.plan(operations, session=0))


class RebuildRun(Run):
    def __init__(self, seed: int, options: Options, logged_events: int = LOGGED_EVENTS) -> None:
        super().__init__(seed, options, logged_events)
        random = Random(f"emptied store of {seed}")
        emptied_at = 2.0 + 3.0 * random.random()
        self.world.after(emptied_at, self._empty, random.random() < 0.5)
        self.world.after(emptied_at + 0.3 + 2.5 * random.random(), self._rebuild, random.random() < 0.5)

    def _empty(self, is_new: bool) -> None:
        self._entry = self.store.topic()  # each node has it in its `topic.json`
        self.world.count("stores emptied")
        self.store.empty(is_new=is_new)

    def _rebuild(self, is_power_lost: bool) -> None:
        for node in self.nodes.values():
            if is_power_lost:
                node.lose_power()
            else:
                node.kill()
        for session in list(self.store.sessions):
            self.store.expire(session)
        inventories = [self._inventory(node) for node in self.nodes.values()]
        now_ms = self.nodes[1].clock.now_ms()
        plan = plan_rebuild(inventories, Choices(now_ms=now_ms))
        if plan.questions or not plan.topics:
            raise Refused(f"R1 {plan.questions or 'no directory has the topic'}")
        run_at_once(write_plan(TreeSession(self.store.tree), plan, lambda: "id", now_ms))  # type: ignore[arg-type]
        self.world.count("stores rebuilt")
        self._rebuilt_at = self.world.now
        self.store.was_written()
        for node in self.nodes.values():
            node.start()

    def _judge(self) -> list[str]:
        """Partition epochs begin again at 0: all nodes have restarted, and no disk has one."""
        self.store.history = [
            (
                at,
                name,
                replace(
                    versioned, partition_epoch=versioned.partition_epoch + (at >= self._rebuilt_at) * EPOCHS_BEFORE
                ),
            )
            for at, name, versioned in self.store.history
        ]
        return super()._judge()

    def _inventory(self, node: Node) -> NodeInventory:
        """Read a disk as replication/rebuild/directories.py does, in the layout of the simulation."""
        directory = DataDirectory(node.disk, DATA_DIR, Identity("sim", node.node_id), last_shutdown=LastShutdown.CLEAN)
        points, hints = directory.load_checkpoints(), node.high_watermark_checkpoint
        logs = {
            number_of(name): read_log(
                node.disk, f"{DATA_DIR}/topics/{name}", points.get(name, Checkpoint()), hints.get(name, 0)
            )
            for name in node.disk.listdir(f"{DATA_DIR}/topics")
        }
        entry, counter = self._entry, load_start_counter(node.disk, DATA_DIR)
        topic = TopicInventory(
            name=entry.name,
            topic_id=TOPIC,
            partitions=entry.partitions,
            replication_factor=entry.replication_factor,
            created_ms=0,
            config=entry.config,
            hosted=tuple(logs),
            logs=logs,
        )
        start = StartInventory(number=counter.number, nonce=counter.nonces[0] if counter.nonces else "")
        return NodeInventory(
            cluster_id="sim",
            node_id=node.node_id,
            directory_id=DIRECTORY,
            starts={DIRECTORY: start},
            topics=(topic,) if logs else (),
        )


def run_at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def run_rebuild(seed: int, logged_events: int = LOGGED_EVENTS, options: Options | None = None) -> Outcome:
    return RebuildRun(seed, options or rebuild_options(seed), logged_events).execute()
