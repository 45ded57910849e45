"""The one way in and out of a request of Kafka's protocol: its head, its client's identity, its counters and its log.

Invariant: what cannot be understood closes the connection, with one line in the log; an answer in another form would
not be understood either.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Coroutine, Mapping
from math import inf
from typing import Any

from engine.errors import EngineError
from gateway.http.problems import Problem
from gateway.kafka import audit, sasl
from gateway.kafka.cluster import find_topic_by_id, may_know
from gateway.kafka.codec.fetch import FetchAnswer, Key
from gateway.kafka.codec.messages import Buffer, Malformed, types_of
from gateway.kafka.codec.tables import TABLES
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.request_spans import KafkaSpans
from gateway.kafka.requests import (
    API_VERSIONS,
    Api,
    Client,
    Handled,
    Head,
    KafkaRequest,
    begin_response,
    body_begin,
    finish_response,
    make_api,
    read_head,
)
from gateway.kafka.tenant_names import stored_request, visible_response
from gateway.quotas.charges import Charges
from gateway.quotas.quotas import Requester
from gateway.tracing.current import TracedCoroutine
from gateway.usage.counting import OTHER
from gateway.usage.meters import PRODUCES, READS

log = logging.getLogger("penstock.kafka")
request_log = logging.getLogger("penstock.requests")  # that of HTTP, which the setting request_log opens

UNKNOWN_BYTES_MAX = 64 * 1024  # of a frame of a client that has not authenticated
BEFORE_SASL = frozenset({API_VERSIONS, "SaslHandshake", "SaslAuthenticate"})
WITHOUT_QUOTA = BEFORE_SASL | {"Metadata", "DescribeCluster", "FindCoordinator"}  # clients need them to go on
CONTROL = frozenset(
    {
        "Heartbeat",
        "LeaveGroup",
        "OffsetCommit",
        "JoinGroup",
        "SyncGroup",
        "ConsumerGroupHeartbeat",
        "ShareGroupHeartbeat",
        "ShareAcknowledge",
    }
)
THROTTLE_MS_MAX = 30_000  # of one answer, so that a client does not take the server for dead; the debt stays
_READS = ("Fetch", "ShareFetch")
_OPERATIONS = {"Produce": PRODUCES[0], **dict.fromkeys(_READS, READS[0])}  # as usage counts them
_LENGTH = struct.Struct(">i")

ApiVersions = types_of(API_VERSIONS)[""]
ApiVersion = types_of(API_VERSIONS)["api_keys"]
_RAW_TOKEN = make_api("SaslAuthenticate", sasl.authenticate, None)


class RawReply(bytes):
    """An answer without a head, to a token that came without one."""


class Service:
    """The requests of one process. `apis` are those that it answers."""

    def __init__(self, context: KafkaContext, apis: Mapping[int, Api]) -> None:
        self._context = context
        self._apis = apis
        self._metrics = context.metrics
        self._quotas = context.access.quotas
        self._superusers = context.audit if context.settings.superusers else None
        self._is_logging = context.settings.request_log
        self._usage = context.produce.usage
        self._spans = None if context.tracer is None else KafkaSpans(context.tracer, context)

    def __repr__(self) -> str:
        return f"Service({len(self._apis)} APIs)"

    def new_client(self, address: str) -> Client:
        return Client(address) if self._context.access.tokens is None else Client(address, None)

    def frame_bytes_max(self, client: Client) -> int:
        return UNKNOWN_BYTES_MAX if client.caller is None else self._context.settings.request_body_bytes_max

    def begin(self, frame: memoryview, client: Client) -> tuple[KafkaRequest, Any]:
        """Returns a request and what its handler returned, or raised. Raises Malformed."""
        began = time.perf_counter()
        if client.sends_raw_tokens:
            client.sends_raw_tokens = False
            request = KafkaRequest(_RAW_TOKEN, Head(_RAW_TOKEN.key, 0, 0, client.client_id, 0), client, began)
            self._metrics.requests_in_flight.value += 1
            return request, self._raw_token(request, bytes(frame))
        head = read_head(frame)
        api = self._apis.get(head.key)
        if api is None:
            raise Malformed(f"the API {head.key} is not offered here")
        client.client_id = head.client_id
        if client.polling is not None:  # a fetch that waits holds back the answer to this request
            client.polling.expire()
        request = KafkaRequest(api, head, client, began)
        if client.caller is None or self._context.access.tokens is not None:
            self._check_identity(request)
        handled: Handled | Exception
        if not api.first_read <= head.version <= api.last:
            if api.name != API_VERSIONS:
                raise Malformed(f"{api.name} has no version {head.version} here")
            request.version = 0  # the one that each client reads (KIP-511)
            handled = unsupported_version(request)
        else:
            request.message = api.read(head.version, frame, body_begin(frame, api, head))
            if client.caller is not None and (space := client.caller.space) is not None:
                request.space, request.size_bytes = space, len(frame)
                request.message = stored_request(space, api.name, request.message)
            if self._superusers is not None and client.caller is not None and client.caller.is_superuser:
                audit.note_superuser(request, self._superusers)
            if self._quotas.is_on and client.caller is not None:
                self._debit(request, len(frame))
            if self._spans is not None:
                self._spans.begin(request)
            try:
                handled = api.handler(request, api.context) if request.span is None else self._call(request)
            except Malformed:
                raise
            except Exception as error:
                handled = error
        self._metrics.requests_in_flight.value += 1
        return request, handled

    def _call(self, request: KafkaRequest) -> Any:
        """Calls the handler of a request that has a span, whose coroutine goes on in it."""
        assert self._spans is not None, request
        assert request.span is not None, request
        handled = self._spans.call(request)
        return TracedCoroutine(handled, request.span) if isinstance(handled, Coroutine) else handled

    def finish(self, request: KafkaRequest, outcome: Any) -> list[Buffer] | None:
        """Returns the pieces of a response, once it is counted and logged; None for no response. Raises Malformed."""
        self._metrics.requests_in_flight.value -= 1
        failure: Malformed | None = None
        pieces: list[Buffer] | None = None
        if isinstance(outcome, BaseException):
            request.note(Error.UNKNOWN_SERVER_ERROR)
            failure = self._failure(request, outcome)
        elif isinstance(outcome, RawReply):
            pieces = [_LENGTH.pack(len(outcome)) + outcome]
        elif outcome is not None:
            if request.is_of_many_topics and type(outcome) is FetchAnswer:
                self._debit_read_topics(request, outcome)
            if request.throttle_ms and hasattr(outcome, "throttle_time_ms"):
                outcome.throttle_time_ms = request.throttle_ms
            try:
                pieces = self._written(request, outcome)
            except Exception as error:  # a bug, which must not leave the client without an end
                failure, pieces = self._failure(request, error), []
            if request.charges is not None:
                request.charges.take_out(time.perf_counter(), sum(map(len, pieces)))
        if self._context.audit is not None and audit.is_denial(request.error):
            audit.note_denial(request, self._context.audit)
        now = time.perf_counter()
        seconds = now - request.began
        if request.space is not None:
            self._count_usage(request, request.space.tenant, sum(map(len, pieces or ())), now)
        self._metrics.count_answer(request.api.operation, int(request.error), seconds)
        if self._is_logging:
            self._log_answer(request, seconds)
        if request.span is not None:
            self._end_span(request)
        if failure is not None:
            raise failure
        return pieces

    def _written(self, request: KafkaRequest, outcome: Any) -> list[Buffer]:
        if request.space is not None:
            outcome = visible_response(request.space, request.api.name, outcome)
        out = begin_response(request)
        request.api.write(request.version, outcome, out)
        return finish_response(out)

    def abandon(self, request: KafkaRequest) -> None:
        """Ends a request whose client has left."""
        self._metrics.requests_in_flight.value -= 1
        if request.span is not None:
            self._end_span(request, is_answered=False)

    def _end_span(self, request: KafkaRequest, *, is_answered: bool = True) -> None:
        assert self._spans is not None, request
        self._spans.end(request, _sizes_of_topics(request, self._context), is_answered=is_answered)

    def forget(self, client: Client) -> None:
        """Drops what a client has that has left."""
        self._context.fetch_sessions.close(client)

    def _count_usage(self, request: KafkaRequest, tenant: str, bytes_out: int, now: float) -> None:
        """Counts a request for the bills of its tenant. A read is answered if one of its partitions is not."""
        operation, stored = _OPERATIONS.get(request.api.name, OTHER), request.stored_records
        is_answered = request.error is Error.NONE or stored > 0 or request.api.name in _READS
        status = 200 if is_answered else 500
        self._usage.count_request(tenant, operation, status, request.size_bytes, bytes_out, stored, now)

    def log_closed(self, client: Client, reason: str) -> None:
        fields = {"client": client.address, "client_id": client.client_id, "reason": reason}
        log.warning("a connection of Kafka's protocol was closed", extra=fields)

    def _debit(self, request: KafkaRequest, size_bytes: int) -> None:
        """Debits a request to the quotas of its owners. With a debt its client is not read for a while, once answered.

        Kafka does the same (KIP-219): a refusal would make clients send again what they have sent.
        """
        caller, name, now = request.caller, request.api.name, request.began
        if name in WITHOUT_QUOTA:
            return
        client_id = request.client.client_id if self._quotas.has_clients else ""
        sizes = _sizes_of_topics(request, self._context) if self._quotas.has_topics else {}
        topic = next(iter(sizes)) if len(sizes) == 1 else ""
        key = (caller.owner_name, f"kafka_{name}", client_id, topic)
        charges = self._quotas.kept.get(key)
        if charges is None:
            space = caller.space
            requester = Requester("" if space is None else space.tenant, caller.owner_name, client_id, topic)
            charges = self._quotas.keep(key, requester, now, is_control=name in CONTROL)
        if charges.is_control:
            if (verdict := charges.enter_control(now)) is not None:
                request.throttle_ms = min(round(verdict.wait_s * 1000) or 1, THROTTLE_MS_MAX)
            return
        request.charges = charges
        self._enter(request, charges, size_bytes)
        if len(sizes) > 1:
            request.is_of_many_topics = True
            if name == "Produce":
                for topic, topic_bytes in sizes.items():
                    self._enter(request, self._quotas.charges_of_topic(topic, now), topic_bytes)

    def _enter(self, request: KafkaRequest, charges: Charges, size_bytes: int) -> None:
        verdict = charges.enter(request.began, size_bytes, inf)
        if verdict is not None and verdict.wait_s > 0:
            self._throttle(request, verdict.wait_s)
            for policy in verdict.violated:
                self._metrics.quota_throttled[policy.dimension.field] += 1

    def _throttle(self, request: KafkaRequest, wait_s: float) -> None:
        request.throttle_ms = max(request.throttle_ms, min(round(wait_s * 1000) or 1, THROTTLE_MS_MAX))

    def _debit_read_topics(self, request: KafkaRequest, answer: FetchAnswer) -> None:
        """Debits what a fetch of several topics has read of each. Its client is held back by the tightest of them."""
        now = time.perf_counter()
        for key, rows in answer.topics:
            if size_bytes := sum(len(row.data) for row in rows):
                charges = self._quotas.charges_of_topic(_name_of(key, request, self._context), now)
                charges.take_out(now, size_bytes)
                if (wait_s := charges.wait_s(now)) > 0:
                    self._throttle(request, wait_s)

    def _check_identity(self, request: KafkaRequest) -> None:
        """Raises Malformed for a client that is not known, or not any more."""
        client = request.client
        if client.caller is not None:
            sasl.check_still_known(client, self._context.access, self._context.clock.now_ms())
        elif request.api.name not in BEFORE_SASL:
            raise Malformed(f"{request.api.name} was sent without SASL; this node requires a token")

    async def _raw_token(self, request: KafkaRequest, given: bytes) -> RawReply:
        """Checks a token that came without a head. Raises Malformed."""
        reason = sasl.check(request.client, given, self._context)
        if reason is not None:
            raise Malformed(reason)
        return RawReply()

    def _failure(self, request: KafkaRequest, error: BaseException) -> Malformed:
        """Returns why the connection ends: the failure of a handler has no answer that fits every API."""
        if isinstance(error, Malformed):
            return error
        if isinstance(error, Problem | EngineError):
            return Malformed(f"{request.api.name}: {error.code}: {error.detail}")
        fields = {"client": request.client.address, "operation": request.api.name}
        log.error("a handler failed", exc_info=error, extra=fields)
        return Malformed(f"{request.api.name} failed")

    def _log_answer(self, request: KafkaRequest, seconds: float) -> None:
        client = request.client
        fields = {
            "operation": f"kafka_{request.api.name}",
            "version": request.version,
            "client": client.address,
            "client_id": client.client_id,
            "token": None if client.caller is None else client.caller.name,
            "error": request.error.name,
            "seconds": round(seconds, 6),
        }
        if request.span is not None:
            fields |= request.span.log_fields()
        request_log.info("request", extra=fields)


def _sizes_of_topics(request: KafkaRequest, context: KafkaContext) -> dict[str, int]:
    """Returns the bytes of records by topic of a produce; of a fetch with its session the topics, without bytes."""
    sizes: dict[str, int] = {}
    if request.api.name == "Produce":
        for key, batches in request.message.topics:
            if name := _name_of(key, request, context):
                sizes[name] = sizes.get(name, 0) + sum(len(records or b"") for _, records in batches)
    elif request.api.name == "Fetch":
        keys = {key for key, _ in request.message.topics}
        if request.message.session_epoch > 0 and request.client.session is not None:
            keys.update(key for key, _ in request.client.session.positions)
        sizes = dict.fromkeys((name for key in keys if (name := _name_of(key, request, context))), 0)
    return sizes


def _name_of(key: Key, request: KafkaRequest, context: KafkaContext) -> str:
    """Returns the name of a topic, or of its id; an empty one if the caller may not know it: it debits nothing then."""
    if isinstance(key, str):
        return key if may_know(request, key) else ""
    topic = find_topic_by_id(context, key)
    return topic.record.name if topic is not None and may_know(request, topic.record.name) else ""


def unsupported_version(request: KafkaRequest) -> Any:
    """Returns the answer to a version of ApiVersions that is not known: the client asks again by what it says."""
    table = TABLES[API_VERSIONS]
    own = ApiVersion(table.key, table.first, table.last)
    return ApiVersions(request.note(Error.UNSUPPORTED_VERSION), [own])
