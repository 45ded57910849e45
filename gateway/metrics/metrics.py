"""Counts for Prometheus. Labels are bounded: operations, statuses, stages, and topics up to a number.

Here are the counters that handlers change. Other parts count in plain numbers; a scrape reads them as the values
`Numbers` and `Histograms`. Only this file knows Prometheus. docs/reference/metrics.md lists the metrics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite, nan
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from engine.runtime.histogram import STAGE_BOUNDS, Histogram

disable_created_metrics()  # type: ignore[no-untyped-call] # a second series for each metric, which is never used

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_EOF = "# EOF\n"  # ends a page of OpenMetrics
_UNITS = ("seconds", "bytes")  # names of these end in them
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Numbers(NamedTuple):
    """Values by one label; without a label, one value under "". A name that ends in _total never goes down."""

    name: str
    text: str
    label: str | None
    values: Mapping[str, float]


class Exemplars:
    """The last sampled request of each bucket, by the value of the label: as many as there are buckets, at most."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._of_label: dict[str, dict[int, Exemplar]] = {}

    def __repr__(self) -> str:
        return f"Exemplars({list(self._of_label)})"

    def note(self, label: str, seconds: float, trace_id: str, at_s: float) -> None:
        """Keeps a request. `at_s` counts from 1970."""
        bucket = bisect_left(self._bounds, seconds)
        self._of_label.setdefault(label, {})[bucket] = Exemplar({"trace_id": trace_id}, seconds, round(at_s, 3))

    def of(self, label: str) -> Mapping[int, Exemplar]:
        """Returns the exemplars of a label by the numbers of their buckets."""
        return self._of_label.get(label, {})


class Histograms(NamedTuple):
    name: str
    text: str
    label: str | None
    values: Mapping[str, Histogram]
    exemplars: Exemplars | None = None


Families = Iterable[Numbers | Histograms]


class Count:
    """A number that the loop of a process changes: `count.value += 1`. The library's has a lock and takes 0.4 µs."""

    __slots__ = ("_name", "_text", "value")

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self.value = 0

    def numbers(self) -> Numbers:
        return Numbers(self._name, self._text, None, {"": self.value})


class Answers:
    """The answers of one operation with one status: `count += 1`, and `observe` for the seconds.

    Plain numbers: a counter and a histogram of the library took 3 µs of each request.
    """

    __slots__ = ("count", "observe")

    def __init__(self, observe: Callable[[float], None]) -> None:
        self.count = 0
        self.observe = observe


class AnswerCounts(dict[tuple[str, int], Answers]):
    """The answers by operation and status. The first look-up of a pair adds it."""

    def __init__(self, seconds: dict[str, Histogram]) -> None:
        super().__init__()
        self._seconds = seconds

    def __missing__(self, key: tuple[str, int]) -> Answers:
        operation, _ = key
        answers = self[key] = Answers(self._seconds.setdefault(operation, Histogram(SECONDS)).observe)
        return answers


