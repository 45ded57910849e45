"""Answers what a tenant has used by the hour: the sum of the store's sealed hours and of what processes have in files.

Not here: what is counted (gateway/usage). An hour is final once it is sealed by all processes of all nodes that are
known, so that it does not change any more. Processes are asked before the store: what one of them seals meanwhile is
found there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Struct

from engine.errors import EngineError
from engine.runtime.clock import Clock
from gateway.access.access import Access
from gateway.access.state import unknown_tenant
from gateway.http.problems import Problem
from gateway.http.query import Text, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.http.times import parse_timestamp
from gateway.links.link import Handler, handler
from gateway.links.process_links import Process
from gateway.routing.peers import Peers
from gateway.usage.keeper import SEAL_AFTER_MS, Counted, CountedHere, UsageKeeper
from gateway.usage.meters import HOUR_MS, Usage, hour_of, total_of

HOURS_MAX = 31 * 24  # of one request: it reads an object of the store for each hour and process
HOURS_DEFAULT = 24
CALL_S = 5.0


@dataclass(frozen=True, slots=True)
class UsageContext:
    """The dependencies of the routes of usage."""

    keeper: UsageKeeper
    access: Access
    peers: Peers
    clock: Clock


class UsageQuery(Struct, frozen=True):
    from_: Annotated[str, Text(40)] = ""
    to: Annotated[str, Text(40)] = ""


class UsageCall(Struct, array_like=True, frozen=True):
    """Asks a process what it has counted for a tenant, in the hours from `first` to `last`."""

    tenant: str
    first: int
    last: int


class _Collected(NamedTuple):
    """The counts of the store and of all processes that have answered, and the nodes of the others."""

    counted: list[Counted]
    open_hours: set[int]
    missing_nodes: set[int]
    unreadable: int


async def describe_usage(request: Request, context: UsageContext) -> Response:
    """GET /v1/tenants/{tenant}/usage. Raises Problem, EngineError."""
    name, now_ms = request.names["tenant"], context.clock.now_ms()
    call = _call_of(name, read_query(request, UsageQuery), now_ms)
    tenant = context.access.snapshot.tenants.get(name)
    if request.space is not None and tenant is not None:  # not that of a removed tenant which had its id
        call = UsageCall(name, max(call.first, hour_of(tenant.created_ms)), call.last)
    collected = await _collect(context, call)
    by_hour = _by_hour(collected.counted)
    if tenant is None and not by_hour:
        raise unknown_tenant(name)
    final_until = _final_until(call, collected, now_ms)
    cluster_id = context.keeper.counting.identity.cluster_id
    document: dict[str, object] = {
        "tenant": name,
        "from_ms": call.first * HOUR_MS,
        "to_ms": (call.last + 1) * HOUR_MS,
        "final_until_ms": final_until * HOUR_MS,
        "complete": not (collected.missing_nodes or collected.unreadable),
        "total": total_of(by_hour.values())._asdict(),
        "hours": [_row(cluster_id, name, hour, by_hour[hour], hour < final_until) for hour in sorted(by_hour)],
    }
    if request.space is None:
        document |= {"missing_nodes": sorted(collected.missing_nodes), "unreadable_files": collected.unreadable}
    return json_response(document)


def usage_handlers(keeper: UsageKeeper) -> dict[str, Handler]:
    """Returns the handler of another process's question what this one has counted."""

    async def usage(call: UsageCall, _: bytes) -> tuple[CountedHere, bytes]:
        return await keeper.counted_here(call.tenant, call.first, call.last), b""

    return {"usage": handler(UsageCall, usage)}


def _call_of(tenant: str, query: UsageQuery, now_ms: int) -> UsageCall:
    """Returns the whole hours that a query is about. Raises Problem invalid_query."""
    to_ms = parse_timestamp(query.to, "to") if query.to else now_ms
    end = -(-to_ms // HOUR_MS)
    first = hour_of(parse_timestamp(query.from_, "from")) if query.from_ else max(0, end - HOURS_DEFAULT)
    if end <= first:
        raise Problem("invalid_query", "from is not before to", parameter="from")
    if end - first > HOURS_MAX:
        raise Problem("invalid_query", f"from and to are more than {HOURS_MAX} hours apart", parameter="from")
    return UsageCall(tenant, first, end - 1)


async def _collect(context: UsageContext, call: UsageCall) -> _Collected:
    """Asks all processes of all nodes, and then the store. Raises EngineError of the store."""
    peers, view = context.peers, context.peers.cluster
    others = [node for node_id, node in view.nodes.items() if node_id != peers.node_id]
    processes: list[Process] = [(None, shard) for shard in range(peers.count) if shard != peers.index]
    processes += [(node.node_id, shard) for node in others for shard in range(len(node.internal_urls))]
    parts = await asyncio.gather(
        context.keeper.counted_here(call.tenant, call.first, call.last),
        *(_ask(context, process, call) for process in processes),
    )
    sealed = await context.keeper.sealed(call.tenant, call.first, call.last)
    hosting = {node_id for versioned in view.states.values() for node_id in versioned.state.replicas}
    missing = hosting - view.nodes.keys() - {peers.node_id}
    for process, part in zip(processes, parts[1:], strict=True):
        if part is None:
            missing.add(peers.node_id if process[0] is None else process[0])
    answered = [*(part for part in parts if part is not None), sealed]
    return _Collected(
        [counted for part in answered for counted in part.counted],
        {hour for part in answered for hour in part.open_hours},
        missing,
        sum(part.unreadable for part in answered),
    )


async def _ask(context: UsageContext, process: Process, call: UsageCall) -> CountedHere | None:
    """Returns what a process has counted; None if it does not answer, or is of a version without this call."""
    try:
        answer, _ = await context.peers.links.link(process).call("usage", call, timeout_s=CALL_S)
    except EngineError:
        return None
    return msgspec.convert(answer, CountedHere)


def _by_hour(counted: Iterable[Counted]) -> dict[int, Usage]:
    """Returns the sums by hour. A file that is sealed at this moment is there twice, with one id."""
    distinct = {one.id: one for one in counted if one.id}
    unsaved = [one for one in counted if not one.id]
    found: dict[int, list[Usage]] = {}
    for one in (*distinct.values(), *unsaved):
        found.setdefault(one.hour, []).append(one.usage)
    return {hour: total_of(usages) for hour, usages in found.items()}


def _final_until(call: UsageCall, collected: _Collected, now_ms: int) -> int:
    """Returns the first hour of the query, or the one behind it, whose counts may still change."""
    if collected.missing_nodes or collected.unreadable:
        return call.first
    sealing = hour_of(now_ms - SEAL_AFTER_MS)  # it is over for less than that, or not at all
    return min([hour for hour in collected.open_hours if hour >= call.first] + [sealing, call.last + 1])


def _row(cluster_id: str, tenant: str, hour: int, usage: Usage, final: bool) -> dict[str, object]:
    return {"hour_ms": hour * HOUR_MS, "id": f"{cluster_id}/{tenant}/{hour}", "final": final, **usage._asdict()}
