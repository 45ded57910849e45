"""Stories of a cluster: three nodes and ZooKeeper, whose leaders are killed while the clients work."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.clients.runner import LANGUAGES, running
from tests.e2e.cluster.test_cluster import Cluster, described, running_cluster, until, values
from tests.replication.zookeeper_process import WHY_NOT, is_installed

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.xdist_group("client stories"),
    pytest.mark.skipif(not is_installed(), reason=WHY_NOT),
    pytest.mark.parametrize("language", LANGUAGES),
]
PARTITIONS, KEYS, EACH, KILLS = 3, 7, 20, 3
QUIET_S = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    own = {number: {"port": _free_port()} for number in (1, 2, 3)}  # so that a node comes back at its address
    with running_cluster(tmp_path_factory.mktemp("cluster"), own=own) as cluster:
        yield cluster


async def test_leaders_that_are_killed_and_come_back_lose_nothing_and_repeat_nothing(
    cluster: Cluster, language: str, tmp_path: Path
) -> None:
    """Each record is stored once, those of a key in order; a reader gets each once, a member at least once."""
    topic = f"moves-{language}"
    cluster.create(topic, PARTITIONS)
    urls = ",".join(node.url for node in cluster.nodes.values())
    numbers, sent = count(), 0
    async with running(language, urls) as producer, running(language, urls) as reader:
        follow = await reader.begin("consume", topic=topic, follow=True)
        work = await reader.begin("work", group=topic, topic=topic, member="one")

        async def produce() -> int:
            records = [{"key": f"k{number % KEYS}", "value": number} for number in (next(numbers) for _ in range(EACH))]
            await producer.run("produce", topic=topic, records=records, keep="p")
            return EACH

        sent += await produce()
        for kill in range(KILLS):
            url = next(node.url for node in cluster.nodes.values() if node.is_running)
            leader = (await asyncio.to_thread(described, url, topic))[kill % PARTITIONS]["leader"]
            node = cluster.nodes[leader]
            producing = asyncio.create_task(produce())
            await asyncio.to_thread(node.kill)
            sent += await producing
            sent += await produce()
            node.begin_start()
            sent += await produce()
            await asyncio.to_thread(node.wait_until_ready)
            await asyncio.to_thread(until, partial(_are_in_sync, node.url, topic))
        stored = [await asyncio.to_thread(values, cluster.nodes[1].url, topic, n) for n in range(PARTITIONS)]
        assert sorted(number for part in stored for number in part) == [*range(sent)], "each is stored once"
        assert all(_is_ordered(part) for part in stored), "those of a key are in order"
        followed = [record["value"] for record in await reader.records(follow, sent)]
        assert sorted(map(int, followed)) == [*range(sent)], "the reader has each once"
        assert _is_ordered([int(value) for value in followed])
        worked: set[str] = set()
        async with asyncio.timeout(QUIET_S):
            while len(worked) < sent:
                worked |= {record["value"] for record in await reader.records(work, 1)}
        reader.stop(follow)
        reader.stop(work)


def _free_port() -> int:
    """Return one that the system gives to no connection."""
    while True:
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
            return int(free.getsockname()[1])


def _are_in_sync(url: str, topic: str) -> bool:
    return all(len(row["in_sync"]) == 3 for row in described(url, topic))


def _is_ordered(values: list[Any]) -> bool:
    return all(of_key == sorted(of_key) for key in range(KEYS) if (of_key := [n for n in values if n % KEYS == key]))
