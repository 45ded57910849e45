"""The snippets in /docs send what the examples say: each runs against a server that records its requests."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import pytest

from gateway.docs.snippets import PYTHON, READABLE, SENT, pretty, snippets
from openapi import Example, load_examples

EXAMPLES = load_examples()
RUNNERS = {
    "curl": ["bash", "-c"],
    "Python": [sys.executable, "-c"],
    "JavaScript": ["node", "--input-type=module", "-e"],
}


class Sent(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Recorder(ThreadingHTTPServer):
    sent: Sent


class Keep(BaseHTTPRequestHandler):
    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline()
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        assert isinstance(self.server, Recorder)
        self.server.sent = Sent(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    server = Recorder(("127.0.0.1", 0), Keep)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
@pytest.mark.parametrize("language", RUNNERS)
def test_a_snippet_sends_its_example(example: Example, language: str, recorder: Recorder) -> None:
    command = RUNNERS[language]
    code = snippets(example, f"http://127.0.0.1:{recorder.server_port}").get(language)
    if code is None or shutil.which(command[0]) is None:
        pytest.skip("a script may not set this header" if code is None else f"there is no {command[0]}")
    subprocess.run([*command, code], check=True, capture_output=True, timeout=30)
    sent = recorder.sent
    assert (sent.method, sent.path) == (example.method, example.path)
    for name, value in example.headers.items():
        assert sent.headers[name.lower()] == value
    if example.body_json is not None:
        assert json.loads(sent.body) == example.body_json
    else:
        assert sent.body == (example.body or b"")


def test_every_example_is_there_in_every_language_but_for_headers_that_scripts_may_not_set() -> None:
    lacking = [one.name for one in EXAMPLES if set(snippets(one, "http://x")) != set(RUNNERS)]
    assert lacking == [one.name for one in EXAMPLES if "Host" in one.headers]


@pytest.mark.parametrize(
    "value", [{}, [], {"a": [1, {"b": None}]}, [{"key": "x" * 40, "n": n} for n in range(9)], 'a"b', [True, False, "é"]]
)
def test_pretty_text_is_the_same_value(value: object) -> None:
    assert json.loads(pretty(value, READABLE)) == value
    assert json.loads(pretty(value, SENT)) == value
    assert ast.literal_eval(pretty(value, PYTHON)) == value
