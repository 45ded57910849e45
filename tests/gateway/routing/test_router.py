"""A request of another shard for a topic that has been replaced by a new one of the same name."""

from __future__ import annotations

import pytest

from engine.errors import UnknownTopic
from engine.format import batch
from gateway.routing.calls import AppendArguments
from replication.replica.acks import Acks
from tests.scenarios.gateways import in_process


async def test_an_append_on_its_way_to_a_topic_that_was_deleted_does_not_reach_the_next_of_its_name(tmp_path):
    async with in_process(tmp_path / "node") as gateway:
        topic = await gateway.create("t")
        deleted_id = gateway.node.shard.topic("t").record.topic_id
        await gateway.send("DELETE", topic.path)
        again = await gateway.create("t")
        append = gateway.node.peer_handlers()["append"].function
        for acks in Acks:
            arguments = AppendArguments(deleted_id, "t", 0, 0, acks, 1000, None)
            with pytest.raises(UnknownTopic):
                await append(arguments, bytes(batch.encode_values([b"1"], 5)))
        assert await again.records() == []
