"""A data directory with every kind of file, in two versions: after a clean stop and after a kill.

A real node creates it once for each run of the tests; every case works on a copy. Topics: `plain` has sealed segments
and an active one; `tiered` has its oldest segments only in the store; `keyed` has idempotency keys and a producer;
`trimmed` has its first records deleted; `two` has two partitions.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from tests.scenarios.gateways import InProcess, Topic, in_process

SEGMENTS, RECORDS = 4, 6  # rolls of a topic; records between two rolls
KEY = {"Idempotency-Key": "order-7"}
KEYED_VALUE = "the keyed one"
TIER_CACHE_BYTES = 64 * 2**20  # the least: trees are compared with its file, which is as long


@dataclass
class Template:
    """The directories, and the acknowledged records: by topic and partition, the value at each offset."""

    directories: dict[str, Path] = field(default_factory=dict)
    records: dict[tuple[str, int], dict[int, str]] = field(default_factory=dict)
    log_starts: dict[tuple[str, int], int] = field(default_factory=dict)
    keyed_offset: int = -1


async def make_template(path: Path) -> Template:
    template = Template()
    async with in_process(path, tier_check_ms=100, tier_cache_bytes_max=TIER_CACHE_BYTES) as gateway:
        await _fill(gateway, template)
        template.directories["killed"] = path / "killed"
        shutil.copytree(path / "data", path / "killed")
    template.directories["clean"] = path / "data"
    return template


async def _fill(gateway: InProcess, template: Template) -> None:
    local = {"local_retention_bytes": 0}
    topics = {
        "plain": await gateway.create("plain"),
        "tiered": await gateway.create("tiered", **local),
        "keyed": await gateway.create("keyed"),
        "trimmed": await gateway.create("trimmed"),
        "two": await gateway.create("two", partitions=2),
    }
    producer = (await gateway.send("POST", "/v1/producers")).json
    for segment in range(SEGMENTS):
        for topic in topics.values():
            for partition in range(2 if topic.name == "two" else 1):
                for number in range(RECORDS):
                    await _produce(template, topic, partition, f"{topic.name} {partition} {segment} {number}")
        fields = {"Producer-Id": producer["producer_id"], "Producer-Epoch": producer["producer_epoch"]}
        headers = {name: str(value) for name, value in fields.items()} | {"Producer-Seq": str(segment)}
        await _produce(template, topics["keyed"], 0, f"sequenced {segment}", headers)
        if segment == SEGMENTS - 1:
            template.keyed_offset = await _produce(template, topics["keyed"], 0, KEYED_VALUE, KEY)
            break
        for topic in topics.values():
            assert (await topic.roll()).status == 200
    trimmed = topics["trimmed"]
    answer = await gateway.send("DELETE", f"{trimmed.path}/partitions/0/records", before=RECORDS + 2)
    assert answer.status == 200, answer.body
    template.log_starts["trimmed", 0] = RECORDS + 2
    shard = gateway.node.shard
    async with asyncio.timeout(60):
        while len([*Path(shard.partition("tiered", 0).log.directory).glob("*.log")]) > 1:
            await asyncio.sleep(0.02)
        while any(shard.tiered_end(one) != one.log.sealed_end for one in shard.partitions()):
            await asyncio.sleep(0.02)
    await shard.log_manager.save_checkpoints()


async def _produce(
    template: Template, topic: Topic, partition: int, value: str, headers: dict[str, str] | None = None
) -> int:
    answer = await topic.post(orjson.dumps({"records": [{"value": value}]}), "application/json", headers, to=partition)
    assert answer.status == 200, answer.body
    offset: int = answer.json["results"][0]["base_offset"]
    template.records.setdefault((topic.name, partition), {})[offset] = value
    return offset
