"""Which web pages may call: the Origin rule, and what CORS wants to be told. Pure.

A browser names the origin of the page in each request that the page sends elsewhere; nothing else does. A page of
another origin is refused unless `cors_origins` names it, so that a page which somebody happens to look at cannot write
to a node that only their network can reach. It is no access control: whoever is no browser says what they like.
"""

from __future__ import annotations

import re

from aiohttp import web

from gateway.http.problems import Problem
from gateway.settings import NodeSettings

EXPOSED = (
    "ETag, Retry-After, WWW-Authenticate, Penstock-Request-Id, Penstock-Next-Offset, Penstock-High-Watermark, "
    "Penstock-Log-Start, Penstock-Base-Offset, Penstock-Leader, Penstock-Leader-Epoch, Penstock-Duplicate, "
    "Penstock-Idempotency-Window, Producer-Epoch, Producer-Expected-Seq, Producer-Received-Seq"
)
MAX_AGE_S = "7200"  # Chromium keeps the answer to a preflight no longer than this
_HEADER_NAMES = re.compile(r"[A-Za-z0-9-]+( *, *[A-Za-z0-9-]+)*")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Origins:
    """The rule of one node."""

    def __init__(self, settings: NodeSettings) -> None:
        self._allowed = frozenset(settings.allowed_origins)
        self._own = settings.advertised_url.rstrip("/").lower()

    def __repr__(self) -> str:
        return f"Origins({sorted(self._allowed)})"

    @property
    def is_open(self) -> bool:
        """Whether pages of any other origin may call, so that answers differ by origin."""
        return bool(self._allowed)

    def answer_headers(self, request: web.Request) -> dict[str, str]:
        """What the answer carries for the page's browser. Raises Problem forbidden for a page that may not call."""
        vary = {"Vary": "Origin"} if self._allowed else {}
        origin = request.headers.get("Origin")
        if origin is None or self._is_own(origin.lower(), request):
            return vary
        if "*" in self._allowed:
            return {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": EXPOSED}
        if origin.lower() not in self._allowed:
            raise Problem("forbidden", f"pages of {origin!r} may not call this node: see the setting cors_origins")
        return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": EXPOSED, **vary}

    def _is_own(self, origin: str, request: web.Request) -> bool:
        """A page of the node itself: of the host that the request names, or of the advertised URL."""
        if self._own and origin == self._own:
            return True
        scheme, _, place = origin.partition("://")
        port = _DEFAULT_PORTS.get(scheme, "")
        return bool(place) and place.removesuffix(port) == request.host.lower().removesuffix(port)


def options(request: web.Request, allowed_methods: set[str]) -> web.Response:
    """What may be done here; to a browser that asks before it sends a page's request, that it may."""
    allowed = ", ".join(sorted({*allowed_methods, "OPTIONS"}))
    response = web.Response(status=204, headers={"Allow": allowed})
    if "Origin" in request.headers and "Access-Control-Request-Method" in request.headers:
        response.headers["Access-Control-Allow-Methods"] = allowed
        response.headers["Access-Control-Max-Age"] = MAX_AGE_S
        wanted = request.headers.get("Access-Control-Request-Headers", "")
        if _HEADER_NAMES.fullmatch(wanted):
            response.headers["Access-Control-Allow-Headers"] = wanted
    return response
