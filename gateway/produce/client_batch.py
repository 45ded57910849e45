"""A stored batch that a client made: checked by its header, and by its records where the topic says so; then stamped.

Never encoded again. What is checked, and why it has to be: engine/format/batch.py.
"""

from __future__ import annotations

from engine.errors import DecodedTooLarge
from engine.format import batch as record_batch
from engine.settings import TopicSettings
from gateway.http.offload import OFF_LOOP_BYTES, OFF_LOOP_RECORDS
from gateway.http.problems import Problem
from gateway.produce.conditions import demand_given
from gateway.produce.context import ProduceContext
from gateway.produce.placing import Batch, Destination, Sequenced, check_count, check_timestamp


async def client_batch(body: bytes, to: Destination, context: ProduceContext) -> Batch:
    """The body as a batch for its partition. Raises BatchTooLarge, InvalidBatch, CorruptBatch, Problem."""
    settings = to.settings
    header = record_batch.check_client_batch(body, batch_bytes_max=settings.batch_bytes_max)
    check_timestamp(header.max_timestamp, settings, to.now_ms, 0)
    check_count(header.record_count, context.settings.records_per_request_max)
    if settings.verify == "full":
        await _check_records(body, header, settings, context)
    await _check_sequence(header, to, context)
    data: bytes | bytearray = body
    if settings.timestamp_type == "append":
        data = bytearray(body)
        record_batch.stamp_append_time(data, to.now_ms)
    if to.sequenced is not None and header.producer_id < 0:
        data = bytearray(data)
        record_batch.stamp_sequence(data, *to.sequenced)
    return Batch(to.sticky if to.partition is None else to.partition, data, header.record_count)


async def _check_sequence(header: record_batch.Header, to: Destination, context: ProduceContext) -> None:
    """A batch that carries a sequence of its own keeps it. Raises Problem invalid_header, invalid_batch, …"""
    if header.producer_id < 0:
        return
    own = Sequenced(header.producer_id, header.producer_epoch, header.base_sequence)
    if to.sequenced is not None and to.sequenced != own:
        text = f"the batch says {tuple(own)} of its producer, epoch and sequence, the headers {tuple(to.sequenced)}"
        raise Problem("invalid_header", text)
    if to.partition is None:
        text = "the batch is of a producer's sequence: name its partition in the path, or with partition="
        raise Problem("invalid_batch", text)
    await demand_given(context, header.producer_id)


async def _check_records(
    body: bytes, header: record_batch.Header, settings: TopicSettings, context: ProduceContext
) -> None:
    """Here as far as that is quick, else in a thread: how much a batch unpacks to is known only afterwards.

    A batch that is not packed takes a time that goes by its records, whatever their bytes.
    """
    bound = settings.batch_decoded_bytes_max

    def check(decoded_bytes_max: int) -> None:
        record_batch.check_records(
            body, record_bytes_max=settings.record_bytes_max, decoded_bytes_max=decoded_bytes_max
        )

    is_quick = header.codec == record_batch.Codec.NONE or len(body) < OFF_LOOP_BYTES
    if is_quick and header.record_count < OFF_LOOP_RECORDS:
        try:
            check(min(bound, OFF_LOOP_BYTES))
        except DecodedTooLarge:
            if bound <= OFF_LOOP_BYTES:
                raise
        else:
            return
    await context.offload.in_thread(lambda: check(bound))
