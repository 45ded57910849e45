"""Metrics of the processes that serve no requests: the worker and the supervisor. A shard asks them for each scrape.

Their samples have the label shard="worker" and shard="supervisor".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.runtime.tasks import failures
from gateway.links.link import Handler, handler
from gateway.links.link_client import LinkClient
from gateway.metrics.metrics import Numbers, numbers_text

Gauges = Callable[[], Iterable[tuple[str, str, float]]]


def background_numbers() -> Numbers:
    """Returns the failures of background tasks of this process."""
    text = "Failures of background tasks. Each is logged; permanent tasks restart"
    return Numbers("penstock_background_failures_total", text, "task", failures)


def process_text(gauges: Gauges, *, is_open: bool = False) -> str:
    """Returns the metrics of this process as text."""
    further = [Numbers(name, text, None, {"": value}) for name, text, value in gauges()]
    return numbers_text([background_numbers(), *further], is_open=is_open)


def process_handlers(gauges: Gauges = tuple) -> dict[str, Handler]:
    """Returns the handler of a scrape. `gauges` yields name, text and value of each further number of the process."""

    async def process_metrics(is_open: bool, _: bytes) -> tuple[str, bytes]:
        return process_text(gauges, is_open=is_open), b""

    return {"process_metrics": handler(bool, process_metrics)}


async def text_of_process(caller: LinkClient, timeout_s: float, *, is_open: bool = False) -> str:
    """Returns the metrics of another process as text. Raises Busy, LinkLost."""
    text, _ = await caller.link().call("process_metrics", is_open, timeout_s=timeout_s)
    return str(text)
