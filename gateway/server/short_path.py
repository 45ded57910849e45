"""The short path of the hot routes, without aiohttp: a produce to one topic, a fetch of one partition, a group's poll.

It takes the stages of gateway/produce, gateway/fetch and gateway/groups, inside the same middleware. It decides nothing
about a request: a head with anything that it does not know, and a head that any check refuses, goes to aiohttp's
application, which answers. Clients repeat their headers, so that what follows from headers alone is derived once and
kept. A placeholder is kept for a value that differs by request, such as an Idempotency-Key or an offset; the value is
parsed for each request.
Invariants: kept values depend on nothing but the head and the node's settings; a token is checked for every request;
what is kept is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import HttpVersion, web
from msgspec import structs
from multidict import CIMultiDict, CIMultiDictProxy

from engine.format.batch import MEDIA_TYPE
from engine.format.paths import INTERNAL_TOPICS
from gateway.connections.response_buffers import CONNECTION, RESERVED
from gateway.fetch import fetch
from gateway.fetch import request as fetch_request
from gateway.fetch.request import JSON, NDJSON, FetchRequest
from gateway.groups import poll
from gateway.groups.names import NAME_CHARS_MAX
from gateway.http.json_body import MEDIA_TYPES
from gateway.http.messages import BodyReader, HttpRequest, HttpResponse, RequestHeaders
from gateway.http.negotiation import SSE
from gateway.produce import produce
from gateway.produce.produce import ProduceRequest
from gateway.routing.leader_headers import FORWARD
from gateway.server.middleware import MIDDLEWARE, Response
from gateway.wire.exchange import Carrier, Exchange
from gateway.wire.messages import Header, RequestHead, VariedHead

KEPT_MAX = 1024  # sets of headers, and heads; about 1 kB each. Beyond it all are forgotten
CHARS_MAX = 1024  # of the headers, and of path and query, of what is kept: clients must not fill the memory

# The headers that a hot route or the middleware reads. Others are ignored, as aiohttp's application ignores them.
_READ = frozenset({"host", "content-type", "content-encoding", "accept", "accept-encoding", "authorization",
                   "if-none-match", "transfer-encoding", "penstock-client-id", "penstock-forward", "penstock-rack",
                   "penstock-leader-epoch", "producer-id", "producer-epoch"})  # fmt: skip
_KEY, _SEQUENCE = "idempotency-key", "producer-seq"
_VARYING = {"x-request-id": "", _KEY: "key", _SEQUENCE: "0"}  # and their placeholders
_VARYING_PREFIXES = ("penstock-", "ce-")  # all others of ours: a head with one of them is not kept
_TARGET = re.compile(r"/v1/topics/([A-Za-z0-9_-][A-Za-z0-9._-]*)(?:/partitions/([0-9]{1,10}))?/records")
_POLL_TARGET = re.compile(r"/v1/groups/([A-Za-z0-9_-][A-Za-z0-9._-]*)/members/([A-Za-z0-9_:-][A-Za-z0-9._:-]*)/poll")
_OFFSET = re.compile(r"(?:^|(?<=&))offset=([0-9]{1,18})(?=&|$)")
_FORMS = (JSON, NDJSON, MEDIA_TYPE)
_NOT_WAITING = ("Content-Encoding", "Penstock-Rack", FORWARD)  # a poll with one of them has a task
_TOPIC = "/v1/topics/{topic}/records"
_PARTITION = "/v1/topics/{topic}/partitions/{partition}/records"
_POLL = "/v1/groups/{group}/members/{member}/poll"


VERSIONS = {"1.0": HttpVersion(1, 0), "1.1": HttpVersion(1, 1), "2": HttpVersion(2, 0)}

Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]


class KnownHead(NamedTuple):
    """The values that follow from the head of a request. `typed` may have placeholders; `headers` has none.

    `plain` is the produce that needs no task unless its body does. `place` is the partition of a fetch that needs none
    (delayed_fetch.py), `member` has the group and the member of a poll that may wait without one (delayed_poll.py).
    `began`: when the request came, by `time.perf_counter`, if it has waited.
    """

    route: str
    operation: str
    match_info: dict[str, str]
    headers: CIMultiDictProxy[str]
    typed: RequestHeaders
    handler: Handler
    wanted: ProduceRequest | None = None
    fetched: FetchRequest | None = None
    plain: ProduceRequest | None = None
    place: tuple[str, int] | None = None
    member: tuple[str, str] | None = None
    began: float = 0.0


class _Headers(NamedTuple):
    """The headers that are read. `is_kept`: equal ones have this `typed`. `own`: the values of those that vary."""

    headers: CIMultiDictProxy[str]
    typed: RequestHeaders
    is_kept: bool
    own: dict[str, str] | None = None


class ShortPath:
    """The short path of one application."""

    def __init__(self, app: web.Application) -> None:
        self.answered = 0  # requests, since the start
        self.without_task = 0  # of these
        self._app = app
        self._middleware = app[MIDDLEWARE]
        self._is_open = not self._middleware.origins.is_open  # else answers differ by origin
        self._headers: dict[tuple[str, tuple[Header, ...]], _Headers] = {}
        self._produces: dict[tuple[RequestHeaders, str, str], KnownHead] = {}
        self._fetches: dict[tuple[RequestHeaders, str, str], KnownHead] = {}

    def __repr__(self) -> str:
        kept = f"headers={len(self._headers)}, produces={len(self._produces)}, fetches={len(self._fetches)}"
        return f"ShortPath({kept})"

    def find(self, head: RequestHead) -> KnownHead | None:
        """Returns None for a request of the long path."""
        if type(head) is VariedHead and type(known := head.like.memo) is KnownHead:
            return self._like(known, head)
        method = head.method
        if not self._is_open or method not in ("POST", "GET"):
            return None
        if len(head.path) + len(head.query) > CHARS_MAX:
            return None
        target = _TARGET.fullmatch(head.path)
        if target is None:
            return self._known_poll(head)
        found = self._headers_of(head)
        if found is None:
            return None
        headers, typed, is_kept, own = found
        topic, partition = target.groups()
        if method == "GET":
            if partition is None or SSE in headers.get("Accept", "").lower():
                return None
            return self._known_fetch(head, found, {"topic": topic, "partition": partition})
        if not is_kept:
            return self._known_produce(head, typed, topic, partition)
        key = (typed, head.path, head.query)
        known = self._produces.get(key)
        if known is None:
            known = self._known_produce(head, typed, topic, partition)
            if known is None:
                return None
            if len(self._produces) >= KEPT_MAX:
                self._produces.clear()
            self._produces[key] = known
        return known if own is None else self._with_own(known, headers, own)

    def _like(self, known: KnownHead, head: VariedHead) -> KnownHead | None:
        """Returns what follows from a head that differs from a known one by its own values."""
        if known.fetched is not None:
            known = self._with_offset(known, known.fetched, head.query)
        texts: dict[str, str] = {}
        for name, value in head.own:
            if (lower := name.lower()) in _VARYING:
                texts[lower] = value
        if not texts:
            return known
        copy = CIMultiDict(known.headers)
        copy.update(texts)
        headers = CIMultiDictProxy(copy)
        return known._replace(headers=headers) if known.wanted is None else self._with_own(known, headers, texts)

    def _with_own(self, known: KnownHead, headers: CIMultiDictProxy[str], own: dict[str, str]) -> KnownHead | None:
        """Returns a known head with the values of this request in place of placeholders."""
        assert known.wanted is not None
        try:
            wanted = produce.with_own(known.wanted, own.get(_KEY), own.get(_SEQUENCE))
        except Exception:  # the long path meets it too, behind the check of the token, and answers
            return None
        route, operation, match_info, _, typed, *_ = known
        storing, plain = self._storing(wanted, operation), None if known.plain is None else wanted
        return KnownHead(route, operation, match_info, headers, typed, storing, wanted, None, plain)

    async def answer(self, exchange: Exchange, body: BodyReader, known: KnownHead) -> Response:
        """Returns the response to a request. Raises ConnectionResetError, CancelledError: the client has left."""
        self.answered += 1
        request = self.request(known, exchange.head, body, exchange.connection)
        request[CONNECTION] = exchange.connection
        response = await self._middleware.answer(request, known.handler, known.operation, known.began)
        if RESERVED in request:
            self._middleware.responses.end_reservation(request)
        return response

    def fetching(self, known: KnownHead, wanted: FetchRequest, began: float) -> KnownHead:
        """Returns a known fetch with other values, which came at a time of `time.perf_counter`."""
        return known._replace(handler=self._fetching(wanted), fetched=wanted, began=began)

    def polling_on(self, known: KnownHead, poll: Handler, began: float) -> KnownHead:
        """Returns the head of a known poll that goes on as `poll`, and came at a time of `time.perf_counter`."""

        async def go_on(request: HttpRequest) -> HttpResponse:
            await self._middleware.admit(request, known.operation)
            return await poll(request)

        return known._replace(handler=go_on, began=began)

    def request(self, known: KnownHead, head: RequestHead, body: BodyReader, connection: Carrier) -> HttpRequest:
        """Returns a request with this head, as handlers take it."""
        return HttpRequest(
            self._app,
            known.route,
            head.method,
            head.path,
            head.query,
            known.match_info,
            known.headers,
            known.typed,
            VERSIONS[head.version],
            body,
            head.content_length,
            connection.client,
        )

    def _known_fetch(self, head: RequestHead, found: _Headers, match_info: dict[str, str]) -> KnownHead | None:
        """Fetches that differ by their offset alone share what follows from the rest."""
        headers, typed, is_kept, _ = found
        offsets = _OFFSET.findall(head.query)
        query = _OFFSET.sub("offset=0", head.query) if len(offsets) == 1 else head.query
        key = (typed, head.path, query)
        known = self._fetches.get(key) if is_kept else None
        if known is None:
            try:
                wanted = fetch_request.parse(self._head_alone(head, match_info, typed))
            except Exception:  # as in _known_produce
                return None
            known = KnownHead(_PARTITION, "fetch", match_info, headers, typed, self._fetching(wanted), fetched=wanted)
            topic, number = match_info["topic"], int(match_info["partition"])
            is_canonical = match_info["partition"] == str(number) and topic not in INTERNAL_TOPICS
            if is_canonical and _is_plain(wanted) and FORWARD not in headers:
                known = known._replace(place=(topic, number))
            if is_kept:
                if len(self._fetches) >= KEPT_MAX:
                    self._fetches.clear()
                self._fetches[key] = known
            return known
        assert known.fetched is not None
        known = self._with_offset(known, known.fetched, head.query)
        return known if known.headers is headers else known._replace(headers=headers)

    def _known_poll(self, head: RequestHead) -> KnownHead | None:
        target = _POLL_TARGET.fullmatch(head.path) if head.method == "POST" and not head.query else None
        if target is None or (found := self._headers_of(head)) is None:
            return None
        group, member_id = target.groups()
        headers, typed = found.headers, found.typed
        known = KnownHead(_POLL, "group_poll", {"group": group, "member": member_id}, headers, typed, self._polling)
        is_plain = not any(name in headers for name in _NOT_WAITING) and typed.content_type in MEDIA_TYPES
        if is_plain and max(len(group), len(member_id)) <= NAME_CHARS_MAX:
            return known._replace(member=(group, member_id))
        return known

    async def _polling(self, request: HttpRequest) -> HttpResponse:
        await self._middleware.admit(request, "group_poll")
        return await poll.poll(request)

    def _with_offset(self, known: KnownHead, wanted: FetchRequest, query: str) -> KnownHead:
        """Returns a known fetch with the offset of this query, if it has one."""
        offset = offset_of(query)
        if offset is None:
            return known
        wanted = structs.replace(wanted, offset=offset)
        return known._replace(handler=self._fetching(wanted), fetched=wanted)

    def _fetching(self, wanted: FetchRequest) -> Handler:
        async def read(request: HttpRequest) -> HttpResponse:
            await self._middleware.admit(request, "fetch")
            return await fetch.read_wanted(request, wanted)

        return read

    def _known_produce(
        self, head: RequestHead, headers: RequestHeaders, topic: str, partition: str | None
    ) -> KnownHead | None:
        match_info = {"topic": topic} if partition is None else {"topic": topic, "partition": partition}
        route, operation = (_TOPIC, "produce") if partition is None else (_PARTITION, "produce_to_partition")
        try:
            wanted = produce.parse(self._head_alone(head, match_info, headers))
        except Exception:  # the long path meets it too, behind the check of the token, and answers
            return None
        is_plain = produce.is_plain(wanted) and topic not in INTERNAL_TOPICS and "Content-Encoding" not in headers.all
        storing, plain = self._storing(wanted, operation), wanted if is_plain else None
        return KnownHead(route, operation, match_info, headers.all, headers, storing, wanted, None, plain)

    def _storing(self, wanted: ProduceRequest, operation: str) -> Handler:
        async def store(request: HttpRequest) -> HttpResponse:
            await self._middleware.admit(request, operation)
            return await produce.store(request, wanted)

        return store

    def _headers_of(self, head: RequestHead) -> _Headers | None:
        """Returns the headers that are read, once they have passed the middleware's checks."""
        pairs: list[Header] = []
        own: dict[str, str] | None = None
        is_kept = True
        for name, value in head.headers:
            lower = name.lower()
            if lower in _READ:
                pairs.append((lower, value))
            elif lower in _VARYING:
                pairs.append((lower, value))
                if own is None:
                    own = {}
                is_kept &= lower not in own
                own[lower] = value
            elif lower.startswith(_VARYING_PREFIXES):
                pairs.append((lower, value))
                is_kept = False
            elif lower == "origin":
                return None
        if head.authority:
            if head.version != "2" or any(name == "host" for name, _ in pairs):
                return None
            pairs.append(("host", head.authority))
        if not is_kept:
            headers = self._checked(head, pairs)
            return None if headers is None else _Headers(headers.all, headers, False)
        general = pairs if own is None else [(name, _VARYING.get(name, value)) for name, value in pairs]
        key = (head.version, tuple(general))
        kept = self._headers.get(key)
        if kept is None:
            headers = self._checked(head, general)
            if headers is None or sum(len(value) for _, value in general) > CHARS_MAX:
                return None
            if len(self._headers) >= KEPT_MAX:
                self._headers.clear()
            kept = self._headers[key] = _Headers(headers.all, headers, True)
        return kept if own is None else _Headers(CIMultiDictProxy(CIMultiDict(pairs)), kept.typed, True, own)

    def _checked(self, head: RequestHead, pairs: list[Header]) -> RequestHeaders | None:
        headers = RequestHeaders(CIMultiDictProxy(CIMultiDict(pairs)))
        try:
            self._middleware.check(self._head_alone(head, {}, headers))
        except Exception:  # the long path meets it too, behind the check of the token, and answers
            return None
        return headers

    def _head_alone(self, head: RequestHead, match_info: dict[str, str], headers: RequestHeaders) -> HttpRequest:
        return HttpRequest(self._app, "", head.method, head.path, head.query, match_info, headers.all, headers,
                           VERSIONS[head.version], NO_BODY, head.content_length, "")  # fmt: skip


def offset_of(query: str) -> int | None:
    """Returns the offset that a query has."""
    found = _OFFSET.search(query)
    return None if found is None else int(found[1])


def _is_plain(wanted: FetchRequest) -> bool:
    """Returns whether a fetch is of one offset, for any record, without conditions, in one of the forms of records."""
    return (
        type(wanted) is FetchRequest
        and wanted.offset is not None
        and wanted.min_bytes == 1
        and wanted.if_none_match is None
        and wanted.rack is None
        and wanted.media_type in _FORMS
    )


class _NoBody:
    async def readany(self) -> bytes:
        return b""

    def is_eof(self) -> bool:
        return True


NO_BODY = _NoBody()
