"""Faults planted into a real node, each caught: test_exactly_once.py would detect such bugs.

Each test breaks one step of a batch's way into the log and runs a producer over a bad link. The first test breaks
nothing, so the findings of the others come from the mutant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from engine.errors import SequenceGap
from engine.format.batch import Header
from engine.producers import sequences as producers
from engine.producers.append_validator import AppendValidator
from engine.producers.appends import Append, Appended
from engine.producers.partition_keys import PartitionKeys
from engine.producers.sequences import First, Producer, Producers
from engine.shard import opening
from tests.checking.checkers import check_values, kinds_of
from tests.checking.history import History
from tests.checking.mutants import Planted, patched
from tests.faults.reference import Job, keyed, sequenced
from tests.faults.rules import NO_FAULTS, Fault, Rules
from tests.faults.site import running_inside

# High rates of all faults that lead to repeats and overtaking, so that a mutant is caught each time.
HARSH = Rules(
    {
        Fault.NONE: 4,
        Fault.DUPLICATE: 3,
        Fault.LOSE_REPLY: 2,
        Fault.REPLAY: 1,
        Fault.REORDER: 3,
        Fault.DELIVER_LATE: 1,
        Fault.DROP: 1,
    },
    late_ms_max=50,
)
BATCHES = 60
BATCH_LINES = 3
WINDOW = 16

Produce = Callable[[Job, History], Awaitable[None]]


async def found(tmp_path: Path, produce: Produce, *, is_restarted: bool = False) -> set[str]:
    """Return the kinds of the findings, after some old requests were replayed."""
    history = History()
    async with running_inside(tmp_path) as site:
        await site.create("t", 1)
        link = await site.proxy.open_link(HARSH, 1)
        values = [str(n) for n in range(BATCHES * BATCH_LINES)]
        async with asyncio.timeout(60):
            await produce(Job("p", link.url, "t", 0, values, BATCH_LINES), history)
        await link.wait_settled()
        if is_restarted:
            await site.kill_and_start()
        await link.replay(8)
        log = await site.read("t", 1)
    assert all(produced.outcome == "ok" for produced in history.produced)
    return kinds_of(check_values(history, log))


@pytest.mark.parametrize("produce", [sequenced, keyed])
async def test_without_a_mutant_nothing_is_found(produce, tmp_path):
    assert await found(tmp_path / "1", produce) == set()
    assert await found(tmp_path / "2", produce, is_restarted=True) == set()


def _forgets(disk: object, name: str, *others: object, **named: object) -> AppendValidator:
    return AppendValidator(name)


_admit = AppendValidator.admit


def _admit_all(self: AppendValidator, appends: list[Append], log_end: int, now_ms: int) -> list[Append]:
    """Recognise repeats, answer them as such, and write them nevertheless."""
    admitted = list(_admit(self, appends, log_end, now_ms))
    for append in list(appends):
        if isinstance(append.verdict, Appended):
            again = Append(append.batch, asyncio.get_running_loop().create_future(), append.wants_sync)
            appends.append(again)
            admitted.append(again)
    return admitted


_validate = Producers.validate


def _validate_without_gaps(self: Producers, header: Header) -> object:
    """Accept batches in arrival order, with or without gaps."""
    verdict = _validate(self, header)
    return None if isinstance(verdict, SequenceGap) else verdict


DUPLICATE, ORDER = "C4 duplicate", "C11 order"
MUTANTS: dict[str, tuple[Planted, Produce, str]] = {
    "repeats are not recognised": (patched(Producers, "validate", lambda self, header: None), sequenced, DUPLICATE),
    "keys are ignored": (patched(PartitionKeys, "validate", lambda self, entry, now_ms: None), keyed, DUPLICATE),
    "a repeat is answered and written": (patched(AppendValidator, "admit", _admit_all), sequenced, DUPLICATE),
    "order is not kept": (patched(Producers, "validate", _validate_without_gaps), sequenced, ORDER),
}


@pytest.mark.parametrize("name", MUTANTS)
async def test_a_planted_bug_is_found(name, tmp_path):
    plant, produce, finding = MUTANTS[name]
    with plant():
        assert finding in await found(tmp_path, produce)


@pytest.mark.parametrize("produce", [sequenced, keyed])
async def test_a_restart_that_forgets_is_found(produce, tmp_path):
    with patched(opening, "load_validator", _forgets)():
        assert await found(tmp_path, produce, is_restarted=True) == {DUPLICATE}


async def statuses_of_repeats(tmp_path: Path, batches: int) -> dict[int, int]:
    """Store this many batches, then repeat them all in any order; return the statuses of the repeats."""
    async with running_inside(tmp_path) as site:
        await site.create("t", 1)
        link = await site.proxy.open_link(NO_FAULTS, 1)
        values = [str(n) for n in range(batches)]
        await sequenced(Job("p", link.url, "t", 0, values, 1), History())
        await link.replay(batches + 1)
    assert link.late_statuses.pop(201) == 1, "the request for an id is repeated too"
    return dict(link.late_statuses)


async def test_each_of_the_last_sixteen_batches_gets_its_first_position(tmp_path):
    assert await statuses_of_repeats(tmp_path / "1", WINDOW) == {200: WINDOW}
    assert await statuses_of_repeats(tmp_path / "2", WINDOW + 2) == {200: WINDOW, 409: 2}


async def test_a_window_off_by_one_is_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(producers, "_KEPT", producers._KEPT + producers._FIELDS)
    assert await statuses_of_repeats(tmp_path, WINDOW) == {200: WINDOW - 1, 409: 1}


async def test_a_window_of_the_last_batch_only_is_caught(tmp_path, monkeypatch):
    find = Producer.find
    last_sequence = -3  # in the flat batches of a producer

    def find_latest(self: Producer, first: int, last: int) -> First | None:
        return find(self, first, last) if self.batches[last_sequence] == last else None

    monkeypatch.setattr(Producer, "find", find_latest)
    assert await statuses_of_repeats(tmp_path, WINDOW) == {200: 1, 409: WINDOW - 1}
