"""Parses the query and the headers of a produce into one frozen value that decides how its body is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, NamedTuple

from aiohttp import web
from msgspec import Struct

from engine.format import batch as record_batch
from engine.producers.append_validator import AppendConditions
from gateway.access.access import Caller, caller_of
from gateway.http.json_limits import JsonLimits
from gateway.http.problems import Problem
from gateway.http.query import Number, Text, Word
from gateway.produce.cloud_events import EVENT, EVENT_BATCH, binary_event, decode_event, decode_event_batch
from gateway.produce.headers import (
    BEGINNINGS,
    NO_HEADERS,
    IdempotencyKey,
    ProduceHeaders,
    read_headers,
    read_headers_of_many,
)
from gateway.produce.incoming import Incoming, IncomingRow
from gateway.produce.json_records import (
    decode_envelope,
    decode_record_lines,
    decode_topic_envelope,
    decode_topic_lines,
)
from gateway.produce.ndjson_values import decode_keyed_values, decode_values, parse_pointer
from gateway.produce.placing import Sequenced
from gateway.settings import NodeSettings
from replication.replica.acks import ACKS_BY_WORD, Acks

JSON = "application/json"
NDJSON = "application/x-ndjson"
EVENT_DECODERS: dict[str, Callable[..., Incoming]] = {EVENT: decode_event, EVENT_BATCH: decode_event_batch}

Decode = Callable[[bytes], Incoming]
DecodeTopics = Callable[[bytes], tuple[list[str], list[IncomingRow]]]

_Acks = Annotated[str, Word(tuple(ACKS_BY_WORD))]
_TimeoutMs = Annotated[int | None, Number(1, 600_000)]


class ManyQuery(Struct, frozen=True):
    """The query of POST /v1/records."""

    acks: _Acks = "all"
    timeout_ms: _TimeoutMs = None


class PartitionQuery(Struct, frozen=True):
    """The query of a produce to one partition."""

    acks: _Acks = "all"
    timeout_ms: _TimeoutMs = None
    key: Annotated[str | None, Text()] = None
    key_pointer: Annotated[str | None, Text()] = None
    ndjson: Annotated[str, Word(("values", "records"))] = "values"


class TopicQuery(PartitionQuery, frozen=True):
    """The query of a produce to one topic."""

    partition: Annotated[int | None, Number(0, 2**31 - 1)] = None


class ProduceRequest(NamedTuple):
    """A produce to one topic. `decode` is None for a stored batch.

    Records that name no partition go to `partition`. With `is_only` no record may name another one. `is_direct`: the
    request must not be passed on to another process.
    """

    topic: str
    partition: int | None
    is_only: bool
    acks: Acks
    timeout_ms: int
    decode: Decode | None
    key: bytes | None
    conditions: AppendConditions | None
    sequenced: Sequenced | None
    idempotency_key: IdempotencyKey | None
    is_direct: bool


class ProduceManyRequest(NamedTuple):
    """A produce to many topics: each record names its own."""

    acks: Acks
    timeout_ms: int
    decode: DecodeTopics
    idempotency_key: IdempotencyKey | None
    is_direct: bool
    caller: Caller


def parse(
    request: web.Request,
    query: PartitionQuery,
    partition: int | None,
    settings: NodeSettings,
    limits: JsonLimits,
    *,
    is_only: bool,
) -> ProduceRequest:
    """Parses a produce to one topic. `is_only`: the path names the partition.

    Raises Problem invalid_header, invalid_query, unsupported_media_type.
    """
    has_own = not BEGINNINGS.isdisjoint([name[:3].lower() for name in request.headers])
    content_type = request.content_type if "Content-Type" in request.headers else ""
    headers = NO_HEADERS
    if has_own:
        headers = read_headers(request, partition, is_structured=content_type in EVENT_DECODERS)
    key = query.key if query.key is not None else headers.record_key
    return ProduceRequest(
        request.match_info["topic"],
        partition,
        is_only or headers.conditions is not None or headers.sequenced is not None,
        ACKS_BY_WORD[query.acks],
        query.timeout_ms or settings.produce_timeout_ms,
        _decoder(request, content_type, query, headers, limits),
        None if key is None else key.encode(),
        headers.conditions,
        headers.sequenced,
        headers.idempotency_key,
        headers.is_direct,
    )


def parse_many(
    request: web.Request, query: ManyQuery, settings: NodeSettings, limits: JsonLimits
) -> ProduceManyRequest:
    """Parses a produce to many topics. Raises Problem invalid_header, unsupported_media_type."""
    headers = read_headers_of_many(request)
    if request.content_type not in (JSON, NDJSON) or "Content-Type" not in request.headers:
        raise Problem("unsupported_media_type", f"records for many topics come as {JSON} or {NDJSON}")
    _check_charset(request)
    if headers.attributes is not None:
        raise Problem("invalid_header", "a CloudEvent in binary mode goes to one topic")
    decode = decode_topic_envelope if request.content_type == JSON else decode_topic_lines
    return ProduceManyRequest(
        ACKS_BY_WORD[query.acks],
        query.timeout_ms or settings.produce_timeout_ms,
        partial(decode, limits=limits),
        headers.idempotency_key,
        headers.is_direct,
        caller_of(request),
    )


def _decoder(
    request: web.Request, content_type: str, query: PartitionQuery, headers: ProduceHeaders, limits: JsonLimits
) -> Decode | None:
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
        return partial(binary_event, attributes, request.headers.get("Content-Type"))
    if content_type in (JSON, NDJSON, *EVENT_DECODERS):
        _check_charset(request)
    if content_type in EVENT_DECODERS:
        return partial(EVENT_DECODERS[content_type], limits=limits)
    if content_type == JSON:
        return partial(decode_envelope, limits=limits)
    if content_type == NDJSON:
        if query.ndjson == "records":
            return partial(decode_record_lines, limits=limits)
        if pointer is None:
            return partial(decode_values, limits=limits)
        return partial(decode_keyed_values, pointer=parse_pointer(pointer), limits=limits)
    kept_type = request.headers.get("Content-Type", "application/octet-stream")
    return partial(_one_value, kept_type=kept_type.encode())


def _check_stored_batch(query: PartitionQuery, headers: ProduceHeaders) -> None:
    """Raises Problem invalid_query, invalid_header: a stored batch has its keys and its sequence in itself."""
    if query.key is not None or query.key_pointer is not None or headers.record_key is not None:
        raise Problem("invalid_query", "a stored batch has its keys in its records", parameter="key")
    if headers.idempotency_key is not None:
        raise Problem("invalid_header", "a stored batch takes Producer-Id, -Epoch and -Seq in place of a key")


def _check_charset(request: web.Request) -> None:
    """Raises Problem unsupported_media_type for JSON in another encoding than UTF-8."""
    if (request.charset or "utf-8").lower() not in ("utf-8", "utf8"):
        raise Problem("unsupported_media_type", f"the charset is {request.charset!r}; JSON is taken as UTF-8 only")


def _one_value(body: bytes, kept_type: bytes) -> Incoming:
    if not body:
        raise Problem("no_records", "the body is empty")
    return [IncomingRow(None, body, [("content-type", kept_type)])]
