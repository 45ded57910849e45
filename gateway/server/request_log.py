"""Logs a line for a request: for every one if that is switched on, otherwise for slow ones and failures of the node.

Decides which requests are logged and what the line contains; node/setup/logs.py writes it. Never a payload, a key, a
query value or a token: the path is the template of its route, the topic appears only if it exists. Switched off, it
costs one comparison a request.
"""

from __future__ import annotations

import logging
from math import inf

from engine.runtime.clock import Clock
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.rights import ANONYMOUS
from gateway.routing.partitions import Topics
from gateway.settings import NodeSettings

log = logging.getLogger("penstock.requests")

NOT_IMPLEMENTED = 501  # the request asks for what no node or this node does not have, which is not a failure of it
FAILURES_EACH_S = 1.0  # limits the time that a node spends on logging its errors
READINESS = "readyz"  # its 503 is the answer that a probe asks for; a start and an end have lines of their own
WAITING = ("fetch_many", "rest_read_records")  # they wait for data by design, which is not slow; streams too


class RequestLog:
    """The log of one process's requests."""

    def __init__(self, settings: NodeSettings, clock: Clock, topics: Topics) -> None:
        self._is_on = settings.request_log
        self._slow_s = settings.slow_request_ms / 1000 or inf
        self._clock = clock
        self._topics = topics
        self._silent_until: dict[str, float] = {}
        self._silenced: dict[str, int] = {}
        self.least_s = 0.0 if self._is_on else self._slow_s  # `log_answer` is called from this duration on, and for 5xx

    def log_answer(self, request: Request, response: Response, seconds: float) -> None:
        """Write the line, if this request is to be logged."""
        code, operation = response.problem, request.route.operation
        is_waiting = response.is_streamed or _waits_by_request(request)
        is_slow = seconds >= self._slow_s and not is_waiting
        is_failure = response.status >= 500 and response.status != NOT_IMPLEMENTED and operation != READINESS
        silenced = 0
        if is_failure and not self._is_on:
            is_due, silenced = self._due(code or operation)
            is_failure = is_due
        if not (self._is_on or is_slow or is_failure):
            return
        fields = self._fields(request, seconds)
        # the size of an answer in pieces is not known yet
        fields |= {"status": response.status, "bytes_out": None if response.rest is not None else response.size_bytes}
        if code is not None:
            fields["code"] = code
        if silenced:
            fields["silenced"] = silenced
        level = logging.WARNING if is_slow or is_failure else logging.INFO
        log.log(level, "slow request" if is_slow else "request failed" if is_failure else "request", extra=fields)

    def log_disconnect(self, request: Request, seconds: float) -> None:
        """Record a client that disconnected before its answer."""
        if self._is_on:
            log.info("client disconnected", extra=self._fields(request, seconds))

    def _fields(self, request: Request, seconds: float) -> dict[str, object]:
        fields: dict[str, object] = {
            "request_id": request.id,
            "method": request.method,
            "route": request.route.path or None,
            "operation": request.route.operation,
            "duration_ms": round(seconds * 1000, 3),
            "bytes_in": request.content_length,
            "client_id": request.headers.get("Penstock-Client-Id"),
        }
        if request.span is not None:
            fields |= request.span.log_fields()
        if request.caller is not ANONYMOUS:
            fields["caller"] = request.caller.principal
        if (topic := request.names.get("topic")) is not None and self._topics.get(topic) is not None:
            fields["topic"] = topic
        return fields

    def _due(self, kind: str) -> tuple[bool, int]:
        """Return whether a failure of this kind may be logged now, and the number suppressed since the last one."""
        now = self._clock.monotonic()
        if now < self._silent_until.get(kind, 0.0):
            self._silenced[kind] = self._silenced.get(kind, 0) + 1
            return False, 0
        self._silent_until[kind] = now + FAILURES_EACH_S
        return True, self._silenced.pop(kind, 0)


def _waits_by_request(request: Request) -> bool:
    return request.route.operation in WAITING or "wait_ms=" in request.query
