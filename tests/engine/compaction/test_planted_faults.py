"""Faults that are planted in compaction: the twin of the table finds each one."""

from collections.abc import Callable

import pytest

from engine.compaction import batch_compaction, compactor, log_compaction
from engine.compaction.latest_offsets import PythonOffsets
from engine.compaction.plan import SegmentFile
from engine.compaction.progress import Progress
from engine.errors import EngineError
from engine.testing.recording_disk import RecordingDisk
from tests.engine.compaction.planted import WithFirst, expired_at_once
from tests.engine.compaction.test_compaction import random_story
from tests.engine.conftest import HandClock

SEEDS = range(12)


class WithoutCompare(PythonOffsets):
    """Removes every record of a key that it knows, also the last one."""

    def kept(self, batch, header, expired_below, *, keeps_first):
        before = dict(self._offsets)
        self._offsets = {key: offset + 1 for key, offset in before.items()}
        try:
            return super().kept(batch, header, expired_below, keeps_first=keeps_first)
        finally:
            self._offsets = before


def one_group_short(sealed: tuple[SegmentFile, ...], segment_bytes: int) -> list[tuple[SegmentFile, ...]]:
    """Merges segments, and forgets the second one."""
    return [(sealed[0], *sealed[2:])] if len(sealed) > 2 else [tuple(sealed)]


def planted(name: str, patch: pytest.MonkeyPatch) -> None:
    faults: dict[str, Callable[[], None]] = {
        "the last record of a key goes": lambda: patch.setattr(
            log_compaction, "new_latest_offsets", lambda memory, key, keys=0: WithoutCompare(memory, key)
        ),
        "the first record of a key counts as the last": lambda: patch.setattr(
            log_compaction, "new_latest_offsets", lambda memory, key, keys=0: WithFirst(memory, key)
        ),
        "tombstones go at once": lambda: patch.setattr(Progress, "tombstones_expired_below", expired_at_once),
        "a merge forgets a segment": lambda: patch.setattr(compactor, "grouped", one_group_short),
        "a removed batch leaves a gap": lambda: patch.setattr(
            batch_compaction.RemovedRange, "as_batch", lambda self: bytearray()
        ),
    }
    faults[name]()


@pytest.mark.parametrize(
    "fault",
    [
        "the last record of a key goes",
        "the first record of a key counts as the last",
        "tombstones go at once",
        "a merge forgets a segment",
        "a removed batch leaves a gap",
    ],
)
async def test_a_planted_fault_is_found(fault, monkeypatch):
    planted(fault, monkeypatch)
    for seed in SEEDS:
        clock = HandClock()
        try:
            await random_story(seed, RecordingDisk(clock), clock)
        except (AssertionError, EngineError):
            return
    raise AssertionError(f"no check finds: {fault}")
