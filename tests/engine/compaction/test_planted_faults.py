"""Faults that are planted in compaction: the twin of the table finds each one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.compaction import batch_compaction, compactor, log_compaction
from engine.compaction.latest_offsets import Kept, PythonOffsets
from engine.compaction.plan import SegmentFile
from engine.compaction.progress import Progress
from engine.errors import EngineError
from engine.format.batch import HEADER_BYTES
from engine.format.record_spans import record_spans
from engine.testing.recording_disk import RecordingDisk
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


class WithFirst(PythonOffsets):
    """Remembers the first record of a key in place of the last."""

    def add(self, batch, header):
        before = dict(self._offsets)
        super().add(batch, header)
        self._offsets |= before

    def kept(self, batch, header, expired_below, *, keeps_first):
        kept = [one for one in record_spans(batch, header.record_count) if self._is_kept(header, one)]
        records = b"".join(bytes(batch[one.begin : one.end]) for one in kept)
        return Kept(records, len(kept), has_first=bool(kept) and kept[0].begin == HEADER_BYTES)

    def _is_kept(self, header, span):
        return self._offsets.get(self._digest(span.key), -1) in (-1, header.base_offset + span.offset_delta)


def expired_at_once(self: Progress, now_ms: int, delete_retention_ms: int) -> int:
    return max((one.end for one in self.rounds), default=0)


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
async def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(fault, monkeypatch)
    for seed in SEEDS:
        clock = HandClock()
        try:
            await random_story(seed, RecordingDisk(clock), clock)
        except (AssertionError, EngineError):
            return
    raise AssertionError(f"no check finds: {fault}")
