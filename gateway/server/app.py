"""The application: every route of the contract in one table, and the middleware around each.

Runs unchanged on aiohttp's own server (tests) and behind ours (gateway/server/adapter.py). A test compares this table
with openapi/gateway.yaml.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from engine.errors import EngineError
from gateway.access.hosts import Hosts
from gateway.access.origins import Origins, options
from gateway.admin import cluster_operations, fencing, operations, producers, topics
from gateway.admin.context import ADMIN
from gateway.connections.response_buffers import COUNTED_BYTES
from gateway.fetch import fetch, fetch_many, tail
from gateway.fetch.context import FETCH
from gateway.http.context import ANSWER_HEADERS, HTTP
from gateway.http.problems import Problem, from_engine
from gateway.http.query import partitions_named
from gateway.produce import produce
from gateway.produce.context import PRODUCE
from gateway.server.context import ServerContext
from gateway.server.request_head import CLIENT_ID_HEADER, FORWARD_HEADER, KEY_HEADER, RequestHead, check_common_headers
from gateway.server.request_log import RequestLog

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger("penstock.gateway")

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


async def not_built_yet(request: web.Request) -> web.Response:
    """Rejects an operation of the contract that a later release will have. Raises Problem not_implemented (501)."""
    raise Problem("not_implemented", f"{request.method} {request.path} is planned and not built yet")


PARTITION = "/v1/topics/{topic}/partitions/{partition}"

# Hot routes first: aiohttp tries those with a common prefix in order.
ROUTES: list[tuple[str, str, Handler]] = [
    ("POST", "/v1/topics/{topic}/records", produce.produce),
    ("POST", PARTITION + "/records", produce.produce_to_partition),
    ("POST", "/v1/records", produce.produce_many),
    ("GET", PARTITION + "/records", fetch.fetch),
    ("GET", "/v1/topics/{topic}/records", tail.tail_topic),
    ("GET", PARTITION + "/offsets", fetch.find_offsets),
    ("POST", "/v1/fetch", fetch_many.fetch_many),
    ("GET", "/v1/topics", topics.list_topics),
    ("GET", "/v1/topics/{topic}", topics.describe_topic),
    ("PUT", "/v1/topics/{topic}", topics.create_topic),
    ("PATCH", "/v1/topics/{topic}", topics.alter_topic),
    ("DELETE", "/v1/topics/{topic}", topics.delete_topic),
    ("POST", "/v1/topics/{topic}/roll", topics.roll_topic),
    ("DELETE", PARTITION + "/records", topics.delete_records),
    ("GET", PARTITION + "/fence", fencing.describe_fence),
    ("PUT", PARTITION + "/fence", fencing.set_fence),
    ("GET", "/v1/topics/{topic}/tier", topics.tier_status),
    ("GET", "/v1/cluster", operations.describe_cluster),
    ("GET", "/v1/cluster/reassignments", cluster_operations.list_reassignments),
    ("POST", "/v1/cluster/reassignments", cluster_operations.reassign),
    ("DELETE", "/v1/cluster/reassignments/{topic}/{partition}", cluster_operations.cancel_reassignment),
    ("POST", "/v1/cluster/nodes/{node_id}/drain", cluster_operations.drain_node),
    ("POST", "/v1/cluster/nodes/{node_id}/decommission", cluster_operations.decommission_node),
    ("POST", "/v1/cluster/balance", cluster_operations.balance),
    ("GET", "/healthz", operations.healthz),
    ("GET", "/readyz", operations.readyz),
    ("GET", "/metrics", operations.metrics),
    ("GET", "/openapi.json", operations.openapi_json),
    ("GET", "/docs", operations.docs),
    ("GET", "/", operations.root),
    ("GET", "/v1", operations.links),
    ("POST", "/v1/producers", producers.create_producer),
    ("GET", "/v1/groups", not_built_yet),
    ("GET", "/v1/groups/{group}", not_built_yet),
    ("DELETE", "/v1/groups/{group}", not_built_yet),
    ("POST", "/v1/groups/{group}/heartbeat", not_built_yet),
    ("DELETE", "/v1/groups/{group}/members/{member}", not_built_yet),
    ("GET", "/v1/groups/{group}/members/{member}/records", not_built_yet),
    ("GET", "/v1/groups/{group}/offsets", not_built_yet),
    ("PUT", "/v1/groups/{group}/offsets", not_built_yet),
    ("POST", "/v1/groups/{group}/reset", not_built_yet),
    ("GET", "/v1/topics/{topic}/table", not_built_yet),
    ("GET", "/v1/topics/{topic}/table/{key}", not_built_yet),
]


METHODS = {method for method, _, _ in ROUTES} | {"HEAD"}


def make_app(context: ServerContext) -> web.Application:
    """Returns the application of one process."""
    app = web.Application(
        middlewares=[_Surroundings(context).around], client_max_size=2**40
    )  # RequestBodies has the limits
    app[HTTP], app[PRODUCE], app[FETCH], app[ADMIN] = context.http, context.produce, context.fetch, context.admin
    for method, path, handler in ROUTES:
        app.router.add_route(method, path, handler)
        if method == "GET":  # without its body
            app.router.add_route("HEAD", path, handler)
    return app


class _Surroundings:
    """Surrounds every handler: a request id, the problem document for any failure, and the counters."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._responses = context.responses
        self._ids = itertools.count(1)
        self._head = RequestHead(Hosts(context.settings))
        self._origins = Origins(context.settings)
        self._log = RequestLog(context.settings, context.clock)
        self._id_prefix = f"{context.settings.node_id}.{context.shard}-{context.clock.now_ms():x}"

    @web.middleware
    async def around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        started = time.perf_counter()
        self._context.metrics.requests_under_way.value += 1
        request_id = self._request_id(request)
        answer_headers = request[ANSWER_HEADERS] = {"Penstock-Request-Id": request_id}
        try:
            self._head.check(request)
            if "Origin" in request.headers or self._origins.is_open:
                answer_headers.update(self._origins.answer_headers(request))
            if request.method == "OPTIONS":  # browsers ask without a token
                handler = _options_of(handler)
            elif self._context.access.tokens is not None:
                self._context.access.check(request, _operation(handler))
            headers = request.headers
            if FORWARD_HEADER in headers or CLIENT_ID_HEADER in headers or KEY_HEADER in headers:
                check_common_headers(request)
            if not self._context.topics.is_standalone and "topic" in request.match_info:
                await self._context.topics.look_for(request.match_info["topic"], partitions_named(request))
            response = await handler(request)
            if isinstance(response, web.Response) and (body := response.body) is not None:
                size_bytes: int = len(body)  # type: ignore[arg-type]
                if size_bytes >= COUNTED_BYTES or self._responses.connections:
                    may_refuse = request.method == "GET" and _operation(handler) != "metrics"
                    self._responses.count(request, size_bytes, may_refuse=may_refuse)
        except (Problem, EngineError) as error:
            response = _refusal(request, error, request_id)
        except ConnectionResetError:
            raise  # the client of a stream has left: an answer cannot be sent
        except web.HTTPException as error:
            response = _routing_problem(request, error).response(request_id)
        except Exception:
            log.exception("a handler failed", extra={"request_id": request_id, "operation": _operation(handler)})
            text = "an error in the server; it has been logged under this request_id"
            self._responses.take_back(request)
            response = Problem("internal", text).response(request_id)
        except asyncio.CancelledError:
            self._responses.take_back(request)
            self._log.left(request, _operation(handler), time.perf_counter() - started, request_id)
            raise
        finally:  # runs for a client that has left, too
            self._context.bodies.release(request)
            self._context.metrics.requests_under_way.value -= 1
        seconds = time.perf_counter() - started
        if not response.prepared:  # a prepared one is a stream: it has sent its headers and counted itself
            response.headers.extend(answer_headers)
            self._context.metrics.answered(_operation(handler), response.status, seconds)
        if seconds >= self._log.least_s or response.status >= 500:
            self._log.answered(request, _operation(handler), response, seconds, request_id)
        return response

    def _request_id(self, request: web.Request) -> str:
        given = request.headers.get("X-Request-Id")
        if given is not None and REQUEST_ID.fullmatch(given):
            return given
        return f"{self._id_prefix}-{next(self._ids):x}"


def _options_of(handler: Handler) -> Handler:
    """Answers OPTIONS with the methods of the path. No route takes OPTIONS, so this replaces aiohttp's 404 or 405."""

    async def tell_options(request: web.Request) -> web.StreamResponse:
        if request.path == "*":  # the node as a whole (RFC 9110 9.3.7)
            return options(request, METHODS)
        try:
            return await handler(request)
        except web.HTTPMethodNotAllowed as error:
            return options(request, error.allowed_methods)

    return tell_options


def _operation(handler: Handler) -> str:
    """Returns a bounded name for metrics: the handler's, whatever path was sent."""
    return getattr(handler, "__name__", "unknown")


def _refusal(request: web.Request, error: Problem | EngineError, request_id: str) -> web.Response:
    """A function of its own, so that no name in the caller's frame keeps the error, its traceback and the body."""
    problem = error if isinstance(error, Problem) else from_engine(error)
    return tail.come_back(request, problem) or problem.response(request_id)


def _routing_problem(request: web.Request, error: web.HTTPException) -> Problem:
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return Problem("method_not_allowed", f"{request.path} takes {allowed}", headers={"Allow": allowed})
    return Problem("not_found", f"there is nothing at {request.path}; see /docs")
