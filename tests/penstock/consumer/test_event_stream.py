"""Event streams of the Python client against a node in this process."""

from __future__ import annotations

import asyncio

import pytest

from penstock import Client
from penstock.errors import ClientClosed, ProblemError
from penstock.sync import Client as SyncClient
from tests.e2e.node_process import running_process
from tests.scenarios.gateways import in_process


async def test_a_stream_has_all_partitions_and_another_one_continues_at_its_position(tmp_path):
    async with in_process(tmp_path) as gateway, Client(f"http://127.0.0.1:{gateway.port}") as client:
        await gateway.create("rides", 2)
        async with client.producer() as producer:
            for number in range(6):
                await producer.send("rides", {"n": number}, partition=number % 2)
        async with client.events("rides", start="earliest") as stream:
            got = [await stream.next() for _ in range(5)]
        async with client.events("rides", position=stream.position) as stream:
            got.append(await stream.next())
        assert sorted(record.json()["n"] for record in got) == [*range(6)]
        assert {record.topic for record in got} == {"rides"}


async def test_a_stream_that_is_closed_ends_the_wait_and_an_error_ends_the_loop(tmp_path):
    async with in_process(tmp_path) as gateway, Client(f"http://127.0.0.1:{gateway.port}") as client:
        with pytest.raises(ProblemError, match="nothing"):
            await client.events("nothing").next()
        await gateway.create("rides")
        stream = client.events("rides")
        waiting = asyncio.create_task(stream.next())
        while not stream.position:
            await asyncio.sleep(0.001)
        await stream.close()
        await stream.close()
        with pytest.raises(ClientClosed):
            await waiting


@pytest.mark.e2e
def test_the_sync_stream_does_the_same(tmp_path):
    with running_process(tmp_path) as node, SyncClient(node.url) as client:
        client.create_topic("rides", partitions=1)
        with client.producer() as producer:
            producer.send("rides", 1)
        with client.events("rides", start="earliest") as stream:
            assert next(iter(stream)).json() == 1
            assert stream.position.endswith(".1")
