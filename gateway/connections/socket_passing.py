"""Hands connections over to the other processes of the node, and takes theirs: one message of a Unix socket for each.

A message has the socket of a client and the state of its protocol; gateway/connections/connection_migration.py says
when. A process without room for another connection returns it, and the sender takes it back in any case. The directory
of the sockets belongs to the node alone, so both ends trust each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from gateway.connections.connection_migration import ConnectionMigration
from gateway.wire.connection import Connection
from gateway.wire.server import HttpServer

STATE_BYTES_MAX = 64 * 1024  # with up to 16 KiB of a frame; a larger one stays where it is
MESSAGES_AT_ONCE = 64  # before the loop runs other tasks
FULL_S = 10.0  # the pause before the next connection is sent to a process that has returned one
_MOVED, _RETURNED = b"M", b"R"


class SocketPassing:
    """One process's end. `path_of` returns the address of a process by its number.

    `count_moved` is called for each connection that this process has taken.
    """

    def __init__(
        self, index: int, path_of: Callable[[int], str], requests_min: int, count_moved: Callable[[], object]
    ) -> None:
        self._count_moved = count_moved
        self._index = index
        self._path_of = path_of
        self._requests_min = requests_min
        self._full_until: dict[int, float] = {}  # of the loop's time, by process
        self._socket: socket.socket | None = None
        self._server: HttpServer | None = None

    def __repr__(self) -> str:
        return f"SocketPassing({self._index}, is_open={self._socket is not None})"

    def open(self, server: HttpServer) -> None:
        """Begins to take connections for the server, and to move its own."""
        self._server = server
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        path = Path(self._path_of(self._index))
        path.unlink(missing_ok=True)  # of a process that was killed
        self._socket.bind(str(path))
        asyncio.get_running_loop().add_reader(self._socket, self._take_some)

    def close(self) -> None:
        """Takes the connections that were sent, and then moves no more."""
        if self._socket is None:
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)  # a process that sends from now on keeps its connection
        while self._take_one():
            pass
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._socket = None

    def moves_of(self, connection: Connection) -> ConnectionMigration:
        return ConnectionMigration(connection, self._send, self._requests_min)

    def _send(self, process: int, handle: int, state: bytes) -> bool:
        """Returns whether the other process has the socket now."""
        if asyncio.get_running_loop().time() < self._full_until.get(process, 0.0):
            return False
        return self._send_message(_MOVED, process, handle, state)

    def _send_message(self, kind: bytes, process: int, handle: int, state: bytes) -> bool:
        if self._socket is None or len(state) > STATE_BYTES_MAX:
            return False
        pieces = [kind, self._index.to_bytes(2, "big"), state]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handle.to_bytes(4, sys.byteorder))]
        try:
            self._socket.sendmsg(pieces, rights, 0, self._path_of(process))  # `send_fds` leaves out the address
        except OSError:  # it stops, starts, or has many messages to take
            return False
        return True

    def _take_some(self) -> None:
        for _ in range(MESSAGES_AT_ONCE):
            if not self._take_one():
                return

    def _take_one(self) -> bool:
        """Takes a connection that was sent. Returns False if there is none."""
        assert self._socket is not None
        try:
            message, handles, *_ = socket.recv_fds(self._socket, 3 + STATE_BYTES_MAX, 1)
        except OSError:
            return False
        if handles:
            self._take(message, socket.socket(fileno=handles[0]))
        return bool(message)

    def _take(self, message: bytes, moved: socket.socket) -> None:
        assert self._server is not None
        kind, sender, state = message[:1], int.from_bytes(message[1:3], "big"), message[3:]
        if kind == _RETURNED:
            self._full_until[sender] = asyncio.get_running_loop().time() + FULL_S
        is_full = kind == _MOVED and not self._server.has_room_for_moved
        if is_full and self._send_message(_RETURNED, sender, moved.fileno(), state):
            moved.close()
            return
        if kind == _MOVED:
            self._count_moved()
        self._server.import_connection(moved, pickle.loads(state) if state else None)  # noqa: S301 - of a process of this node
