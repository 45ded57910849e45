"""The Origin rule: the web pages that may call a node, and the CORS headers for their browsers. Pure.

A browser sends the origin of the page with each cross-origin request; other clients send no Origin. A page of another
origin is rejected unless `cors_origins` names it, so that a page in a user's browser cannot write to a node that only
the user's network reaches. The rule is not access control: other clients can send any Origin.
"""

from __future__ import annotations

import re

from gateway.http.problems import Problem
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.settings import NodeSettings

EXPOSED = (
    "ETag, Retry-After, RateLimit, RateLimit-Policy, Penstock-Throttle-Ms, WWW-Authenticate, Penstock-Request-Id, "
    "Penstock-Next-Offset, Penstock-High-Watermark, "
    "Penstock-Log-Start, Penstock-Base-Offset, Penstock-Leader, Penstock-Leader-Epoch, Penstock-Duplicate, "
    "Penstock-Idempotency-Window, Penstock-Hint, Producer-Epoch, Producer-Expected-Seq, Producer-Received-Seq"
)
MAX_AGE_S = "7200"  # Chromium caches the answer to a preflight for at most this time
_HEADER_NAMES = re.compile(r"[A-Za-z0-9-]+( *, *[A-Za-z0-9-]+)*")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Origins:
    """The Origin rule of one node."""

    def __init__(self, settings: NodeSettings) -> None:
        self._allowed = frozenset(settings.allowed_origins)
        self.is_open = bool(self._allowed)  # True if pages of other origins may call: answers then differ by origin
        self._own = settings.advertised_url.rstrip("/").lower()

    def __repr__(self) -> str:
        return f"Origins({sorted(self._allowed)})"

    def answer_headers(self, request: Request) -> dict[str, str]:
        """Returns the CORS headers of the answer. Raises Problem forbidden for a page that may not call."""
        vary = {"Vary": "Origin"} if self._allowed else {}
        origin = request.headers.get("Origin")
        if origin is None or self._is_own(origin.lower(), request):
            return vary
        if request.route.operation == "console_asset":  # modules come with Origin; a proxy may change Host
            return vary
        if "*" in self._allowed:
            return {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": EXPOSED}
        if origin.lower() not in self._allowed:
            raise Problem("forbidden", f"pages of {origin!r} may not call this node: see the setting cors_origins")
        return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": EXPOSED, **vary}

    def _is_own(self, origin: str, request: Request) -> bool:
        """Returns whether the page is the node's own: its host is that of the request or of the advertised URL."""
        if self._own and origin == self._own:
            return True
        scheme, _, place = origin.partition("://")
        port = _DEFAULT_PORTS.get(scheme, "")
        return bool(place) and place.removesuffix(port) == request.headers.get("Host", "").lower().removesuffix(port)


def answer_options(request: Request, allowed: str) -> Response:
    """Answers OPTIONS with the allowed methods, and a browser's preflight with the CORS headers."""
    response = Response(headers={"Allow": allowed}, status=204)
    if "Origin" in request.headers and "Access-Control-Request-Method" in request.headers:
        response.headers["Access-Control-Allow-Methods"] = allowed
        response.headers["Access-Control-Max-Age"] = MAX_AGE_S
        wanted = request.headers.get("Access-Control-Request-Headers", "")
        if _HEADER_NAMES.fullmatch(wanted):
            response.headers["Access-Control-Allow-Headers"] = wanted
    return response
