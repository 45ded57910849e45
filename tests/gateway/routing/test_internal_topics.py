"""An internal topic has the replicas that its setting asks for, as far as there are nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.routing.partitions import Topics
from gateway.routing.topic_finder import AllTopicsKnown


class Changes:
    """Notes the replication factor of the topic that is created."""

    replicas = 0

    async def create_topic(self, name: str, partitions: int, replicas: int, overrides: Any) -> tuple[Any, bool]:
        self.replicas = replicas
        return SimpleNamespace(name=name), True


@pytest.mark.parametrize(
    ("live_nodes", "default", "replicas"), [(1, 1, 1), (2, 1, 2), (3, 1, 3), (9, 1, 3), (9, 5, 5), (1, 2, 2)]
)
async def test_an_internal_topic_has_a_replica_on_each_of_a_few_nodes(
    live_nodes: int, default: int, replicas: int
) -> None:
    changes, shard = Changes(), SimpleNamespace(topics={})
    settings: Any = SimpleNamespace(default_replication_factor=default)
    topics = Topics(shard, settings, changes, AllTopicsKnown(), lambda: live_nodes, lambda name: None)  # type: ignore[arg-type]
    await topics.get_or_create_internal("__groups", 8, 3, {})
    assert changes.replicas == replicas
