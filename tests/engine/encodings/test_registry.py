"""The registry over HTTP: schemas, unknown ids, authentication, and answers that are none."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import create_server
from threading import Event, Thread

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from engine.encodings.avro_schema import parse_avro, read_avro
from engine.encodings.protobuf_file import ProtobufFile
from engine.encodings.registry import AUTH, Reference, RegisteredSchema, Registry, RegistryUnavailable, url_problem
from engine.encodings.undecodable import Undecodable

ANSWERS = {
    "/schemas/ids/7": (200, json.dumps({"schema": '"int"', "other": 1})),
    "/schemas/ids/8": (500, "{}"),
    "/schemas/ids/9": (200, "not json"),
    "/schemas/ids/10": (302, "{}"),
    "/schemas/ids/4294967295": (400, "{}"),
    "/schemas/ids/11": (200, "[" * 100_000),
    "/subjects/a%2Fb/versions/2": (200, json.dumps({"schema": '"long"', "schemaType": "AVRO", "references": []})),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        allowed = self.headers.get("authorization") == "Basic dTpw"
        status, text = ANSWERS.get(self.path, (404, "{}")) if allowed else (401, "{}")
        self.send_response(status)
        if status == 302:
            self.send_header("location", f"http://localhost:{self.server.server_port}/schemas/ids/7")  # type: ignore[attr-defined]
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """No output."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv(AUTH, "u:p")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Registry(f"http://127.0.0.1:{server.server_port}/", time.monotonic)
        server.shutdown()
        thread.join()


def test_schemas_are_read_by_id_and_by_reference(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    assert registry.schema(7) == RegisteredSchema('"int"')
    assert registry.schema(5) is None
    assert registry.read_referenced(Reference("x", "a/b", 2)) == RegisteredSchema('"long"')
    for number in (8, 9):
        with pytest.raises(RegistryUnavailable) as caught:
            registry.schema(number)
        assert caught.value.retryable
    monkeypatch.delenv(AUTH)
    with pytest.raises(RegistryUnavailable, match="401"):
        registry.schema(7)


def test_a_registry_that_is_away_is_retried() -> None:
    with pytest.raises(RegistryUnavailable):
        Registry("http://127.0.0.1:1", time.monotonic).schema(1)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "registry:8081", "http://", "http://u:p@host"])
def test_only_urls_of_registries_are_taken(url: str) -> None:
    assert url_problem(url)
    assert url_problem("https://registry:8081/path") is None


def test_the_password_follows_no_redirect(registry: Registry) -> None:
    with pytest.raises(RegistryUnavailable, match="302"):
        registry.schema(10)


def test_an_id_that_no_registry_can_have_says_nothing_about_the_others(registry: Registry) -> None:
    assert registry.schema(4294967295) is None
    with pytest.raises(RegistryUnavailable):
        registry.schema(11)  # nested too deeply to be read


@pytest.mark.parametrize("begun", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_in_drops_ends_with_the_timeout_of_the_request(begun: bytes) -> None:
    """Each drop comes within the timeout of the socket: a status line, a header without an end, a body."""
    is_over = Event()
    with create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(begun)
                while not is_over.wait(0.01):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = Thread(target=drip)
        thread.start()
        registry = Registry(f"http://127.0.0.1:{listener.getsockname()[1]}", time.monotonic, timeout_s=0.2)
        begun_s = time.monotonic()
        try:
            with pytest.raises(RegistryUnavailable, match=r"in time|timed out"):
                registry.schema(7)
            assert time.monotonic() - begun_s < 5
        finally:
            is_over.set()
            thread.join()


@pytest.mark.parametrize(
    ("root", "data", "value"),
    [
        ('{"type": "array", "items": "a.R"}', b"\x04\x02\x04\x00", [{"x": 1}, {"x": 2}]),
        ('{"type": "map", "values": "a.R"}', b"\x02\x02k\x06\x00", {"k": {"x": 3}}),
        (
            '{"type": "map", "values": {"type": "array", "items": ["null", "a.R"]}}',
            b"\x02\x02k\x02\x02\x06\x00\x00",
            {"k": [{"x": 3}]},
        ),
        ('["null", {"type": "array", "items": "a.R"}, "a.R"]', b"\x04\x06", {"x": 3}),
        ('["null", {"type": "array", "items": "a.R"}, "a.Q"]', b"\x02\x02\x06\x00", [{"x": 3}]),
        ('["a.Q", {"type": "array", "items": "a.Q"}]', b"\x02\x02\x06\x00", [{"r": {"x": 3}}]),
        ('["null", {"type": "array", "items": "a.R"}, "a.Q"]', b"\x04\x06", {"r": {"x": 3}}),
    ],
)
def test_the_root_of_an_avro_schema_has_types_of_another_one(root: str, data: bytes, value: object) -> None:
    named: dict[str, object] = {}
    parse_avro('{"type": "record", "name": "a.R", "fields": [{"name": "x", "type": "long"}]}', named)
    parse_avro('{"type": "record", "name": "a.Q", "fields": [{"name": "r", "type": "a.R"}]}', named)
    assert read_avro(data, parse_avro(root, named)) == value


def test_protobuf_messages_that_are_nested_too_deeply_are_an_error_of_the_value() -> None:
    """The converters of a chain of types are made when its first value comes."""
    file = FileDescriptorProto(name="chain.proto", syntax="proto3")
    for number in range(2000):
        message = file.message_type.add(name=f"M{number}")
        if number < 1999:
            message.field.add(name="next", number=1, type=11, label=1, type_name=f".M{number + 1}")
    encoded = RegisteredSchema(b64encode(file.SerializeToString()).decode(), "PROTOBUF")

    class Chain(Registry):
        def read_serialized(self, schema_id: int) -> RegisteredSchema | None:
            return encoded

    messages = ProtobufFile(Chain("http://127.0.0.1:1", time.monotonic), 7)
    for _ in range(2):
        with pytest.raises(Undecodable, match="nested too deeply"):
            messages.parse(b"\x00\x00\x00\x00\x07\x00")
    last = bytes([*b"\x00\x00\x00\x00\x07\x02", 0x9E, 0x1F])  # the index 1999 as a zigzag varint
    assert messages.parse(last)[0].descriptor.name == "M1999"


def test_a_union_of_many_records_has_their_definitions_once() -> None:
    """Each of them had all of them: a schema of 70 kB took 500 MB, and each value the square of its branches."""
    names = [f"R{number}" for number in range(300)]
    records = [{"type": "record", "name": name, "fields": [{"name": "x", "type": "long"}]} for name in names]
    schema = parse_avro(json.dumps([*records, *names]))
    assert read_avro(b"\xd6\x04\x06", schema) == {"x": 3}
    assert sum(len(branch["__named_schemas"]) for branch in schema.tree) == 300
