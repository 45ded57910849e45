"""`GET /v1/history`: the last hour of the cluster, a node, a topic or a group, from the memory of the processes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from gateway.access.access import forbidden
from gateway.http.documents import answer_document
from gateway.http.problems import Problem
from gateway.http.query import Number, Text, read_query
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.rights import Operation, Resource
from gateway.status.calls import HistoryAsked, HistoryPart, gather, history_of
from gateway.status.context import StatusContext
from gateway.status.history import SAMPLES, STEP_MS, merge
from gateway.status.overview import sees_cluster
from gateway.status.series import GROUP, MEANINGS, NODE, TOPIC


class HistoryQuery(Struct, frozen=True):
    """`since_ms`: the age of the oldest sample in milliseconds. Without `topic` and `group`: series of the nodes."""

    names: Annotated[str, Text(1000)] = ""
    topic: Annotated[str, Text(249)] = ""
    group: Annotated[str, Text(200)] = ""
    node_id: Annotated[int | None, Number(0, 2**31 - 1)] = None
    since_ms: Annotated[int, Number(STEP_MS, SAMPLES * STEP_MS)] = SAMPLES * STEP_MS


async def read_history(request: Request, context: StatusContext) -> Response:
    """GET /v1/history. Raises Problem invalid_query, forbidden."""
    query, peers = read_query(request, HistoryQuery), context.admin.peers
    kind, name = _of(request, query)
    meanings = MEANINGS[kind]
    names = [word for word in query.names.split(",") if word] or list(meanings)
    unknown = [word for word in names if word not in meanings]
    if unknown:
        text = f"names has {unknown[0]!r}; of a {kind} there are {', '.join(meanings)}"
        raise Problem("invalid_query", text, parameter="names")
    asked = HistoryAsked(kind, name, names, query.since_ms // STEP_MS)
    own = history_of(context.observer, asked)
    gathered = await gather(peers, "history", asked, own, HistoryPart)
    parts, missing = gathered.all, gathered.missing
    if query.node_id is not None:
        missing = [node_id for node_id in missing if node_id == query.node_id]
        parts = [part for part in parts if part.node_id == query.node_id]
    now_ms = context.observer.now_ms()
    observed_ms = max((part.samples for part in parts), default=0) * STEP_MS
    series = []
    for word in names:
        values = [part.series[word] for part in parts if word in part.series]
        meaning = meanings[word]
        merged = merge(values, meaning.merge) if values else []
        series.append({"name": word, "unit": meaning.unit, "text": meaning.text, "values": merged})
    document: dict[str, object] = {
        "step_ms": STEP_MS,
        "end_ms": now_ms // STEP_MS * STEP_MS,
        "since_ms": (now_ms - observed_ms) // STEP_MS * STEP_MS,
        "topic": name if kind == TOPIC else None,
        "group": name if kind == GROUP else None,
        "nodes_missing": missing if request.space is None else [],
        "series": series,
    }
    return await answer_document(request, document, is_polled=True)


def _of(request: Request, query: HistoryQuery) -> tuple[str, str]:
    """Returns the kind and the stored name of what the series are about. Raises Problem."""
    caller, space = request.caller, request.space
    if query.topic and query.group:
        raise Problem("invalid_query", "topic and group are both given; give one of them", parameter="group")
    if query.topic:
        name = query.topic if space is None else space.stored(query.topic)
        if not caller.allows(Operation.READ, name):
            raise forbidden(caller, Operation.READ, name)
        return TOPIC, name
    if query.group:
        name = query.group if space is None else space.prefix + query.group
        if not caller.allows(Operation.DESCRIBE, name, Resource.GROUP):
            raise forbidden(caller, Operation.DESCRIBE, name, Resource.GROUP)
        return GROUP, name
    if not sees_cluster(caller):
        raise forbidden(caller, Operation.DESCRIBE, "", Resource.CLUSTER)
    return NODE, ""
