"""CRC-32C of a segment's bytes up to entries of its index: a read checks a long span with one call.

To check a batch takes 0.6 us of Python, for batches of one small record ten times as much as the rest of a read. Here
`crc32c(bytes between two entries, value at the first) == value at the second`, 0.05 ms per MiB for batches of any size.
Unlike the checksums of batches, it covers base offsets and leader epochs.
Held in memory, for bytes that are sound batches one after another: this process wrote them, or has checked each batch.
Not evidence of damage: where a value differs or is not known, batches are checked one by one
(engine/log/sound_span.py).
Invariant: the values of a run are those of a CRC that begins at the run's first entry. `written` is for the event loop;
any thread may ask and learn: what is learned is put in place as a whole, and of two threads the later one wins.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from engine.format.batch_header import Buffer, begins_batch

LEARNED_RUNS_MAX = 4  # readers that go through a segment at the same time; a run of 64 MiB takes 64 KiB


class _Run(NamedTuple):
    """Values at neighbouring entries, from the entry of number `first` on."""

    first: int
    values: array[int]

    @property
    def end(self) -> int:
        return self.first + len(self.values)


class SpanChecksums:
    """Of one segment. `positions` are always those of its index."""

    __slots__ = ("_crc", "_end", "_learned", "_written")

    def __init__(self) -> None:
        self._written = _Run(0, array("I"))
        self._crc, self._end = 0, 0  # of what was written, up to its end
        self._learned: tuple[_Run, ...] = ()

    def __repr__(self) -> str:
        return f"SpanChecksums(written={len(self._written.values)}, learned={len(self._learned)})"

    def written(self, buffers: Sequence[Buffer], start: int, positions: Sequence[int], number: int) -> None:
        """Take note of bytes written at `start`, and of the entries in them, which begin with that number."""
        if start != self._end:  # behind bytes of an earlier process
            self._written = _Run(number, array("I"))
        crc, position, values, count = self._crc, start, self._written.values, len(positions)
        for buffer in buffers:
            end = position + len(buffer)
            while number < count and positions[number] < end:
                view = memoryview(buffer)
                before = positions[number] - position
                crc = crc32c(view[:before], crc) if values else 0
                values.append(crc)
                buffer, position, number = view[before:], position + before, number + 1
            crc = crc32c(buffer, crc)
            position = end
        self._crc, self._end = crc, position

    def whole(self, size_bytes: int) -> int | None:
        """The CRC of the whole file, if this process wrote all of it and it has this size."""
        run = self._written
        return self._crc if run.values and run.first == 0 and self._end == size_bytes else None

    def known(self, first: int, last: int) -> tuple[int, int] | None:
        """The values at two entries, if one run holds both."""
        for begin, values in (self._written, *self._learned):
            if begin <= first and last - begin < len(values):
                return values[first - begin], values[last - begin]
        return None

    def learn(self, data: Buffer, start: int, positions: Sequence[int], offsets: Sequence[int], first: int) -> None:
        """Remember bytes, which begin at position `start`, from the entry of number `first` to the last of `offsets`.

        `offsets` are those of the batches at these entries. The caller has found all batches sound; that the entries
        are where batches begin is looked at here, since an index is not evidence.
        """
        if not begins_batch(data, positions[first] - start, offsets[0]):
            return
        run = next((one for one in self._learned if one.first <= first < one.end), None)
        others = [one for one in self._learned if one is not run]
        run = run or _Run(first, array("I", [0]))
        values, crc, view = run.values[:], run.values[-1], memoryview(data)
        for number in range(run.end, first + len(offsets)):
            begin, end = positions[number - 1] - start, positions[number] - start
            if end < len(data) and not begins_batch(data, end, offsets[number - first]):
                break
            crc = crc32c(view[begin:end], crc)
            values.append(crc)
        self._learned = (*others[1 - LEARNED_RUNS_MAX :], _Run(run.first, values))
