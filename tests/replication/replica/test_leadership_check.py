"""The requests that a leader of uncertain leadership may answer: by its own clock, and by the store's confirmation."""

import asyncio
from collections.abc import Sequence

import pytest

from engine.errors import LogEndMismatch
from engine.producers.appends import AppendConditions
from replication.cluster.store_calls import Coalescer, StoreTimeout
from replication.errors import NotLeader
from replication.replica import replica_host
from replication.replica.acks import Acks
from tests.replication.hosts import SESSION_S, batch_of
from tests.waiting import until


async def test_after_a_pause_longer_than_two_thirds_of_the_session_only_acks_all_is_taken(three):
    """Decided by the clock alone: nothing has been received since the pause."""
    three[1].boottime += SESSION_S * 0.67
    for acks in (Acks.LEADER, Acks.NONE):
        with pytest.raises(NotLeader):
            three[1].replica().produce(batch_of(b"x"), acks, 1000)
    assert await three[1].produce(b"y") == 0
    three[1].host.on_contact(three[1].boottime)
    assert await three[1].produce(b"z", acks=Acks.LEADER) == 1


async def test_a_contact_that_was_received_late_counts_from_when_it_was_sent(three):
    sent_at = three[1].boottime + 1
    three[1].boottime += 1 + SESSION_S
    three[1].host.on_contact(sent_at)
    assert not three[1].host.has_contact
    three[1].host.on_contact(three[1].boottime - 1)
    three[1].host.on_contact(sent_at)
    assert three[1].host.has_contact, "messages of before the pause come behind newer ones only by mistake"


async def test_acks_1_waits_for_the_commit_when_a_pause_came_between_append_and_answer(three):
    three.hold_fetches()
    waiting = asyncio.ensure_future(three[1].produce(b"x", acks=Acks.LEADER))
    await asyncio.sleep(0)
    three[1].boottime += SESSION_S
    await until(lambda: three[1].partition().log_end == 1)
    await asyncio.sleep(0.05)
    assert not waiting.done(), "another leader may have been elected, which does not have it"
    three.let_fetches_go()
    assert await waiting == 0


async def test_the_end_is_not_reported_after_a_pause_longer_than_the_session(three):
    await three[1].produce(b"a")
    three[1].boottime += SESSION_S - 0.1
    three[1].replica().check_latest()
    three[1].boottime += 0.1
    with pytest.raises(NotLeader):
        three[1].replica().check_latest()


async def test_a_leader_is_confirmed_by_what_the_store_says_now(three):
    await three[1].replica().confirm_leading()
    with pytest.raises(NotLeader):
        await three[2].replica().confirm_leading()


async def test_a_leader_that_does_not_know_its_successor_is_not_confirmed(three):
    """Its session is alive and its clock has not moved: the controller has given its leadership away."""
    replica, host = three[1].replica(), three[1].host
    del three.store.nodes[1]  # no message arrives
    three.elect(2)
    assert replica.is_leading
    assert host.has_contact
    with pytest.raises(NotLeader):
        await replica.confirm_leading()


async def test_an_expected_end_is_no_final_refusal_of_a_leader_that_was_replaced(three):
    replica = three[1].replica()
    with pytest.raises(LogEndMismatch):
        await replica.produce(batch_of(b"x"), Acks.ALL, 5000, AppendConditions(expected_end=7))
    del three.store.nodes[1]
    three.elect(2)
    with pytest.raises(NotLeader) as error:
        await replica.produce(batch_of(b"x"), Acks.ALL, 5000, AppendConditions(expected_end=7))
    assert error.value.no_side_effects


async def test_a_store_that_does_not_answer_confirms_nothing(three, monkeypatch):
    monkeypatch.setattr(replica_host, "CONFIRM_S", 0.05)
    three.store.answers.clear()
    with pytest.raises(NotLeader):
        await three[1].replica().confirm_leading()
    three.store.answers.set()
    await three[1].replica().confirm_leading()


# Coalescer


class Queries:
    """A pending store query that the test completes."""

    def __init__(self) -> None:
        self.questions: list[Sequence[str]] = []
        self.answering = asyncio.Event()
        self.error: BaseException | None = None

    async def confirm(self, keys: Sequence[str]) -> dict[str, str]:
        self.questions.append(sorted(keys))
        await self.answering.wait()
        if self.error is not None:
            raise self.error
        return {key: f"{key} of question {len(self.questions)}" for key in keys if key != "gone"}


async def test_an_answer_comes_from_a_question_that_was_sent_later():
    queries = Queries()
    coalescer = Coalescer(queries.confirm)
    first = asyncio.ensure_future(coalescer.answer("a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = [asyncio.ensure_future(coalescer.answer(key)) for key in ("a", "b", "gone", "b")]
    await asyncio.sleep(0)
    queries.answering.set()
    assert await first == "a of question 1"
    answers = ["a of question 2", "b of question 2", None, "b of question 2"]
    assert await asyncio.gather(*later) == answers
    assert queries.questions == [["a"], ["a", "b", "gone"]]


async def test_ten_thousand_who_ask_at_once_cost_one_question():
    queries = Queries()
    coalescer = Coalescer(queries.confirm)
    queries.answering.set()
    await asyncio.gather(*(coalescer.answer("a") for _ in range(10_000)))
    assert queries.questions == [["a"]]


async def test_a_failed_question_fails_those_who_asked_and_nobody_else():
    queries = Queries()
    coalescer = Coalescer(queries.confirm)
    queries.answering.set()
    queries.error = OSError("no answer")
    left = asyncio.ensure_future(coalescer.answer("a"))
    with pytest.raises(OSError, match="no answer"):
        await coalescer.answer("a")
    left.cancel()
    queries.error = None
    assert await coalescer.answer("a") == "a of question 2"


async def test_a_question_that_is_cancelled_leaves_nobody_waiting():
    """Cancelled by the query itself."""
    queries = Queries()
    coalescer = Coalescer(queries.confirm)
    queries.error = asyncio.CancelledError()
    first = asyncio.ensure_future(coalescer.answer("a"))
    await until(lambda: queries.questions == [["a"]])
    later = asyncio.ensure_future(coalescer.answer("b"))
    await asyncio.sleep(0)
    queries.answering.set()
    _, unanswered = await asyncio.wait((first, later), timeout=30)
    assert not unanswered
    assert isinstance(first.exception(), StoreTimeout)
    assert isinstance(later.exception(), StoreTimeout)
    queries.error = None
    assert await coalescer.answer("a") == "a of question 2"
