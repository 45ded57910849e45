"""What a node counts, for Prometheus. Labels are bounded: operations and statuses, never topics, clients or paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

disable_created_metrics()  # type: ignore[no-untyped-call] # a second series for each, which nobody asks for

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The counters that handlers move; `render` is the text of /metrics."""

    def __init__(self, gauges: Callable[[], Iterable[tuple[str, str, float]]]) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter("penstock_requests", "Requests answered", ["operation", "status"], registry=registry)
        self.seconds = Histogram(
            "penstock_request_seconds",
            "Time from a request's headers to its answer",
            ["operation"],
            buckets=SECONDS,
            registry=registry,
        )
        self.produce_records = Counter("penstock_produce_records", "Records taken in", registry=registry)
        self.produce_bytes = Counter("penstock_produce_bytes", "Bytes of produce bodies", registry=registry)
        self.fetch_bytes = Counter("penstock_fetch_bytes", "Stored bytes read for fetches", registry=registry)
        self.long_polls = Gauge("penstock_long_polls", "Fetches that wait for data", registry=registry)
        self.event_streams = Gauge(
            "penstock_event_streams", "Event streams open; each is a long poll", registry=registry
        )
        registry.register(_State(gauges))
        self._children: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """One request is done. The labelled children are kept, since looking them up costs more than counting."""
        children = self._children.get((operation, status))
        if children is None:
            children = (self.requests.labels(operation, status), self.seconds.labels(operation))
            self._children[operation, status] = children
        children[0].inc()
        children[1].observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self.registry)


def merged(texts: dict[int, str]) -> bytes:
    """The metrics of several shards as one page, each sample with its shard; one shard's page as it is."""
    if len(texts) == 1:
        return next(iter(texts.values())).encode()
    families: dict[str, Metric] = {}
    for shard, text in sorted(texts.items()):
        for family in text_string_to_metric_families(text):
            whole = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            whole.samples += [s._replace(labels={**s.labels, "shard": str(shard)}) for s in family.samples]
    return generate_latest(_Given(list(families.values())))


class _Given(Collector):
    """A registry of families that are there already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class _State(Collector):
    """Gauges read from the node when somebody asks, so that nothing is counted twice."""

    def __init__(self, gauges: Callable[[], Iterable[tuple[str, str, float]]]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[GaugeMetricFamily]:
        for name, text, value in self._gauges():
            yield GaugeMetricFamily(name, text, value=value)
