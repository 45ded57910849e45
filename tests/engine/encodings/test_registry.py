"""The registry over HTTP: schemas, unknown ids, authentication, and answers that are none."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from engine.encodings.registry import AUTH, Reference, RegisteredSchema, Registry, RegistryUnavailable, url_problem

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
