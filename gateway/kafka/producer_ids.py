"""InitProducerId: a new producer id for each idempotent producer. Transactions are refused at once."""

from __future__ import annotations

from engine.errors import EngineError
from gateway.http.rights import Operation
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.requests import KafkaRequest

Response = types_of("InitProducerId")[""]


async def init_producer_id(request: KafkaRequest, context: KafkaContext) -> Message:
    """Gives out an id. A producer that has one gets a new one: its sequences begin again."""
    if request.message.transactional_id is not None:
        return Response(error_code=request.note(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if request.caller.prefixes(Operation.WRITE) == ():
        return Response(error_code=request.note(Error.CLUSTER_AUTHORIZATION_FAILED))
    try:
        producer_id = await context.produce.producer_ids.take()
    except EngineError:  # the coordination store is silent: clients try again
        return Response(error_code=request.note(Error.COORDINATOR_NOT_AVAILABLE))
    return Response(producer_id=producer_id, producer_epoch=0)
