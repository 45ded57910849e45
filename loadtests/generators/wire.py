"""A delivery's protocol as values: bytes to send, replies found in the bytes that came. No I/O.

No tool of NATS or Redis sends on a schedule and times each record until a consumer holds it, so that their deliveries
have wires of ours. Replies come in the order of the requests on a connection; all protocols measured here promise this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Reply(NamedTuple):
    """The reply to one request. `error` is empty if it succeeded."""

    error: str = ""


class Wire(Protocol):
    """Produces of one record each on one connection."""

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
class WireDelivery:
    """Producers and a consumer of one log. `make_wire` takes the number of the connection."""

    address: tuple[str, int]
    make_wire: Callable[[int], Wire]
    make_tail: Callable[[], Tail]
