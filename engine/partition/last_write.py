"""The bytes of the last group that was written, for long polls that wait for them.

They need not be read from the disk and checked: the writer has just written them. Kept only while a poll waits, and
only if they are few. They may not be committed yet, or be cut off: a reader asks for those up to the high watermark,
and every write replaces them.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.log.log import Roll, Write

KEPT_BYTES_MAX = 4 * 1024  # of each of 10,000 partitions


class LastWrite:
    """Whole batches from `base_offset` to `next_offset`; empty if there are none."""

    __slots__ = ("base_offset", "data", "next_offset")

    def __init__(self) -> None:
        self.base_offset = self.next_offset = 0
        self.data = b""

    def __repr__(self) -> str:
        return f"LastWrite({self.base_offset} to {self.next_offset}, {len(self.data)} bytes)"

    def put(self, steps: Sequence[Write | Roll], *, has_polls: bool) -> None:
        """Takes the buffers of steps that were written: the page cache has their bytes now."""
        self.data = b""
        for step in steps:
            if isinstance(step, Write):
                if has_polls and len(steps) == 1 and step.size_bytes <= KEPT_BYTES_MAX:
                    self.data = b"".join(step.buffers)
                    self.base_offset, self.next_offset = step.headers[0].base_offset, step.headers[-1].next_offset
                step.buffers = []

    def between(self, offset: int, end: int) -> bytes:
        """Returns the batches from one offset to another, if it has just these; else nothing."""
        return self.data if self.base_offset == offset and self.next_offset == end else b""
