"""Sends each batch of a request to its leader, and answers with the outcome of each.

All batches are queued without an await between them. An outcome is the positions, None with acks=0, or the problem of
this batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple, TypedDict

import orjson

from engine.errors import EngineError
from engine.format.keyed_batch import KeyEntry
from engine.format.record_spans import first_without_key
from engine.producers.appends import AppendConditions, Appended
from engine.runtime.tasks import in_background, start_task
from engine.shard.served_topics import Topic
from gateway.connections.request_order import OrderSlot
from gateway.http import problems
from gateway.http.problems import Problem
from gateway.http.response import Response
from gateway.produce.accumulator import Sent, TurnAppend, TurnBatch, encoded_turn
from gateway.produce.batching import SharedRows
from gateway.produce.context import ProduceContext
from gateway.routing.leader_failover import AnyLeader, PendingProduce
from gateway.routing.peers import RemoteLeader
from replication.replica.acks import Acks
from replication.replica.standalone import AppendOutcome, StandaloneReplica

DURABILITIES = ("none", "page_cache", "fsync")  # the weakest first

Outcome = Appended | Problem | None


class Part(NamedTuple):
    """The records of a request for one partition of a topic.

    It has a `batch` or `shared` records, and a `topic`, or the `problem` for which it has none. A part without a
    partition has all records of its topic.
    """

    topic_name: str
    partition: int | None
    record_count: int
    topic: Topic | None
    batch: bytes | bytearray = b""
    shared: SharedRows | None = None  # instead of a batch of its own
    conditions: AppendConditions | None = None
    problem: Problem | None = None


class Result(TypedDict, total=False):
    """One entry of an answer. `topic` and `durability` are of a produce to many topics."""

    topic: str
    partition: int | None
    base_offset: int | None
    count: int
    timestamp: int | None
    duplicate: bool
    status: int
    problem: dict[str, object]
    durability: str


async def append(
    context: ProduceContext, parts: Sequence[Part], acks: Acks, timeout_ms: int, now_ms: int, slot: OrderSlot | None
) -> list[Outcome]:
    """Queues all batches in the request's slot and returns the outcome of each part.

    Raises Problem overloaded, body_too_large, key_required before anything is appended.
    """
    size_bytes = record_count = 0
    for part in parts:
        size_bytes += len(part.batch) if part.shared is None else part.shared.size_bytes
        if part.problem is None:
            record_count += part.record_count
            if part.topic is not None and part.topic.settings.cleanup_policy != "delete":
                await _check_keys(context, part)
    if slot is not None and not slot.is_next:
        await slot.wait()
    waiting_bytes = context.queue.queued_bytes + context.accumulator.size_bytes
    if waiting_bytes + size_bytes > context.settings.append_queue_bytes_max:
        raise no_room(context, size_bytes)
    queued = [part.problem or _queue(context, part, acks, timeout_ms, now_ms) for part in parts]
    if slot is not None:
        slot.end()
    metrics = context.metrics
    metrics.produce_records.value += record_count
    began = time.perf_counter()
    metrics.delayed_produces.value += 1
    try:
        if len(queued) == 1:
            return [await _acknowledge(queued[0])]
        return await asyncio.gather(*map(_acknowledge, queued))
    finally:
        metrics.delayed_produces.value -= 1
        context.stages.ack.observe(time.perf_counter() - began)


async def _check_keys(context: ProduceContext, part: Part) -> None:
    """Raises Problem key_required: compaction keeps the last record of each key."""
    assert part.topic is not None
    number: int | None
    if part.shared is not None:
        number = next((number for number, (_, key, *_) in enumerate(part.shared.rows) if key is None), None)
    else:
        find = partial(first_without_key, part.batch, part.topic.settings.batch_decoded_bytes_max)
        number = await context.offload.by_size(len(part.batch), find)
    if number is not None:
        text = (
            f"record {number} for partition {part.partition} of {part.topic_name!r} has no key: the topic is compacted"
        )
        raise Problem("key_required", text, topic=part.topic_name, partition=part.partition)


def no_room(context: ProduceContext, incoming_bytes: int) -> Problem:
    """Returns the problem of batches that exceed the queue of bytes that wait for the disk.

    It is final for those that would exceed an empty queue too.
    """
    limit = context.settings.append_queue_bytes_max
    if incoming_bytes > limit:
        text = f"the batches of the request have {incoming_bytes} bytes, {limit} may wait for the disk"
        return Problem("body_too_large", text, limit=limit)
    return Problem("overloaded", "too many bytes wait for the disk")


def answer(
    parts: Sequence[Part], outcomes: Sequence[Outcome], acks: Acks, now_ms: int, topic: Topic | None
) -> Response:
    """Returns 200, or 202 with acks=0; if some parts failed 207 with a status for each.

    `topic` is None for a produce to many topics: then each result names its own. Raises the problem of one part if all
    failed; for many topics it has all results.
    """
    success = 202 if acks is Acks.NONE else 200
    if topic is not None and len(outcomes) == 1 and type(outcome := outcomes[0]) is Appended:
        result = _result(parts[0], outcome, acks, now_ms, None, names_topic=False)
        headers = _DUPLICATE_HEADERS if outcome.is_duplicate else _HEADERS
        return Response(orjson.dumps(_document(topic, acks, [result])), dict(headers), success)
    has_failed = any(isinstance(outcome, Problem) for outcome in outcomes)
    status = success if has_failed else None
    results = [
        _result(part, outcome, acks, now_ms, status, names_topic=topic is None)
        for part, outcome in zip(parts, outcomes, strict=True)
    ]
    if has_failed:
        try:
            check_one_success(outcomes)
        except Problem as problem:
            if topic is None:
                problem.members["results"] = results
            raise
    if topic is not None:
        document = _document(topic, acks, results)
    else:
        durability = min((one["durability"] for one in results if "problem" not in one), key=DURABILITIES.index)
        document = {"acks": _WORDS[acks], "durability": durability, "results": results}
    is_duplicate = all(isinstance(outcome, Appended) and outcome.is_duplicate for outcome in outcomes)
    headers = _DUPLICATE_HEADERS if is_duplicate else _HEADERS
    return Response(orjson.dumps(document), dict(headers), 207 if has_failed else success)


def _document(topic: Topic, acks: Acks, results: list[Result]) -> dict[str, object]:
    durability = _durability(acks, topic)
    return {"topic": topic.record.name, "acks": _WORDS[acks], "durability": durability, "results": results}


def plain_answer(topic: Topic, partition: int, base_offset: int | None, count: int, acks: Acks, now_ms: int) -> bytes:
    """Returns the body that `answer` makes for one part that is stored and no duplicate."""
    word = "all" if acks is Acks.ALL else "1" if acks is Acks.LEADER else "0"  # the hash of an Enum has a frame
    start = _plain_start(topic.record.name, word, _durability(acks, topic), partition)
    if base_offset is None:
        return b'%bnull,"count":%d,"timestamp":%d}]}' % (start, count, now_ms)
    return b'%b%d,"count":%d,"timestamp":%d}]}' % (start, base_offset, count, now_ms)


@lru_cache(maxsize=4096)  # bounded: topics have many partitions
def _plain_start(topic_name: str, acks: str, durability: str, partition: int) -> bytes:
    document = {"topic": topic_name, "acks": acks, "durability": durability, "results": []}
    return orjson.dumps(document).removesuffix(b"]}") + b'{"partition":%d,"base_offset":' % partition


def _durability(acks: Acks, topic: Topic) -> str:
    """Returns the durability that an answer may claim: where the records were when it was sent."""
    if acks is Acks.NONE:
        return "none"
    return "fsync" if acks is Acks.ALL and topic.settings.durability == "group" else "page_cache"


def check_one_success(outcomes: Iterable[Outcome]) -> None:
    """Raises a Problem if all failed: if there is one, one that may have stored something."""
    outcomes = list(outcomes)
    failed = [outcome for outcome in outcomes if isinstance(outcome, Problem)]
    if len(failed) == len(outcomes):
        raise min(failed, key=lambda problem: bool(problem.document()["no_side_effects"]))


def _queue(
    context: ProduceContext, part: Part, acks: Acks, timeout_ms: int, now_ms: int
) -> Awaitable[Appended | None] | Problem | None:
    topic, partition, shared = part.topic, part.partition, part.shared
    assert topic is not None, part
    assert partition is not None, part
    if shared is not None:
        sent: asyncio.Future[Sent | Appended | None] = asyncio.get_running_loop().create_future()
        send = partial(send_turn, context)
        context.accumulator.join(topic, partition, shared, _key_of(part), acks, timeout_ms, now_ms, send, sent)
        return _share(sent)
    context.accumulator.close(topic.record.topic_id, partition)
    try:
        return _hand_over(context, topic, partition, part.batch, acks, timeout_ms, part.conditions)
    except EngineError as error:
        return problems.from_engine(error)


def _key_of(part: Part) -> KeyEntry | None:
    """Returns the key of a request that shares a batch; it has no other condition."""
    return None if part.conditions is None else part.conditions.key


def _hand_over(
    context: ProduceContext,
    topic: Topic,
    partition: int,
    batch: bytes | bytearray,
    acks: Acks,
    timeout_ms: int,
    conditions: AppendConditions | None,
) -> Awaitable[Appended | None] | None:
    """Queues a batch at its leader. Raises EngineError with nothing queued."""
    if context.peers.view is not None:
        return context.failover.begin(_pending(context, topic, partition, batch, acks, timeout_ms, conditions))
    leader = context.partitions.leader(topic, partition)
    if acks is Acks.NONE:
        leader.append_nowait(batch, conditions)
        return None
    return leader.produce(batch, acks, timeout_ms, conditions)


async def _share(sent: asyncio.Future[Sent | Appended | None]) -> Appended | None:
    """Returns the positions of a request's records in a shared batch."""
    try:
        found = await sent
    except asyncio.CancelledError:  # the client has left
        if sent.done() and not sent.cancelled() and isinstance(waiting := sent.result(), Awaitable):
            start_task(waiting)
        raise
    return found if found is None or isinstance(found, Appended) else await found


