"""IPv6 addresses, names and `localhost` in every place for an address: nodes, clusters, client, command. Real
sockets.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.links.addresses import reserve_port
from gateway.settings import NodeSettings
from node.processes.server import running_node
from node.setup.listener import Listener
from penstock.aio import Client
from penstock.cli.doctor.readiness import check_local_readiness
from tests.e2e.cluster.test_cluster import Cluster, call, until
from tests.e2e.node_process import ROOT, running_process
from tests.gateway.links.test_addresses import both, needs_ipv6  # noqa: F401  a fixture
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process

pytestmark = [pytest.mark.e2e, needs_ipv6]


def penstock(url: str, *arguments: str, given: str = "") -> str:
    """Return the output of the command."""
    command = [sys.executable, "-m", "penstock.cli.main", *arguments, "--url", url]
    ended = subprocess.run(command, input=given, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


async def produce_and_consume(url: str, topic: str) -> None:
    async with Client(url) as client:
        async with client.producer() as producer:
            await producer.send(topic, b"by the client")
        async for record in client.consume(topic, start="earliest", follow=False):
            assert record.value == b"by the client"


@pytest.mark.parametrize("form", ["alone", pytest.param("embedded", marks=pytest.mark.long), "sharded"])
def test_a_node_on_an_ipv6_address_serves_client_and_command(tmp_path: Path, form: str) -> None:
    settings = {"alone": {}, "embedded": {"coordination": "embedded"}, "sharded": {"shards": 2}}[form]
    with running_process(tmp_path, host="[::1]", **settings) as node:
        assert node.url == f"http://[::1]:{node.port}"
        penstock(node.url, "topic", "create", "t", "--partitions", "2")
        asyncio.run(produce_and_consume(node.url, "t"))
        for host in ("::1", "[::1]"):
            assert check_local_readiness({"PENSTOCK_HOST": host, "PENSTOCK_PORT": str(node.port)}) is None
        (described,) = json.loads(penstock(f"[::1]:{node.port}", "topic", "list", "--json"))["topics"]
        assert described["topic"] == "t"
        leaders = {one["leader_url"] for one in call(f"{node.url}/v1/topics/t")["partitions"]}
        assert all(call(f"{leader}/healthz") == {"status": "ok"} and "[::1]" in leader for leader in leaders)
        assert '"level":"error"' not in node.errors
        assert node.stop() == 0


def test_the_wildcard_takes_ipv4_and_ipv6(tmp_path: Path) -> None:
    with running_process(tmp_path, host="::", insecure=True) as node:
        for host in ("127.0.0.1", "[::1]", "localhost"):
            assert call(f"http://{host}:{node.port}/healthz") == {"status": "ok"}
        assert node.stop() == 0


def test_localhost_is_a_place_to_listen_on(tmp_path: Path) -> None:
    with running_process(tmp_path, host="localhost") as node:
        assert node.url == f"http://localhost:{node.port}"
        assert call(f"{node.url}/healthz") == {"status": "ok"}
        assert node.stop() == 0


async def health(address: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(address, port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: both.test\r\nConnection: close\r\n\r\n")
    with suppress(ConnectionResetError):
        return await reader.read()
    return b""


async def test_a_name_is_served_on_each_of_its_addresses_and_renewed_there(tmp_path: Path, both: str) -> None:  # noqa: F811
    settings = NodeSettings(data_dir=str(tmp_path / "data"), host=both, shutdown_timeout_ms=0)
    async with running_node(settings) as node:
        with reserve_port(both, 0) as port:
            listener = Listener(node, settings, [port])
            await listener.open()
            for _ in range(2):
                for address in ("::1", "127.0.0.1"):
                    while not (answer := await health(address, port)):
                        pass  # the previous listener accepted it and ended
                    assert answer.startswith(b"HTTP/1.1 200 "), address
                await listener.renew("default")
            await listener.drain()


@pytest.mark.long
@pytest.mark.skipif(not is_installed(), reason=WHY_NOT)
def test_a_cluster_on_ipv6_addresses_replicates_and_fails_over(tmp_path: Path) -> None:
    """ZooKeeper, the client port, the inter-node port and the leaders' URLs are all at ::1."""
    with zookeeper_process(tmp_path / "zookeeper", "::1") as zookeeper:
        cluster = Cluster(tmp_path, f"[::1]:{zookeeper.port}", 2, host="::1")
        try:
            cluster.start()
            one, two = cluster.nodes[1], cluster.nodes[2]
            assert one.url.startswith("http://[::1]:")
            wish = {"partitions": 2, "replication_factor": 2, "config": {"min_insync_replicas": 1}}
            until(lambda: call(f"{one.url}/v1/topics/t", "PUT", wish))
            for partition in (0, 1):
                path = f"/v1/topics/t/partitions/{partition}/records"
                until(lambda: call(one.url + path, "POST", {"records": [{"value": partition}]}))  # noqa: B023
            two.kill()
            for partition in (0, 1):
                path = f"/v1/topics/t/partitions/{partition}/records?from=earliest"
                until(lambda: [record["value"] for record in call(one.url + path)["records"]] == [partition])  # noqa: B023
            assert one.stop() == 0
        finally:
            for node in cluster.nodes.values():
                with suppress(AssertionError):
                    node.kill()
