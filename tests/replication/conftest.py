"""One ZooKeeper for all tests of the session, each below its own key; clusters of agents on either store."""

from collections.abc import AsyncIterator, Iterator

import pytest

from loadtests.cluster.zookeeper import Zookeeper
from tests.replication.clusters import Cluster, embedded_cluster
from tests.replication.coordinations import STORES, Coordination
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory) -> Iterator[Zookeeper]:
    if not is_installed():
        pytest.skip(WHY_NOT)
    with zookeeper_process(tmp_path_factory.mktemp("zookeeper")) as process:
        yield process


@pytest.fixture(params=STORES)
async def coordination(request, tmp_path) -> AsyncIterator[Coordination]:
    async with STORES[request.param](tmp_path, request) as made:
        yield made


@pytest.fixture
async def cluster(coordination) -> AsyncIterator[Cluster]:
    made = Cluster(coordination)
    yield made
    await made.stop()


@pytest.fixture
async def alone(tmp_path, request) -> AsyncIterator[Cluster]:
    """A cluster over the embedded store, for tests in which the store makes no difference."""
    async with embedded_cluster(tmp_path, request) as made:
        yield made
