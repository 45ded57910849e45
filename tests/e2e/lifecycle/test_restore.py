"""A node whose data directory is destroyed is restored from the store: records, offsets, settings, keys of retries."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from node.commands.tier.command import tier
from tests.e2e.node_process import NodeProcess, running_process
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

ROWS = b"".join(b'{"n":%d}\n' % number for number in range(500))


def call(node: NodeProcess, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
    request = Request(f"{node.url}/v1/topics/flights{path}", body, headers, method=method)
    with urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"{}")


def produce(node: NodeProcess, key: str) -> Any:
    headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
    return call(node, "POST", "/records", ROWS, **headers)


def content(node: NodeProcess) -> str:
    """Return a hash of every record with its place and time."""
    found: list[Any] = []
    for partition in range(2):
        offset = 0
        while True:
            answer = call(node, "GET", f"/partitions/{partition}/records?offset={offset}")
            found += [(partition, one["offset"], one["timestamp"], one["value"]) for one in answer["records"]]
            if answer["next_offset"] == offset:
                break
            offset = answer["next_offset"]
    return sha256(repr(found).encode()).hexdigest()


def is_tiered(node: NodeProcess) -> bool:
    partitions = call(node, "GET", "/tier")["partitions"]
    return all(one["tiered_end"] == one["high_watermark"] for one in partitions)


def test_a_node_is_restored_from_the_store_and_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "store"
    settings = {"store": store.as_uri(), "tier_check_ms": 100}
    with running_process(tmp_path / "node", shards=2, **settings) as node:
        config = b'{"partitions":2,"config":{"retention_ms":7200000}}'
        call(node, "PUT", "", config, **{"Content-Type": "application/json"})
        for number in range(4):
            sent = produce(node, f"key-{number}")
            call(node, "POST", "/roll")
        topic_id = call(node, "GET", "")["topic_id"]
        call(node, "PATCH", "", b'{"config":{"retention_ms":3600000}}', **{"Content-Type": "application/json"})
        wait_until(lambda: is_tiered(node))
        wait_until(lambda: b"3600000" in next(store.glob("*/flights/*/topic.json")).read_bytes())
        expected = content(node)
        node.kill_all()
    shutil.rmtree(tmp_path / "node" / "data")
    tier.main(["restore", "--store", str(store), "--data-dir", str(tmp_path / "node" / "data")], standalone_mode=False)
    with running_process(tmp_path / "node", **settings) as node:
        assert content(node) == expected
        described = call(node, "GET", "")
        assert (described["topic_id"], described["config"]["retention_ms"]) == (topic_id, 3_600_000)
        again = produce(node, "key-3")["results"][0]
        assert again == {**sent["results"][0], "duplicate": True}
        assert content(node) == expected
        produce(node, "key-4")
        call(node, "POST", "/roll")
        wait_until(lambda: is_tiered(node))
    assert tier.main(["verify", "--store", str(store), "--deep"], standalone_mode=False) is None
