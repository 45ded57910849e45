"""`GET /v1/topics`: the topics that a caller may read, in pages, with a summary of each on request."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Annotated

from msgspec import structs

from engine.directory.topics import TopicRecord
from engine.format.paths import INTERNAL_TOPICS
from gateway.access.access import limits_of
from gateway.http.documents import answer_document
from gateway.http.page import LIMIT_MAX, PageQuery, cut, select
from gateway.http.query import Word, read_query
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.rights import Operation
from gateway.status.calls import TopicsAsked, gather, numbers_of
from gateway.status.context import StatusContext
from gateway.status.overview import sees_group
from gateway.status.rates import TopicNumbers
from replication.cluster.view import ClusterView
from replication.cores.partition_state import VersionedState

NAME = "name"
SORTS = ("records_in_per_s", "bytes_in_per_s", "log_bytes", "tier_lag_s", "lag_records", "lag_s")


class TopicsQuery(PageQuery, frozen=True):
    """`include`: the rates, sizes and lags of each topic."""

    sort: Annotated[str, Word((NAME, *SORTS))] = NAME
    include: Annotated[str | None, Word(("summary",))] = None


async def list_topics(request: Request, context: StatusContext) -> Response:
    """GET /v1/topics. Raises Problem invalid_query."""
    query, caller, space = read_query(request, TopicsQuery), request.caller, request.space
    readable = (
        topic.record
        for topic in context.admin.topics.all()
        if (name := topic.record.name) not in INTERNAL_TOPICS and caller.allows(Operation.READ, name)
    )
    records = select(query, readable, _name, space)
    numbers: dict[str, TopicNumbers] = {}
    missing: list[int] = []
    if query.include is not None or query.sort != NAME:
        numbers, missing = await _gather_numbers(context, [record.name for record in records])
        for row in numbers.values():
            if row.lag_group is not None and not sees_group(caller, row.lag_group):
                row.lag_group, row.lag_records, row.lag_s = None, 0, 0.0
    number_of = None if query.sort == NAME else partial(_number, numbers, query.sort)
    limit = None if query.include is None else LIMIT_MAX
    page, members = cut(query, records, _name, space, number_of=number_of, limit=limit)
    view = context.admin.peers.cluster
    topics = [_row(record, view, numbers.get(record.name) if query.include is not None else None) for record in page]
    document = {"topics": topics} | members | limits_of(caller, Operation.READ)
    if query.include is not None:
        document["totals"] = _totals(numbers.values())
        document["nodes_missing"] = [] if space is not None else missing
    return await answer_document(request, document, is_polled=True)


async def _gather_numbers(context: StatusContext, names: list[str]) -> tuple[dict[str, TopicNumbers], list[int]]:
    """Returns the numbers of these topics over all processes, and the nodes that have not answered."""
    own = await numbers_of(context.observer, names)
    asked = TopicsAsked(names)
    gathered = await gather(context.admin.peers, "topic_numbers", asked, own, dict[str, TopicNumbers])
    merged = gathered.own
    for part in (*gathered.of_node, *gathered.of_others):
        for name, row in part.items():
            if name in merged:
                merged[name].add(row)
            else:
                merged[name] = row
    return merged, gathered.missing


def _row(record: TopicRecord, view: ClusterView, numbers: TopicNumbers | None) -> dict[str, object]:
    row: dict[str, object] = {
        "topic": record.name,
        "topic_id": record.topic_id,
        "partitions": record.partitions,
        "replication_factor": record.replication_factor,
    }
    if numbers is None:
        return row
    led = [number for number in range(record.partitions) if view.leader(record.topic_id, number) is not None]
    in_sync = sum(_is_in_sync(view.states.get((record.topic_id, number))) for number in led)
    return row | {"in_sync_partitions": in_sync, "led_partitions": len(led), **structs.asdict(numbers)}


def _is_in_sync(versioned: VersionedState | None) -> bool:
    """Returns whether all replicas of a partition that has a leader are in sync. Without a state it has one replica."""
    return versioned is None or len(versioned.state.in_sync) >= versioned.state.counted_replicas


def _totals(rows: Collection[TopicNumbers]) -> dict[str, float]:
    names = ("records_in_per_s", "bytes_in_per_s", "bytes_out_per_s", "log_bytes", "lag_records")
    return {name: sum(getattr(row, name) for row in rows) for name in names}


def _name(record: TopicRecord) -> str:
    return record.name


def _number(numbers: dict[str, TopicNumbers], sort: str, record: TopicRecord) -> float:
    row = numbers.get(record.name)
    return 0.0 if row is None else float(getattr(row, sort))
