"""Faults of compaction that tests plant: in the engine alone, and in the simulator."""

from engine.compaction.latest_offsets import Kept, PythonOffsets
from engine.compaction.progress import Progress
from engine.format.batch import HEADER_BYTES
from engine.format.record_spans import record_spans


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
