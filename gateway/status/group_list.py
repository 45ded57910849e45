"""`GET /v1/groups`: the groups that a caller may describe, with what they lack of the topics that it may describe."""

from __future__ import annotations

from typing import Annotated

from gateway.access.access import forbidden, limits_of
from gateway.groups.hosting.lags import LAG_ROWS_MAX
from gateway.groups.model.settings import PUSH_PREFIX
from gateway.groups.model.values import GroupRow
from gateway.groups.visible_topics import VisibleTopics
from gateway.http.documents import answer_document
from gateway.http.page import PageQuery, page_of
from gateway.http.query import Text, Word, read_query
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.rights import Operation, Resource
from gateway.status.calls import gather
from gateway.status.context import StatusContext
from gateway.status.history import STEP_MS, TREND_STEPS

Lag = tuple[int | None, float | None]


class GroupsQuery(PageQuery, frozen=True):
    """`topic`: only the groups with a position in it, and what they lack of it."""

    topic: Annotated[str, Text(249)] = ""
    include: Annotated[str | None, Word(("trend",))] = None


async def list_groups(request: Request, context: StatusContext) -> Response:
    """GET /v1/groups. Raises Problem invalid_query, forbidden."""
    query, caller, space = read_query(request, GroupsQuery), request.caller, request.space
    visible = VisibleTopics(caller)
    topic = query.topic if space is None or not query.topic else space.stored(query.topic)
    if topic and not visible.has(topic):
        raise forbidden(caller, Operation.DESCRIBE, topic)
    listed = (
        row
        for row in await context.coordinators.list()
        if not row.group.startswith(PUSH_PREFIX)
        and caller.allows(Operation.DESCRIBE, row.group, Resource.GROUP)
        and (not topic or any(lag.topic == topic for lag in row.lags or ()))
    )
    rows, members = page_of(query, listed, _name, space)
    trends: dict[str, list[float]] = {}
    if query.include is not None:
        own = context.observer.lag_trends()
        gathered = await gather(context.admin.peers, "lag_trends", None, own, dict[str, list[float]])
        for part in gathered.all:
            trends |= part
    groups = []
    for row in rows:
        records, seconds = lag_of(row, visible, topic)
        shown = {"group": row.group, "kind": row.kind, "state": row.state, "members": row.members}
        shown |= {"lag_records": records, "lag_s": seconds}
        if query.include is not None:
            shown["lag_trend_s"] = [] if visible.limits else trends.get(row.group, [])
        groups.append(shown)
    document = {"groups": groups} | members | limits_of(caller, Operation.DESCRIBE, Resource.GROUP)
    if query.include is not None:
        document["lag_trend_step_ms"] = TREND_STEPS * STEP_MS
    return await answer_document(request, document, is_polled=True)


def lag_of(row: GroupRow, visible: VisibleTopics, topic: str) -> Lag:
    """Returns the records and the seconds that a group lacks of a topic, or of all that the caller may describe.

    None: it is not measured, or the line has not all topics of the group, and the caller may describe some of them.
    """
    if row.lags is None:
        return None, None
    if not topic and not visible.limits:
        return row.lag_records, row.lag_s
    lags = [lag for lag in row.lags if (lag.topic == topic if topic else visible.has(lag.topic))]
    if not topic and len(row.lags) == LAG_ROWS_MAX:
        return None, None
    return sum(lag.records for lag in lags), max((lag.seconds for lag in lags), default=0.0)


def _name(row: GroupRow) -> str:
    return row.group
