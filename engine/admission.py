"""What an append may demand before it is written, and one partition's judgement of it: written, seen before, refused.

Pure: no disk, no clock, no waiting. `admit` is asked when a group starts (Partition.take_work), where offsets are given
out. One plan per partition is under way at a time, so the state then holds everything that was written before; what
`admit` notes for the plan itself is tentative: in force with `written`, forgotten with `failed`. Refusals and repeats
are told when the plan is written, never before, so that a repeat of something in the same plan shares its fate.

The order in which an append is judged: (1) seen before: its first positions, nothing is written; (2) what the
partition demands of every append; (3) the end that the append expects; (4) its own sequence. So a repeat of a
conditional append that has succeeded is a repeat, not a mismatch.

To add a demand: a field of Terms, which crosses links as it is; what it is judged by is state of Admission, with a line
in `_has_demands` if appends without that field can be refused too, a case in `_judge`, and its tentative change in
`_noted`. What a batch says of itself is in its header and needs no field.
Invariants: an append without demands costs one look at its terms and one at its header; a judged append's verdict never
changes; `written` and `failed` both leave nothing tentative.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from engine import batch as record_batch
from engine.batch import Header
from engine.errors import EngineError, LogEndMismatch


class Terms(NamedTuple):
    """What an append demands beside what its batch says. An append without any has None in place of this."""

    expected_end: int | None = None


class Appended(NamedTuple):
    """Where the records of an append are: now, or since it came for the first time.

    `timestamp_ms` is told of a duplicate only: the latest time of the records that were stored then.
    """

    base_offset: int
    record_count: int
    timestamp_ms: int | None = None
    is_duplicate: bool = False

    @property
    def end(self) -> int:
        return self.base_offset + self.record_count


@dataclass(slots=True)
class Append:
    """A batch on its way into the log. Without a verdict it is written; else that is its answer."""

    batch: bytes | bytearray
    written: asyncio.Future[Appended]
    wants_sync: bool
    terms: Terms | None = None
    verdict: Appended | EngineError | None = None


class Admission:
    """Judges the appends of one partition."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"Admission({self._name})"

    def admit(self, appends: list[Append], log_end: int) -> list[Append]:
        """Those that are to be written, in order; the others have a verdict. `log_end` is where the plan begins."""
        if not self._has_demands(appends):
            return appends
        admitted, end = [], log_end
        for append in appends:
            header = record_batch.read_header(append.batch)
            append.verdict = self._judge(append.terms or NO_TERMS, end)
            if append.verdict is None:
                admitted.append(append)
                end += self._noted(header)
        return admitted

    def written(self) -> None:
        """The plan that was judged last is in the log: what was noted for it is in force."""

    def failed(self) -> None:
        """The plan that was judged last is not in the log, and nothing of it will be."""

    def _has_demands(self, appends: list[Append]) -> bool:
        return any(append.terms is not None for append in appends)

    def _judge(self, terms: Terms, end: int) -> Appended | EngineError | None:
        """The cases are those of the file's head. `end` is where this append would begin."""
        if terms.expected_end is not None and terms.expected_end != end:
            text = f"{self._name}: the log ends at {end}, not at {terms.expected_end}"
            return LogEndMismatch(text, log_end=end)
        return None

    def _noted(self, header: Header) -> int:
        """This batch is part of the plan; returns how many offsets it takes."""
        return header.last_offset_delta + 1


NO_TERMS = Terms()
