"""A coordinator whose records cannot be stored, or are stored late."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import AckTimeout, StorageFull
from engine.format import batch as record_batch
from engine.runtime.pending import Pending
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.hosting.hosted import BATCH_BYTES, Hosted
from gateway.groups.model.errors import CoordinatorMoved
from gateway.groups.model.settings import CoordinatorLimits
from gateway.groups.model.values import CommitCall, ConfigCall, Position, TopicSize
from replication.errors import NotLeader
from tests.gateway.groups.core.coordinators import GROUP, Topics


class Log:
    """A replica whose acknowledgements the test gives, one for each batch or failed wait."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.acknowledgements: asyncio.Queue[Exception | None] = asyncio.Queue()

    def append(self, batch: bytes, _: object) -> asyncio.Future[None]:
        self.batches.append(bytes(batch))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    is_in_doubt = False

    def check_append(self, _: object) -> None:
        if self.is_in_doubt:
            raise NotLeader("the last contact with the store is old")

    async def acknowledge(self, *_: object) -> None:
        if error := await self.acknowledgements.get():
            raise error


def hosted_on(log: Any, leader: Any = None, *, is_replicated: bool = False) -> Hosted:
    partition: Any = SimpleNamespace(
        name="__groups/0", log=leader or SimpleNamespace(leader_epoch=1), is_replicated=is_replicated
    )
    clock: Any = SimpleNamespace(steady_ms=lambda: 0, now_ms=lambda: 0)
    topics = Topics({"t": TopicSize("id-t", 1000)})
    return Hosted(1, partition, log, Coordinator(CoordinatorLimits()), topics, clock, 1000)


def configure(hosted: Hosted, group: str = GROUP) -> int:
    call = ConfigCall(group, {})
    return hosted.decide(lambda core, now, source: core.configure(call, now, source))[1]


async def test_a_defect_of_the_append_ends_all_waits():
    def append(*_: object) -> None:
        raise ValueError("a defect")

    hosted = hosted_on(SimpleNamespace(append=append))
    sequence = configure(hosted)
    with pytest.raises(CoordinatorMoved):
        await asyncio.wait_for(hosted.wait_stored(sequence), 60)


async def test_a_late_acknowledgement_ends_the_waits_and_not_the_coordinator():
    log = Log()
    hosted = hosted_on(log)
    waiting = asyncio.ensure_future(hosted.wait_stored(configure(hosted)))
    await asyncio.sleep(0)  # the wait begins
    log.acknowledgements.put_nowait(AckTimeout("late"))
    with pytest.raises(CoordinatorMoved):
        await asyncio.wait_for(waiting, 60)
    assert hosted.error is None
    sequence = configure(hosted, "another")
    for _ in range(2):
        log.acknowledgements.put_nowait(None)
    await asyncio.wait_for(hosted.wait_stored(sequence), 60)
    assert len(log.batches) == 2


async def test_a_late_acknowledgement_ends_the_waits_of_the_calls_behind_it():
    """Else an acquire at a coordinator that was cut off had no answer as long as its first batch had none."""
    log = Log()
    hosted = hosted_on(log)
    configure(hosted)
    await asyncio.sleep(0)  # its batch is under way
    waiting = asyncio.ensure_future(hosted.wait_stored(configure(hosted, "another")))
    await asyncio.sleep(0)
    log.acknowledgements.put_nowait(AckTimeout("late"))
    with pytest.raises(CoordinatorMoved):
        await asyncio.wait_for(waiting, 60)
    for _ in range(2):
        log.acknowledgements.put_nowait(None)
    await asyncio.wait_for(hosted.wait_stored(2), 60)
    assert len(log.batches) == 2


async def test_a_full_disk_refuses_the_calls_that_wait_for_it_and_ends_open_polls_otherwise():
    log = Log()
    hosted = hosted_on(log)
    stored = configure(hosted)
    log.acknowledgements.put_nowait(None)
    await asyncio.wait_for(hosted.wait_stored(stored), 60)
    refused = [configure(hosted, "a"), configure(hosted, "b")]
    waiting = [asyncio.ensure_future(hosted.wait_stored(sequence)) for sequence in refused]
    poll: Any = Pending()
    hosted._watching[GROUP, "m"].add(poll)
    await asyncio.sleep(0)
    log.acknowledgements.put_nowait(StorageFull("no space is left"))
    for one in waiting:
        with pytest.raises(StorageFull):
            await asyncio.wait_for(one, 60)
    with pytest.raises(CoordinatorMoved):
        await asyncio.wait_for(poll, 60)
    with pytest.raises(StorageFull):
        await hosted.wait_stored(refused[0])
    await hosted.wait_stored(stored)  # of what is stored the error says nothing


