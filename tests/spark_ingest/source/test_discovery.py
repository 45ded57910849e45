"""Discovery makes few requests, and many at once; an error of one topic is its own."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from engine.errors import Corrupt, EngineError
from engine.format.paths import store_manifest_key
from engine.testing.memory_store import MemoryStore
from engine.tiering.manifest.chain import commit, fold_if_due, iter_entries, load_newest
from engine.tiering.manifest.manifest import ENTRIES_MAX, ManifestEntry, append, successor
from engine.tiering.store.store import ObjectStore, StoreUnavailable
from spark_ingest.source.discovery import discover, load_folded, partitions_of, slices_of
from spark_ingest.source.requests import REQUESTS_AT_ONCE, request_all
from tests.spark_ingest.tiered import CLUSTER, TieredLog, json_rows


def tiered(topics: int, partitions: int) -> ObjectStore:
    store = MemoryStore()
    for topic in range(topics):
        log = TieredLog(store, topic=f"topic-{topic}")
        for partition in range(partitions):
            log.add(partition, json_rows(2))
    return store


def test_many_requests_are_under_way_at_once_and_not_more_than_the_bound() -> None:
    together = threading.Barrier(REQUESTS_AT_ONCE, timeout=60)
    under_way: set[int] = set()
    most = []

    def request(item: int) -> int:
        under_way.add(item)
        most.append(len(under_way))
        together.wait()  # raises unless this many are under way
        under_way.discard(item)
        return -item

    items = list(range(REQUESTS_AT_ONCE * 2))
    assert request_all(request, items) == [-item for item in items]
    assert max(most) == REQUESTS_AT_ONCE


def test_an_error_is_the_item_s_own_unless_a_retry_may_cure_it() -> None:
    def request(error: EngineError | None) -> str:
        if error:
            raise error
        return "done"

    corrupt = Corrupt("damaged")
    assert request_all(request, [None, corrupt, None]) == ["done", corrupt, "done"]
    with pytest.raises(StoreUnavailable):
        request_all(request, [None, StoreUnavailable("away"), None])


def test_a_damaged_manifest_is_an_error_of_its_topic_alone() -> None:
    store = tiered(3, 2)
    damaged = store_manifest_key(TieredLog(store, topic="topic-1").prefix(0), 2)
    store.put(damaged, store.get(damaged)[:-2])
    found = partitions_of(store, CLUSTER, ["topic-0", "topic-1", "topic-2"]).topics
    assert isinstance(found["topic-1"], Corrupt)
    assert [len(one) for one in (found["topic-0"], found["topic-2"]) if isinstance(one, list)] == [2, 2]


def test_only_the_newest_topic_id_is_read() -> None:
    store = MemoryStore()
    TieredLog(store, topic_id="a" * 32).add(0, json_rows(2))
    store.now_ms = 5
    TieredLog(store, topic_id="0" * 32).add(0, json_rows(3))
    assert [(one.topic_id, one.tiered_end) for one in discover(store, CLUSTER, lambda _: True)] == [("0" * 32, 3)]


def test_folded_entries_are_read_as_the_chain_reads_them() -> None:
    log = TieredLog(MemoryStore())
    log.add(0, json_rows(1))
    manifest = load_newest(log.store, log.prefix(0))
    assert manifest is not None
    [entry] = manifest.entries
    manifest = successor(manifest, 0, "test")
    for at in range(1, ENTRIES_MAX + 300):
        manifest = append(manifest, following(entry, at))
        manifest = fold_if_due(log.store, manifest, lambda number=at: f"{number}")  # type: ignore[misc]
    assert len(manifest.folded) == 2
    commit(log.store, manifest)
    [partition] = discover(log.store, CLUSTER, lambda _: True)
    for start, end in ((0, partition.tiered_end), (260, 700), (499, 501), (700, partition.tiered_end)):
        folded = load_folded(log.store, [(partition, start, end)])
        found = [one.key for one in slices_of(partition, start, end, folded)]
        assert found == [one.key for one in iter_entries(log.store, manifest, start) if one.base_offset < end]


def following(entry: ManifestEntry, at: int) -> ManifestEntry:
    key = entry.key.replace(f"{0:020}-", f"{at:020}-")
    return replace(
        entry, base_offset=at, end_offset=at + 1, leader_epochs=((0, at),), key=key, aux_key=key.replace(".log", ".aux")
    )
