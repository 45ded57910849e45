"""The protocol of one connection as values: bytes to send, replies found in the bytes that came. No I/O.

A server other than Penstock is measured by a `Wire` of its protocol, which a closed or an open loop drives. Replies
come in the order of the requests on a connection; all protocols measured here promise this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Reply(NamedTuple):
    """The reply to one request: the records that it acknowledges or carries. `error` is empty if it succeeded."""

    records: int
    size_bytes: int
    error: str = ""


class Wire(Protocol):
    """Requests of one kind on one connection."""

    def hello(self) -> bytes:
        """Returns what is sent first. It has no reply."""

    def request(self, number: int) -> bytes:
        """Returns the request with this number; numbers count up from 0 over all connections."""

    def take(self, data: bytes) -> Sequence[Reply]:
        """Returns the replies that these received bytes complete."""


class Tail(Protocol):
    """A consumer at the end of a log, on a connection of its own."""

    def hello(self) -> bytes:
        """Returns what is sent first."""

    def take(self, data: bytes) -> tuple[list[int], bytes]:
        """Returns the numbers of the records that arrived, and what to send next.

        Raises ValueError for an error of the server.
        """


@dataclass(frozen=True, slots=True)
class WireLoad:
    """A closed loop of `connections`, each with `depth` requests in flight, until `requests` have been answered.

    `make_wire` takes the number of the connection. It is pickled, since the loop runs in another process. A connection
    sends at most `requests_max_each`: it may read a log that ends.
    """

    address: tuple[str, int]
    make_wire: Callable[[int], Wire]
    connections: int
    depth: int
    requests_max_each: int = 1 << 40


@dataclass(frozen=True, slots=True)
class WireDelivery:
    """Producers and a consumer of one log."""

    address: tuple[str, int]
    make_wire: Callable[[int], Wire]
    make_tail: Callable[[], Tail]
