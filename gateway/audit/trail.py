"""The audit trail as the requests of one process use it: around each change, and after each denial.

A handler that changes something announces it (`Request.intend`) when everything is checked and nothing is done: the
line with who, what, before and after is durable then, or the handler ends with AuditFailed. Its end is a second line,
durable before the answer. A crash between the two leaves the first one, which says what was under way. If the second
one cannot be written, the change was made all the same and is answered as that; the log and a counter have it.
Denials, refused credentials and uses of superusers are reported once a minute, then counted (gateway/audit/repeats.py).
Invariant: a request that changes nothing and is allowed costs nothing here, unless its caller is a superuser.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

from engine.runtime.clock import Clock
from gateway.access.attempts import TooManyAttempts
from gateway.access.proxies import Proxies
from gateway.access.rules import address_of
from gateway.audit.events import Kind, Subject, line
from gateway.audit.repeats import PERIOD_S, Repeats
from gateway.audit.writer import AuditFailed, AuditSink
from gateway.http.problems import Problem
from gateway.http.request import Handled, Request, Route, response_of
from gateway.http.response import Response
from gateway.http.rights import ANONYMOUS, OPEN, Caller, Operation, Resource, Where
from gateway.metrics.metrics import Numbers

log = logging.getLogger("penstock.audit")

# The node writes its line of a start before it has a trail.
_COUNTED: tuple[Kind, ...] = tuple(kind for kind in Kind if kind is not Kind.STARTED)
_DENIALS = {"forbidden": Kind.DENIED, "unauthorized": Kind.REFUSED}
_DECISIONS = {Kind.DENIED: "denied", Kind.REFUSED: "refused", Kind.LIMITED: "limited"}
# Routes whose method changes something, apart from administration: data, positions and members of groups, questions
# that are too long for a query, and signatures, which give no right that their subject lacks.
NO_CHANGES = frozenset({
    *("produce", "produce_to_partition", "produce_many", "create_producer", "fetch_many"),
    *("group_poll", "acquire_records", "acknowledge_records", "group_heartbeat", "leave_group", "commit_group_offsets"),
    *("check_access", "sign_url"),
    *("rest_produce", "rest_produce_record", "rest_produce_batch", "rest_create_instance", "rest_delete_instance"),
    *("rest_subscribe", "rest_unsubscribe", "rest_assign", "rest_seek", "rest_seek_beginning", "rest_seek_end"),
    *("rest_commit",),
})  # fmt: skip

Handler = Callable[[Request, Any], Handled]


class _Report(NamedTuple):
    kind: Kind
    subject: Subject
    rule: str | None


class _Caller(NamedTuple):
    """A caller of one kind of events: its address counts only without a principal."""

    kind: Kind
    principal: str | None
    address: str | None


class Trail:
    """The trail of one process. `source` names its node, `prefix` begins the ids of its events.

    `check` is that of the caller's right, which may have ended while a line was written.
    """

    def __init__(
        self,
        source: str,
        prefix: str,
        clock: Clock,
        sink: AuditSink,
        proxies: Proxies,
        check: Callable[[Request], None],
    ) -> None:
        self._source = source
        self._prefix = prefix
        self._clock = clock
        self._sink = sink
        self._proxies = proxies
        self.check = check
        self._ids = itertools.count(1)
        self._repeats: Repeats[_Report, _Caller] = Repeats()
        self._began_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self.events = dict.fromkeys(_COUNTED, 0)
        self.failures = 0

    def __repr__(self) -> str:
        return f"Trail({self._source}, {self._repeats})"

    def around(self, route: Route) -> Route:
        """Returns a route whose changes are recorded."""
        if route.method == "GET" or route.operation in NO_CHANGES:
            return route

        async def handle(request: Request, context: Any) -> Response:
            request.change = change = _Change(self, request)
            try:
                response = await response_of(route.handler(request, context))
            except asyncio.CancelledError:  # its client has left
                change.leave()
                raise
            except Exception as error:
                await change.end(None, getattr(error, "code", "internal"))
                raise
            await change.end(response, None)
            return response

        return route._replace(handler=handle)

    @asynccontextmanager
    async def auto_creation(self, caller: Caller, name: str) -> AsyncIterator[None]:
        """Records the creation of a topic by a produce, as `around` does. Raises AuditFailed."""
        subject = Subject(
            None if caller is ANONYMOUS else caller.principal,
            getattr(caller, "token_id", "") or None,
            getattr(caller, "tenant", None),
            None,
            "produce",
            Operation.AUTO_CREATE.value,
            Resource.TOPIC.value,
            name,
        )
        rule = caller.decide(Operation.AUTO_CREATE, name).rule
        await self.write(self.line(Kind.INTENDED, subject, decision="allowed", rule=rule, before=None, after={}))
        ended: dict[str, object] = {"outcome": "unknown"}
        try:
            yield
            ended = {"outcome": "done"}
        except Exception as error:
            ended = {"outcome": "failed", "code": getattr(error, "code", "internal")}
            raise
        finally:
            self.post(self.line(Kind.ENDED, subject, **ended))

    def note_failure(self, request: Request, problem: Problem) -> None:
        """Notes the problem of a request if it is a denial."""
        kind = Kind.LIMITED if isinstance(problem, TooManyAttempts) else _DENIALS.get(problem.code)
        if kind is not None:
            rule = problem.members.get("rule")
            subject = _denied_of(self.subject_of(request), problem, kind)
            self.note(kind, subject, rule if isinstance(rule, str) else None, partial(self.request_ids, request))

    def note_superuser(self, request: Request) -> None:
        """Notes a request of a superuser. Changes have lines of their own."""
        route = request.route
        if route.need is not OPEN and (route.method == "GET" or route.operation in NO_CHANGES):
            self.note(Kind.SUPERUSER, self.subject_of(request), "superuser", partial(self.request_ids, request))

    def subject_of(self, request: Request) -> Subject:
        """Returns who does what in a request that has been checked."""
        need, caller = request.route.need, request.caller
        name = request.names.get(need.resource) if need.where is Where.PATH else None
        if name is None and request.names:  # of the cluster: a node, a partition, a rule
            name = "/".join(request.names.values())
        try:
            address = self._proxies.address_of(request)
        except Problem:  # of headers that cannot be read
            address = address_of(request.client)
        return Subject(
            None if caller is ANONYMOUS else caller.principal,
            getattr(caller, "token_id", "") or None,
            getattr(caller, "tenant", None),
            None if address is None else str(address),
            request.route.operation,
            need.operation.value,
            need.resource.value,
            name,
        )

    def close(self) -> None:
        """Reports the counts of this minute."""
        if self._timer is not None:
            self._timer.cancel()
        self._end_period()

    def line(self, kind: Kind, subject: Subject | None, **more: object) -> bytes:
        """Returns a line with the present time."""
        self.events[kind] += 1
        event_id = f"{self._prefix}-{next(self._ids):x}"
        return line(kind, subject, source=self._source, event_id=event_id, now_ms=self._clock.now_ms(), **more)

    def request_ids(self, request: Request) -> dict[str, object]:
        """Returns the ids of a request: the server's own, and the one that its client has chosen."""
        is_own = request.id != request.headers.get("X-Request-Id")
        own = request.id if is_own else f"{self._prefix}-r{next(self._ids):x}"
        return {"request_id": own, "client_request_id": None if is_own else request.id}

    async def write(self, lines: bytes) -> None:
        """Returns once the lines are durable. Raises AuditFailed."""
        try:
            await self._sink.write(lines)
        except AuditFailed:
            self.failures += 1
            raise

    def post(self, lines: bytes) -> None:
        self._sink.post(lines)

    def note(self, kind: Kind, subject: Subject, rule: str | None, ids: Callable[[], dict[str, object]]) -> None:
        """Notes a denial, a refused credential or a use of a superuser. `ids` returns those of the request."""
        report = _Report(kind, subject, rule)
        now = self._clock.monotonic()
        if not self._repeats.is_empty and not self._repeats.left_s(now):
            self._end_period()
        if self._timer is None:
            self._began_ms = self._clock.now_ms()
            self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._end_period)
        subject = report.subject
        key = report if subject.principal is None else report._replace(subject=subject._replace(address=None))
        caller = _Caller(report.kind, key.subject.principal, key.subject.address)
        if self._repeats.add(key, caller, now):
            fields = {"decision": _DECISIONS.get(report.kind, "allowed"), "rule": report.rule, "count": 1}
            self._post(report.kind, subject, **fields, **ids())

    def _end_period(self) -> None:
        """Reports the counts of the minute that is over."""
        self._timer = None
        since = self._began_ms
        ended = self._repeats.end()
        period = {"since_ms": since, "until_ms": self._clock.now_ms()}
        for report, more in ended.kept:
            decision = _DECISIONS.get(report.kind, "allowed")
            self._post(report.kind, report.subject, decision=decision, rule=report.rule, count=more, **period)
        for caller, more in ended.groups:
            fields = {"principal": caller.principal, "address": caller.address, "count": more, "others": True}
            self._post(caller.kind, None, decision=_DECISIONS.get(caller.kind, "allowed"), **fields, **period)
        if ended.others:
            self._post(Kind.DENIED, None, decision="denied", count=ended.others, others=True, **period)

    def _post(self, kind: Kind, subject: Subject | None, **more: object) -> None:
        self._sink.post(self.line(kind, subject, **more))


