"""One ZooKeeper for all tests of the session that need it; each works below a key of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loadtests.cluster.zookeeper import Zookeeper
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zookeeper]:
    if not is_installed():
        pytest.skip(WHY_NOT)
    with zookeeper_process(tmp_path_factory.mktemp("zookeeper")) as process:
        yield process
