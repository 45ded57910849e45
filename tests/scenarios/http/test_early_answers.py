"""An answer that is sent before the body was read reaches the client: status and problem, no reset.

Clients of HTTP/2 lose such an answer when the server closes the stream while they still send (curl: error 92). The
tests use curl over both protocols, as a user would. 4 MiB are far more than any window or buffer on the way holds.
"""

import http.client
import json
import socket
import subprocess
import time

import pytest

from tests.e2e.node_process import running_process
from tests.scenarios.gateways import over_http2

BODY_BYTES = 4 * 2**20
PROTOCOLS = pytest.mark.parametrize("protocol", ["--http1.1", "--http2-prior-knowledge"])


@pytest.fixture(scope="module")
def large_body(tmp_path_factory):
    path = tmp_path_factory.mktemp("bodies") / "large"
    path.write_bytes(b"x" * BODY_BYTES)
    return path


@pytest.fixture(scope="module")
def larger_body(tmp_path_factory):
    path = tmp_path_factory.mktemp("bodies") / "larger"
    path.write_bytes(b"x" * 12 * 2**20)
    return path


@pytest.fixture(scope="module")
def small_process(tmp_path_factory):
    """Start a node that accepts bodies of at most 1 MiB, and creates topics on demand."""
    settings = {"request_body_bytes_max": 2**20, "auto_create_topics": True}
    with running_process(tmp_path_factory.mktemp("small"), **settings) as process:
        yield process


@pytest.fixture
async def topic_path(shared_process, new_name):
    async with over_http2(shared_process.port) as gateway:
        yield (await gateway.create(new_name())).path


def curl(url, protocol, *arguments):
    """Return exit code, version and status as curl reports them, and the body."""
    marker = "\n%{http_version} %{http_code}"
    command = ["curl", "--silent", "--max-time", "60", protocol, "--write-out", marker, *arguments, url]
    ended = subprocess.run(command, capture_output=True, timeout=70)
    body, _, written = ended.stdout.rpartition(b"\n")
    version, status = written.decode().split()
    return ended.returncode, version, int(status), body


@PROTOCOLS
@pytest.mark.parametrize("framing", ["announced", "unannounced", "expecting 100"])
@pytest.mark.parametrize(
    ("status", "code", "path", "headers"),
    [
        (404, "unknown_topic", "/v1/topics/no-such-topic/records", []),
        (405, "method_not_allowed", "/healthz", []),
        (400, "unknown_query", "{topic}/records?colour=red", []),
    ],
    ids=lambda value: value if isinstance(value, str) and value.islower() and "/" not in value else None,
)
def test_a_refusal_reaches_a_client_that_still_sends(
    shared_process, topic_path, large_body, protocol, framing, status, code, path, headers
):
    if framing == "expecting 100" and protocol != "--http1.1":
        return  # not used with HTTP/2; curl would wait a second for no answer
    url = shared_process.url + path.replace("{topic}", topic_path)
    given = [argument for header in headers for argument in ("--header", header)]
    upload = {
        "announced": ["--header", "Expect:", "--data-binary", f"@{large_body}"],
        "unannounced": ["--header", "Expect:", "--request", "POST", "--header", "Transfer-Encoding: chunked"],
        "expecting 100": ["--header", "Expect: 100-continue", "--data-binary", f"@{large_body}"],
    }[framing]
    if framing == "unannounced":
        upload += ["--upload-file", str(large_body)]
    exit_code, version, seen, body = curl(url, protocol, *given, *upload)
    assert (exit_code, seen, version) == (0, status, "1.1" if protocol == "--http1.1" else "2")
    assert json.loads(body)["code"] == code


@PROTOCOLS
@pytest.mark.parametrize("is_announced", [True, False])
def test_a_body_over_the_limit_gets_413_and_its_limit(small_process, large_body, protocol, is_announced):
    """Detected by the declared length, or while reading."""
    assert_too_large(small_process.url + "/v1/topics/t/records", large_body, protocol, is_announced, limit=2**20)


def assert_too_large(url, body_file, protocol, is_announced, limit):
    chunked = ["--request", "POST", "--upload-file", str(body_file), "--header", "Transfer-Encoding: chunked"]
    upload = ["--data-binary", f"@{body_file}"] if is_announced else chunked
    arguments = ["--header", "Expect:", "--header", "Content-Type: text/plain", *upload]
    exit_code, _, status, body = curl(url, protocol, *arguments)
    assert (exit_code, status) == (0, 413)
    assert json.loads(body)["code"] == "body_too_large"
    assert json.loads(body)["limit"] == limit


def test_who_waits_for_100_continue_is_refused_before_it_has_sent_anything(shared_process, topic_path, larger_body):
    command = [
        "curl",
        "--silent",
        "--max-time",
        "30",
        "--http1.1",
        "--expect100-timeout",
        "20",
        "--output",
        "/dev/null",
    ]
    command += ["--header", "Expect: 100-continue", "--data-binary", f"@{larger_body}"]
    command += ["--write-out", "%{http_code} %{size_upload}", f"{shared_process.url}{topic_path}/records"]
    assert subprocess.run(command, capture_output=True, timeout=70).stdout == b"413 0"


HUGE_BYTES = 200 * 2**20  # more than lingering_close_bytes_max


@PROTOCOLS
@pytest.mark.parametrize("is_announced", [True, False])
def test_a_body_larger_than_what_is_drained_is_answered_413(
    shared_process, topic_path, tmp_path, protocol, is_announced
):
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(HUGE_BYTES)
    framing = [] if is_announced else ["--header", "Transfer-Encoding: chunked"]
    arguments = ["--header", "Expect:", "--header", "Content-Type: text/plain", "--request", "POST", *framing]
    url = f"{shared_process.url}{topic_path}/records"
    exit_code, _, status, body = curl(url, protocol, *arguments, "--upload-file", str(huge))
    assert (exit_code, status) == (0, 413)
    assert json.loads(body)["code"] == "body_too_large"


def test_a_body_announced_too_large_is_answered_before_any_of_it_is_sent(small_process):
    """The node reads nothing first: this client never sends a byte of its body."""
    with socket.create_connection(("127.0.0.1", small_process.port), timeout=60) as connection:
        head = f"POST /v1/topics/t/records HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {HUGE_BYTES}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("size", [500_000, 4_000_000])
def test_a_slow_sender_reads_its_refusal_and_keeps_the_connection(shared_process, size):
    """It reads nothing before it has sent everything, as many HTTP/1.1 libraries do."""
    client = http.client.HTTPConnection("127.0.0.1", shared_process.port, timeout=60)
    client.putrequest("POST", "/v1/topics/no-such-topic/records")
    client.putheader("Content-Length", str(size))
    client.endheaders()
    for _ in range(10):
        client.send(b"x" * (size // 10))
        time.sleep(0.03)  # longer than the delay before the node watches a request's client
    answer = client.getresponse()
    assert (answer.status, json.loads(answer.read())["code"]) == (404, "unknown_topic")
    client.request("GET", "/healthz")
    assert client.getresponse().status == 200
    client.close()


async def test_the_connection_can_be_used_again_after_an_early_answer(shared_process, topic_path):
    async with over_http2(shared_process.port) as gateway:
        for _ in range(3):
            refused = await gateway.send("POST", f"{topic_path}/records", b"x" * BODY_BYTES, colour="red")
            assert refused.status == 400
        assert (await gateway.send("POST", f"{topic_path}/records", b"taken")).status == 200
