"""The bench of a cluster: the computation of its figures. A complete run needs a quiet machine and minutes."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from loadtests.cluster_bench.result import Result, as_json, as_markdown
from loadtests.cluster_bench.steady_writer import Gap, SteadyWriter, longest_gap


class Node(ThreadingHTTPServer):
    """Answers produces, rejects some, and remembers the keys."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.refuse = 0
        self.keys: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Node

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        is_refused = self.server.refuse > 0
        self.server.refuse -= is_refused
        self.server.keys.append(self.headers["Idempotency-Key"])
        body = json.dumps({"code": "no_leader"} if is_refused else {}).encode()
        self.send_response(503 if is_refused else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """No-op: keeps requests off the terminal."""


@pytest.fixture
def node() -> Iterator[Node]:
    found = Node()
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()


def test_the_longest_gap_ends_after_the_moment_and_may_begin_before_it():
    assert longest_gap([0.0, 1.0, 5.0, 5.5, 6.0], after=4.0) == Gap(1.0, 5.0)
    assert longest_gap([0.0, 3.0, 5.0, 5.5], after=4.0).seconds == 2.0


def test_a_refused_record_is_retried_under_its_key_and_counted(node):
    node.refuse = 2
    writer = SteadyWriter(node.url, "t")
    writer.start()
    writer.wait_beyond(0.0)
    writer.stop()
    assert writer.refused == ["503 no_leader"] * 2
    assert len(set(node.keys[:3])) == 1, "one record, three times"
    assert len(set(node.keys)) == len(writer.acknowledged)


def test_waiting_for_an_acknowledgement_that_does_not_come_ends(node):
    node.refuse = 10**9
    writer = SteadyWriter(node.url, "t")
    writer.start()
    with pytest.raises(TimeoutError, match="no_leader"):
        writer.wait_beyond(0.0, timeout_s=0.3)
    writer.stop()


def test_a_missed_target_stands_out_in_the_table_and_a_figure_without_one_does_not():
    results = [Result("a", "under 1 s", "2 s", False), Result("b", "", "3", None, "more")]
    assert as_markdown(results, ["fact"]).splitlines()[-2:] == [
        "| a | under 1 s | **missed** 2 s |  |",
        "| b |  | 3 | more |",
    ]
    assert json.loads(as_json(results, ["fact"]))["results"][0]["is_met"] is False
