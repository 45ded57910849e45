"""The garbage collector of a node while thousands of objects are made that stay, as those of new partitions do."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from gateway.settings import NodeSettings
from node.processes import server
from node.processes.process_parts import GC_YOUNG, freeze_objects

FULL = 2  # the oldest generation


@pytest.fixture
def frozen() -> Iterator[None]:
    before = gc.get_threshold()
    freeze_objects()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_no_collection_walks_more_than_a_few_times_what_is_new(frozen):
    walked: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            walked.append(sum(len(gc.get_objects(one)) for one in range(info["generation"] + 1)))
            assert info["generation"] < FULL

    gc.callbacks.append(note)
    try:
        kept = [[] for _ in range(15 * GC_YOUNG)]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 15 * GC_YOUNG
    assert len(walked) > 10
    assert max(walked) < 4 * GC_YOUNG


async def test_a_node_collects_seldom_before_it_opens_partitions(monkeypatch):
    steps: list[str] = []

    async def served(*_: object) -> None:
        steps.append("opened")

    monkeypatch.setattr(server, "freeze_objects", lambda: steps.append("frozen"))
    monkeypatch.setattr(server, "_serve", served)
    monkeypatch.setattr(server, "stop_event", asyncio.Event)
    monkeypatch.setattr(server, "set_up_logging", lambda *_, **__: None)
    await server.serve(NodeSettings(port=0))
    assert steps == ["frozen", "opened"]
