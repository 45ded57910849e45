"""Two blocking clients that report answers as they came: headers in their order, informational answers, resets."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from http.client import responses
from typing import BinaryIO

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalResponseReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)

from tests.golden.exchange_files import Request

ANSWER_S = 60.0  # generous: the machine may be busy with other tests


@dataclass
class Answer:
    """`first` is the status, the status line of HTTP/1.1 if it is not the usual one, or how it ended without one."""

    first: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


class Http1Connections:
    """Sends requests over one connection as long as it is kept. Raw requests and streams have their own connections."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._kept: tuple[socket.socket, BinaryIO] | None = None

    def close(self) -> None:
        if self._kept:
            self._kept[1].close()
            self._kept[0].close()
        self._kept = None

    def exchange(self, request: Request, options: dict[str, str]) -> list[Answer]:
        is_alone = request.is_raw is not None or "until" in options
        if is_alone:
            self.close()
        if self._kept is None:
            connected = socket.create_connection(("127.0.0.1", self._port), ANSWER_S)
            self._kept = connected, connected.makefile("rb")
        connection, file = self._kept
        connection.sendall(http1_bytes(request, self._port, int(options.get("chunked", 0))))
        is_head = (request.is_raw or request.start_line.encode()).startswith(b"HEAD ")
        answers: list[Answer] = []
        for _ in range(int(options.get("answers", 1))):
            answers += _read_answers(file, is_head=is_head, until=options.get("until", "").encode())
        last = answers[-1]
        if is_alone or last.first == "closed" or last.header("connection") == "close":
            self.close()
        return answers


def http1_bytes(request: Request, port: int, chunk_bytes: int) -> bytes:
    if request.is_raw is not None:
        return request.is_raw
    names = {name.lower() for name, _ in request.headers}
    lines = [f"{request.start_line} HTTP/1.1"]
    if "host" not in names:
        lines.append(f"Host: 127.0.0.1:{port}")
    lines += [f"{name}: {value}" for name, value in request.headers]
    body = request.body
    if chunk_bytes:
        lines.append("Transfer-Encoding: chunked")
        pieces = [body[at : at + chunk_bytes] for at in range(0, len(body), chunk_bytes)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b""))
    elif body and "content-length" not in names:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _read_answers(file: BinaryIO, *, is_head: bool, until: bytes) -> list[Answer]:
    """Read an answer and the informational ones before it."""
    answers = []
    while True:
        try:
            first = file.readline()
        except ConnectionResetError:
            first = b""
        if not first:
            return [*answers, Answer("closed", [])]
        headers = []
        while line := file.readline().rstrip(b"\r\n").decode("latin-1"):
            name, _, value = line.partition(": ")
            headers.append((name, value))
        status = int(first.split()[1])
        is_usual = first == f"HTTP/1.1 {status} {responses.get(status)}\r\n".encode()
        answers.append(answer := Answer(str(status) if is_usual else repr(first), headers))
        if status >= 200:
            break
    if not is_head and status not in (204, 304):
        answer.body = _read_body(file, answer, until)
    return answers


def _read_body(file: BinaryIO, answer: Answer, until: bytes) -> bytes:
    length = answer.header("content-length")
    if length is not None:
        return file.read(int(length))
    if answer.header("transfer-encoding") != "chunked":
        return file.read()
    body = b""
    while size := int(file.readline(), 16):
        body += file.read(size)
        file.readline()
        if until and until in body:
            return body
    file.readline()
    return body


class Http2Connection:
    """Sends one request after another over a connection of HTTP/2 with prior knowledge."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def close(self) -> None:
        if self._socket:
            self._socket.close()
        self._socket = None

    def exchange(self, request: Request, options: dict[str, str]) -> list[Answer]:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), ANSWER_S)
            configuration = H2Configuration(header_encoding="latin-1", validate_outbound_headers=False)
            self._h2 = H2Connection(configuration)
            self._h2.initiate_connection()
            self._h2.increment_flow_control_window(2**31 - 1 - 65_535)
        stream = self._h2.get_next_available_stream_id()
        answers: list[Answer] = []
        self._begin(stream, request)
        body, until = request.body, options.get("until", "").encode()
        while True:
            body = self._send_some(stream, body)
            data = self._socket.recv(65_536)
            if not data:
                self.close()
                return [*answers, Answer("closed", [])]
            for event in self._h2.receive_data(data):
                if self._take(event, stream, answers):
                    return answers
            if until and answers and until in answers[-1].body:
                self._h2.reset_stream(stream, ErrorCodes.CANCEL)
                self._socket.sendall(self._h2.data_to_send())
                return answers

    def _begin(self, stream: int, request: Request) -> None:
        method, _, path = request.start_line.partition(" ")
        own = {name: value for name, value in request.headers if name.startswith(":") or name.lower() == "host"}
        authority = own.get(":authority", own.get("Host", f"127.0.0.1:{self._port}"))
        fields = [(":method", method), (":path", path), (":scheme", "http"), (":authority", authority)]
        fields += [(name.lower(), value) for name, value in request.headers if name not in own]
        if request.body and not any(name.lower() == "content-length" for name, _ in request.headers):
            fields.append(("content-length", str(len(request.body))))
        self._h2.send_headers(stream, fields, end_stream=not request.body)

    def _send_some(self, stream: int, body: bytes) -> bytes:
        """Send what the windows take of a body. Returns the rest."""
        assert self._socket is not None
        while body and self._h2.state_machine.state.name == "CLIENT_OPEN":
            room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
            if not room:
                break
            piece, body = body[:room], body[room:]
            self._h2.send_data(stream, piece, end_stream=not body)
        self._socket.sendall(self._h2.data_to_send())
        return body

    def _take(self, event: Event, stream: int, answers: list[Answer]) -> bool:
        """Returns True at the end of the answer."""
        match event:
            case InformationalResponseReceived() | ResponseReceived() if event.stream_id == stream:
                (_, status), *headers = [(str(name), str(value)) for name, value in event.headers]
                answers.append(Answer(status, headers))
            case DataReceived():
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if event.stream_id == stream:
                    answers[-1].body += event.data
            case StreamReset() if event.stream_id == stream:
                if not answers:
                    answers.append(Answer(f"reset {event.error_code!r}", []))
                return True
            case ConnectionTerminated():
                answers.append(Answer(f"goaway {event.error_code!r}", []))
                self.close()
                return True
            case StreamEnded() if event.stream_id == stream:
                return True
        return False
