"""A program for REST Proxy, with an HTTP library, against a node of two shards that is killed between."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.node_process import running_process

JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}
V2 = {"Content-Type": "application/vnd.kafka.v2+json"}
ACCEPT = {"Accept": "application/vnd.kafka.json.v2+json"}

pytestmark = pytest.mark.e2e


def test_an_instance_goes_on_after_its_node_was_killed(tmp_path: Path) -> None:
    address = free_address()
    settings = {"shards": 2, "rest_proxy_listen": address, "auto_create_topics": True}
    url, read = f"http://{address}", f"http://{address}/consumers/shop/instances/one"

    def produce(*numbers: int) -> None:
        records = [{"value": number} for number in numbers]
        done = httpx.post(f"{url}/topics/orders", json={"records": records}, headers=JSON, timeout=30)
        assert done.status_code == 200, done.text
        assert [row["error_code"] for row in done.json()["offsets"]] == [None] * len(numbers)

    def records() -> list[int]:
        got = httpx.get(f"{read}/records", params={"timeout": 3000}, headers=ACCEPT, timeout=30)
        assert got.status_code == 200, got.text
        return sorted(record["value"] for record in got.json())

    with running_process(tmp_path, **settings) as node:
        assert node.url
        produce(1, 2)
        body = {"name": "one", "format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
        created = httpx.post(f"{url}/consumers/shop", json=body, headers=V2, timeout=30).json()
        assert created == {"instance_id": "one", "base_uri": read}
        done = httpx.post(f"{read}/subscription", json={"topics": ["orders"]}, headers=V2, timeout=30)
        assert done.status_code == 204, done.text
        assert records() == [1, 2]
        assert httpx.get(f"{read}/assignments", timeout=30).json()["partitions"]  # a call behind the read
    with running_process(tmp_path, **settings) as node:
        assert node.url
        produce(3)
        assert records() == [3], "the instance has lost what it had read"
        assert httpx.get(f"{read}/subscription", timeout=30).json() == {"topics": ["orders"]}
        assert httpx.post(f"{read}/offsets", timeout=30).status_code == 204
        assert httpx.delete(read, timeout=30).status_code == 204
