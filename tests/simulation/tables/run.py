"""One run with compacted topics: producers of keys, readers of tables, and replicas that compact each for itself.

The faults are those of every run, but for what removes records by hand and for wall clocks that jump: the time until a
tombstone goes is kept over a restart by the wall clock.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.checking.checkers import out_of_real_time_order, positions_going_back, wrong_rejections
from tests.checking.table_checkers import ReplicaTable, check_tables
from tests.checking.table_history import Put, TableHistory, headers_of, rows_of
from tests.simulation.run import HEAL_S, Options, Outcome, Run, now_and_then, options_for
from tests.simulation.tables.clients import KeyProducer, SequencedKeyProducer, TableReader
from tests.simulation.world.compaction import TableOptions
from tests.simulation.world.world import LOGGED_EVENTS

REMOVING = ("trim", "alter", "jump_clock", "bad_bucket")
NOT_REPAIRED = ("read_error",)  # compacted segments have no equal copy
READERS = ((0.05, 0.2), (0.3, 0.0), (0.6, 0.0), (0.6, 0.3), (1.0, 0.0))  # the longest pause, and how often one moves


def table_options(seed: int) -> Options:
    options, random = options_for(seed), Random(f"tables of {seed}")
    policy = random.choice(("compact", "compact", "compact,delete"))
    table = TableOptions(
        cleanup_policy=policy,
        delete_retention_ms=random.choice((1500, 2500)),
        min_compaction_lag_ms=random.choice((0, 0, 300)),
        min_cleanable_dirty_percent=random.choice((1, 20, 50)),
        memory_bytes=random.choice((200, 1 << 16)),
        check_s=random.choice((0.1, 0.3, 1.0)),
    )
    return replace(
        options,
        partitions=random.choice((1, 2)),
        kinds=tuple(kind for kind in options.kinds if kind not in REMOVING + NOT_REPAIRED) or ("kill", "lose_power"),
        rules=replace(options.rules, is_unclean_allowed=False),
        retention_bytes=4000 if policy == "compact,delete" else None,
        local_retention_bytes=None,
        table=table,
    )


class TableRun(Run):
    def __init__(self, seed: int, options: Options, logged_events: int = LOGGED_EVENTS) -> None:
        assert options.table is not None
        has_moves = bool({"reassign", "drain"} & set(options.kinds))
        self.tables = TableHistory(options.table.delete_retention_ms / 1000, has_moves)
        super().__init__(seed, options, logged_events)
        self.producers[:] = [
            SequencedKeyProducer(*self._client("p0"), partition=self.partitions[0], producer_id=7, every_s=0.08),
            KeyProducer(*self._client("p1"), partitions=self.partitions, acks="all", every_s=0.15),
            KeyProducer(*self._client("p2"), partitions=self.partitions, acks="1", every_s=0.3),
        ]
        self.consumers = []
        self.readers = [
            self._reader(f"r{i}", self.partitions[i % len(self.partitions)], *speed) for i, speed in enumerate(READERS)
        ]
        for node in self.nodes.values():
            node.begins_again = self._begins_again
            node.swapped = self.tables.note_swap
            node.crashes_in_swap = lambda node=node: self._crash_in_swap(node)
        for reader in self.readers:
            self.world.after(0.4, reader.run)

    def _peace(self) -> list[str]:
        problems = super()._peace()
        for reader in self.readers:
            reader.is_stopped = True
        return problems

    def _full_read(self) -> list[str]:
        """Read every replica from its beginning to its end, some time after the tombstones may have gone."""
        self.world.run_until(self.world.now + 2 * self.tables.delete_retention_s)
        readers = [
            self._reader(f"full read of {partition} at node {node}", partition, every_s=0.01, node_id=node)
            for partition in self.partitions
            for node in self.store.snapshot.partitions[partition].state.replicas
        ]
        self.readers += readers
        for reader in readers:
            reader.run()
        ends = self.tables.ends
        is_done = now_and_then(self.world, lambda: all(reader.position >= ends[reader.partition] for reader in readers))
        self.world.run_until(self.world.now + HEAL_S, is_done)
        unfinished = [reader.name for reader in readers if reader.position < ends[reader.partition]]
        return [f"T2 not everything could be read after everything was healed: {unfinished}"] if unfinished else []

    def _judge(self) -> list[str]:
        puts = [write for write in self.history.produced if isinstance(write, Put)]
        findings = check_tables(self.tables, puts, self._replicas())
        findings += positions_going_back(self.history, self.store.history)
        findings += [*out_of_real_time_order(self.history.produced), *wrong_rejections(self.history)]
        return findings + self.history.cuts_below_watermark

    def _replicas(self) -> list[ReplicaTable]:
        replicas = []
        for partition in self.partitions:
            for node_id in self.store.snapshot.partitions[partition].state.replicas:
                hosted = self.nodes[node_id].hosted(partition)
                assert hosted is not None
                data = b"".join(hosted.log.all_batches(hosted.high_watermark))
                about = (partition, node_id, hosted.log.log.log_start, hosted.high_watermark)
                replicas.append(ReplicaTable(*about, headers_of(data), tuple(rows_of(data))))
        return replicas

    def _reader(self, name: str, partition: str, every_s: float, moves: float = 0.0, node_id: int = 0) -> TableReader:
        about = {"partition": partition, "every_s": every_s, "moves": moves, "node_id": node_id}
        return TableReader(*self._client(name), tables=self.tables, **about)

    def _saw_watermark(self, partition: str, node_id: int, leader_epoch: int, position: int) -> None:
        super()._saw_watermark(partition, node_id, leader_epoch, position)
        offset = self.tables.ends.get(partition, 0)
        hosted = self.nodes[node_id].hosted(partition)
        assert hosted is not None
        while offset < position:
            data = hosted.log.read(offset, position)
            offset = headers_of(data)[-1].end
            self.tables.commit(partition, data, offset)

    def _begins_again(self, node_id: int, partition: str) -> None:
        self.tables.begun_again.append((self.world.now, node_id, partition))

    def _crash_in_swap(self, node) -> None:
        if not self.faults.is_over:
            self.world.count("nodes ended within a swap")
            self.faults.crash(node)


def run_tables(seed: int, logged_events: int = LOGGED_EVENTS, options: Options | None = None) -> Outcome:
    return TableRun(seed, options or table_options(seed), logged_events).execute()
