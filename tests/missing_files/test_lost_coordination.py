"""After a coordination journal is lost or truncated, producer ids that are in use are not assigned again.

If a new producer got a used id, its first record would be taken for a repeat: 200, and nothing stored.
"""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from replication.cluster.producer_ids import BLOCK_IDS, MARGIN_IDS, StoredBlocks
from tests.e2e.node_process import running_process
from tests.scenarios.gateways import Gateway, Topic, in_process, over_http2

JSON = "application/json"


async def stored_by_a_new_producer(topic: Topic) -> bool:
    """True if the first record of a producer with a newly assigned id is stored."""
    made = (await topic.gateway.send("POST", "/v1/producers")).json
    fields = {"Producer-Id": made["producer_id"], "Producer-Epoch": made["producer_epoch"], "Producer-Seq": 0}
    headers = {name: str(value) for name, value in fields.items()}
    answer = await topic.post(orjson.dumps({"records": [{"value": "x"}]}), JSON, headers, to=0)
    assert answer.status == 200, answer.body
    return "Penstock-Duplicate" not in answer.headers


async def fill(gateway: Gateway) -> None:
    topic = await gateway.create("t")
    assert await stored_by_a_new_producer(topic)


@pytest.mark.parametrize("left", [None, 0.5], ids=["gone", "half of it"])
async def test_a_new_producer_of_one_process_gets_an_id_that_nobody_uses(tmp_path, caplog, left):
    async with in_process(tmp_path) as gateway:
        await fill(gateway)
    lose(tmp_path / "data" / "coordination", left)
    for _ in range(2):
        async with in_process(tmp_path) as gateway:
            for _ in range(2):
                assert await stored_by_a_new_producer(Topic(gateway, "t"))
    assert "producer ids are in use that the coordination store has not allocated" in caplog.text


@pytest.mark.e2e
async def test_a_new_producer_of_several_processes_gets_an_id_that_nobody_uses(tmp_path):
    with running_process(tmp_path, shards=2) as process:
        async with over_http2(process.port) as gateway:
            await fill(gateway)
        assert process.stop() == 0
    lose(tmp_path / "data" / "coordination", None)
    with running_process(tmp_path, shards=2) as process:
        async with over_http2(process.port) as gateway:
            for _ in range(4):
                assert await stored_by_a_new_producer(Topic(gateway, "t"))
        assert process.stop() == 0


def lose(journal: Path, left: float | None) -> None:
    """Remove a journal or truncate its end."""
    data = journal.read_bytes()
    journal.unlink()
    if left is not None:
        journal.write_bytes(data[: int(left * len(data))])


@pytest.mark.parametrize("used", [0, 5, BLOCK_IDS - 1, BLOCK_IDS])
def test_a_floor_passes_over_whole_blocks_and_a_margin(used):
    blocks = StoredBlocks(session=None, floor=used + 1)  # type: ignore[arg-type] # it is not asked
    end = blocks._end_of(None)
    assert end > used + MARGIN_IDS
    assert end % BLOCK_IDS == 0
