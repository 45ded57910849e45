"""The content of /metrics: by topic, by stage, of all shards, within bounds."""

from __future__ import annotations

import asyncio
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.runtime.histogram import Histogram
from gateway.metrics.metrics import merge_pages
from tests.codecs import COMPILED, plain_codec
from tests.scenarios.gateways import in_process


def samples(text):
    """Return every sample by its name and labels; the parser rejects an invalid exposition."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, *sorted(sample.labels.items())] = sample.value
    return found


async def scrape(gateway):
    return samples((await gateway.send("GET", "/metrics")).body.decode())


@pytest.fixture
async def gateway(tmp_path):
    async with in_process(tmp_path, metrics_topics_max=2) as gateway:
        yield gateway


async def test_traffic_and_size_are_counted_by_topic_and_the_rest_together(gateway):
    topics = [await gateway.create(f"t{n}", 2) for n in range(4)]
    for n, topic in enumerate(topics, 1):
        await topic.post_lines(*["1"] * n, to=1)
    await topics[0].fetch(offset=0, partition=1)
    await gateway.send("DELETE", "/v1/topics/t3")
    found = await scrape(gateway)
    records = {key[1][1]: value for key, value in found.items() if key[0] == "penstock_topic_records_in_total"}
    assert records == {"t0": 1, "t1": 2, "other": 3}
    stored = found["penstock_topic_bytes_in_total", ("topic", "t0")]
    assert stored == found["penstock_topic_log_bytes", ("topic", "t0")] > 61
    assert found["penstock_topic_bytes_out_total", ("topic", "t0")] == stored
    assert found["penstock_topic_bytes_out_total", ("topic", "t1")] == 0


async def test_unshipped_records_are_counted_until_they_are_in_the_store(gateway, monkeypatch):
    topic = await gateway.create("t")
    await topic.post_lines("1", "2")
    with monkeypatch.context() as nothing_tiered:
        nothing_tiered.setattr(gateway.node.shard, "tiered_end", lambda _: 0)
        await topic.roll()
        now_ms = gateway.node.clock.steady_ms()
        nothing_tiered.setattr(gateway.node.clock, "steady_ms", lambda: now_ms + 5000)
        found = await scrape(gateway)
        assert found["penstock_topic_tier_pending_segments", ("topic", "t")] == 1
        assert found["penstock_topic_tier_pending_bytes", ("topic", "t")] > 61
        assert 5 <= found["penstock_tier_lag_seconds",] < 60
        nothing_tiered.setattr(gateway.node.shard, "leading_epoch", lambda _: None)  # then the leader has to ship it
        found = await scrape(gateway)
        assert found["penstock_topic_tier_pending_segments", ("topic", "t")] == found["penstock_tier_lag_seconds",] == 0
    await topic.post_lines("3")
    await topic.roll()  # wakes the shipper, which may have looked while the partition had no leader
    while (await scrape(gateway))["penstock_topic_tier_pending_segments", ("topic", "t")]:
        await asyncio.sleep(0.02)
    assert (await scrape(gateway))["penstock_tier_lag_seconds",] == 0


async def test_each_stage_of_a_produce_is_counted(gateway):
    topic = await gateway.create("t")
    for _ in range(3):
        await topic.post_lines("1")
    await topic.post_lines("1", acks="0")
    found = await scrape(gateway)
    for stage in ("body", "decode", "ack", "answer"):
        assert found["penstock_stage_duration_seconds_count", ("stage", stage)] == 4, stage
    for stage in ("queue", "append", "flush"):
        assert found["penstock_stage_duration_seconds_count", ("stage", stage)] >= 3, stage
        assert found["penstock_stage_duration_seconds_sum", ("stage", stage)] > 0, stage
    assert found["penstock_flushes_total",] >= 3
    assert found["penstock_request_duration_seconds_count", ("operation", "produce")] == 4


async def test_requests_in_flight_and_waiting_are_counted(gateway):
    topic = await gateway.create("t")
    poll = asyncio.create_task(topic.fetch(offset=0, wait_ms=60_000))
    while not (found := await scrape(gateway))["penstock_long_polls",]:
        await asyncio.sleep(0.01)
    assert found["penstock_requests_in_flight",] == 2, "the poll and the scrape"
    await topic.post_lines("1")
    assert (await poll).json["next_offset"] == 1
    found = await scrape(gateway)
    assert (found["penstock_requests_in_flight",], found["penstock_delayed_produces",]) == (1, 0)


async def test_the_codec_that_runs_is_a_metric(gateway):
    assert (await scrape(gateway))["penstock_codec_compiled",] == (COMPILED is not None)
    with plain_codec():
        assert (await scrape(gateway))["penstock_codec_compiled",] == 0


async def test_the_process_and_its_loop_are_measured(gateway):
    watching = asyncio.create_task(gateway.node.loop_watch.run())
    while not gateway.node.loop_watch.lag.cumulative()[-1]:
        await asyncio.sleep(0.05)
    watching.cancel()
    found = await scrape(gateway)
    assert found["penstock_event_loop_lag_seconds_count",] >= 1
    assert found["penstock_event_loop_cpu_seconds_total",] > 0
    assert found["process_open_fds",] > 5
    assert found["process_max_fds",] >= found["process_open_fds",]


def test_a_value_is_counted_up_to_its_bound():
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 3.0):
        histogram.observe(value)
    assert (histogram.cumulative(), histogram.total) == ([2, 3, 4], 6.0)


def test_pages_of_shards_become_one_with_a_label_more():
    page = '# HELP a_total A {b} c\n# TYPE a_total counter\na_total{x="{ y"} 1.0\n# HELP g G\n# TYPE g gauge\ng 2.0\n'
    text = merge_pages({0: page, 1: page}).decode()
    assert re.findall("# (?:HELP|TYPE) ([a-z_]+)", text) == ["a_total", "a_total", "g", "g"]
    assert samples(text) == {
        ("a_total", ("shard", "0"), ("x", "{ y")): 1.0,
        ("a_total", ("shard", "1"), ("x", "{ y")): 1.0,
        ("g", ("shard", "0")): 2.0,
        ("g", ("shard", "1")): 2.0,
    }
