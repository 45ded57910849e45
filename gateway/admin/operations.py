"""What a node says of itself: cluster, health, readiness, metrics, the contract and its page."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from aiohttp import web

from gateway.access.access import caller_of
from gateway.access.tokens_file import Right
from gateway.admin.cluster_rows import node_rows, partitions_in_need
from gateway.admin.context import ADMIN, AdminContext
from gateway.admin.peer_calls import metrics_of_all
from gateway.admin.topics import answer
from gateway.docs.page import content_security_policy, render_docs
from gateway.http.problems import Problem
from gateway.http.query import read_query
from gateway.metrics.metrics import merged
from openapi import contract_json, load_contract

DOCS_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"
)
LINKS = {
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


async def describe_cluster(request: web.Request) -> web.Response:
    """GET /v1/cluster"""
    context = request.app[ADMIN]
    read_query(request, {})
    cluster_id, shards = context.cluster_id, max(1, context.settings.shards)
    if context.peers.nodes is None:
        return answer(_alone(context) | {"cluster_id": cluster_id, "shards": shards})
    view, caller = context.peers.nodes.view, caller_of(request)
    in_need = partitions_in_need(view, lambda name: caller.allows(Right.READ, name))
    nodes = {"nodes": node_rows(view), "controller": view.controller}
    return answer({"cluster_id": cluster_id, **nodes, **in_need, "shards": shards})


def _alone(context: AdminContext) -> dict[str, Any]:
    settings = context.settings
    partitions = sum(topic.record.partitions for topic in context.topics.all())
    this = {
        "node_id": settings.node_id,
        "url": context.peers.url,
        "rack": settings.rack or None,
        "version": version("penstock"),
        "alive": True,
        "leaving": context.lifecycle.is_draining,
        "drained": False,
        "leading": partitions,
        "partitions": partitions,
        "under_replicated": 0,
    }
    return {"nodes": [this], "controller": settings.node_id}


async def healthz(request: web.Request) -> web.Response:
    """GET /healthz: the process answers."""
    read_query(request, {})
    return answer({"status": "ok"})


async def readyz(request: web.Request) -> web.Response:
    """GET /readyz: requests should be sent here."""
    read_query(request, {})
    if request.app[ADMIN].lifecycle.is_draining:
        raise Problem("draining", "the node is stopping")
    if not request.app[ADMIN].lifecycle.is_ready:
        raise Problem("overloaded", "not all shards of the node are ready")
    return answer({"status": "ready"})


async def metrics(request: web.Request) -> web.Response:
    """GET /metrics: of the whole node, whichever shard answers; a label names the shard where there are several."""
    read_query(request, {})
    context = request.app[ADMIN]
    headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    texts = await metrics_of_all(context)
    return web.Response(body=await context.offload.in_thread(lambda: merged(texts)), headers=headers)


async def openapi_json(request: web.Request) -> web.Response:
    """GET /openapi.json"""
    read_query(request, {})
    return web.Response(body=contract_json(), headers={"Content-Type": "application/json"})


async def docs(request: web.Request) -> web.Response:
    """GET /docs: the contract as one page that needs no network."""
    read_query(request, {})
    headers = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": content_security_policy()}
    return web.Response(body=_page(), headers=headers)


async def root(request: web.Request) -> web.Response:
    """GET /: to the page."""
    read_query(request, {})
    return web.Response(status=302, headers={"Location": "/docs"})


async def links(request: web.Request) -> web.Response:
    """GET /v1: where to go on, for a program or a person who has nothing but the address."""
    read_query(request, {})
    return answer(LINKS)


def _page() -> bytes:
    if not _rendered:
        _rendered.append(render_docs(load_contract()).encode())
    return _rendered[0]


_rendered: list[bytes] = []
