"""Produce of v2: the stages of a produce to one topic, with the dialect's records and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import orjson

from engine.producers.appends import Appended
from gateway.http.problems import Problem
from gateway.http.query import path_partition
from gateway.http.request import Handled, Request
from gateway.http.response import Response, form_of
from gateway.produce.answer import check_one_success
from gateway.produce.batching import Part
from gateway.produce.context import ProduceContext
from gateway.produce.headers import BEGINNINGS, NO_HEADERS, read_headers
from gateway.produce.produce import TopicProduce, in_record_order, produce
from gateway.produce.queue import Outcome
from gateway.produce.request import ProduceRequest
from gateway.rest_proxy.context import RestProxyContext
from gateway.rest_proxy.errors import code_of, message_of
from gateway.rest_proxy.media_types import SCHEMA_FORMATS, answer_type, body_format
from gateway.rest_proxy.records import DECODERS, decode_json
from gateway.rest_proxy.schema_records import ENCODING_COST, Encoding, decode_by_schema, named_ids
from gateway.routing.partitions import check_not_internal
from replication.replica.acks import Acks

_SUCCESS = ',"error_code":null,"error":null}'
_END = '],"key_schema_id":null,"value_schema_id":null}'
_END_BY_SCHEMA = '],"key_schema_id":%s,"value_schema_id":%s}'
_NO_HEADERS: dict[str, str] = {}  # of an answer with a form


def rest_produce(request: Request, context: RestProxyContext) -> Handled:
    """POST /topics/{topic} and /topics/{topic}/partitions/{partition}. Raises Problem, EngineError."""
    if request.parsed is None:
        request.parsed = parse(request, context.produce)
    if request.parsed.body_cost > 1:  # equal heads share what is parsed, and not the tenant's topic
        encoding = Encoding(body_format(request), request.names["topic"], context.produce.schemas)
        request.parsed = request.parsed._replace(decode=partial(decode_by_schema, encoding))
    return produce(request, context.produce)


def parse(request: Request, context: ProduceContext) -> ProduceRequest:
    """Parses the head of a produce. An Idempotency-Key counts as in the contract's routes. Raises Problem."""
    partition = path_partition(request) if "partition" in request.names else None
    media_type = answer_type(request.headers.get("Accept", ""))
    name = body_format(request)
    if name in SCHEMA_FORMATS and context.schemas is None:
        raise Problem("unsupported_media_type", f"{name} needs a schema registry, and this node has none configured")
    decode = DECODERS.get(name, decode_json)  # by schemas: that of the request
    check_not_internal(request.names["topic"])
    headers = NO_HEADERS
    if not BEGINNINGS.isdisjoint([name[:3].lower() for name in request.headers]):
        headers = read_headers(request, partition, is_structured=True)

    def render(pending: TopicProduce, outcomes: Sequence[Outcome]) -> Response:
        return _answer(pending, outcomes, media_type)

    return ProduceRequest(
        partition,
        partition is not None or any((headers.conditions, headers.sequenced, headers.source)),
        Acks.ALL,
        context.settings.produce_timeout_ms,
        decode,
        None,
        headers.conditions,
        headers.sequenced,
        headers.idempotency_key,
        headers.is_forwarding_forbidden,
        headers.source,
        headers.is_forwarding_forbidden or "Content-Encoding" in request.headers or name in SCHEMA_FORMATS,
        render,
        ENCODING_COST if name in SCHEMA_FORMATS else 1,
    )


def _answer(pending: TopicProduce, outcomes: Sequence[Outcome], media_type: str) -> Response:
    """Returns a row for each record, in their order. Raises a problem if nothing is stored."""
    check_one_success(outcomes)
    rows = [_rows_of(pending, part, outcome) for part, outcome in zip(pending.parts, outcomes, strict=True)]
    body = f'{{"offsets":[{",".join(in_record_order(pending, rows))}{_end(pending)}'.encode()
    if any(isinstance(outcome, Problem) for outcome in outcomes):
        return Response(body, {"Content-Type": media_type}, 207)
    return Response(body, _NO_HEADERS, 200, form_of(200, (("Content-Type", media_type),)))


def _rows_of(pending: TopicProduce, part: Part, outcome: Outcome) -> list[str]:
    """Returns the rows of the records of a part."""
    if isinstance(outcome, Appended):
        start, first = f'{{"partition":{part.partition},"offset":', outcome.base_offset
        return [f"{start}{offset}{_SUCCESS}" for offset in range(first, first + part.record_count)]
    assert isinstance(outcome, Problem), outcome
    text = message_of(pending.request, outcome)
    failed = {"partition": None, "offset": None, "error_code": code_of(outcome), "error": text}
    return [orjson.dumps(failed).decode()] * part.record_count


def _end(pending: TopicProduce) -> str:
    """Returns the end of an answer, with the schemas of the keys and the values."""
    if pending.parsed.body_cost == 1:
        return _END
    return _END_BY_SCHEMA % tuple("null" if one is None else one for one in named_ids(pending.placed[0]))
