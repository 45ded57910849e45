"""Listening sockets: opened on the addresses of a node, shared between its processes, and closed without resets."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from typing import Any

from gateway.wire.messages import Header

BACKLOG = 4096
DROPPED_BYTES = 64 * 1024  # of plain text at a port of TLS
UNSENT_BYTES = 256 * 1024  # of an answer that the kernel keeps beyond the client's receive window
TCP_NOTSENT_LOWAT = 25  # Linux; not among the names of `socket`
SO_ATTACH_FILTER = 26
# Classic BPF over a TCP header: load the flags; if SYN is set, drop the packet; else accept all of it.
STEPS = ((0x30, 0, 0, 13), (0x45, 0, 1, 2), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
DROP_SYN = b"".join(struct.pack("=HBBI", *step) for step in STEPS)


class Door:
    """A listener of a server: its sockets, and the TLS of its new connections; None: plain.

    `listener` is what the application knows of it, which each of its connections has; None: nothing special.
    `refuses` says of a connection of an earlier TLS whether it must end.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        tls: ssl.SSLContext | None = None,
        listener: Any = None,
        refuses: Callable[[ssl.SSLObject], bool] | None = None,
    ) -> None:
        self.sockets = sockets
        self.tls = tls
        self.listener = listener
        self.refuses = refuses

    def __repr__(self) -> str:
        return f"Door({self.listener}, sockets={len(self.sockets)}, is_tls={self.tls is not None})"


def listen(endpoints: Sequence[tuple[str, int]]) -> list[socket.socket]:
    """Opens a socket for each address and port, which other processes may share. Raises OSError."""
    with contextlib.ExitStack() as stack:
        sockets = []
        for address, port in endpoints:
            one = stack.enter_context(socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # those that are accepted inherit it
            with contextlib.suppress(OSError):
                one.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES)
            if ":" in address:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
            one.setblocking(False)
            one.bind((address, port))
            one.listen(BACKLOG)
            sockets.append(one)
        stack.pop_all()
        return sockets


def reject_new_connections(listener: socket.socket) -> None:
    """Drops new connection attempts, so that none is queued when the listener closes.

    A listener that is closed resets the connections in its queue, and their clients cannot know whether their
    request was done.
    """
    program = ctypes.create_string_buffer(DROP_SYN)
    filter_ = struct.pack("@HP", len(DROP_SYN) // 8, ctypes.addressof(program))
    with contextlib.suppress(OSError):  # if the kernel does not support it, a few connections are reset
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filter_)


def answer_plain(connection: socket.socket, headers: Sequence[Header], body: bytes) -> None:
    """Ends a new connection to a port of TLS whose client speaks no TLS; if it speaks HTTP, with an answer of 400."""
    lines = ["HTTP/1.1 400 Bad Request", *(f"{name}: {value}" for name, value in headers), "Connection: close"]
    with contextlib.closing(connection), contextlib.suppress(OSError):
        if connection.recv(DROPPED_BYTES)[:1].isalpha():  # what is unread at the end would become a reset
            connection.send("\r\n".join([*lines, "", ""]).encode() + body)
            connection.shutdown(socket.SHUT_WR)


def endpoint_of(address: Any) -> str:
    """Returns `host:port`; a Unix socket has no port."""
    if not isinstance(address, tuple) or len(address) < 2:
        return "unix"
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
