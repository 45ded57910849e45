"""The HTTP/2 client of the locust users against the node's own server."""

import asyncio

import pytest

from loadtests.generators.bodies import BATCH_TYPE, batch_body, json_values
from loadtests.host.admin_client import AdminClient
from loadtests.host.servers import penstock
from loadtests.locust.http2_client import ConnectionEnded, Http2Client

RAW = {"Content-Type": "application/octet-stream"}


@pytest.mark.slow
@pytest.mark.e2e
def test_small_and_large_bodies_go_both_ways(tmp_path):
    batch = batch_body(json_values(1000, 1000), 1).data  # larger than any window at the start
    with penstock(tmp_path) as node:
        AdminClient(node.url).create_topic("t", {})
        client = Http2Client(node.url)
        for number in range(3):
            assert client.request("POST", "/v1/topics/t/records", b"%d" % number, RAW).status == 200
        target = "/v1/topics/t/partitions/0/records"
        assert client.request("POST", target, batch, {"Content-Type": BATCH_TYPE}).status == 200
        answer = client.request("GET", f"{target}?offset=3&max_bytes=2000000", headers={"Accept": BATCH_TYPE})
        missing = client.request("GET", "/v1/topics/none").status
        client.close()
    assert answer.headers["penstock-next-offset"] == "1003"
    assert answer.body[16:] == batch[16:]
    assert missing == 404


async def test_a_server_that_hangs_up_is_an_error_and_the_next_request_connects_again():
    connections = []

    async def hang_up(reader, writer):
        connections.append(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    client = Http2Client(f"http://{host}:{port}")
    for _ in range(2):
        with pytest.raises((ConnectionEnded, OSError)):
            await asyncio.to_thread(client.request, "POST", "/", b"x")
    server.close()
    assert len(connections) == 2
