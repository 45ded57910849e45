"""The addresses of shards: clients are led there, and nothing that a node demands or promises is missing there."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest

from penstock import Client
from penstock.options import ClientOptions
from tests.e2e import calls
from tests.e2e.calls import NDJSON, call
from tests.e2e.lifecycle.test_shards import children
from tests.e2e.node_process import NodeProcess, running_process
from tests.tokens import add_token
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e
send = partial(calls.send, content_type=NDJSON)

PARTITIONS = 4
QUICK = ClientOptions(backoff_ms=20, linger_ms=0, fetch_wait_ms=50)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """The last of its tests stops it."""
    with running_process(tmp_path_factory.mktemp("shards"), shards=2) as process:
        yield process


def owners(node: NodeProcess, topic: str = "t") -> list[str]:
    """Make the topic; return the address of the shard of each partition."""
    described = call(f"{node.url}/v1/topics/{topic}", "PUT", {"partitions": PARTITIONS})
    return [row["leader_url"] for row in described["partitions"]]


def metric(node: NodeProcess, name: str) -> int:
    """Return the sum of a metric over the shards."""
    lines = send(f"{node.url}/metrics")[2].decode().splitlines()
    return int(sum(float(one.split()[-1]) for one in lines if one.startswith(f"{name}{{")))


def test_the_wrong_shard_answers_and_names_the_right_one(node: NodeProcess) -> None:
    urls = owners(node, "named")
    assert len(set(urls)) == 2
    for number, owner in enumerate(urls):
        (other,) = set(urls) - {owner}
        path = f"/v1/topics/named/partitions/{number}/records"
        for method, query, body in (("POST", "", b"1\n"), ("GET", "?offset=0", None)):
            status, headers, _ = send(f"{other}{path}{query}", method, body)
            assert (status, headers["Penstock-Leader"]) == (200, owner)
            status, headers, _ = send(f"{owner}{path}{query}", method, body)
            assert (status, headers["Penstock-Leader"]) == (200, None)
        status, headers, _ = send(f"{other}/v1/topics/named/records?partition={number}", "POST", b"1\n")
        assert (status, headers["Penstock-Leader"]) == (200, owner)


def test_a_connection_moves_to_the_shard_that_serves_its_requests(node: NodeProcess) -> None:
    """It stays open, and the requests that follow are forwarded no more. Each record is stored once, in its order."""
    urls = owners(node, "moved")
    owner = urls[0]
    (other,) = set(urls) - {owner}
    path = "/v1/topics/moved/partitions/0/records"
    connection = http.client.HTTPConnection(urlsplit(other).netloc, timeout=60)
    connection.connect()
    opened, offsets, forwarded = connection.sock, [], []
    for number in range(200):
        connection.request("POST", f"{path}?acks=1", b"%d\n" % number, {"Content-Type": "application/x-ndjson"})
        answer = connection.getresponse()
        assert answer.status == 200
        offsets.append(orjson.loads(answer.read())["results"][0]["base_offset"])
        forwarded.append(answer.headers["Penstock-Leader"])
    assert connection.sock is opened
    assert offsets == list(range(200))
    assert forwarded[0] == owner
    assert forwarded[100:] == [None] * 100
    assert metric(node, "penstock_moved_connections_total") >= 1
    wait_until(lambda: call(f"{node.url}/v1/topics/moved")["partitions"][0]["high_watermark"] == 200)
    connection.request("GET", f"{path}?offset=0&max_records=1000")
    records = orjson.loads(connection.getresponse().read())["records"]
    assert [record["value"] for record in records] == list(range(200))
    connection.close()


async def test_producers_and_consumers_go_straight_after_their_first_request(node: NodeProcess) -> None:
    await asyncio.to_thread(owners, node, "straight")
    async with Client(node.url, options=QUICK) as client:
        for _ in range(3):  # connections of the shared port come to either shard
            for number in range(PARTITIONS):
                await client.post_records("straight", b"1\n", partition=number)
        before = await asyncio.to_thread(metric, node, "penstock_forwarded_requests_total")
        for _ in range(20):
            for number in range(PARTITIONS):
                await client.post_records("straight", b"1\n", partition=number)
        consumer = client.consume("straight", follow=False)
        async with asyncio.timeout(60), consumer:
            assert len([record async for record in consumer]) == 23 * PARTITIONS
        # a partition whose requests have met their own shard each time is not known yet, and the consumer asks for ends
        assert await asyncio.to_thread(metric, node, "penstock_forwarded_requests_total") - before <= 4 * PARTITIONS


async def test_a_client_goes_on_while_the_shard_that_it_goes_straight_to_is_restarted(node: NodeProcess) -> None:
    urls = await asyncio.to_thread(owners, node, "restarted")
    async with Client(node.url, options=QUICK) as client, client.producer() as producer:
        for _ in range(3):
            for number in range(PARTITIONS):
                await producer.send("restarted", number, partition=number)
            await producer.flush()
        os.kill(children(node.pid)["node.processes.shard_process"], signal.SIGKILL)
        for _ in range(3):
            for number in range(PARTITIONS):
                await producer.send("restarted", number, partition=number)
            await producer.flush()

        def is_straight() -> bool:
            return all(send(f"{url}/readyz")[0] == 200 for url in set(urls))

        await asyncio.to_thread(wait_until, is_straight)
        consumer = client.consume("restarted", follow=False)
        async with asyncio.timeout(60), consumer:
            values = [record.value async for record in consumer]
    assert sorted(values) == sorted(b"%d" % number for number in range(PARTITIONS) for _ in range(6))


@pytest.mark.parametrize(("form", "named"), [("none", set()), ("http://s{shard}.localhost:7", {"0", "1"})])
def test_answers_name_what_the_operator_advertises(tmp_path: Path, form: str, named: set[str]) -> None:
    with running_process(tmp_path, shards=2, advertised_direct_url=form) as node:
        forms = {form.replace("{shard}", shard) for shard in named}
        assert set(owners(node)) == (forms or {node.url})
        seen = set()
        for number in range(PARTITIONS):
            for _ in range(12):  # connections, each to either shard
                seen.add(send(f"{node.url}/v1/topics/t/partitions/{number}/records?offset=0")[1]["Penstock-Leader"])
        assert seen == {None, *forms}


def test_tokens_hold_at_the_address_of_a_shard(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    writer = add_token(path, "writer", write=["t"])
    admin = add_token(path, "admin", admin=[""])
    with running_process(tmp_path, shards=2, tokens_file=path) as node:
        _, _, body = send(f"{node.url}/v1/topics/t", "PUT", token=admin)
        for row in orjson.loads(body)["partitions"]:
            records = f"{row['leader_url']}/v1/topics/t/partitions/{row['partition']}/records"
            assert send(records, "POST", b"1\n")[0] == 401
            assert send(records, "POST", b"1\n", token=writer)[0] == 200
            assert send(records, token=writer)[0] == 403


def test_tls_holds_at_the_address_of_a_shard(tmp_path: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run([*command, *names, "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=60)
    trusting = ssl.create_default_context(cafile=cert)
    with running_process(tmp_path, shards=2, tls_cert=cert, tls_key=key) as node:
        request = urllib.request.Request(f"{node.url}/v1/topics/t", b'{"partitions":4}', method="PUT")
        with urllib.request.urlopen(request, timeout=60, context=trusting) as answer:
            urls = {row["leader_url"] for row in orjson.loads(answer.read())["partitions"]}
        assert len(urls) == 2
        for url in urls:
            assert url.startswith("https://127.0.0.1:")
            with urllib.request.urlopen(f"{url}/v1/topics/t", timeout=60, context=trusting) as answer:
                assert answer.status == 200
            with pytest.raises((urllib.error.URLError, ConnectionError, OSError)):
                urllib.request.urlopen(url.replace("https", "http"), timeout=60)


def test_connections_to_the_address_of_a_shard_are_bounded(tmp_path: Path) -> None:
    """A process has two ports, each with a share of connections_max; further connections wait in the queue."""
    with running_process(tmp_path, shards=2, connections_max=16) as node:
        parts = urlsplit(owners(node)[0])
        held = [socket.create_connection((parts.hostname, parts.port), timeout=60) for _ in range(33)]
        for one in held:
            one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert all(one.recv(1000).startswith(b"HTTP/1.1 200 ") for one in held[:-1])
        held[-1].settimeout(1)
        with pytest.raises(TimeoutError):
            held[-1].recv(1000)
        held[0].close()
        held[-1].settimeout(60)
        assert held[-1].recv(1000).startswith(b"HTTP/1.1 200 ")
        for one in held:
            one.close()


def test_a_stop_answers_what_is_under_way_at_the_address_of_a_shard(node: NodeProcess) -> None:
    answers: dict[str, int] = {}

    def poll(url: str, number: int) -> None:
        path = f"/v1/topics/t/partitions/{number}/records?offset=0&wait_ms=60000"
        answers[url] = send(f"{url}{path}")[0]

    urls = owners(node)
    polls = [threading.Thread(target=poll, args=(url, urls.index(url))) for url in set(urls)]
    for one in polls:
        one.start()
    wait_until(lambda: metric(node, "penstock_long_polls") == 2)
    began = time.monotonic()
    assert node.stop() == 0
    for one in polls:
        one.join(60)
    assert time.monotonic() - began < 45, "long polls end at once"
    assert answers == dict.fromkeys(set(urls), 200)
