"""Describes a node: cluster, health, readiness, metrics, the contract and its page."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from math import inf
from typing import Annotated, Any

from msgspec import Struct

from engine.settings import DAY_MS
from gateway.admin.cluster_rows import node_rows, unhealthy_partitions
from gateway.admin.context import AdminContext
from gateway.admin.peer_calls import collect_metrics
from gateway.admin.restart import restart_reasons
from gateway.assets.files import build_name
from gateway.assets.packed import Packed
from gateway.console.page import KEPT_FOREVER, console_file, shell
from gateway.http.caching import NO_STORE, is_not_modified
from gateway.http.content_encoding import choose_encoding
from gateway.http.negotiation import prefers
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, Number, Word, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.http.rights import Operation
from gateway.metrics.metrics import OPEN_TYPE, TEXT_TYPE, merge_pages
from openapi import contract_json
from replication.cluster.values import LEVEL_MAX

SEARCH_INDEX = "search.json"
PLAIN, OPENMETRICS = "text/plain", "application/openmetrics-text"
LINKS = {
    "console": "/",
    "topics": "/v1/topics",
    "produce": "/v1/topics/{topic}/records",
    "fetch": "/v1/topics/{topic}/partitions/{partition}/records",
    "cluster": "/v1/cluster",
    "metrics": "/metrics",
    "health": "/healthz",
    "readiness": "/readyz",
    "contract": "/openapi.json",
    "documentation": "/docs",
}


async def describe_cluster(request: Request, context: AdminContext) -> Response:
    """GET /v1/cluster"""
    read_query(request, NoQuery)
    cluster_id, shards = context.cluster_id, max(1, context.settings.shards)
    view, caller = context.peers.cluster, request.caller
    facts = {"cluster_id": cluster_id, "feature_level": view.feature_level, "shards": shards}
    if not view.has_elections:
        return _cluster_as_seen(request, _single_node(context) | facts)
    unhealthy = unhealthy_partitions(view, lambda name: caller.allows(Operation.READ, name))
    replicas = context.replicas
    is_silent, age_s = not replicas.has_contact, replicas.store_age_s
    rows = node_rows(view, context.settings.node_id if is_silent else None)
    nodes = {"nodes": rows, "controller": None if is_silent else view.controller}
    age_ms = None if age_s is None or age_s == inf else round(age_s * 1000)
    coordination = {} if age_s is None else {"coordination": {"age_ms": age_ms, "silent": is_silent}}
    return _cluster_as_seen(request, {**facts, **nodes, **unhealthy, **coordination})


def _cluster_as_seen(request: Request, document: dict[str, Any]) -> Response:
    """Returns the description of the cluster; inside of a tenant it is the addresses of the nodes, and nothing else."""
    if request.space is not None:
        document = {"nodes": [{"url": row["url"]} for row in document["nodes"] if row["url"] is not None]}
    return json_response(document)


def _single_node(context: AdminContext) -> dict[str, Any]:
    settings = context.settings
    partitions = sum(topic.record.partitions for topic in context.topics.all())
    this = {
        "node_id": settings.node_id,
        "url": context.peers.url,
        "rack": settings.rack or None,
        "version": version("penstock-server"),
        "feature_level_max": LEVEL_MAX,
        "alive": True,
        "stale": False,
        "leaving": context.lifecycle.is_draining,
        "drained": False,
        "leading": partitions,
        "partitions": partitions,
        "under_replicated": 0,
    }
    return {"nodes": [this], "controller": settings.node_id}


async def healthz(request: Request, context: AdminContext) -> Response:
    """GET /healthz: the process answers."""
    read_query(request, NoQuery)
    return json_response({"status": "ok"})


class ReadyQuery(Struct, frozen=True):
    for_: Annotated[str, Word(("traffic", "restart"))] = "traffic"
    within_ms: Annotated[int | None, Number(0, DAY_MS)] = None


async def readyz(request: Request, context: AdminContext) -> Response:
    """GET /readyz: requests should be sent here, or the next node may be restarted. Raises Problem if not."""
    query = read_query(request, ReadyQuery)
    if context.lifecycle.is_draining:
        raise Problem("draining", "the node is stopping")
    if not context.lifecycle.is_ready:
        raise Problem("overloaded", "not all shards of the node are ready")
    replicas, ready_s = context.replicas, context.lifecycle.ready_s(asyncio.get_running_loop().time())
    is_for_restart = query.for_ == "restart" and (query.within_ms is None or ready_s * 1000 < query.within_ms)
    if is_for_restart and restart_reasons(
        context.peers.cluster, context.peers.node_id, is_silent=not replicas.has_contact
    ):
        raise Problem("overloaded", "a replica is not in sync: GET /v1/cluster/nodes/{node_id}/may-restart names it")
    if replicas.has_contact:
        return json_response({"status": "ready"})
    age_s = replicas.store_age_s
    since = "" if age_s is None or age_s == inf else f" for {age_s:.0f} s"
    detail = f"the coordination store has not confirmed this node{since}: it cannot elect leaders or change topics"
    return json_response({"status": "degraded", "detail": detail})


async def metrics(request: Request, context: AdminContext) -> Response:
    """GET /metrics of the whole node, whichever shard answers. If there are several shards, a label names the shard."""
    read_query(request, NoQuery)
    is_open = prefers(request.headers.get("Accept", ""), OPENMETRICS, (PLAIN,))
    headers = {"Content-Type": OPEN_TYPE if is_open else TEXT_TYPE, "Vary": "Accept"}
    texts = await collect_metrics(context, is_open=is_open)
    return Response(body=await context.offload.in_thread(lambda: merge_pages(texts)), headers=headers)


async def openapi_json(request: Request, context: AdminContext) -> Response:
    """GET /openapi.json"""
    read_query(request, NoQuery)
    return Response(body=contract_json(), headers={"Content-Type": "application/json"})


async def docs(request: Request, context: AdminContext) -> Response:
    """GET /docs: the contract as one page that needs no network. Its examples have the address of this node."""
    read_query(request, NoQuery)
    address = _client_url(request, context)
    return _send_if_new(request, await context.offload.in_thread(lambda: context.docs.page(address)))


async def docs_guide(request: Request, context: AdminContext) -> Response:
    """GET /docs/{guide}: a guide as a page, or the index of the search. Raises Problem not_found."""
    read_query(request, NoQuery)
    name = request.names["guide"]
    try:
        page = await context.offload.in_thread(lambda: _guide(name))
    except KeyError:
        raise Problem("not_found", f"there is no guide {name:.100}; see /docs/guides") from None
    return _send_if_new(request, page)


def _guide(name: str) -> Packed:
    from gateway.docs.guide_page import guide_page  # with a parser of Markdown, which the start of a node can spare
    from gateway.docs.index import search_index

    return search_index() if name == SEARCH_INDEX else guide_page(name)


async def root(request: Request, context: AdminContext) -> Response:
    """GET /: the console for a browser, which names HTML first; for every other client what /v1 says."""
    read_query(request, NoQuery)
    if "text/html" not in request.headers.get("Accept", ""):
        response = json_response(LINKS)
        response.headers["Vary"] = "Accept"
        return response
    return _send_if_new(request, shell(version("penstock-server")))


async def console_asset(request: Request, context: AdminContext) -> Response:
    """GET /assets/{build}/{file}: a file of the console. Raises Problem not_found.

    While the nodes of a cluster are upgraded, a shell of one may ask another: that has the file of its own build,
    which is right for most, and which no cache may keep.
    """
    read_query(request, NoQuery)
    name = request.names["file"]
    try:
        file = console_file(name)
    except KeyError:
        raise Problem("not_found", f"the console has no file {name:.100}; load its page again") from None
    is_this_build = request.names["build"] == build_name()
    return _send(request, file, {"Cache-Control": KEPT_FOREVER} if is_this_build else NO_STORE)


def _send_if_new(request: Request, page: Packed) -> Response:
    if is_not_modified(request.headers.get("If-None-Match"), page.headers["ETag"]):
        return Response(status=304, headers=dict(page.headers))
    return _send(request, page, {})


def _send(request: Request, file: Packed, headers: dict[str, str]) -> Response:
    encoding = choose_encoding(request.headers.get("Accept-Encoding", ""))
    encoded = {} if encoding is None else {"Content-Encoding": encoding}
    return Response(file.bodies[encoding], {**file.headers, **headers, **encoded})


async def links(request: Request, context: AdminContext) -> Response:
    """GET /v1: links for a program or a person that knows only the address."""
    read_query(request, NoQuery)
    return json_response(LINKS)


def _client_url(request: Request, context: AdminContext) -> str:
    """Returns the address that clients use: `advertised_url`, or the host that this request names."""
    settings = context.settings
    scheme = "https" if request.connection.tls is not None else "http"
    return settings.advertised_url.rstrip("/") or f"{scheme}://{request.headers.get('Host', '')}"
