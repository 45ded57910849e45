"""ListTransactions and DescribeTransactions, which find none, and DescribeProducers.

This server has no transactions (docs/decisions/0025): tools that look for hanging ones see that there are none.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from engine.errors import EngineError
from engine.partition.partition import Partition
from gateway.fetch.context import ReadContext
from gateway.http.problems import Problem
from gateway.http.rights import Operation
from gateway.kafka.cluster import find_topic, is_of_this_node
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error, error_of_read
from gateway.kafka.requests import KafkaRequest
from gateway.routing.router import Answering, PartitionCall

NO_TRANSACTIONS = (
    "this server has no transactions: use an idempotent producer without a transactional id (docs/from-kafka.md)"
)
NO_TRANSACTION = -1
PRODUCERS_MAX = 1000  # of one partition in an answer: those that wrote last
_STATES = frozenset(
    {"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
     "PrepareEpochFence"}
)  # fmt: skip

Listed = types_of("ListTransactions")[""]
Described, DescribedTransaction = (types_of("DescribeTransactions")[path] for path in ("", "transaction_states"))
Producers, ProducersTopic, ProducersRow, ActiveProducer = (
    types_of("DescribeProducers")[path]
    for path in ("", "topics", "topics.partitions", "topics.partitions.active_producers")
)


class ProducerRow(NamedTuple):
    """A producer that a partition remembers."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int


FIND_PRODUCERS: PartitionCall[None, list[ProducerRow]] = PartitionCall("find_producers", None)


async def find_producers(context: ReadContext, partition: Partition, _: None) -> tuple[list[ProducerRow], bytes]:
    """Returns the producers of a partition that wrote last, the latest one last."""
    context.partitions.replica(partition).check_latest()
    rows = [
        ProducerRow(producer_id, producer.epoch, producer.batches[-3], producer.batches[-1])
        for producer_id, producer in partition.validator.producers.items()
    ]
    return rows[-PRODUCERS_MAX:], b""


def producer_calls(context: ReadContext) -> list[Answering]:
    """Returns the call to partitions of this process."""
    return [FIND_PRODUCERS.by(partial(find_producers, context))]


def list_transactions(request: KafkaRequest, _: KafkaContext) -> Message:
    """Lists none. States that Kafka does not have are named, as it does."""
    return Listed(unknown_state_filters=[state for state in request.message.state_filters if state not in _STATES])


def describe_transactions(request: KafkaRequest, _: KafkaContext) -> Message:
    """Finds none."""
    missing = Error.TRANSACTIONAL_ID_NOT_FOUND
    rows = [DescribedTransaction(request.note(missing), name) for name in request.message.transactional_ids]
    return Described(transaction_states=rows)


async def describe_producers(request: KafkaRequest, context: KafkaContext) -> Message:
    """Describes the idempotent producers of partitions."""
    topics = []
    for of_topic in request.message.topics:
        rows = [await _producers(request, context, of_topic.name, number) for number in of_topic.partition_indexes]
        topics.append(ProducersTopic(of_topic.name, rows))
    return Producers(topics=topics)


async def _producers(request: KafkaRequest, context: KafkaContext, name: str, number: int) -> Message:
    topic, error = find_topic(context, name), Error.NONE
    found: list[ProducerRow] = []
    if not request.caller.allows(Operation.READ, name):
        error = Error.TOPIC_AUTHORIZATION_FAILED
    elif topic is None or not 0 <= number < topic.record.partitions:
        error = Error.UNKNOWN_TOPIC_OR_PARTITION
    elif not is_of_this_node(context, topic.record.topic_id, number):
        error = Error.NOT_LEADER_OR_FOLLOWER
    else:
        try:
            rows, _ = await context.router.call(FIND_PRODUCERS, name, number, None)
            found = [ProducerRow(*row) for row in rows]
        except (EngineError, Problem) as failed:
            error = error_of_read(failed.code, 11)
    active = [ActiveProducer(*row, -1, NO_TRANSACTION) for row in found]
    return ProducersRow(number, request.note(error), None, active)
