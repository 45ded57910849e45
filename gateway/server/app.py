"""The application: every route of the contract as one table, and what surrounds each of them.

Runs unchanged on aiohttp's own server (tests) and on Granian (gateway/server/rsgi.py). A test holds this table and
openapi/gateway.yaml together.
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
from gateway.fetch import fetch, fetch_many, tail
from gateway.fetch.context import FETCH
from gateway.http.context import HTTP
from gateway.http.problems import Problem, from_engine
from gateway.http.query import partitions_named
from gateway.http.response_headers import answer_headers, keep_answer_headers
from gateway.produce import produce, produce_many
from gateway.produce.context import PRODUCE
from gateway.server.context import ServerContext
from gateway.server.request_head import RequestHead, check_common_headers
from gateway.server.request_log import RequestLog

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger("penstock.gateway")

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


async def not_built_yet(request: web.Request) -> web.Response:
    """What stands in the contract for a later release: 501, never silence."""
    raise Problem("not_implemented", f"{request.method} {request.path} is planned and not built yet")


PARTITION = "/v1/topics/{topic}/partitions/{partition}"

# Hot routes first: aiohttp tries those with a common beginning in order.
ROUTES: list[tuple[str, str, Handler]] = [
    ("POST", "/v1/topics/{topic}/records", produce.produce),
    ("POST", PARTITION + "/records", produce.produce_to_partition),
    ("POST", "/v1/records", produce_many.produce_many),
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
    """The application of one process."""
    app = web.Application(
        middlewares=[_Surroundings(context).around], client_max_size=2**40
    )  # read_body has the limits
    app[HTTP], app[PRODUCE], app[FETCH], app[ADMIN] = context.http, context.produce, context.fetch, context.admin
    for method, path, handler in ROUTES:
        app.router.add_route(method, path, handler)
        if method == "GET":  # the same without its body
            app.router.add_route("HEAD", path, handler)
    return app


class _Surroundings:
    """Around every handler: a request id, the problem document for any failure, and the counters."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._unread = context.responses
        self._ids = itertools.count(1)
        self._head = RequestHead(Hosts(context.settings))
        self._origins = Origins(context.settings)
        self._log = RequestLog(context.settings, context.clock)
        self._id_prefix = f"{context.settings.node_id}.{context.shard}-{context.clock.now_ms():x}"

    @web.middleware
    async def around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        started = time.perf_counter()
        self._context.metrics.requests_under_way.inc()
        request_id = self._request_id(request)
        keep_answer_headers(request, {"Penstock-Request-Id": request_id})
        try:
            self._head.check(request)
            if "Origin" in request.headers or self._origins.is_open:
                answer_headers(request).update(self._origins.answer_headers(request))
            if request.method == "OPTIONS":  # browsers ask without a token
                handler = _options_of(handler)
            elif self._context.access.tokens is not None:
                self._context.access.check(request, _operation(handler))
            check_common_headers(request)
            if not self._context.topics.is_standalone and "topic" in request.match_info:
                await self._context.topics.look_for(request.match_info["topic"], partitions_named(request))
            response = await handler(request)
            if isinstance(response, web.Response) and (body := response.body) is not None:
                may_refuse = request.method == "GET" and _operation(handler) != "metrics"
                self._unread.count(request, len(body), may_refuse=may_refuse)  # type: ignore[arg-type]
        except (Problem, EngineError) as error:
            response = _refusal(request, error, request_id)
        except ConnectionResetError:
            raise  # the client of a stream has left: nobody is there to be answered
        except web.HTTPException as error:
            response = _routing_problem(request, error).response(request_id)
        except Exception:
            log.exception("a handler failed", extra={"request_id": request_id, "operation": _operation(handler)})
            text = "an error in the server; it has been logged under this request_id"
            self._unread.take_back(request)
            response = Problem("internal", text).response(request_id)
        except asyncio.CancelledError:
            self._unread.take_back(request)
            self._log.left(request, _operation(handler), time.perf_counter() - started, request_id)
            raise
        finally:  # of a client that has left too
            self._context.in_flight.release(request)
            self._context.metrics.requests_under_way.dec()
        seconds = time.perf_counter() - started
        if not response.prepared:  # else it is a stream, which has sent its headers and counted itself
            response.headers.extend(answer_headers(request))
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
    """No route takes OPTIONS, so the handler can only tell which methods the path does take, or that there is none."""

    async def tell_options(request: web.Request) -> web.StreamResponse:
        if request.path == "*":  # the node as a whole (RFC 9110 9.3.7)
            return options(request, METHODS)
        try:
            return await handler(request)
        except web.HTTPMethodNotAllowed as error:
            return options(request, error.allowed_methods)

    return tell_options


def _operation(handler: Handler) -> str:
    """A bounded name for metrics: the handler's, whatever path was sent."""
    return getattr(handler, "__name__", "unknown")


def _refusal(request: web.Request, error: Problem | EngineError, request_id: str) -> web.Response:
    """Apart, so that no name in the caller's frame keeps the error, its traceback and so a refused body alive."""
    problem = error if isinstance(error, Problem) else from_engine(error)
    return tail.come_back(request, problem) or problem.response(request_id)


def _routing_problem(request: web.Request, error: web.HTTPException) -> Problem:
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return Problem("method_not_allowed", f"{request.path} takes {allowed}", headers={"Allow": allowed})
    return Problem("not_found", f"there is nothing at {request.path}; see /docs")
