"""A few S3 requests answered from memory, with faults on demand that real test servers cannot produce.

Not a stand-in for S3: the contract suite runs on ministack and moto. This one drops answers, cuts bodies, reports
conflicts and, if requested, ignores conditions.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

CONFLICT = "conflict"  # 409, not executed
SLOW_DOWN = "slow down"  # 503, not executed
LOST = "lost"  # executed, but the connection ends before the answer
CUT = "cut"  # the answer's body ends half way
FORBIDDEN = "forbidden"  # 403
NO_BUCKET = "no bucket"  # 404 NoSuchBucket
SKEWED = "skewed"  # 403 RequestTimeTooSkewed
NO_CHECKSUMS = "no checksums"  # 501
_ENCRYPTION = "x-amz-server-side-encryption"
_ERRORS = {CONFLICT: (409, "ConditionalRequestConflict"), SLOW_DOWN: (503, "SlowDown")}
_ERRORS |= {SKEWED: (403, "RequestTimeTooSkewed"), NO_CHECKSUMS: (501, "NotImplemented")}
_ERRORS |= {FORBIDDEN: (403, "AccessDenied"), NO_BUCKET: (404, "NoSuchBucket")}


class FakeS3:
    """The state of one server. Each request consumes one of `faults`; `requests` records them."""

    def __init__(self, *, ignores_conditions: bool = False, loses_metadata: bool = False) -> None:
        self.ignores_conditions = ignores_conditions
        self.loses_metadata = loses_metadata
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.faults: list[str | None] = []
        self.requests: list[str] = []
        self.encryption: dict[str, str] = {}  # of the last request
        self.lock = threading.Lock()
        self.url = ""


@contextmanager
def served(fake: FakeS3) -> Iterator[FakeS3]:
    class Handler(_Handler):
        state = fake

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        fake.url = f"s3://bucket?endpoint=http://127.0.0.1:{server.server_port}"
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: FakeS3
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        pass

    def handle_expect_100(self) -> bool:
        self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _begin(self) -> tuple[str, bytes, str | None] | None:
        """Read the complete request and consume a fault. Return None if the fault has answered."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.state.lock:
            self.state.requests.append(self.command)
            named = {name.lower(): value for name, value in self.headers.items()}
            self.state.encryption = {name: named[name] for name in named if name.startswith(_ENCRYPTION)}
            fault = self.state.faults.pop(0) if self.state.faults else None
        if fault in _ERRORS:
            status, code = _ERRORS[fault]
            self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())
            return None
        return unquote(urlsplit(self.path).path.removeprefix("/bucket").removeprefix("/")), body, fault

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in {"Last-Modified": formatdate(0, usegmt=True), **(headers or {})}.items():
            self.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut

    def do_PUT(self) -> None:
        if (begun := self._begin()) is None:
            return
        key, body, fault = begun
        condition = self.headers.get("If-None-Match") and not self.state.ignores_conditions
        with self.state.lock:
            taken = bool(condition) and key in self.state.objects
            if not taken:
                nonce = {} if self.state.loses_metadata else {"x-amz-meta-penstock-put": self._nonce()}
                self.state.objects[key] = (body, nonce)
        if fault == LOST:
            self.close_connection = True
        elif taken:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        else:
            self._answer(200, headers={"ETag": '"x"'})

    def _nonce(self) -> str:
        return str(self.headers.get("x-amz-meta-penstock-put", ""))

    def do_GET(self) -> None:
        if (begun := self._begin()) is None:
            return
        key, _, fault = begun
        if not key:
            self._list()
        elif key not in self.state.objects:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            body = self.state.objects[key][0]
            if requested := self.headers.get("Range"):
                first, last = requested.removeprefix("bytes=").split("-")
                body = body[int(first) : int(last) + 1 if last else None]
            self._answer(206 if requested else 200, body, cut=fault == CUT)

    def _list(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(body)}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, (body, _) in sorted(self.state.objects.items())
            if key.startswith(prefix) and key > after
        )
        self._answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode())

    def do_HEAD(self) -> None:
        if (begun := self._begin()) is None:
            return
        key = begun[0]
        if key not in self.state.objects:
            self._answer(404)
        else:
            body, metadata = self.state.objects[key]
            self._answer(200, headers={"Content-Length": str(len(body)), **metadata})

    def do_DELETE(self) -> None:
        if (begun := self._begin()) is not None:
            self.state.objects.pop(begun[0], None)
            self._answer(204)
