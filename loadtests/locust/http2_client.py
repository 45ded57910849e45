"""An HTTP/2 client for locust users: one connection, one request at a time, on gevent's sockets.

locust's own clients speak HTTP/1.1 only. The frames are those of the `h2` library, so a request costs several times as
much as h2load's: use it to have HTTP/2 in a mix, not to find the limit of a node.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, Event, ResponseReceived, StreamEnded, StreamReset

TIMEOUT_S = 60.0
READ_BYTES = 1 << 18
WINDOW_BYTES = 1 << 24  # the flow-control window of a fetch must not limit the rate


class ConnectionEnded(Exception):
    """The server closed the connection or reset the stream."""


@dataclass(slots=True)
class Answer:
    """A response while it arrives, and afterwards."""

    status: int = 0
    headers: Mapping[str, str] | None = None
    body: bytes = b""


class Http2Client:
    """Opens its connection with the first request, and a new one after an error."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._address = (parts.hostname, parts.port or 80)
        self._authority = parts.netloc
        self._socket: socket.socket | None = None
        self._frames = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))

    def request(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """Raises OSError and ConnectionEnded; the next request opens a new connection."""
        try:
            return self._request(method, path, body, headers or {})
        except (OSError, ConnectionEnded):
            self.close()
            raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Raises OSError, ConnectionEnded."""
        connection = self._socket or self._open()
        stream = self._frames.get_next_available_stream_id()
        pseudo = [(":method", method), (":scheme", "http"), (":authority", self._authority), (":path", path)]
        named = [(name.lower(), value) for name, value in headers.items()]
        self._frames.send_headers(stream, [*pseudo, *named], end_stream=not body)
        answer = Answer()
        rest = memoryview(body)
        while True:
            rest = self._send_what_fits(stream, rest)
            connection.sendall(self._frames.data_to_send())
            if self._take(self._receive(connection), stream, answer):
                return answer

    def _open(self) -> socket.socket:
        self._frames = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._frames.initiate_connection()
        self._frames.increment_flow_control_window(WINDOW_BYTES)
        self._socket = socket.create_connection(self._address, timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def _send_what_fits(self, stream: int, rest: memoryview) -> memoryview:
        """Hands the body to the frames as far as the server's windows allow. Returns the rest."""
        while rest and (room := min(self._frames.local_flow_control_window(stream), len(rest))) > 0:
            piece = rest[: min(room, self._frames.max_outbound_frame_size)]
            rest = rest[len(piece) :]
            self._frames.send_data(stream, bytes(piece), end_stream=not rest)
        return rest

    def _receive(self, connection: socket.socket) -> list[Event]:
        """Raises ConnectionEnded."""
        data = connection.recv(READ_BYTES)
        if not data:
            raise ConnectionEnded("the server closed the connection")
        return self._frames.receive_data(data)

    def _take(self, events: list[Event], stream: int, answer: Answer) -> bool:
        """Collects what belongs to the answer; returns whether it is complete. Raises ConnectionEnded."""
        is_complete = False
        for event in events:
            match event:
                case ResponseReceived(headers=headers):
                    fields = {str(name): str(value) for name, value in headers or []}
                    answer.status, answer.headers = int(fields.pop(":status")), fields
                case DataReceived(data=data, flow_controlled_length=length):
                    answer.body += data or b""
                    self._frames.acknowledge_received_data(length or 0, stream)
                case StreamEnded():
                    is_complete = True
                case StreamReset(error_code=code) | ConnectionTerminated(error_code=code):
                    raise ConnectionEnded(f"the server ended it with the code {code}")
        return is_complete
