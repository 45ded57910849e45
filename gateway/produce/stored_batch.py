"""Decodes a body that is a stored batch: checks its header, and its records if the topic requires it, then stamps it.

It is never encoded again. engine/format/batch.py lists the checks and their reasons.
"""

from __future__ import annotations

from engine.errors import DecodedTooLarge
from engine.format import batch as record_batch
from engine.topic_settings import TopicSettings
from gateway.http.offload import OFF_LOOP_BYTES, OFF_LOOP_RECORDS
from gateway.http.problems import Problem
from gateway.produce.batching import (
    Destination,
    Part,
    ProducerSequence,
    check_count,
    check_timestamp,
)
from gateway.produce.context import ProduceContext
from gateway.produce.value_checks import NeedsSchemas, TakesLong, check_values, must_check, quick_bytes, with_schemas


async def stored_batch(body: bytes | bytearray, to: Destination, context: ProduceContext) -> Part:
    """Returns the body as the batch of its partition. Raises BatchTooLarge, InvalidBatch, CorruptBatch, Problem."""
    body, header = _check_head(body, to, context)
    if _must_check_records(to.settings):
        await with_schemas(to.schemas, lambda: _wait_checked(body, header, to, context))
    await _check_sequence(header, to, context)
    return _part(body, header, to)


def stored_batch_now(body: bytes | bytearray, to: Destination, context: ProduceContext) -> Part | None:
    """Returns what `stored_batch` returns; None if that takes a thread, a schema or a look-up of the producer's id."""
    body, header = _check_head(body, to, context)
    if header.producer_id >= 0 and (to.sequenced is not None or not context.producer_ids.is_known(header.producer_id)):
        return None
    try:
        if _must_check_records(to.settings) and not _check_records_now(body, header, to):
            return None
    except NeedsSchemas:
        return None
    return _part(body, header, to)


def _must_check_records(settings: TopicSettings) -> bool:
    """Returns whether the records of stored batches are looked at: without a schema, a topic may trust producers."""
    return settings.verify == "full" or must_check(settings)


def _check_head(
    body: bytes | bytearray, to: Destination, context: ProduceContext
) -> tuple[bytes | bytearray, record_batch.Header]:
    """Returns the batch and its header, with the time of arrival if it has none."""
    settings = to.settings
    header = record_batch.check_client_batch(body, batch_bytes_max=settings.batch_bytes_max)
    check_timestamp(header.max_timestamp, settings, to.now_ms, 0)
    check_count(header.record_count, context.settings.records_per_request_max)
    if settings.timestamp_type != "append" and header.max_timestamp != record_batch.NO_TIMESTAMP:
        return body, header
    data = bytearray(body)
    record_batch.stamp_append_time(data, to.now_ms)
    return data, header._replace(max_timestamp=to.now_ms)


def _part(body: bytes | bytearray, header: record_batch.Header, to: Destination) -> Part:
    data = body
    if to.sequenced is not None and header.producer_id < 0:
        data = bytearray(data)
        record_batch.stamp_sequence(data, *to.sequenced)
    partition = to.sticky if to.partition is None else to.partition
    return Part(to.topic.record.name, partition, header.record_count, to.topic, data, None, to.append_conditions)


async def _check_sequence(header: record_batch.Header, to: Destination, context: ProduceContext) -> None:
    """Checks the sequence that a batch carries. Raises Problem invalid_header, invalid_batch, unknown_producer."""
    if header.producer_id < 0:
        return
    own = ProducerSequence(header.producer_id, header.producer_epoch, header.base_sequence)
    if to.sequenced is not None and to.sequenced != own:
        text = f"the batch says {tuple(own)} of its producer, epoch and sequence, the headers {tuple(to.sequenced)}"
        raise Problem("invalid_header", text)
    if to.partition is None:
        text = "the batch is of a producer's sequence: name its partition in the path, or with partition="
        raise Problem("invalid_batch", text)
    await check_producer_id(context, header.producer_id)


async def _wait_checked(
    body: bytes | bytearray, header: record_batch.Header, to: Destination, context: ProduceContext
) -> None:
    if not _check_records_now(body, header, to):
        await context.offload.in_thread(lambda: _check_records(body, to, to.settings.batch_decoded_bytes_max))


def _check_records_now(body: bytes | bytearray, header: record_batch.Header, to: Destination) -> bool:
    """Checks the records of a small batch. Returns False for others: the unpacked size is known only afterwards.

    The time for an uncompressed batch depends on its number of records. Raises InvalidBatch, NeedsSchemas.
    """
    settings = to.settings
    is_quick = header.codec == record_batch.Codec.NONE or len(body) < OFF_LOOP_BYTES
    if not is_quick or header.record_count >= OFF_LOOP_RECORDS:
        return False
    bound, quick = settings.batch_decoded_bytes_max, quick_bytes(settings)
    if must_check(settings) and len(body) >= quick:
        return False
    try:
        _check_records(body, to, min(bound, quick), is_quick=True)
    except NeedsSchemas:
        raise
    except TakesLong:
        return False
    except DecodedTooLarge:
        if bound <= quick:
            raise
        return False
    return True


def _check_records(body: bytes | bytearray, to: Destination, decoded_bytes_max: int, *, is_quick: bool = False) -> None:
    """Raises InvalidBatch, DecodedTooLarge, RecordTooLarge, and as `check_values` does."""
    settings = to.settings
    record_batch.check_records(body, record_bytes_max=settings.record_bytes_max, decoded_bytes_max=decoded_bytes_max)
    if must_check(settings):
        values = [record.value for record in record_batch.decode_one(body, decoded_bytes_max)]
        check_values(values, to.value_rules, is_quick=is_quick)


async def check_producer_id(context: ProduceContext, producer_id: int) -> None:
    """Raises Problem unknown_producer if POST /v1/producers never gave the id: it may be another producer's."""
    if not await context.producer_ids.is_allocated(producer_id):
        raise Problem("unknown_producer", f"the producer id {producer_id} was never given out")
