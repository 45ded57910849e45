"""The snippets in /docs send what the examples say: each runs against a server that records its requests.

The snippets of a language run one after another in one process, because starting an interpreter for each of them takes
longer than all of their requests.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import pytest

from gateway.docs.snippets import PYTHON, READABLE, SENT, pretty, snippets
from openapi import Example, load_examples
from tests.cells import each_cell

EXAMPLES = load_examples()
RUN_EACH = "import json, subprocess, sys\nfor code in json.load(sys.stdin): "
IMPORT_EACH = """(async () => {
    for (const [n, code] of JSON.parse(require("fs").readFileSync(0)).entries()) {
        const once = `${code}\n// ${n}`  // a module of the same text is imported only once
        await import("data:text/javascript;base64," + Buffer.from(once).toString("base64"))
    }
})().catch(error => { console.error(error); process.exit(1) })"""
# Each reads a JSON list of snippets from stdin and stops at the first that fails.
RUNNERS = {
    "curl": [sys.executable, "-c", RUN_EACH + "subprocess.run(['bash', '-c', code], check=True)"],
    "Python": [sys.executable, "-c", RUN_EACH + "exec(code, {})"],
    "JavaScript": ["node", "-e", IMPORT_EACH],
}
PROGRAMS = {"curl": "curl", "Python": sys.executable, "JavaScript": "node"}


class Sent(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


SentBy = Callable[[str], dict[str, Sent]]


class Recorder(ThreadingHTTPServer):
    sent: list[Sent]


class Keep(BaseHTTPRequestHandler):
    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline()
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        assert isinstance(self.server, Recorder)
        self.server.sent.append(Sent(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    server = Recorder(("127.0.0.1", 0), Keep)
    server.sent = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def sent_by(recorder: Recorder) -> SentBy:
    """Return a function that runs all snippets of a language once, and returns the requests by example name."""

    @cache
    def run(language: str) -> dict[str, Sent]:
        url = f"http://127.0.0.1:{recorder.server_port}"
        codes = {one.name: found[language] for one in EXAMPLES if language in (found := snippets(one, url))}
        recorder.sent.clear()
        given = json.dumps([*codes.values()])
        ran = subprocess.run(RUNNERS[language], input=given, capture_output=True, text=True, timeout=300)
        assert (ran.returncode, len(recorder.sent)) == (0, len(codes)), ran.stderr
        return dict(zip(codes, recorder.sent, strict=True))

    return run


@pytest.mark.parametrize("language", RUNNERS)
@each_cell("example", EXAMPLES, ids=lambda example: example.name)
def test_a_snippet_sends_its_example(example: Example, language: str, sent_by: SentBy) -> None:
    if shutil.which(PROGRAMS[language]) is None:
        pytest.skip(f"there is no {PROGRAMS[language]}")
    requests = sent_by(language)
    if example.name not in requests:
        return  # a script may not set this header
    sent = requests[example.name]
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