def send_turn(context: ProduceContext, turn: TurnAppend) -> None:
    """Encodes the batches of a turn and queues them at their leader."""
    batches = turn.batches
    try:
        leader = _leader_of_many(context, turn)
        if leader is not None:
            together = [
                batch.queued(data, turn.settings)
                for batch, data in zip(batches, encoded_turn(batches, turn.settings), strict=True)
            ]
            sent = leader.produce_all(together, turn.acks, turn.timeout_ms)
            in_background(_settle_all(batches, sent), "acknowledging the batches of a turn")
            return
        if any(batch.is_of_several for batch in batches):
            batches = [part for batch in batches for part in batch.apart()]
        encoded = encoded_turn(batches, turn.settings)
    except Exception as error:
        for batch in batches:
            batch.fail(error)
        return
    for batch, data in zip(batches, encoded, strict=True):
        _send_one(context, turn, batch, data)


def _leader_of_many(context: ProduceContext, turn: TurnAppend) -> StandaloneReplica | None:
    """Returns the leader that takes all batches of a turn in one append. None: each is to be sent alone.

    In a cluster each batch has its own failover; with one plain batch there is nothing to share. Raises EngineError.
    """
    batches = turn.batches
    if turn.acks is Acks.NONE or context.peers.view is not None or (len(batches) == 1 and not batches[0].is_of_several):
        return None
    leader = context.partitions.leader(turn.topic, turn.partition)
    return leader if isinstance(leader, StandaloneReplica) else None


