"""Parses the query and the headers of a fetch into one frozen value."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from engine.format import batch as record_batch
from gateway.fetch.cloud_events import BINARY
from gateway.filters.condition import InvalidCondition
from gateway.filters.record_filter import record_filter
from gateway.http.negotiation import choose_media_type
from gateway.http.problems import Problem
from gateway.http.query import Number, Text, Texts, Word, read_query
from gateway.http.request import Request
from gateway.http.times import parse_timestamp
from gateway.produce.cloud_events import EVENT, EVENT_BATCH
from gateway.routing.leader_headers import LEADER_EPOCH, RACK, read_leader_epoch, read_rack

JSON = "application/json"
NDJSON = "application/x-ndjson"
OFFERED = (JSON, NDJSON, record_batch.MEDIA_TYPE, EVENT_BATCH)
SCHEMA = "schema"  # the form of values that a registry's schemas decode
WILDCARDS = ("", "*/*")  # of an Accept header: the first offered form

OFFSET = re.compile(r"(?:^|(?<=&))offset=([0-9]{1,18})(?=&|$)")  # in a query

Timestamp = Annotated[str | None, Text(64)]
From = Annotated[str | None, Word(("earliest", "latest"))]
ValueForm = Annotated[str | None, Word(("json", "text", "base64"))]
SchemaForm = Annotated[str | None, Word(("json", "text", "base64", SCHEMA))]
Filter = Annotated[tuple[str, ...], Texts()]
Offset = Annotated[int | None, Number(0, 2**63 - 1)]
TopicId = Annotated[str | None, Text(64)]  # of the topic that the offset is of; None: whatever topic has the name


class FetchQuery(Struct, frozen=True):
    """The query of a fetch of one partition."""

    offset: Offset = None
    from_: From = None
    timestamp: Timestamp = None
    max_bytes: Annotated[int | None, Number(1, 2**31 - 1)] = None
    max_records: Annotated[int | None, Number(1, 10_000_000)] = None
    min_bytes: Annotated[int, Number(0, 2**31 - 1)] = 1
    wait_ms: Annotated[int, Number(0, 60_000)] = 0
    value: SchemaForm = None
    ndjson: Annotated[str, Word(("values", "records"))] = "records"
    cloudevents: Annotated[str | None, Word(("binary",))] = None
    filter: Filter = ()
    topic_id: TopicId = None


class FetchRequest(Struct, frozen=True, rename={"from_": "from"}):
    """A fetch of one partition. One of `offset`, `from_` and `timestamp` (milliseconds) is given.

    `leader_epoch` is the newest one that the reader knows, 0 if it knows none. `from_follower`: an in-sync follower may
    answer, below its own high watermark. With `topic_id` no other topic of that name answers. `filters`: only records
    that pass them are in the answer. `may_be_placed`: the owner may answer with the place of the records in a file.
    `hidden`: the beginning of the topic's name that the reader does not see. `by_schema`: values are base64, and
    those of a registry are decoded in the answer. A link carries all but this and `topic_id` as a map by the names of
    the fields, without those that are unset.

    Requests whose queries differ in the offset alone share one: the `offset` of each is that of its query.
    """

    offset: int | None
    from_: str | None
    timestamp: int | None
    max_bytes: int | None
    max_records: int | None
    min_bytes: int
    wait_ms: int
    value: str | None
    ndjson: str
    media_type: str
    if_none_match: str | None = None
    leader_epoch: int = 0
    from_follower: bool = False
    rack: str | None = None
    topic_id: str | UnsetType = UNSET
    filters: tuple[str, ...] | UnsetType = UNSET
    may_be_placed: bool | UnsetType = UNSET
    hidden: str | UnsetType = UNSET
    by_schema: bool | UnsetType = UNSET


def parse(request: Request) -> FetchRequest:
    """Parses a fetch of one partition. Raises Problem invalid_query, unknown_query, invalid_header, not_acceptable."""
    query, headers = read_query(request, FetchQuery), request.headers
    media_type = _media_type(headers.get("Accept", ""), query)
    _check_one_start(query)
    if query.filter:
        check_filter(query.filter)
    if query.value == SCHEMA and (
        media_type not in (JSON, NDJSON) or (media_type == NDJSON and query.ndjson == "values")
    ):
        text = f"value={SCHEMA} goes with {JSON}, and with {NDJSON} of record objects"
        raise Problem("invalid_query", text, parameter="value")
    return FetchRequest(
        query.offset,
        query.from_,
        None if query.timestamp is None else parse_timestamp(query.timestamp),
        query.max_bytes,
        query.max_records,
        query.min_bytes,
        0 if request.method == "HEAD" else query.wait_ms,
        "base64" if query.value == SCHEMA else query.value,
        query.ndjson,
        media_type,
        None if query.value == SCHEMA else headers.get("If-None-Match"),
        read_leader_epoch(request) if LEADER_EPOCH in headers else 0,
        False,
        read_rack(request) if RACK in headers else None,
        UNSET if query.topic_id is None else query.topic_id,
        query.filter or UNSET,
        by_schema=query.value == SCHEMA or UNSET,
    )


def check_filter(conditions: tuple[str, ...]) -> None:
    """Raises Problem invalid_query for conditions of a query that are none."""
    try:
        record_filter(conditions)
    except InvalidCondition as error:
        raise Problem("invalid_query", str(error), parameter="filter") from None


def _media_type(accept: str, query: FetchQuery) -> str:
    """Returns the media type of the answer, or `binary` for a CloudEvent whose data is the body."""
    is_single = query.max_records == 1
    if query.cloudevents is not None:
        if not is_single:
            text = "a CloudEvent in binary mode goes with max_records=1"
            raise Problem("invalid_query", text, parameter="cloudevents")
        return BINARY
    if accept in WILDCARDS:
        return OFFERED[0]
    try:
        return choose_media_type(accept, (*OFFERED, EVENT) if is_single else OFFERED)
    except Problem as problem:
        if problem.code == "not_acceptable" and not is_single:
            problem.detail += f", and {EVENT} with max_records=1"
        raise


def _check_one_start(query: FetchQuery) -> None:
    given = sum(start is not None for start in (query.offset, query.from_, query.timestamp))
    if given != 1:
        text = f"exactly one of offset, from and timestamp is required; the query has {given}"
        raise Problem("invalid_query", text, parameter="offset")
