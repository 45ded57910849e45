"""Retention in the store waits for registered ingestion jobs, for a bounded time and by the store's clock."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine.cleaning.retention import Bounds, expired_below
from engine.errors import Corrupt
from engine.format.paths import store_registration_key, store_registrations_prefix
from engine.testing.memory_store import MemoryStore
from engine.tiering.manifest.job_registration import (
    RegisteredTopic,
    Registration,
    decode_registration,
    encode_registration,
)
from engine.tiering.manifest.json_reading import UnsupportedFormat
from engine.tiering.shipping.expiry import StoreExpiry
from engine.tiering.shipping.job_holds import READ_MAX, REFRESH_SECONDS, Hold, JobHolds, held_from
from engine.topic_settings import topic_settings
from tests.engine.conftest import HandClock
from tests.engine.tiering.making import local_log, manifest_of
from tests.engine.tiering.shipping.test_expiry import SEGMENT_BYTES, filled, log_without
from tests.engine.tiering.shipping_scene import WIDTH, Source, newest, sealed
from tests.engine.tiering.stores import Watched

CLUSTER, TOPIC_ID = "cluster", "0123456789abcdef0123456789abcdef"
PREFIX = store_registrations_prefix(CLUSTER)


def registration(job: str = "j", topic_id: str = TOPIC_ID, **ends: int) -> Registration:
    topic = RegisteredTopic(topic_id, {int(name[1:]): end for name, end in ends.items()})
    return Registration(job, "a1", "file:///lake", {"topic": topic})


def register(store: MemoryStore, job: str = "j", topic_id: str = TOPIC_ID, **ends: int) -> str:
    key = store_registration_key(CLUSTER, job, "a1")
    store.put(key, encode_registration(registration(job, topic_id, **ends)))
    return key


def test_a_registration_is_read_as_written():
    assert decode_registration(encode_registration(registration(p0=7, p12=9)), "k") == registration(p0=7, p12=9)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"format":1}',
        b'{"format":1,"job":"j","job_id":"a","output":"o","topics":[]}',
        b'{"format":1,"job":"j","job_id":"a","output":"o","topics":{"t":{"topic_id":"i","ends":{"x":1}}}}',
        b'{"format":1,"job":"j","job_id":"a","output":"o","topics":{"t":{"topic_id":"i","ends":{"0":"1"}}}}',
        b'{"format":1,"job":"j","job_id":"a","output":"o","topics":{"t":7}}',
    ],
)
def test_a_damaged_registration_is_corrupt(data):
    with pytest.raises(Corrupt):
        decode_registration(data, "k")
    with pytest.raises(UnsupportedFormat):
        decode_registration(b'{"format":2}', "k")


@pytest.mark.parametrize(
    ("holds", "now_ms", "held"),
    [
        ([], 0, None),
        ([Hold(20, 0), Hold(10, 0)], 100, 10),
        ([Hold(20, 50), Hold(10, 0)], 101, 20),  # the second has not run for longer than the wait
        ([Hold(10, 0)], 101, None),
        ([Hold(10, 0)], None, 10),  # no time is known: all hold
        ([Hold(10, 10**15)], 0, 10),
    ],
)
def test_the_slowest_job_that_still_runs_holds(holds, now_ms, held):
    assert held_from(holds, now_ms, 100) == held


def held_end(now_ms: int | None, *holds: Hold, **kept: int | None) -> int | None:
    """Return how far four runs of ten offsets, uploaded at 0, 100, 200 and 300 ms, expire."""
    manifest = manifest_of(4)
    local = replace(log_without(40), **{"wait_max_ms": 500, **kept})  # type: ignore[arg-type]
    expiry, store = StoreExpiry(filled(manifest)), (lambda: now_ms)
    found = expiry.expired_end(manifest, local, store, lambda: holds)
    assert expiry.expired_end(manifest, local, store, lambda: holds) == found, "a second call returns the same"
    return found


@pytest.mark.parametrize(
    ("now_ms", "committed", "end"),
    [
        (1301, 40, 40),
        (1301, 39, 30),  # a run that is committed in part stays
        (1301, 10, 10),
        (1301, 0, None),
        (1500, 0, None),
        (1501, 0, 10),  # the first has waited for 500 ms
        (1501, 25, 20),
        (1801, 0, 40),
        (1001, 40, 10),  # nothing goes before it expires
    ],
)
def test_by_age_what_is_not_committed_waits_for_a_bounded_time(now_ms, committed, end):
    assert held_end(now_ms, Hold(committed, 1301), Hold(40, 0), retention_ms=1000) == end


@pytest.mark.parametrize(("now_ms", "end"), [(400, None), (500, None), (501, 10), (601, 20), (None, None)])
def test_by_size_it_waits_from_the_upload(now_ms, end):
    assert held_end(now_ms, Hold(0, 400), retention_bytes=SEGMENT_BYTES) == end
    assert held_end(now_ms, Hold(20, 400), retention_bytes=2 * SEGMENT_BYTES) == 20


def test_without_a_job_or_the_setting_nothing_waits():
    assert held_end(1301, retention_ms=1000) == 40
    assert held_end(1301, Hold(0, 1301), retention_ms=1000, wait_max_ms=None) == 40
    assert held_end(1301, Hold(0, 800), retention_ms=1000) == 40, "the job has not run for longer than the wait"


def test_held_records_cost_no_request_for_each_pass():
    manifest = manifest_of(4)
    store = Watched(filled(manifest))
    expiry, local = StoreExpiry(store), replace(log_without(40), retention_ms=1000, wait_max_ms=500)
    assert expiry.expired_end(manifest, local, lambda: 1400, lambda: [Hold(0, 1400)]) is None
    store.calls.clear()
    assert expiry.expired_end(manifest, local, lambda: 1400, lambda: [Hold(0, 1400)]) is None
    assert store.calls == []


def test_the_registrations_are_read_once_a_minute_for_all_partitions():
    store, clock = MemoryStore(7_000), HandClock()
    watched = Watched(store)
    register(store, "one", p0=5, p1=6)
    register(store, "two", p0=4)
    jobs = JobHolds(watched, CLUSTER, clock)
    assert list(jobs.of("topic", TOPIC_ID, 0)) == [Hold(5, 7_000), Hold(4, 7_000)]
    assert list(jobs.of("topic", TOPIC_ID, 1)) == [Hold(6, 7_000), Hold(0, 7_000)], (
        "not registered: held from its start"
    )
    assert jobs.of("topic", "b" * 32, 0) == jobs.of("other", TOPIC_ID, 0) == []
    assert len(watched.calls) == 3
    store.now_ms = 8_000
    register(store, "one", p0=9)
    store.delete(store_registration_key(CLUSTER, "two", "a1"))
    assert len(jobs.of("topic", TOPIC_ID, 0)) == 2
    clock.pass_ms(int(REFRESH_SECONDS * 1000))
    assert list(jobs.of("topic", TOPIC_ID, 0)) == [Hold(9, 8_000)]


def test_what_is_not_understood_is_logged_once_and_stays(caplog):
    store, clock = MemoryStore(7_000), HandClock()
    newer = store_registration_key(CLUSTER, "newer", "ff")
    store.put(newer, b'{"format":9}')
    store.put(PREFIX + "README.txt", b"what is this?")
    before = dict(store.objects)
    jobs = JobHolds(store, CLUSTER, clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert list(jobs.of("topic", TOPIC_ID, 0)) == [Hold(0, 7_000)], "an unreadable one holds everything"
            clock.pass_ms(int(REFRESH_SECONDS * 1000))
    assert sorted(one.key for one in caplog.records) == [PREFIX + "README.txt", newer]  # type: ignore[attr-defined]
    assert store.objects == before


def test_more_registrations_than_are_read_hold_everything():
    store = Watched(MemoryStore(7_000))
    for at in range(READ_MAX + 1):
        register(store, f"job{at:04}", p0=5)  # type: ignore[arg-type]
    store.calls.clear()
    holds = JobHolds(store, CLUSTER, HandClock()).of("topic", TOPIC_ID, 0)
    assert (len(holds), held_from(holds, 7_000, 1)) == (READ_MAX + 1, 0)
    assert len(store.calls) == READ_MAX + 1


def sealed_log(size_bytes: int = 400) -> SimpleNamespace:
    """A log of sealed segments that end at 10, 20 and 30, appended at 0, 100 and 200 ms; and an active one."""
    closed = [SimpleNamespace(next_offset=10 * at + 10, last_append_ms=100 * at, size_bytes=100) for at in range(3)]
    return SimpleNamespace(log_start=0, size_bytes=size_bytes, segments=[*closed, None])


@pytest.mark.parametrize(
    ("now_ms", "tiered_end", "config", "bounds"),
    [
        (60_101, 30, {}, Bounds(0, 20)),  # the disk is freed, and the store keeps it
        (60_101, 10, {}, Bounds(0, 10)),  # not what is not tiered
        (60_101, None, {}, Bounds(20, 20)),
        (120_001, 0, {}, Bounds(10, 10)),  # not tiered, and longer than the longest wait
        (60_101, 30, {"retention_waits_for_jobs": False}, Bounds(20, 20)),
        (60_101, 30, {"cleanup_policy": "compact,delete"}, Bounds(20, 20)),
        (50_000, 30, {"local_retention_ms": 40_000}, Bounds(0, 30)),
    ],
)
def test_the_disk_is_freed_and_the_log_keeps_its_start(now_ms, tiered_end, config, bounds):
    given = {"retention_ms": 60_000, "retention_waits_for_jobs": True, "retention_wait_max_ms": 60_000, **config}
    partition = SimpleNamespace(settings=topic_settings(given), log=sealed_log(), high_watermark=40, durable_end=40)
    assert expired_below(partition, now_ms, tiered_end) == bounds  # type: ignore[arg-type]


def test_a_size_on_the_disk_waits_too():
    given = {"retention_bytes": 1 << 20, "retention_waits_for_jobs": True, "retention_wait_max_ms": 60_000}
    log = sealed_log((1 << 20) + 150)
    partition = SimpleNamespace(settings=topic_settings(given), log=log, high_watermark=40, durable_end=40)
    assert expired_below(partition, 60_000, 30) == Bounds(0, 10)  # type: ignore[arg-type]
    assert expired_below(partition, 60_001, 0) == Bounds(10, 10)  # type: ignore[arg-type]


async def test_a_shipper_keeps_what_a_job_has_not_committed(tmp_path, make):
    source, store, committed = Source(local_log(sealed(tmp_path, 4))), MemoryStore(), [WIDTH]
    shipper = make(store, source, holds=lambda: [Hold(committed[0], store.now_ms)])
    await shipper.ship_once()
    end = source.local.log_end
    source.local = replace(source.local, sealed=(), local_log_start=end, retention_ms=1000, wait_max_ms=10**9)
    store.now_ms += 5000
    await shipper.ship_once()
    assert source.local.log_start == newest(store).log_start == WIDTH
    committed[0] = 3 * WIDTH
    await shipper.ship_once()
    assert source.local.log_start == newest(store).log_start == 3 * WIDTH
