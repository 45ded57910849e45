"""Parses the head of a produce to one topic into one frozen value, which decides how the body is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

from msgspec import Struct

from engine.format import batch as record_batch
from engine.producers.appends import AppendConditions
from gateway.http.json_limits import JsonLimits
from gateway.http.problems import Problem
from gateway.http.query import Number, Text, Word, path_partition, read_query
from gateway.http.record_content_type import FORM, JSON, LINES, NDJSON, check_one_value
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.produce.batching import Incoming, IncomingRow, ProducerSequence
from gateway.produce.cloud_events import EVENT, EVENT_BATCH, binary_event, decode_event, decode_event_batch
from gateway.produce.context import ProduceContext
from gateway.produce.headers import (
    BEGINNINGS,
    NO_HEADERS,
    SOURCE,
    IdempotencyKey,
    ProduceHeaders,
    SourcePositions,
    read_headers,
)
from gateway.produce.json_records import decode_envelope, decode_record_lines
from gateway.produce.ndjson_values import decode_keyed_values, decode_values, parse_pointer
from gateway.routing.partitions import check_not_internal
from replication.replica.acks import ACKS_BY_WORD, Acks

Decode = Callable[[bytes, JsonLimits], Incoming]

EVENT_DECODERS: dict[str, Decode] = {EVENT: decode_event, EVENT_BATCH: decode_event_batch}

AcksWord = Annotated[str, Word(tuple(ACKS_BY_WORD))]
TimeoutMs = Annotated[int | None, Number(1, 600_000)]


class PartitionQuery(Struct, frozen=True):
    """The query of a produce to one partition."""

    acks: AcksWord = "all"
    timeout_ms: TimeoutMs = None
    key: Annotated[str | None, Text()] = None
    key_pointer: Annotated[str | None, Text()] = None
    ndjson: Annotated[str, Word(("values", "records"))] = "values"


class TopicQuery(PartitionQuery, frozen=True):
    """The query of a produce to one topic."""

    partition: Annotated[int | None, Number(0, 2**31 - 1)] = None


class ProduceRequest(NamedTuple):
    """A produce to one topic, but for its name, its key and its sequence: equal heads share this.

    `decode` is None for a stored batch. `idempotency_key` and `sequenced` are those of any of these heads.

    Records that name no partition go to `partition`. With `is_only` no record may name another one.
    `is_forwarding_forbidden`: the request must not be passed on to another process. `must_wait`: for that, for a body
    that is to be unpacked, or because the records of a stored batch may be. `render` makes the answer of another
    dialect, of the produce and the outcomes of its parts.
    """

    partition: int | None
    is_only: bool
    acks: Acks
    timeout_ms: int
    decode: Decode | None
    key: bytes | None
    conditions: AppendConditions | None
    sequenced: ProducerSequence | None
    idempotency_key: IdempotencyKey | None
    is_forwarding_forbidden: bool
    source: SourcePositions | None
    must_wait: bool
    render: Callable[[Any, Sequence[Any]], Response] | None = None
    body_cost: int = 1  # decoding a byte takes as long as so many of JSON


def parse(request: Request, context: ProduceContext) -> ProduceRequest:
    """Parses a produce to one topic. Looks at the head of the request only.

    Raises Problem invalid_header, invalid_query, unknown_query, unknown_partition, unsupported_media_type;
    InvalidTopicName.
    """
    is_only = "partition" in request.names
    query: PartitionQuery
    partition: int | None
    if is_only:
        query, partition = read_query(request, PartitionQuery), path_partition(request)
    else:
        query = topic_query = read_query(request, TopicQuery)
        partition = topic_query.partition
    has_own = not BEGINNINGS.isdisjoint([name[:3].lower() for name in request.headers])
    content_type = request.content_type if "Content-Type" in request.headers else ""
    if content_type in LINES:
        content_type = NDJSON
    headers = NO_HEADERS
    if has_own:
        headers = read_headers(request, partition, is_structured=content_type in EVENT_DECODERS)
    if headers.source is not None and ACKS_BY_WORD[query.acks] is not Acks.ALL:
        text = f"{SOURCE} goes with acks=all: a position that is remembered and then lost would skip its inputs"
        raise Problem("invalid_query", text, parameter="acks")
    key = query.key if query.key is not None else headers.record_key
    decode = _decoder(request, content_type, query, headers)
    check_not_internal(request.names["topic"])
    return ProduceRequest(
        partition,
        is_only or any((headers.conditions, headers.sequenced, headers.source)),
        ACKS_BY_WORD[query.acks],
        query.timeout_ms or context.settings.produce_timeout_ms,
        decode,
        None if key is None else key.encode(),
        headers.conditions,
        headers.sequenced,
        headers.idempotency_key,
        headers.is_forwarding_forbidden,
        headers.source,
        decode is None or headers.is_forwarding_forbidden or "Content-Encoding" in request.headers,
    )


def _decoder(request: Request, content_type: str, query: PartitionQuery, headers: ProduceHeaders) -> Decode | None:
    """Returns the decoder of the body's form. A media type without a form of its own is the value of one record."""
    pointer, attributes = query.key_pointer, headers.attributes
    if content_type == record_batch.MEDIA_TYPE and attributes is None:
        _check_stored_batch(query, headers)
        return None
    has_lines = content_type == NDJSON and query.ndjson == "values" and attributes is None
    if pointer is not None and not has_lines:
        text = "key_pointer goes with application/x-ndjson and ndjson=values"
        raise Problem("invalid_query", text, parameter="key_pointer")
    if attributes is not None:  # a CloudEvent in binary mode, whose data may have any media type
        data_type = request.headers.get("Content-Type")
        return lambda body, _: binary_event(attributes, data_type, body)
    if content_type in (JSON, NDJSON, *EVENT_DECODERS):
        check_charset(request)
    if content_type in EVENT_DECODERS:
        return EVENT_DECODERS[content_type]
    if content_type == JSON:
        return decode_envelope
    if content_type == NDJSON:
        if query.ndjson == "records":
            return decode_record_lines
        if pointer is None:
            return decode_values
        steps = parse_pointer(pointer)
        return lambda body, limits: decode_keyed_values(body, steps, limits)
    check_one_value(content_type)
    kept_type = request.headers.get("Content-Type", "application/octet-stream")
    return lambda body, _: _one_value(body, kept_type.encode())