def _send_one(context: ProduceContext, turn: TurnAppend, batch: TurnBatch, data: bytearray) -> None:
    alone, conditions = batch.alone, batch.conditions
    sent: Sent | None
    topic, partition, acks = turn.topic, turn.partition, turn.acks
    try:
        if acks is Acks.NONE or context.peers.view is not None:
            sent = _hand_over(context, topic, partition, data, acks, turn.timeout_ms, conditions)
        elif isinstance(leader := context.partitions.leader(topic, partition), RemoteLeader) and alone is None:
            leader.produce_then(data, acks, turn.timeout_ms, conditions, batch.end)
            return
        else:
            sent = leader.produce(data, acks, turn.timeout_ms, conditions)
    except Exception as error:
        batch.fail(error)
        return
    if sent is None:  # acks=0
        batch.settle(None)
    elif alone is not None and not alone.done():
        alone.set_result(sent)  # no task for a request that is alone: it waits itself
    else:
        in_background(_settle(batch, sent), "acknowledging a shared batch")


async def _settle(batch: TurnBatch, sent: Awaitable[Appended | None]) -> None:
    """Gives each request of a shared batch its positions."""
    try:
        batch.settle(await sent)
    except BaseException as error:
        batch.fail(error)
        if not isinstance(error, EngineError):
            raise


