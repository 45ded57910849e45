"""Outcomes of records of a share group, as ShareFetch and ShareAcknowledge carry them: by member, and not by lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice

from engine.errors import EngineError
from gateway.groups.hosting.calls import SETTLE
from gateway.groups.share.values import Outcome, SettleCall, Settled, Settlement
from gateway.http.problems import Problem
from gateway.http.rights import Operation
from gateway.kafka.cluster import find_topic_by_id, may_know
from gateway.kafka.codec.messages import Message
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.groups import coordinator_error
from gateway.kafka.requests import KafkaRequest
from gateway.kafka.share_sessions import Place

# By the numbers of Kafka's types: a gap is an offset without a record, and "renew" keeps a record locked.
OUTCOMES = (Outcome.ACCEPT, Outcome.ACCEPT, Outcome.RELEASE, Outcome.REJECT, Outcome.EXTEND)
RENEW_VERSION = 2
SETTLEMENTS_MAX = 10_000  # of one request, as over HTTP; neighbours with the same outcome are one


async def settle(
    request: KafkaRequest, context: KafkaContext, group: str, member_id: str, topics: Iterable[Message]
) -> dict[Place, Error]:
    """Gives records the outcomes of a request. Returns the result of each partition that has some."""
    results: dict[Place, Error] = {}
    settlements: list[Settlement] = []
    places: dict[tuple[str, int], Place] = {}
    for of_topic in topics:
        topic = find_topic_by_id(context, of_topic.topic_id)
        for row in of_topic.partitions:
            if not row.acknowledgement_batches:
                continue
            place = of_topic.topic_id, row.partition_index
            if topic is None or not may_know(request, topic.record.name):
                results[place] = Error.UNKNOWN_TOPIC_ID
            elif not request.caller.allows(Operation.READ, topic.record.name):
                results[place] = Error.TOPIC_AUTHORIZATION_FAILED
            elif not _are_valid(row.acknowledgement_batches, request.version):
                results[place] = Error.INVALID_REQUEST
            else:
                slot, left = (topic.record.name, row.partition_index), SETTLEMENTS_MAX - len(settlements)
                found = list(islice(_settlements(slot, row.acknowledgement_batches), left + 1))
                if len(found) > left:
                    results[place] = Error.INVALID_REQUEST
                    continue
                places[slot], results[place] = place, Error.NONE
                settlements += found
    if not settlements:
        return results
    try:
        call = SettleCall(group, "", tuple(settlements), member_id=member_id)
        settled = await context.groups.coordinators.call(SETTLE, Settled, group, call)
    except (EngineError, Problem) as error:
        return results | dict.fromkeys(places.values(), coordinator_error(error))
    return results | {places[one[0], one[1]]: Error.INVALID_RECORD_STATE for one in settled.refused}


async def release_all(context: KafkaContext, group: str, member_id: str) -> Error:
    """Releases what a member holds, at once: it closes its session."""
    call = SettleCall(group, "", (), Outcome.RELEASE, 0, member_id=member_id)
    try:
        await context.groups.coordinators.call(SETTLE, Settled, group, call)
    except (EngineError, Problem) as error:
        found = coordinator_error(error)
        return Error.NONE if found is Error.GROUP_ID_NOT_FOUND else found
    return Error.NONE


def _are_valid(batches: Iterable[Message], version: int) -> bool:
    """Returns whether batches ascend, and have a type for each offset or one for all."""
    before, last_type = -1, len(OUTCOMES) - 1 if version >= RENEW_VERSION else len(OUTCOMES) - 2
    for batch in batches:
        count, types = batch.last_offset - batch.first_offset + 1, batch.acknowledge_types
        if batch.first_offset <= before or count <= 0 or len(types) not in (1, count):
            return False
        if not all(0 <= kind <= last_type for kind in types):
            return False
        before = batch.last_offset
    return True


def _settlements(slot: tuple[str, int], batches: Iterable[Message]) -> Iterator[Settlement]:
    for batch in batches:
        if len(batch.acknowledge_types) == 1:
            yield Settlement(*slot, batch.first_offset, batch.last_offset, OUTCOMES[batch.acknowledge_types[0]])
            continue
        first = batch.first_offset
        for outcome, run in groupby(OUTCOMES[kind] for kind in batch.acknowledge_types):
            last = first + len(list(run)) - 1
            yield Settlement(*slot, first, last, outcome)
            first = last + 1
