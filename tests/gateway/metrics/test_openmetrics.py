"""/metrics as OpenMetrics: its reference parser takes it, and sampled requests are exemplars of their buckets."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gateway.metrics.metrics import Exemplars, Histogram, Histograms, _family, merge_pages, text_of
from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import until
from tests.e2e.node_process import running_process
from tests.operations.prometheus import WHY_NO_PROMETHEUS, running_prometheus
from tests.scenarios.gateways import NDJSON, in_process

OPENMETRICS = "application/openmetrics-text"
OF_PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
TRACES = [f"{number:032x}" for number in (10, 11)]


def sampled(trace_id: str) -> dict[str, str]:
    return {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}


def families(text: str) -> dict:
    return {family.name: family for family in text_string_to_metric_families(text)}


def exemplars(family) -> dict[str, list[tuple[float, str]]]:
    """Return the bounds and traces of a family's exemplars by the value of its label."""
    found = {}
    for sample in family.samples:
        if sample.exemplar is not None:
            labels = dict(sample.labels)
            bound = float(labels.pop("le"))
            assert 0 <= sample.exemplar.value <= bound
            assert 1e9 < float(sample.exemplar.timestamp) < 1e11
            found.setdefault(*labels.values(), []).append((bound, sample.exemplar.labels["trace_id"]))
    return found


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        (OF_PROMETHEUS, True),
        (OPENMETRICS, True),
        ("text/plain, application/openmetrics-text;q=0.9", False),
        ("application/openmetrics-text;q=0, */*", False),
        ("*/*", False),
        ("application/json", False),
        ("", False),
    ],
)
async def test_the_client_chooses_the_format(tmp_path, accept, is_open):
    async with in_process(tmp_path) as gateway:
        answer = await gateway.send("GET", "/metrics", b"", {"Accept": accept})
    text = answer.body.decode()
    expected = f"{OPENMETRICS}; version=1.0.0" if is_open else "text/plain; version=0.0.4"
    assert answer.headers["Content-Type"] == f"{expected}; charset=utf-8"
    assert answer.headers["Vary"] == "Accept"
    assert text.endswith("# EOF\n") == ("# UNIT" in text) == is_open


async def test_the_last_sampled_request_of_a_bucket_is_its_exemplar(tmp_path):
    async with in_process(tmp_path, otlp_endpoint="http://127.0.0.1:1") as gateway:
        topic = await gateway.create("t")
        await topic.post(b"1\n", NDJSON)
        for trace_id in TRACES:
            await topic.post(b"1\n", NDJSON, sampled(trace_id))
        text = (await gateway.send("GET", "/metrics", b"", {"Accept": OPENMETRICS})).body.decode()
        plain = (await gateway.send("GET", "/metrics")).body.decode()
    found = families(text)
    assert found["penstock_requests"].type == "counter"
    assert found["penstock_request_duration_seconds"].unit == "seconds"
    by_operation = exemplars(found["penstock_request_duration_seconds"])
    assert by_operation.keys() == {"produce"}, "a request without a span is not named"
    assert TRACES[1] in {trace for _, trace in by_operation["produce"]}
    bounds = [bound for bound, _ in by_operation["produce"]]
    assert len(bounds) == len(set(bounds))
    assert exemplars(found["penstock_stage_duration_seconds"]).keys() >= {"body", "decode", "queue", "append", "ack"}
    assert "trace_id" not in plain
    if shutil.which("promtool") is not None:  # it reads the text format only
        check = subprocess.run(["promtool", "check", "metrics"], input=plain, capture_output=True, text=True)
        assert (check.returncode, check.stderr) == (0, "")


def test_a_bucket_keeps_one_exemplar():
    kept = Exemplars((1.0, 2.0))
    for number in range(10_000):
        kept.note("a", number % 4, f"{number:032x}", 0.0)
    assert {bucket: exemplar.labels["trace_id"] for bucket, exemplar in kept.of("a").items()} == {
        0: f"{9997:032x}",
        1: f"{9998:032x}",
        2: f"{9999:032x}",
    }


def test_pages_of_shards_become_one_page_with_one_end():
    times, kept = Histogram((1.0,)), Exemplars((1.0,))
    times.observe(0.5)
    kept.note("a # {b", 0.5, TRACES[0], 12.0)
    page = text_of([_family(Histograms("penstock_x_seconds", "X", "name", {"a # {b": times}, kept))], is_open=True)
    text = merge_pages({shard: page.decode() for shard in (0, "worker")}).decode()
    assert (text.count("# EOF"), text.count("# UNIT"), text.count("# TYPE")) == (1, 1, 1)
    (family,) = text_string_to_metric_families(text)
    buckets = [sample for sample in family.samples if sample.exemplar is not None]
    assert [sample.labels["shard"] for sample in buckets] == ["0", "worker"]
    assert [sample.exemplar.labels["trace_id"] for sample in buckets] == [TRACES[0]] * 2


@pytest.mark.long
@pytest.mark.e2e
@pytest.mark.skipif(WHY_NO_PROMETHEUS is not None, reason=str(WHY_NO_PROMETHEUS))
def test_a_prometheus_keeps_the_exemplar(tmp_path):
    with running_process(tmp_path / "node", shards=2, otlp_endpoint="http://127.0.0.1:1", trace_ratio=1.0) as node:
        place = node.url.removeprefix("http://")
        with running_prometheus(tmp_path / "prometheus", [place]) as prometheus:
            call(f"{node.url}/v1/topics/t", "PUT", {"partitions": 4})
            call(f"{node.url}/v1/topics/t/records", "POST", {"records": [{"value": 1}]})
            query = 'penstock_request_duration_seconds_bucket{operation="produce"}'
            until(lambda: prometheus.exemplars(query))
            assert re.fullmatch("[0-9a-f]{32}", prometheus.exemplars(query)[0])
