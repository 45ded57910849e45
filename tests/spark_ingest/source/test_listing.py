"""Both ways of listing find the same manifests, whatever else is in the store."""

from __future__ import annotations

import pytest

from engine.testing.memory_store import MemoryStore
from spark_ingest.source import listing
from spark_ingest.source.known import KnownTopic
from spark_ingest.source.listing import Place, newest_roots
from tests.spark_ingest.tiered import CLUSTER, TieredLog, json_rows

FOREIGN = (
    "topic.json",
    "007/manifest/00000000000000000009.json",
    "0/manifest/9.json",
    "0/manifest/latest.json",
    "0/manifest/00000000000000000009.json/more",
    "0/more/manifest/00000000000000000009.json",
    "x/manifest/00000000000000000009.json",
    "5/00000000000000000000-0-ab.log",
)


def store_with_foreign_objects() -> MemoryStore:
    store = MemoryStore()
    for topic in ("one", "one-more", "two"):
        log = TieredLog(store, topic=topic)
        for partition in (0, 2, 10):
            for _ in range(partition + 1):
                store.now_ms += 1
                log.add(partition, json_rows(1))
        for name in FOREIGN:
            store.put(f"{CLUSTER}/{topic}/{log.topic_id}/{name}", b"")
    store.now_ms += 1
    TieredLog(store, topic="two", topic_id="0" * 32).add(1, json_rows(1))
    store.put(f"{CLUSTER}/empty/{'a' * 32}/topic.json", b"")
    return store


def test_both_ways_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_with_foreign_objects()
    topics = ["empty", "gone", "one", "two"]
    at_once = newest_roots(store, CLUSTER, topics, {})
    monkeypatch.setattr(listing, "KEYS_MIN", 0)
    monkeypatch.setattr(listing, "KEYS_PER_PARTITION", 0)
    one_by_one = newest_roots(store, CLUSTER, topics, {})
    assert {topic: found.newest for topic, found in at_once.items()} == {
        topic: found.newest for topic, found in one_by_one.items()
    }
    assert at_once["empty"].newest == at_once["gone"].newest == {}
    assert [(place.partition, root.generation) for place, root in at_once["one"].newest.items()] == [
        (0, 2),
        (2, 4),
        (10, 12),
    ]
    assert list(at_once["two"].newest) == [Place("two", "0" * 32, 1)]


def test_a_topic_that_was_too_large_is_not_listed_at_once_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_with_foreign_objects()
    monkeypatch.setattr(listing, "KEYS_MIN", 10)
    monkeypatch.setattr(listing, "KEYS_PER_PARTITION", 0)
    found = newest_roots(store, CLUSTER, ["one"], {})["one"]
    assert found.keys == 10
    monkeypatch.setattr(listing, "_all_at_once", None)  # calling it fails
    assert newest_roots(store, CLUSTER, ["one"], {"one": KnownTopic(keys=10)})["one"] == found