async def test_a_coordinator_appends_nothing_after_its_leadership():
    log, leader = Log(), SimpleNamespace(leader_epoch=1)
    hosted = hosted_on(log, leader)
    sequence = configure(hosted)
    leader.leader_epoch = 2
    with pytest.raises(CoordinatorMoved):
        await asyncio.wait_for(hosted.wait_stored(sequence), 60)
    assert log.batches == []


async def test_a_batch_has_complete_calls_and_a_bounded_size():
    log = Log()
    hosted = hosted_on(log)
    text = "m" * 4096
    for group in ("g", "h", "i", "j"):
        positions = tuple(Position("t", "id-t", number, 1, text) for number in range(500))
        call = CommitCall(group, None, 0, positions)
        _, sequence = hosted.decide(lambda core, now, source, call=call: core.commit(call, now, source))
        log.acknowledgements.put_nowait(None)
    await asyncio.wait_for(hosted.wait_stored(sequence), 60)
    counts = [len(list(record_batch.decode(batch))) for batch in log.batches]
    assert counts == [1002, 1002]
    assert all(len(batch) < BATCH_BYTES for batch in log.batches)


async def test_the_next_coordinator_can_wait_for_the_batch_under_way():
    log = Log()
    appended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    hosted = hosted_on(SimpleNamespace(append=lambda *_: appended, acknowledge=log.acknowledge))
    configure(hosted)
    await asyncio.sleep(0)
    hosted.close(CoordinatorMoved("another leads"))
    waiting = asyncio.ensure_future(hosted.wait_written())
    await asyncio.sleep(0)
    assert not waiting.done()
    appended.set_result(None)
    await asyncio.wait_for(waiting, 60)
    log.acknowledgements.put_nowait(None)


async def test_a_coordinator_that_was_replaced_hands_out_nothing():
    """An acquire stores nothing: the replicas in sync confirm, after the call, that its coordinator leads."""
    log = Log()
    hosted = hosted_on(log, is_replicated=True)
    configure(hosted)
    log.acknowledgements.put_nowait(None)
    await asyncio.wait_for(hosted.wait_stored(1), 60)
    assert hosted.prove_lead(0) == 0, "a read within the session costs nothing"
    waiting = asyncio.ensure_future(hosted.wait_stored(hosted.prove_lead(0, is_strict=True)))
    await asyncio.sleep(0)
    log.acknowledgements.put_nowait(NotLeader("another one leads"))
    with pytest.raises(CoordinatorMoved):
        await asyncio.wait_for(waiting, 60)


async def test_calls_that_wait_for_their_proof_share_a_batch():
    log = Log()
    hosted = hosted_on(log, is_replicated=True)
    configure(hosted)
    await asyncio.sleep(0)
    proofs = [hosted.prove_lead(0, is_strict=True) for _ in range(100)]
    for _ in range(2):
        log.acknowledgements.put_nowait(None)
    await asyncio.wait_for(hosted.wait_stored(proofs[-1]), 60)
    assert len(log.batches) == 2


async def test_a_read_in_doubt_is_confirmed_and_a_standalone_coordinator_needs_no_proof():
    log = Log()
    log.is_in_doubt = True
    hosted = hosted_on(log, is_replicated=True)
    configure(hosted)
    log.acknowledgements.put_nowait(None)
    await asyncio.wait_for(hosted.wait_stored(1), 60)
    assert hosted.prove_lead(0) == 2
    log.acknowledgements.put_nowait(None)
    await asyncio.wait_for(hosted.wait_stored(2), 60)
    alone = hosted_on(Log())
    configure(alone)
    assert alone.prove_lead(0, is_strict=True) == 0


async def test_a_full_disk_is_asked_again_after_a_moment():
    times = [0]
    log = Log()
    hosted = hosted_on(log)
    hosted._clock = SimpleNamespace(steady_ms=lambda: times[0], now_ms=lambda: 0)  # type: ignore[assignment]
    hosted.refusal = StorageFull("no space is left")
    with pytest.raises(StorageFull):
        hosted.check_room()
    hosted.decide(lambda core, now, source: core.configure(ConfigCall("a", {}), now, source), is_patient=True)
    assert hosted._sequence == 0, "what no caller waits for is not tried yet"
    times[0] = 1000
    hosted.check_room()
    configure(hosted, "b")
    log.acknowledgements.put_nowait(None)
    await asyncio.wait_for(hosted.wait_stored(1), 60)
    assert hosted.refusal is None
