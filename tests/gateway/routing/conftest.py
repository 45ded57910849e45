"""Nodes that wait long for a leader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.several_nodes import Cluster, several_nodes


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with several_nodes(tmp_path, leader_wait_ms=10_000) as cluster:
        yield cluster