def _check_stored_batch(query: PartitionQuery, headers: ProduceHeaders) -> None:
    """Raises Problem invalid_query, invalid_header: a stored batch has its keys and its sequence in itself."""
    if query.key is not None or query.key_pointer is not None or headers.record_key is not None:
        raise Problem("invalid_query", "a stored batch has its keys in its records", parameter="key")
    if headers.idempotency_key is not None:
        raise Problem("invalid_header", "a stored batch takes Producer-Id, -Epoch and -Seq in place of a key")
    if headers.source is not None:
        raise Problem("invalid_header", f"a stored batch takes no {SOURCE}: send its records as JSON or NDJSON")


def check_charset(request: Request) -> None:
    """Raises Problem unsupported_media_type for JSON in another encoding than UTF-8."""
    if (request.charset or "utf-8").lower() not in ("utf-8", "utf8"):
        raise Problem("unsupported_media_type", f"the charset is {request.charset!r}; JSON is taken as UTF-8 only")


def _one_value(body: bytes, kept_type: bytes) -> Incoming:
    if not body:
        raise Problem("no_records", "the body is empty")
    if kept_type.lower().startswith(FORM) and body[:1] in (b"{", b"["):  # form data has these characters encoded
        text = f"the body looks like JSON, and its Content-Type is {FORM.decode()}, which `curl -d` sends"
        raise Problem("unsupported_media_type", f"{text}: send -H 'Content-Type: {JSON}', or text/plain for a text")
    return [IncomingRow(None, body, [("content-type", kept_type)])]
