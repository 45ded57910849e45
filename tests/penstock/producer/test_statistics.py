"""The statistics of a producer: counts, bytes and times."""

from __future__ import annotations

import dataclasses
import gzip
import math

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Client
from penstock.producer.statistics import Durations, Timings
from penstock.transport.compression import compress
from tests.penstock.fake_node import FakeNode, answering, problem

RECORDS = "/v1/topics/t/partitions/0/records"


async def test_batches_bytes_retries_and_times_are_counted(client: Client, fake: FakeNode) -> None:
    fake.add_topic("t")
    fake.fail(answering(lambda: problem(503, "overloaded", retryable=True)))
    async with client.producer(linger_ms=20) as producer:
        await producer.send_many("t", [b"11111"] * 10)
        await producer.flush()
        await producer.send("t", 2)
    statistics = producer.statistics()
    assert (statistics.records_acknowledged, statistics.records_failed, statistics.batches) == (11, 0, 2)
    assert statistics.body_bytes == statistics.compressed_bytes == sum(map(len, fake.bodies_by_path[RECORDS][1:]))
    assert (statistics.requests, statistics.retries, statistics.buffered_bytes) == (4, 1, 0)  # one for the id
    assert statistics.queue_time.count == statistics.delivery_time.count == 2
    assert 0 < statistics.delivery_time.p50_ms <= statistics.delivery_time.p99_ms <= statistics.delivery_time.max_ms
    with pytest.raises(dataclasses.FrozenInstanceError):
        statistics.batches = 0  # type: ignore[misc]


async def test_bodies_travel_compressed(client: Client, fake: FakeNode) -> None:
    (partition,) = fake.add_topic("t")
    async with client.producer(compression="gzip", linger_ms=50) as producer:
        await producer.send_many("t", [b'"' + b"x" * 100 + b'"'] * 50)
    assert len(partition.records) == 50
    assert fake.seen_headers[-1]["Content-Encoding"] == "gzip"
    statistics = producer.statistics()
    assert statistics.compressed_bytes < 500 < 5_000 < statistics.body_bytes


def test_a_compressed_body_is_what_its_name_says() -> None:
    body = b"penstock" * 1000
    assert compress(body, "none") is body
    assert gzip.decompress(compress(body, "gzip")) == body
    assert bytes(cramjam.zstd.decompress(compress(body, "zstd"))) == body


@given(st.lists(st.floats(0.02, 1e6), min_size=1, max_size=300))
def test_a_quantile_is_never_too_small_and_a_fifth_too_large_at_most(durations_ms: list[float]) -> None:
    timings = Timings()
    for duration_ms in durations_ms:
        timings.add(duration_ms)
    shown = timings.durations()
    ordered = sorted(durations_ms)
    assert shown.count == len(ordered)
    assert shown.max_ms == ordered[-1]
    assert shown.mean_ms == pytest.approx(sum(ordered) / len(ordered))
    for quantile, reported_ms in ((0.5, shown.p50_ms), (0.99, shown.p99_ms)):
        exact_ms = ordered[math.ceil(quantile * len(ordered)) - 1]
        assert exact_ms <= reported_ms * (1 + 1e-9)
        assert reported_ms <= exact_ms * 1.2


def test_what_never_happened_took_no_time() -> None:
    assert Timings().durations() == Durations(0, 0.0, 0.0, 0.0, 0.0)
