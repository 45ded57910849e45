"""Reads the heads of requests: their route, their headers, and the values that the handler parses of them.

Clients repeat their headers, so that for a produce to one topic, a fetch of one partition and a group's poll it is
derived once and kept. A placeholder is kept for a value that differs by request, such as an Idempotency-Key or an
offset; the value is parsed for each request. A head that a check refuses is not kept: the check meets it again behind
the token.
Invariants: kept values depend on nothing but the head and the node's settings; a token is checked for every request;
what is kept is bounded.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, NamedTuple

from multidict import CIMultiDict, CIMultiDictProxy

from engine.format.paths import INTERNAL_TOPICS
from gateway.access.access import TENANT
from gateway.access.hosts import is_host
from gateway.fetch import request as fetch_request
from gateway.fetch.request import OFFSET
from gateway.groups.poll import parse_target
from gateway.http.negotiation import SSE
from gateway.http.problems import Problem
from gateway.http.request import HttpContext, Request, Route
from gateway.http.routes import RouteTable
from gateway.produce.context import ProduceContext
from gateway.server.dialect import Dialect
from gateway.server.requests import Requests
from gateway.tracing.trace_context import TRACEPARENT
from gateway.wire.exchange import Carrier
from gateway.wire.messages import Header, RequestHead, VariedHead

KEPT_MAX = 1024  # sets of headers, and heads; about 1 kB each. Beyond it all are forgotten
CHARS_MAX = 1024  # of the headers, and of path and query, of what is kept: clients must not fill the memory

# The headers that a hot route or the checks read. Others are left out.
_READ = frozenset({"host", "content-type", "content-encoding", "accept", "accept-encoding", "authorization",
                   "if-none-match", "transfer-encoding", "penstock-client-id", "penstock-forward", "penstock-rack",
                   "penstock-leader-epoch", "producer-id", "producer-epoch"})  # fmt: skip
_KEY, _SEQUENCE = "idempotency-key", "producer-seq"
_VARYING = {"x-request-id": "", TRACEPARENT: "", _KEY: "key", _SEQUENCE: "0"}  # and their placeholders
_TENANT = TENANT.lower()
_VARYING_PREFIXES = ("penstock-", "ce-")  # all others of ours: a head with one of them is not kept
_POLL_TARGET = re.compile(r"/v1/groups/([A-Za-z0-9_-][A-Za-z0-9._-]*)/members/([A-Za-z0-9_:-][A-Za-z0-9._:-]*)/poll")


class KnownHead(NamedTuple):
    """The values that follow from the head of a request. `parsed` is what its handler makes of it, if it is kept.

    `is_checked`: it has passed all checks but that of the token.
    """

    route: Route
    names: dict[str, str]
    headers: CIMultiDictProxy[str]
    parsed: Any = None
    is_checked: bool = False


class _Headers(NamedTuple):
    """The headers that are read. `kept` are those that equal heads share; None: they are not kept. `own`: those that
    vary.
    """

    headers: CIMultiDictProxy[str]
    kept: _KeptHeaders | None
    own: dict[str, str] | None = None


class _KeptHeaders:
    """Headers that many heads share. The object itself is their key."""

    __slots__ = ("headers",)

    def __init__(self, headers: CIMultiDictProxy[str]) -> None:
        self.headers = headers


class HeadCache:
    """The heads of one process's requests."""

    def __init__(
        self, requests: Requests, routes: RouteTable, http: HttpContext, produces: ProduceContext, dialect: Dialect
    ) -> None:
        self.routes = routes
        self.requests = requests
        self._http = http
        self._produce_context = produces
        self._dialect = dialect
        self._credential = dialect.credential
        self._is_open = not requests.origins.is_open  # else answers differ by origin
        self._headers: dict[tuple[str, tuple[Header, ...]], _KeptHeaders] = {}
        self._produces: dict[tuple[_KeptHeaders, str, str], KnownHead] = {}
        self._fetches: dict[tuple[_KeptHeaders, str, str], KnownHead] = {}

    def __repr__(self) -> str:
        kept = f"headers={len(self._headers)}, produces={len(self._produces)}, fetches={len(self._fetches)}"
        return f"HeadCache({kept})"

    def find(self, head: RequestHead) -> KnownHead:
        """Returns what follows from a head."""
        known: KnownHead | None = head.memo
        if known is None and type(head) is VariedHead and not head.values:  # but for the offset it is like that one
            known = head.like.memo
        if known is None:
            known = head.memo = self._hot(head) or self.read(head)
            if known.is_checked:  # its handler reads a key, a sequence or an offset of each head
                head.shared_memo = known
        return known

    def request(self, known: KnownHead, head: RequestHead, connection: Carrier) -> Request:
        """Returns a request with this head, whose body is not read."""
        return Request(self._http, head, known.route, known.names, known.headers, connection, b"", parsed=known.parsed)

    def read(self, head: RequestHead) -> KnownHead:
        """Returns what follows from any head, without what is kept."""
        headers = CIMultiDict(head.headers)
        if self._credential is not None and "Authorization" in headers:
            given = headers.popall("Authorization")
            headers.extend([("Authorization", self._credential(text)) for text in given])
        if head.authority:
            _name_host(headers, head.authority, is_http1=head.version != "2")
        route, names = self.routes.find(head.method, head.path)
        return KnownHead(route, names, CIMultiDictProxy(headers))

    def _hot(self, head: RequestHead) -> KnownHead | None:
        """Returns what is kept, or will be, of a head of a hot route; None for another one."""
        if type(head) is VariedHead and type(known := head.like.memo) is KnownHead and known.parsed is not None:
            return self._like(known, head)
        method = head.method
        if not self._is_open or method not in ("POST", "GET"):
            return None
        if len(head.path) + len(head.query) > CHARS_MAX:
            return None
        target = self._dialect.produce_target.fullmatch(head.path)
        if target is None or not (method == "POST" or self._dialect.has_reads):
            return self._known_poll(head) if self._dialect.has_reads else None
        found = self._headers_of(head)
        if found is None:
            return None
        headers, kept, own = found
        if method == "GET":
            if target[2] is None or target[1] in INTERNAL_TOPICS or SSE in headers.get("Accept", "").lower():
                return None
            return self._known_fetch(head, found)
        if kept is None:
            return self._known_produce(head, headers)
        key = (kept, head.path, head.query)
        known = self._produces.get(key)
        if known is None:
            known = self._known_produce(head, kept.headers)
            if known is None:
                return None
            if len(self._produces) >= KEPT_MAX:
                self._produces.clear()
            self._produces[key] = known
        return known if own is None else known._replace(headers=headers)

    def _like(self, known: KnownHead, head: VariedHead) -> KnownHead:
        """Returns what follows from a head that differs from a known one by its own values."""
        copy = CIMultiDict(known.headers)
        copy.update([(name, value) for name, value in head.own if name.lower() in _VARYING])
        return known._replace(headers=CIMultiDictProxy(copy))

    def _known_fetch(self, head: RequestHead, found: _Headers) -> KnownHead | None:
        """Fetches that differ by their offset alone share what follows from the rest."""
        headers, kept, _ = found
        offsets = OFFSET.findall(head.query)
        query = OFFSET.sub("offset=0", head.query) if len(offsets) == 1 else head.query
        known = None if kept is None else self._fetches.get((kept, head.path, query))
        if known is None:
            route, names = self.routes.find(head.method, head.path)
            try:
                parsed = fetch_request.parse(self._head_alone(head, route, names, headers))
            except Exception:  # as in _known_produce
                return None
            known = KnownHead(route, names, headers, parsed, True)
            if kept is not None:
                if len(self._fetches) >= KEPT_MAX:
                    self._fetches.clear()
                self._fetches[kept, head.path, query] = known
            return known
        return known if known.headers is headers else known._replace(headers=headers)

    def _known_poll(self, head: RequestHead) -> KnownHead | None:
        is_poll = head.method == "POST" and not head.query and _POLL_TARGET.fullmatch(head.path)
        if not is_poll or (found := self._headers_of(head)) is None:
            return None
        route, names = self.routes.find(head.method, head.path)
        try:
            target = parse_target(self._head_alone(head, route, names, found.headers))
        except Exception:  # as in _known_produce
            return None
        return KnownHead(route, names, found.headers, target, is_checked=True)

    def _known_produce(self, head: RequestHead, headers: CIMultiDictProxy[str]) -> KnownHead | None:
        route, names = self.routes.find(head.method, head.path)
        try:
            parsed = self._dialect.parse_produce(self._head_alone(head, route, names, headers), self._produce_context)
        except Exception:  # the handler meets it too, behind the check of the token
            return None
        return KnownHead(route, names, headers, parsed, True)

    def _headers_of(self, head: RequestHead) -> _Headers | None:
        """Returns the headers that are read, once they have passed the checks."""
        pairs: list[Header] = []
        own: dict[str, str] | None = None
        is_kept = True
        for name, value in head.headers:
            lower = name.lower()
            if lower in _READ:
                if lower == "authorization" and self._credential is not None:
                    value = self._credential(value)
                pairs.append((lower, value))
            elif lower in _VARYING:
                pairs.append((lower, value))
                if own is None:
                    own = {}
                is_kept &= lower not in own
                own[lower] = value
            elif lower == _TENANT:  # it decides what the names of the head mean
                return None
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
            headers = self._check_headers(head, pairs)
            return None if headers is None else _Headers(headers, None)
        general = pairs if own is None else [(name, _VARYING.get(name, value)) for name, value in pairs]
        key = (head.version, tuple(general))
        kept = self._headers.get(key)
        if kept is None:
            headers = self._check_headers(head, general)
            if headers is None or sum(len(value) for _, value in general) > CHARS_MAX:
                return None
            if len(self._headers) >= KEPT_MAX:
                self._headers.clear()
            kept = self._headers[key] = _KeptHeaders(headers)
        return _Headers(kept.headers if own is None else CIMultiDictProxy(CIMultiDict(pairs)), kept, own)

    def _check_headers(self, head: RequestHead, pairs: list[Header]) -> CIMultiDictProxy[str] | None:
        headers = CIMultiDictProxy(CIMultiDict(pairs))
        request = self._head_alone(head, self.routes.find(head.method, head.path).route, {}, headers)
        try:
            self.requests.check_host(request)
            self.requests.check_headers(request)
        except Problem:  # `enter` meets it too, behind the token
            return None
        return headers

    def _head_alone(
        self, head: RequestHead, route: Route, names: dict[str, str], headers: CIMultiDictProxy[str]
    ) -> Request:
        return self.request(KnownHead(route, names, headers), head, _NO_CONNECTION)


def _name_host(headers: CIMultiDict[str], authority: str, *, is_http1: bool) -> None:
    """Puts the authority of the target where the checks look for the host.

    RFC 9112 3.2.2: the target `http://host/path` of an HTTP/1.1 request replaces a Host that is well-formed. RFC 9113
    8.3.1: in HTTP/2 a Host that differs from `:authority` makes the request malformed; both stay, which is rejected.
    """
    given = headers.getall("host", ())
    if is_http1 and len(given) == 1 and is_host(given[0]):
        headers["host"] = authority
    elif not is_http1 and [host.lower() for host in given] != [authority.lower()]:
        headers.add("host", authority)


_NO_CONNECTION: Any = SimpleNamespace(client="")
