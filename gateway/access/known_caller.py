"""The last caller of a connection, so that a request like the last one is checked by comparisons alone.

Equal heads of a connection share their headers and names (gateway/server/head_cache.py). A request whose route, headers
and names are the very objects of one that was allowed has its credential and asks for its right: under the same rules
it is allowed too. Invariant: what is kept ends with the rules, and with the credential.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multidict import CIMultiDictProxy

    from gateway.access.identity import Identity
    from gateway.access.snapshot import Snapshot
    from gateway.http.request import Request, Route
    from gateway.quotas.charges import Charges
    from gateway.quotas.quotas import Key


class KnownCaller:
    """The caller of the last request of a connection, by its Authorization headers; None: by its certificate.

    `expires_ms`: when the credential ends, 0: never. `route`, `headers` and `names` are those of the last request that
    was allowed, and `charges` those of its quotas, as `charged_by` has them.
    """

    __slots__ = (
        "authorization", "charged_by", "charges", "expires_ms", "headers", "identity", "names", "route", "snapshot",
    )  # fmt: skip

    def __init__(
        self, authorization: list[str] | None, identity: Identity, snapshot: Snapshot, expires_ms: int
    ) -> None:
        self.authorization = authorization
        self.identity = identity
        self.snapshot = snapshot
        self.expires_ms = expires_ms
        self.route: Route | None = None
        self.headers: CIMultiDictProxy[str] | None = None
        self.names: Mapping[str, str] | None = None
        self.charges: Charges | None = None
        self.charged_by: dict[Key, Charges] | None = None

    def __repr__(self) -> str:
        return f"KnownCaller({self.identity})"

    def note(self, request: Request) -> None:
        """Notes an allowed request. One of a tenant has names of its own, and a signed one has no Authorization."""
        if request.space is None and self.authorization is not None:
            self.route, self.headers, self.names = request.route, request.headers, request.names
            self.charges = self.charged_by = None
