"""A property: after any damage to a segment file no read in any form skips an offset without a problem.

Damage: bytes flipped, zeroed, cut off, removed and appended; files emptied, swapped and removed. It occurs while the
node runs and between two starts, with and without the derived files, before and after a round of the scrubber.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine.format.batch import walk
from tests.missing_files.damaged_log import (
    END,
    FORMS,
    PER_SEGMENT,
    SEGMENTS,
    opened,
    rewrite,
    shippable,
    within_reach,
)
from tests.scale.count import SCALE

KINDS = ("flip", "zero", "cut", "cut at a batch", "take out", "grow", "empty", "swap", "remove")
OF_BYTES = ("flip", "zero")


class Harm(NamedTuple):
    """One damage to a segment file. `place` and `length` are in thousandths of its size."""

    kind: str
    number: int
    place: int
    length: int
    loses_index: bool


class Story(NamedTuple):
    harms: list[Harm]
    is_running: bool
    is_scrubbed: bool
    form: str
    max_bytes: int


harms = st.builds(
    Harm,
    kind=st.sampled_from(KINDS),
    number=st.integers(0, SEGMENTS),
    place=st.integers(0, 999),
    length=st.integers(1, 300),
    loses_index=st.booleans(),
)
stories = st.builds(
    Story,
    harms=st.lists(harms, min_size=1, max_size=3, unique_by=lambda harm: harm.number),
    is_running=st.booleans(),
    is_scrubbed=st.booleans(),
    form=st.sampled_from(sorted(FORMS)),
    max_bytes=st.sampled_from([1, 3000, 1 << 20]),
)


def harmed(good: bytes, harm: Harm, other: bytes) -> bytes:
    at = harm.place * len(good) // 1000
    end = min(len(good), at + max(1, harm.length * len(good) // 1000))
    match harm.kind:
        case "flip":
            return bytes([*good[:at], good[at] ^ (1 << harm.length % 8), *good[at + 1 :]])
        case "zero":
            return good[:at] + bytes(end - at) + good[end:]
        case "cut":
            return good[:at]
        case "cut at a batch":
            places = [position for position, _ in walk(good)]
            return good[: places[harm.place % len(places)]]
        case "take out":
            return good[:at] + good[end:]
        case "grow":
            return good + good[at:end]
        case "swap":
            return other
        case _:
            return b""


def allowed(good: bytes, bad: bytes, harm: Harm) -> set[int]:
    """Return the offsets that may be rejected."""
    base = harm.number * PER_SEGMENT
    all_offsets = set(range(base, base + PER_SEGMENT))
    if harm.kind in OF_BYTES and not harm.loses_index and harm.number < SEGMENTS:
        first = next((at for at, pair in enumerate(zip(good, bad, strict=True)) if pair[0] != pair[1]), len(good))
        last = max((at for at, pair in enumerate(zip(good, bad, strict=True)) if pair[0] != pair[1]), default=0)
        if _hits_no_checksum(good, first, last):
            return all_offsets
        return within_reach(good, first, last + 1) if bad != good else set()
    return all_offsets


def _hits_no_checksum(good: bytes, first: int, last: int) -> bool:
    """True if a leader epoch is damaged. Only the checksum of the file covers it, so every batch is suspect."""
    return any(first < position + 16 and last >= position + 12 for position, _ in walk(good))


def do(directory: Path, harm: Harm) -> set[int]:
    folder = next(directory.glob("data/topics/t/*/0"))
    path = folder / f"{harm.number * PER_SEGMENT:020d}.log"
    other = folder / f"{(harm.number + 1) % SEGMENTS * PER_SEGMENT:020d}.log"
    good = path.read_bytes()
    bad = harmed(good, harm, other.read_bytes() if other.exists() else b"")
    if harm.loses_index:
        for suffix in (".index", ".timeindex", ".checksum"):
            path.with_suffix(suffix).unlink(missing_ok=True)
    if harm.kind == "remove":
        path.unlink()
    else:
        rewrite(path, bad)
    return allowed(good, bad, harm)


async def play(filled: Path, story: Story) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(shutil.copytree(filled, Path(scratch, "node")))
        may_be_refused: set[int] = set()
        if not story.is_running:
            # A partition stays closed if its active segment is damaged at the start.
            for harm in story.harms:
                may_be_refused |= do(directory, harm) if harm.number < SEGMENTS else set()
        async with opened(directory) as log:
            if story.is_running:
                for harm in story.harms:
                    may_be_refused |= do(directory, harm)
            if story.is_scrubbed:
                await log.scrub()
            reading = await log.read_all(story.form, story.max_bytes)
            assert reading.found | reading.offsets_refused == set(range(END))
            assert reading.offsets_refused <= may_be_refused
            shippable(log)


@settings(
    max_examples=max(20, SCALE // 20),
    deadline=None,
    derandomize=SCALE <= 500,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(story=stories)
# Batches behind removed bytes are not where the index says.
@example(Story([Harm("take out", 0, 259, 262, False)], False, True, "batches", 1))
@example(
    Story([Harm("take out", 2, 661, 160, False), Harm("empty", 0, 520, 108, True)], False, False, "values", 1 << 20)
)
# The index has a removed batch at a position where another one's bytes are now.
@example(Story([Harm("take out", 1, 348, 300, False)], False, False, "batches", 1))
# A file has the batches of the next segment, whose file is missing: no bytes are damaged, and sound batches follow.
@example(Story([Harm("swap", 1, 0, 1, False), Harm("remove", 2, 0, 1, True)], False, False, "json", 1))
def test_no_read_skips_an_offset_silently(filled, story):
    asyncio.run(play(filled, story))
