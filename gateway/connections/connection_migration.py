"""Decides when a connection moves to the process that serves its requests, and moves it between two of them.

A connection moves once another process has served many of its requests one after another: it would forward the next
ones too. The connection holds new requests back, the answers under way leave, and the socket and the state of HTTP/2
cross in one message (gateway/connections/socket_passing.py). The client notices nothing. A connection of TLS stays:
its keys are in this process.
Invariants: a connection moves with no request under way, no answer unsent and no byte read and not parsed by its core;
one that cannot do so within WAIT_S goes on here. It moves once, and this process does nothing for it afterwards.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable

from gateway.wire.connection import Connection
from gateway.wire.http2 import Http2

WAIT_S = 0.05  # a large body or a long poll takes longer; new requests wait meanwhile
TURNS_MAX = 3  # of the loop, after which an answer waits for its client
RETRY_FACTOR = 4  # more requests before the next attempt: a connection that always has a long poll seldom tries

Send = Callable[[int, int, bytes], bool]  # to a process: a handle and the state; returns whether it has taken them


class ConnectionMigration:
    """The moves of one connection. `requests_min` is how many requests in a row another process serves before one."""

    __slots__ = ("_connection", "_ended", "_is_moving", "_process", "_requests_min", "_send", "_served")

    def __init__(self, connection: Connection, send: Send, requests_min: int) -> None:
        self._connection = connection
        self._send = send
        self._requests_min = requests_min
        self._process = -1  # which served the last requests
        self._served = 0  # by it, in a row
        self._ended = 0  # of all requests since the row began
        self._is_moving = False

    def __repr__(self) -> str:
        return f"ConnectionMigration({self._served} served by {self._process}, is_moving={self._is_moving})"

    def note_served(self, process: int) -> None:
        """Notes that another process of the node has served a request."""
        if process != self._process:
            self._process, self._served, self._ended = process, 0, 0
        self._served += 1

    def on_request_end(self) -> None:
        """Follows the end of a request."""
        self._ended += 1
        if self._is_moving:
            if not self._connection.has_requests:
                self._move_soon()
        elif self._ended > self._served:  # this process served one
            self._served = self._ended = 0
        elif self._served >= self._requests_min:
            self._begin()

    def _begin(self) -> None:
        connection = self._connection
        if connection.is_closed:
            return
        self._is_moving = True
        connection.hold_back()
        asyncio.get_running_loop().call_later(WAIT_S, self._give_up)
        if not connection.has_requests:
            self._move_soon()

    def _move_soon(self) -> None:
        """Moves in the next turn of the loop, when the last answer has left."""
        assert self._connection.output is not None
        self._connection.output.flush()
        asyncio.get_running_loop().call_soon(self._move, TURNS_MAX)

    def _move(self, turns: int) -> None:
        """Moves, unless the last answer needs more turns of the loop than these to leave."""
        connection = self._connection
        core = connection.core
        if not self._is_moving or connection.is_closed:
            return
        if connection.unsent_bytes and turns:
            asyncio.get_running_loop().call_soon(self._move, turns - 1)
            return
        if core is None or connection.unsent_bytes or connection.has_requests or not core.is_between:
            self._give_up()
            return
        state = pickle.dumps(core) if isinstance(core, Http2) else b""
        handle = connection.transport.get_extra_info("socket").fileno()
        if self._send(self._process, handle, state):
            self._is_moving = False
            connection.hold_back()  # its output may have let it go on; what it holds is the other process's now
            connection.abort()  # this process's handle of the socket; the other one has its own
        else:  # it has many to take just now
            self._stop(self._requests_min)

    def _give_up(self) -> None:
        if self._is_moving and not self._connection.is_closed:
            self._stop(self._requests_min * RETRY_FACTOR)

    def _stop(self, requests_min: int) -> None:
        """Goes on here until another process has served so many requests."""
        self._is_moving = False
        self._served, self._ended, self._requests_min = 0, 0, requests_min
        self._connection.go_on()
