"""HTTP/1.1 byte by byte, for requests that no client library would send. Blocking; call it from a thread."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


def exchange(port: int, *parts: bytes, ends_sending: bool = False, answer_s: float = 10.0) -> bytes:
    """Send the parts unchanged, then read until the node closes the connection or stops sending.

    `ends_sending` closes the sending direction first, like a client whose upload has failed but that still reads.
    """
    with socket.create_connection((HOST, port), timeout=answer_s) as connection:
        for part in parts:
            connection.sendall(part)
        if ends_sending:
            connection.shutdown(socket.SHUT_WR)
        return _read_answer(connection)


def send_and_leave(port: int, *parts: bytes) -> None:
    """Send the parts and close at once, without waiting for an answer."""
    with socket.create_connection((HOST, port), timeout=60) as connection:
        for part in parts:
            connection.sendall(part)


def request_head(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {HOST}", "Connection: close", *headers, "", ""]).encode()


def _read_answer(connection: socket.socket) -> bytes:
    pieces = []
    try:
        while piece := connection.recv(65536):
            pieces.append(piece)
    except (TimeoutError, ConnectionResetError):
        pass
    return b"".join(pieces)
