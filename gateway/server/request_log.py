"""Logs a line for a request: for every one if that is switched on, otherwise for slow ones and failures of the node.

Decides which requests are logged and what the line contains; node/setup/logs.py writes it. Never a payload, a key, a
query value or a token: the path is the template of its route, the topic appears only if it exists. Switched off, it
costs one comparison a request.
"""

from __future__ import annotations

import logging
from math import inf

import orjson
from aiohttp import web

from engine.runtime.clock import Clock
from gateway.access.access import ANONYMOUS, caller_of
from gateway.fetch.context import FETCH
from gateway.http.messages import HttpRequest, HttpResponse, Request
from gateway.http.problems import MEDIA_TYPE
from gateway.settings import NodeSettings

Response = web.StreamResponse | HttpResponse

log = logging.getLogger("penstock.requests")

NOT_IMPLEMENTED = 501  # the request asks for what no node or this node does not have, which is not a failure of it
FAILURES_EACH_S = 1.0  # limits the time that a node spends on logging its errors
WAITING = ("fetch_many",)  # they wait for data by design, which is not slow; streams too


class RequestLog:
    """The log of one process's requests."""

    def __init__(self, settings: NodeSettings, clock: Clock) -> None:
        self._is_on = settings.request_log
        self._slow_s = settings.slow_request_ms / 1000 or inf
        self._clock = clock
        self._silent_until: dict[str, float] = {}
        self._silenced: dict[str, int] = {}
        self.least_s = 0.0 if self._is_on else self._slow_s  # `answered` is called from this duration on, and for 5xx

    def answered(
        self,
        request: Request,
        operation: str,
        response: Response,
        seconds: float,
        request_id: str,
    ) -> None:
        """Write the line, if this request is to be logged."""
        code = _problem_code(response)
        is_waiting = response.prepared or _waits_by_request(request, operation)  # prepared: a live tail
        is_slow = seconds >= self._slow_s and not is_waiting
        is_failure = response.status >= 500 and response.status != NOT_IMPLEMENTED
        silenced = 0
        if is_failure and not self._is_on:
            is_due, silenced = self._due(code or operation)
            is_failure = is_due
        if not (self._is_on or is_slow or is_failure):
            return
        fields = _fields(request, operation, seconds, request_id)
        fields |= {"status": response.status, "bytes_out": _size(response)}
        if code is not None:
            fields["code"] = code
        if silenced:
            fields["silenced"] = silenced
        level = logging.WARNING if is_slow or is_failure else logging.INFO
        log.log(level, "slow request" if is_slow else "request failed" if is_failure else "request", extra=fields)

    def disconnected(self, request: Request, operation: str, seconds: float, request_id: str) -> None:
        """Record a client that disconnected before its answer."""
        if self._is_on:
            log.info("client disconnected", extra=_fields(request, operation, seconds, request_id))

    def _due(self, kind: str) -> tuple[bool, int]:
        """Return whether a failure of this kind may be logged now, and the number suppressed since the last one."""
        now = self._clock.monotonic()
        if now < self._silent_until.get(kind, 0.0):
            self._silenced[kind] = self._silenced.get(kind, 0) + 1
            return False, 0
        self._silent_until[kind] = now + FAILURES_EACH_S
        return True, self._silenced.pop(kind, 0)


def _fields(request: Request, operation: str, seconds: float, request_id: str) -> dict[str, object]:
    match = request.match_info
    route: str | None
    if isinstance(request, HttpRequest):
        route = request.route
    else:
        resource = request.match_info.route.resource
        route = None if resource is None else resource.canonical
    fields: dict[str, object] = {
        "request_id": request_id,
        "method": request.method,
        "route": route,
        "operation": operation,
        "duration_ms": round(seconds * 1000, 3),
        "bytes_in": request.content_length,
        "client_id": request.headers.get("Penstock-Client-Id"),
    }
    if (caller := caller_of(request)) is not ANONYMOUS:
        fields["caller"] = caller.name
    if (topic := match.get("topic")) is not None and request.app[FETCH].topics.get(topic) is not None:
        fields["topic"] = topic
    return fields


def _waits_by_request(request: Request, operation: str) -> bool:
    return operation in WAITING or "wait_ms=" in request.query_string


def _problem_code(response: Response) -> str | None:
    if not isinstance(response, web.Response) or response.content_type != MEDIA_TYPE:
        return None
    assert isinstance(response.body, bytes)
    code = orjson.loads(response.body)["code"]
    assert isinstance(code, str)
    return code


def _size(response: Response) -> int | None:
    if isinstance(response, HttpResponse) and response.rest is not None:
        return None  # it is not known yet
    if isinstance(response, HttpResponse):
        return response.size_bytes
    body = response.body if isinstance(response, web.Response) else None
    return len(body) if isinstance(body, (bytes, bytearray)) else 0 if body is None else None
