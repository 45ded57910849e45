"""A compacted partition and a table in memory, by steps that hypothesis chooses: appends, compactions, restarts, kills,
power losses.

After every step the log has the last record of each key, each tombstone within its retention, and no record that was
not sent (tests/engine/compaction/table.py).
"""

import asyncio
from random import Random

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from engine.errors import EngineError
from engine.testing.recording_disk import RecordingDisk
from tests.engine.compaction.table import SETTINGS, Table
from tests.engine.compaction.test_planted_faults import planted
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import inline_node

KEYS = st.integers(0, 5).map(lambda number: f"k{number}".encode())
VALUES = st.one_of(st.none(), st.sampled_from((b"", b"1", b"v" * 300)))
BATCHES = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)


class CompactedPartition(RuleBasedStateMachine):
    @initialize(keys_in_memory=st.sampled_from((2, 100)))
    def begin(self, keys_in_memory):
        self.clock, self.table = HandClock(), Table(memory_bytes=160 * keys_in_memory)
        self.disk = RecordingDisk(self.clock)
        self.loop = asyncio.new_event_loop()
        self._open()
        self._do(self.node.shard.create_topic("t", 1, 1, SETTINGS))

    @rule(batches=st.lists(BATCHES, min_size=1, max_size=3))
    def send_segments(self, batches):
        for batch in batches:
            self._do(self.table.send(self.node, batch))
            self._do(self.table.seal(self.node))

    @rule(batch=BATCHES)
    def send(self, batch):
        self._do(self.table.send(self.node, batch))

    @rule(ms=st.sampled_from((0, 600, 2000)))
    def compact(self, ms):
        self.clock.pass_ms(ms)
        self.clock.seconds += ms / 1000
        self._do(self.table.compact(self.node, self.disk))
        self._check()

    @rule(is_clean=st.booleans())
    def start_again(self, is_clean):
        self._end(is_clean=is_clean)
        if not is_clean:
            self.disk = self.disk.snapshot()  # the locks of a killed process are free
        self._open()
        self._check()

    @rule(after=st.integers(1, 40), seed=st.integers(0, 99))
    def lose_power_while_compacting(self, after, seed):
        self.disk.lose_power_after(self.disk.operations + after)
        try:
            self._do(self.table.compact(self.node, self.disk))
        except (EngineError, OSError):
            assert self.disk.has_lost_power
        self._end(is_clean=False)
        states = list(self.disk.crash_states(4, Random(seed)))
        self.disk = states[seed % len(states)]
        self._open()
        self._check()

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self._end(is_clean=False)
            self.loop.close()

    def _check(self) -> None:
        self._do(self.table.check(self.node))

    def _open(self) -> None:
        self.life = inline_node(self.disk, self.clock)
        self.node = self._do(self.life.__aenter__())

    def _end(self, *, is_clean: bool) -> None:
        if not is_clean:
            self.node.kill()
        self._do(self.life.__aexit__(None, None, None))

    def _do(self, work):
        return self.loop.run_until_complete(work)


CompactedPartition.TestCase.settings = settings(max_examples=20, stateful_step_count=12, deadline=None)
TestCompactedPartition = CompactedPartition.TestCase


@pytest.mark.parametrize("fault", ["the last record of a key goes", "tombstones go at once"])
def test_a_planted_fault_is_found(fault, monkeypatch):
    planted(fault, monkeypatch)
    quick = settings(
        max_examples=100,
        stateful_step_count=12,
        deadline=None,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
    )
    with pytest.raises(AssertionError, match="a last record"):
        run_state_machine_as_test(CompactedPartition, settings=quick)
