"""Composes what sends the metrics of a node to statsd: in the worker, or in the process of a node that has one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from gateway.links.link_client import LinkClient
from gateway.metrics.metrics import Metrics, text_of
from gateway.metrics.process_metrics import text_of_process
from gateway.metrics.statsd import ReadTexts, StatsdOptions, StatsdSender, address_of
from gateway.settings import NodeSettings

CALL_S = 2.0


def statsd_sender(settings: NodeSettings, read_texts: ReadTexts, executor: Executor) -> StatsdSender | None:
    """Returns the sender. None: the settings name no statsd."""
    if not settings.statsd_address:
        return None
    prefix = settings.statsd_prefix or f"node-{settings.node_id}."
    options = StatsdOptions(*address_of(settings.statsd_address), prefix, settings.statsd_interval_ms / 1000)
    return StatsdSender(options, read_texts, executor)


def texts_of_node(own: Callable[[], str], shards: Sequence[LinkClient], supervisor: LinkClient) -> ReadTexts:
    """Returns what reads the worker, and asks the others. A process that does not answer is left out: it restarts."""

    async def of_shard(caller: LinkClient) -> str:
        (_, text), _ = await caller.link().call("metrics", False, timeout_s=CALL_S)
        return str(text)

    async def read() -> dict[str, str]:
        calls = {str(index): of_shard(caller) for index, caller in enumerate(shards)}
        calls["supervisor"] = text_of_process(supervisor, CALL_S)
        answers = await asyncio.gather(*calls.values(), return_exceptions=True)
        answered = {name: answer for name, answer in zip(calls, answers, strict=True) if isinstance(answer, str)}
        return answered | {"worker": own()}

    return read


def texts_of_process(metrics: Metrics, executor: Executor) -> ReadTexts:
    """Returns what reads the only process of a node."""

    async def read() -> dict[str, str]:
        families = metrics.collect()
        text = await asyncio.get_running_loop().run_in_executor(executor, text_of, families)
        return {"": text.decode()}

    return read
