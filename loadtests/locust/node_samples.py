"""Samples a node while locust runs: CPU and memory of its processes, and the lag of its event loop."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass

from loadtests.host import proc
from loadtests.host.admin_client import AdminClient

LAG = "penstock_event_loop_lag_seconds"
_BUCKET = re.compile(rf'^{LAG}_bucket\{{.*?le="([^"]+)".*?\}} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """The use of a node during a run. CPU in cores; the lag is an upper bound of the 99th percentile."""

    cpu_cores: float
    cpu_cores_most: float
    rss_bytes_most: int
    loop_lag_p99_s: float | None


class NodeSamples:
    """Samples a process in a thread from `start` to `stop`."""

    def __init__(self, pid: int, url: str, every_s: float = 1.0) -> None:
        self._pid = pid
        self._admin = AdminClient(url)
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="node-samples", daemon=True)
        self._samples: list[tuple[float, proc.Usage]] = []
        self._lag_before: dict[float, float] = {}

    def start(self) -> None:
        self._lag_before = self._lag()
        self._samples.append((time.monotonic(), proc.usage(self._pid)))
        self._thread.start()

    def stop(self) -> NodeUsage:
        self._ended.set()
        self._thread.join()
        self._samples.append((time.monotonic(), proc.usage(self._pid)))
        lag = {bound: count - self._lag_before.get(bound, 0) for bound, count in self._lag().items()}
        return NodeUsage(
            cpu_cores=_cores(self._samples[0], self._samples[-1]),
            cpu_cores_most=max(_cores(*pair) for pair in zip(self._samples, self._samples[1:], strict=False)),
            rss_bytes_most=max(usage.rss_bytes for _, usage in self._samples),
            loop_lag_p99_s=percentile_of_buckets(lag, 99),
        )

    def _sample(self) -> None:
        while not self._ended.wait(self._every_s):
            self._samples.append((time.monotonic(), proc.usage(self._pid)))

    def _lag(self) -> dict[float, float]:
        return lag_buckets(self._admin.request("GET", "/metrics")[1].decode())


def lag_buckets(metrics: str) -> dict[float, float]:
    """Returns the cumulative counts of the loop's lag by their upper bounds in seconds, summed over the shards."""
    buckets: dict[float, float] = {}
    for bound, count in _BUCKET.findall(metrics):
        buckets[float(bound)] = buckets.get(float(bound), 0) + float(count)
    return buckets


def percentile_of_buckets(buckets: dict[float, float], percent: float) -> float | None:
    """Returns the bound of the first bucket that holds this share; None without samples."""
    total = max(buckets.values(), default=0)
    if total <= 0:
        return None
    return next(bound for bound, count in sorted(buckets.items()) if count >= total * percent / 100)


def _cores(first: tuple[float, proc.Usage], last: tuple[float, proc.Usage]) -> float:
    seconds = last[0] - first[0]
    return max(0.0, last[1].cpu_s - first[1].cpu_s) / seconds if seconds > 0 else 0.0
