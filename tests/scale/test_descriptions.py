"""Requests for all partitions of a topic with very many of them: counts of tasks, and the returned rows."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from gateway.routing.calls import RowsArguments
from tests.scale.count import SCALE
from tests.scenarios.gateways import in_process

FEW = 50


async def test_a_request_for_all_partitions_makes_no_task_for_each(tmp_path):
    tasks = 0

    def counted(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **more: Any) -> asyncio.Task[Any]:
        nonlocal tasks
        tasks += 1
        return asyncio.Task(work, loop=loop, **more)

    async with in_process(tmp_path) as gateway:
        topic = await gateway.create("t", partitions=SCALE)
        asyncio.get_running_loop().set_task_factory(counted)
        answers = [await gateway.send("GET", topic.path + path) for path in ("", "/tier")]
        asyncio.get_running_loop().set_task_factory(None)
        for answer in answers:
            assert [row["partition"] for row in answer.json["partitions"]] == list(range(SCALE))
        assert tasks < FEW


async def test_an_owner_is_asked_once_for_all_of_its_partitions(tmp_path):
    async with in_process(tmp_path) as gateway:
        topic = await gateway.create("t", partitions=FEW)
        topic_id = gateway.node.shard.topic("t").record.topic_id
        numbers = [(number, 0) for number in (*range(1, FEW, 2), FEW)]  # the last one does not exist
        rows_of = gateway.node.peer_handlers()["rows"].function
        for name in ("describe", "tier_status", "roll"):
            rows, _ = await rows_of(RowsArguments(name, topic_id, "t", numbers), b"")
            assert [number for number, _ in rows] == list(range(1, FEW, 2))
            assert [row["partition"] for _, row in rows] == list(range(1, FEW, 2))
        described = (await gateway.send("GET", topic.path)).json["partitions"]
        rows, _ = await rows_of(RowsArguments("describe", topic_id, "t", numbers), b"")
        assert [row for _, row in rows] == described[1::2]
