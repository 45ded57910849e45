"""A schema registry with Confluent's API, in a thread. Tests put schemas in, or register them. It can be silent."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

AVRO = {
    "type": "record",
    "name": "Ride",
    "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}],
}


@dataclass
class StubRegistry:
    """The answers. `requests` are the paths that were asked for."""

    url: str = ""
    is_silent: bool = False
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[int, list[str]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def add(self, subject: str, schema: str, kind: str = "AVRO", references: tuple[dict[str, Any], ...] = ()) -> int:
        """Registers a schema and returns its id."""
        number = len(self.schemas) + 1
        self.schemas[number] = {"schema": schema, "schemaType": kind, "references": list(references)}
        self.subjects[number] = [subject]
        return number

    def answer(self, path: str) -> object | None:
        match unquote(path).strip("/").split("/"):
            case ["schemas", "ids", number]:
                return self.schemas.get(int(number))
            case ["schemas", "ids", number, "versions"]:
                return [{"subject": subject, "version": 1} for subject in self.subjects.get(int(number), [])]
            case ["subjects", subject, "versions", "1"]:
                for number, names in self.subjects.items():
                    if subject in names:
                        return {"id": number, **self.schemas[number]}
        return None


@contextmanager
def stub_registry() -> Iterator[StubRegistry]:
    stub = StubRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stub.requests.append(self.path)
            found = None if stub.is_silent else stub.answer(urlsplit(self.path).path)
            self.send_response(503 if stub.is_silent else 404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def do_POST(self) -> None:
            """Registers a schema; one whose text has the word `bad` is refused."""
            subject = unquote(urlsplit(self.path).path).split("/")[2]
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            stub.requests.append(self.path)
            is_bad = "bad" in body["schema"]
            self.send_response(503 if stub.is_silent else 422 if is_bad else 200)
            self.end_headers()
            if not stub.is_silent and not is_bad:
                number = stub.add(subject, body["schema"], body["schemaType"])
                self.wfile.write(json.dumps({"id": number}).encode())

        def log_message(self, *_: object) -> None:
            """No output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        stub.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()


def framed(schema_id: int, data: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + data


def avro_ride(schema_id: int, number: int = 1, city: str = "Z") -> bytes:
    import fastavro

    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), {"id": number, "city": city})
    return framed(schema_id, stream.getvalue())


def protobuf_file() -> str:
    """Returns the descriptor of message shop.Order with its lines, as the registry gives it."""
    from google.protobuf import descriptor_pb2

    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=kind.TYPE_INT64, label=kind.LABEL_OPTIONAL)
    line = order.nested_type.add(name="Line")
    line.field.add(name="name", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    other = file.message_type.add(name="Other")
    at = ".google.protobuf.Timestamp"
    other.field.add(name="at", number=1, type=kind.TYPE_MESSAGE, type_name=at, label=kind.LABEL_OPTIONAL)
    return b64encode(file.SerializeToString()).decode()
