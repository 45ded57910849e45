"""Three replicas of one partition; node 1 leads."""

from collections.abc import AsyncIterator

import pytest

from tests.replication.hosts import Hosts, hosts
from tests.waiting import until


@pytest.fixture
async def three(tmp_path) -> AsyncIterator[Hosts]:
    async with hosts(tmp_path) as cluster:
        await cluster.create_topic()
        cluster.elect(1)
        await until(lambda: cluster[1].replica().is_leading)
        yield cluster
