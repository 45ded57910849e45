"""A run reads only the manifests that have changed since the last one; what it remembers decides nothing else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from engine.testing.memory_store import MemoryStore
from engine.testing.store_proxy import StoreProxy
from engine.tiering.shipping.garbage_collection import remove_topic
from engine.tiering.store.store import ObjectStore
from spark_ingest.output.names import known_manifests_key
from spark_ingest.source import listing
from tests.spark_ingest.jobs import run_job, table_rows
from tests.spark_ingest.tiered import CLUSTER, TOPIC_ID, TieredLog, json_rows

T = TypeVar("T")
TOPICS, PARTITIONS = 3, 4
KEY = known_manifests_key("default")


class Counting(StoreProxy):
    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.calls: Counter[str] = Counter()

    def relay(self, method: str, key: str, do: Callable[[], T]) -> T:
        self.calls[method] += 1
        return do()


def logs(store: ObjectStore) -> list[TieredLog]:
    found = [TieredLog(store, topic=f"topic-{topic}") for topic in range(TOPICS)]
    for log in found:
        for partition in range(PARTITIONS):
            log.add(partition, json_rows(2))
    return found


def counted(source: Counting, output: Counting) -> tuple[Counter[str], Counter[str]]:
    """Run the job; return the requests, those of its registration and of the probe left out."""
    source.calls.clear()
    output.calls.clear()
    run_job(source, output)
    return source.calls - Counter(get=1, put=1), output.calls


def test_a_run_without_new_records_makes_one_list_for_each_small_topic() -> None:
    inner = MemoryStore()
    logs(inner)
    source, output = Counting(inner), Counting(MemoryStore())
    run_job(source, output)
    assert counted(source, output) == ({"list": 1 + TOPICS, "list_prefixes": 1}, {"list": 1, "get": 3})


def test_a_large_topic_takes_one_list_for_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "KEYS_MIN", 5)
    monkeypatch.setattr(listing, "KEYS_PER_PARTITION", 0)
    inner = MemoryStore()
    logs(inner)
    source, output = Counting(inner), Counting(MemoryStore())
    run_job(source, output)
    wanted = {"list": 1 + TOPICS * PARTITIONS, "list_prefixes": 1 + 2 * TOPICS}
    assert counted(source, output) == (wanted, {"list": 1, "get": 3})


def test_only_changed_manifests_are_read() -> None:
    inner = MemoryStore()
    first, *_ = logs(inner)
    source, output = Counting(inner), Counting(MemoryStore())
    run_job(source, output)
    first.raise_log_start(2, 1)
    assert counted(source, output)[0] == {"list": 1 + TOPICS, "list_prefixes": 1, "get": 1}
    assert counted(source, output)[0] == {"list": 1 + TOPICS, "list_prefixes": 1}


def test_a_plan_that_was_not_committed_is_made_of_all_manifests_again() -> None:
    store, output = MemoryStore(), MemoryStore()
    logs(store)
    with pytest.raises(KeyboardInterrupt):
        run_job(store, output, execute=interrupted)
    assert KEY in output.objects
    for key in [one for one in output.objects if "/plans/" in one]:
        del output.objects[key]
    assert run_job(store, output).rows == TOPICS * PARTITIONS * 2


def interrupted(_: object) -> Any:
    raise KeyboardInterrupt


def later(generation: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        document = json.loads(data)
        for topic in document["topics"].values():
            for manifest in topic["manifests"].values():
                manifest[0] = generation
        return json.dumps(document).encode()

    return change


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "not UTF-8": lambda data: b"\xff",
    "of another kind": lambda data: b"[1]",
    "of another store": lambda data: data.replace(b"memory://", b"memory:///x"),
    "ahead": later(10**6),
    "behind": later(0),
    "beyond any generation": later(10**30),
    "negative": later(-5),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_memory_costs_requests_and_no_rows(name: str) -> None:
    store, output = MemoryStore(), MemoryStore()
    first, *_ = logs(store)
    run_job(store, output)
    first.add(1, json_rows(3))
    output.objects[KEY] = CHANGES[name](output.objects[KEY])
    assert run_job(store, output).rows == 3
    assert len(table_rows(output, "topic-0")) == 2 * PARTITIONS + 3
    assert run_job(store, output).rows == 0


def test_a_lost_memory_and_one_of_an_older_time_cost_no_rows() -> None:
    store, output = MemoryStore(), MemoryStore()
    first, *_ = logs(store)
    run_job(store, output)
    old = output.objects[KEY]
    for change in (lambda: output.objects.pop(KEY), lambda: output.put(KEY, old)):
        first.add(1, json_rows(3))
        change()
        assert run_job(store, output).rows == 3


def test_a_recreated_topic_is_read_from_its_start() -> None:
    store, output = MemoryStore(), MemoryStore()
    logs(store)
    run_job(store, output)
    remove_topic(store, CLUSTER, "topic-1", TOPIC_ID, PARTITIONS)
    TieredLog(store, topic="topic-1", topic_id="b" * 32).add(0, json_rows(2))
    assert run_job(store, output, on_lost="skip").rows == 2
    assert run_job(store, output, on_lost="skip").rows == 0