class _Change:
    """One request that changes something."""

    def __init__(self, trail: Trail, request: Request) -> None:
        self._trail = trail
        self._request = request
        self._fields: dict[str, object] = {}
        self._subject: Subject | None = None

    async def intend(self, before: object, after: object, name: str | None) -> None:
        """Records what is about to be done; durable when it returns. Raises AuditFailed, Problem."""
        request, trail = self._request, self._trail
        if self._subject is None:
            self._subject = trail.subject_of(request)
            if name is not None:
                self._subject = self._subject._replace(name=name)
            self._fields = trail.request_ids(request)
        decision = {"decision": "allowed", "rule": _rule_of(request)}
        await trail.write(
            trail.line(Kind.INTENDED, self._subject, **decision, before=before, after=after, **self._fields)
        )
        trail.check(request)

    async def end(self, response: Response | None, code: str | None) -> None:
        """Records what became of it, if it was announced. Raises nothing: it is done."""
        if self._subject is None:
            return
        status = None if response is None else response.status
        outcome = "done" if code is None else "failed"
        try:
            await self._trail.write(
                self._trail.line(Kind.ENDED, self._subject, outcome=outcome, status=status, code=code, **self._fields)
            )
        except AuditFailed as error:
            extra = {"request_id": self._request.id, "operation": self._subject.operation, "reason": str(error)}
            log.error("a change was made, and the audit trail does not have its end", extra=extra)

    def leave(self) -> None:
        """Records that its client has left, and that the answer is not known."""
        if self._subject is not None:
            self._trail.post(self._trail.line(Kind.ENDED, self._subject, outcome="unknown", **self._fields))


