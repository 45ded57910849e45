"""A TCP link between clients and a server on this machine, which can be cut and mended."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import Self

PIECE_BYTES = 256 * 1024


class Link:
    """Passes the bytes of every connection to `outer` on to `inner`. Cut, it resets them and takes no others."""

    def __init__(self, outer: str, inner: str) -> None:
        self._outer, self._inner = _split(outer), _split(inner)
        self._ends: set[socket.socket] = set()
        self._is_whole = True
        self._is_open = True
        self._listener = socket.create_server(self._outer)
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        self.cut()
        self._thread.join(5)
        self._listener.close()

    def cut(self) -> None:
        self._is_whole = False
        for one in list(self._ends):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._is_whole = True

    def _accept(self) -> None:
        while self._is_open:
            if not select.select([self._listener], [], [], 0.2)[0]:
                continue
            client, _ = self._listener.accept()
            try:
                server = socket.create_connection(self._inner) if self._is_whole else None
            except OSError:
                server = None
            if server is None:
                client.close()
                continue
            self._ends |= {client, server}
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                target.sendall(piece)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._ends.discard(source)
        source.close()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