class Metrics:
    """The counters that handlers change, and those that `families` reads."""

    def __init__(self, families: Callable[[], Families]) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.produce_records = Count("penstock_produce_records_total", "Records produced")
        self.produce_bytes = Count("penstock_produce_bytes_total", "Bytes of produce bodies")
        self.fetch_bytes = Count("penstock_fetch_bytes_total", "Stored bytes read for fetches")
        self.idle_connections = Count(
            "penstock_idle_connections_closed_total", "Connections closed because they were idle"
        )
        self.requests_in_flight = Count("penstock_requests_in_flight", "Requests without a response yet")
        self.delayed_produces = Count(
            "penstock_delayed_produces", "Produce requests that wait for their acks, as in Kafka's produce purgatory"
        )
        self.event_streams = Count("penstock_event_streams", "Open event streams; each also counts as a long poll")
        self.quota_throttled: Counter[str] = Counter()  # by dimension
        self.quota_refused: Counter[str] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self.request_exemplars = Exemplars(SECONDS)
        self.stage_exemplars = Exemplars(STAGE_BOUNDS)
        self.answers = AnswerCounts(self._seconds)
        self._process = ProcessCollector(registry=registry)
        traffic = (self.produce_records, self.produce_bytes, self.fetch_bytes, self.event_streams)
        counts = (*traffic, self.idle_connections, self.requests_in_flight, self.delayed_produces)
        registry.register(_FamilyCollector(lambda: [_family(count.numbers()) for count in counts]))
        registry.register(_FamilyCollector(self._request_families))
        registry.register(_FamilyCollector(lambda: map(_family, self._quota_numbers())))
        registry.register(_FamilyCollector(lambda: map(_family, families())))

    def count_answer(self, operation: str, status: int, seconds: float) -> None:
        """Counts one answered request."""
        answers = self.answers[operation, status]
        answers.count += 1
        answers.observe(seconds)

    def files_share(self) -> float:
        """Returns the share of the files that the process may open that are open."""
        numbers = self._process_numbers()
        return numbers.get("process_open_fds", 0.0) / (numbers.get("process_max_fds") or 1.0)

    def memory_bytes(self) -> float:
        """Returns the resident memory of the process; NaN where the system has no such number."""
        return self._process_numbers().get("process_resident_memory_bytes", nan)

    def _process_numbers(self) -> dict[str, float]:
        return {sample.name: sample.value for metric in self._process.collect() for sample in metric.samples}

    def histograms(self) -> Iterable[Histogram]:
        return self._seconds.values()

    def collect(self) -> list[Metric]:
        """Returns all present values. Rendering them (`text_of`) takes longer and may be done in a thread."""
        return list(self.registry.collect())

    def _quota_numbers(self) -> Iterator[Numbers]:
        text = "Requests that waited for a quota, by its dimension"
        yield Numbers("penstock_quota_throttled_total", text, "dimension", self.quota_throttled)
        text = "Requests that a quota refused, by its dimension"
        yield Numbers("penstock_quota_refused_total", text, "dimension", self.quota_refused)

    def _request_families(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("penstock_requests", "Requests answered", labels=["operation", "status"])
        for (operation, status), answers in self.answers.items():
            requests.add_metric([operation, str(status)], answers.count)
        yield requests
        text = "Time from a request's headers to its answer"
        name = "penstock_request_duration_seconds"
        yield _family(Histograms(name, text, "operation", self._seconds, self.request_exemplars))


def text_of(families: list[Metric], *, is_open: bool = False) -> bytes:
    """Returns the text of Prometheus, or that of OpenMetrics, which has exemplars and units."""
    collector = _FamilyCollector(lambda: families)
    return generate_openmetrics(collector) if is_open else generate_latest(collector)  # type: ignore[no-untyped-call]


def numbers_text(numbers: Iterable[Numbers], *, is_open: bool = False) -> str:
    return text_of([_family(family) for family in numbers], is_open=is_open).decode()


def numbers_of(text: str) -> Iterator[tuple[str, list[str], float, bool]]:
    """Yields name, values of labels, value, and whether it only grows, of all finite numbers but those of buckets."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if isfinite(sample.value) and not sample.name.endswith("_bucket"):
                yield sample.name, list(sample.labels.values()), sample.value, family.type != "gauge"


def merge_pages(texts: Mapping[int | str, str]) -> bytes:
    """Returns the metrics of several shards as one page, each sample with its shard; one shard's page as it is."""
    if len(texts) == 1:
        return next(iter(texts.values())).encode()
    families: dict[str, list[str]] = {}
    end = ""
    for shard, text in sorted(texts.items(), key=lambda page: str(page[0])):
        if text.endswith(_EOF):
            end = _EOF
        for block in text.removesuffix(_EOF).split("# HELP ")[1:]:
            help_line, *lines = block.splitlines()
            head = [line for line in lines[:2] if line.startswith("# ")]  # the type, and the unit of OpenMetrics
            whole = families.setdefault(help_line, [f"# HELP {help_line}", *head])
            whole += [_of_shard(sample, shard) for sample in lines[len(head) :]]
    return ("".join(f"{line}\n" for lines in families.values() for line in lines) + end).encode()


def _of_shard(sample: str, shard: int | str) -> str:
    """Returns `name{a="b"} 1` or `name 1` with one more label. Values may contain { and spaces, names may not."""
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        return f'{name}{{shard="{shard}",{rest}'
    name, _, value = sample.partition(" ")
    return f'{name}{{shard="{shard}"}} {value}'


def _family(values: Numbers | Histograms) -> Metric:
    labels = [] if values.label is None else [values.label]
    family_name = values.name.removesuffix("_total")
    unit = next((unit for unit in _UNITS if family_name.endswith(f"_{unit}")), "")
    if isinstance(values, Histograms):
        histograms = HistogramMetricFamily(family_name, values.text, labels=labels, unit=unit)
        for name, histogram in values.values.items():
            bounds = [*map(str, map(float, histogram.bounds)), "+Inf"]
            exemplars = {} if values.exemplars is None else values.exemplars.of(name)
            buckets = [
                (bound, count, exemplars[number]) if number in exemplars else (bound, count)
                for number, (bound, count) in enumerate(zip(bounds, histogram.cumulative(), strict=True))
            ]
            histograms.add_metric([name] if labels else [], buckets, sum_value=histogram.total)
        return histograms
    shape = CounterMetricFamily if values.name.endswith("_total") else GaugeMetricFamily
    numbers = shape(family_name, values.text, labels=labels, unit=unit)
    for name, number in values.values.items():
        numbers.add_metric([name] if labels else [], number)
    return numbers


class _FamilyCollector(Collector):
    """Families that are made for each scrape."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()