async def _settle_all(batches: Sequence[TurnBatch], sent: Awaitable[Sequence[AppendOutcome]]) -> None:
    """Gives each request of a turn its positions, or the error of its batch."""
    try:
        outcomes = await sent
    except BaseException as error:
        for batch in batches:
            batch.fail(error)
        if not isinstance(error, EngineError):
            raise
        return
    for batch, outcome in zip(batches, outcomes, strict=True):
        batch.end(outcome)


def _pending(
    context: ProduceContext,
    topic: Topic,
    partition: int,
    batch: bytes | bytearray,
    acks: Acks,
    timeout_ms: int,
    conditions: AppendConditions | None,
) -> PendingProduce:
    deadline = asyncio.get_running_loop().time() + timeout_ms / 1000

    def find_leader() -> AnyLeader:
        return context.partitions.leader(topic, partition)

    return PendingProduce(topic.record.topic_id, partition, batch, acks, conditions, deadline, find_leader)


async def _acknowledge(queued: Awaitable[Appended | None] | Problem | None) -> Outcome:
    if queued is None or isinstance(queued, Problem):
        return queued
    try:
        appended = await queued
    except EngineError as error:
        return problems.from_engine(error)
    if appended is not None and appended.source_position is not None:
        text = (
            f"the outputs up to position {appended.source_position} of the source are stored; send those of later ones"
        )
        return Problem("source_position_stored", text, source_position=appended.source_position)
    return appended


def _result(part: Part, outcome: Outcome, acks: Acks, now_ms: int, status: int | None, *, names_topic: bool) -> Result:
    """Returns an entry of the answer. `status` is the status of a success if other parts have failed."""
    result: Result = {}
    if names_topic:
        result["topic"] = part.topic_name
    result |= {"partition": part.partition, "base_offset": None, "count": part.record_count, "timestamp": now_ms}
    if isinstance(outcome, Problem):
        result |= {"status": outcome.status, "problem": outcome.document()}
    else:
        if outcome is not None:
            result["base_offset"] = outcome.base_offset
            if outcome.is_duplicate:
                result |= {"count": outcome.record_count, "timestamp": outcome.timestamp_ms, "duplicate": True}
        if status is not None:
            result["status"] = status
    if names_topic:
        result["durability"] = "none"
        if part.topic is not None and not isinstance(outcome, Problem):
            result["durability"] = _durability(acks, part.topic)
    return result


_WORDS = {acks: acks.value for acks in Acks}  # a look-up costs a quarter of `value`
_HEADERS = {"Content-Type": "application/json"}
_DUPLICATE_HEADERS = {**_HEADERS, "Penstock-Duplicate": "true"}