def _denied_of(subject: Subject, problem: Problem, kind: Kind) -> Subject:
    """Returns who was denied what: handlers deny names of a body."""
    members = problem.members
    if kind is not Kind.DENIED:
        return subject._replace(principal=None, credential=None, name=None)
    resource = members.get("resource")
    if not isinstance(resource, str):
        return subject
    name = members.get(resource)
    right = members.get("operation")
    return subject._replace(
        right=right if isinstance(right, str) else subject.right,
        resource=resource,
        name=name if isinstance(name, str) else None,
    )


def _rule_of(request: Request) -> str | None:
    """Returns the rule that has allowed a request, as far as its route knows."""
    need = request.route.need
    if need.where is Where.PATH or need.where is Where.NONE:
        name = request.names[need.resource] if need.where is Where.PATH else ""
        return request.caller.decide(need.operation, name, need.resource).rule
    return None


def audit_families(trail: Trail | None) -> Iterator[Numbers]:
    """Yields the numbers of events and of failures, also of a process without a trail."""
    text = "Events for the audit trail"
    counts = dict.fromkeys(_COUNTED, 0) if trail is None else trail.events
    yield Numbers("penstock_audit_events_total", text, "kind", {kind.value: count for kind, count in counts.items()})
    text = "Events of changes that could not be written to the audit trail"
    yield Numbers("penstock_audit_failures_total", text, None, {"": 0 if trail is None else trail.failures})
