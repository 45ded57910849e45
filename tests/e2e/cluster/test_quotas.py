"""A quota of a cluster on three nodes of two shards: all of them together take the limit, wherever it is used."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest

from tests.e2e.cluster.test_cluster import Cluster
from tests.e2e.node_process import running_process
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process
from tests.scenarios.gateways import JSON, Gateway, over_http2

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]

LIMIT = 150
SETTLE_S = 10
MEASURE_S = 10
NEAR = 0.05
LEAST = 0.7  # of the limit: clients on a busy machine do not ask in time for all of it


class Load:
    """Clients of one node that ask without pause; one that is refused asks again soon."""

    def __init__(self, gateways: list[Gateway]) -> None:
        self.gateways = gateways
        self._tasks: list[asyncio.Task[None]] = []
        self.taken = 0

    async def _ask(self, gateway: Gateway) -> None:
        while True:
            try:
                answer = await gateway.send("GET", "/v1/topics/t", b"", {})
            except (ConnectionError, AssertionError):
                return  # the node was killed
            if answer.status == 200:
                self.taken += 1
            else:
                assert answer.status == 429, answer
                await asyncio.sleep(0.3)

    def use(self, clients: int) -> None:
        """Ask by so many clients from now on."""
        for task in self._tasks:
            task.cancel()
        gateways = self.gateways
        self._tasks = [asyncio.create_task(self._ask(gateways[n % len(gateways)])) for n in range(clients)]


async def set_quota(gateway: Gateway, **limits: object) -> None:
    headers = {"Content-Type": JSON}
    answer = await gateway.send("PUT", "/v1/access/quotas/principal/*", orjson.dumps(limits), headers)
    assert answer.status == 200, answer


async def rate_of(loads: list[Load]) -> float:
    """Return the requests a second that all nodes take together, once the shares have settled."""
    await asyncio.sleep(SETTLE_S)
    before = sum(load.taken for load in loads)
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(MEASURE_S)
    return (sum(load.taken for load in loads) - before) / (asyncio.get_running_loop().time() - began)


def assert_near(rate: float, why: str = "") -> None:
    assert LIMIT * LEAST < rate < LIMIT * (1 + NEAR), f"{rate:.1f} a second: {why}"


@pytest.mark.parametrize("per", [pytest.param("cluster", marks=pytest.mark.long), "node"])
async def test_the_shards_of_a_node_together_take_what_the_quota_allows(tmp_path: Path, per: str) -> None:
    with running_process(tmp_path, shards=3) as process:
        async with AsyncExitStack() as stack:
            gateways = [await stack.enter_async_context(over_http2(process.port)) for _ in range(9)]
            await gateways[0].send("PUT", "/v1/topics/t", b"", {})
            await set_quota(gateways[0], requests=LIMIT, per=per)
            one, others = Load(gateways[:1]), Load(gateways[1:])
            one.use(40)
            assert_near(await rate_of([one]), "one connection uses it alone")
            others.use(80)
            assert_near(await rate_of([one, others]))
            one.use(0)
            others.use(0)


@pytest.mark.long
async def test_three_nodes_together_take_what_the_quota_allows(tmp_path: Path) -> None:
    with zookeeper_process(tmp_path / "zookeeper") as zookeeper:
        cluster = Cluster(tmp_path, f"127.0.0.1:{zookeeper.port}", 3, shards=2)
        nodes = list(cluster.nodes.values())
        try:
            await asyncio.to_thread(cluster.start)
            await asyncio.to_thread(cluster.create, "t")
            async with AsyncExitStack() as stack:
                loads = []
                for node in nodes:
                    port = int(node.url.rpartition(":")[2])
                    gateways = [await stack.enter_async_context(over_http2(port)) for _ in range(4)]
                    loads.append(Load(gateways))
                await set_quota(loads[0].gateways[0], requests=LIMIT)
                loads[0].use(60)
                assert_near(await rate_of(loads), "one node uses it alone")
                loads[1].use(60)
                loads[2].use(2)
                assert_near(await rate_of(loads), "nodes of unequal demand")
                loads[0].use(0)
                assert_near(await rate_of(loads), "the demand has moved")
                loads[0].use(30)
                loads[2].use(0)
                nodes[2].kill()
                rates: list[float] = []
                while not rates or (rates[-1] < LIMIT * LEAST and len(rates) < 4):
                    rates.append(await rate_of(loads))  # its session ends first, on a busy machine late
                assert_near(rates[-1], f"a node is dead: {rates}")
                assert max(rates) < LIMIT * (1 + NEAR)
                for load in loads:
                    load.use(0)
        finally:
            for node in nodes:
                node.kill()
