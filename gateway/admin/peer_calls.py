"""Calls to every process of a node or a cluster: metrics, sizes of partitions."""

from __future__ import annotations

import asyncio
from types import NoneType

from gateway.admin.context import AdminContext
from gateway.links.link import Handler, handler
from gateway.metrics.metrics import text_of
from gateway.metrics.process_metrics import text_of_process

METRICS_S = 2.0


async def collect_metrics(context: AdminContext) -> dict[int | str, str]:
    """Returns the metrics of every process of the node that answers: shards by index, the others by name."""
    calls = [link.call("metrics", None, timeout_s=METRICS_S) for link in context.peers.links.links(of_this_node=True)]
    texts: dict[int | str, str] = {context.peers.index: await _render_metrics(context)}
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if not isinstance(outcome, BaseException):
            (index, text), _ = outcome
            texts[index] = text
    siblings = context.siblings()
    of_siblings = [text_of_process(caller, METRICS_S) for caller in siblings.values()]
    for name, result in zip(siblings, await asyncio.gather(*of_siblings, return_exceptions=True), strict=True):
        if isinstance(result, str):
            texts[name] = result
    return texts


async def collect_sizes(context: AdminContext) -> dict[str, int]:
    """Returns the bytes of each partition on the disks of the nodes that answer; the largest replica counts."""
    calls = [link.call("sizes", None, timeout_s=METRICS_S) for link in context.peers.links.links()]
    sizes = context.own_sizes()
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if not isinstance(outcome, BaseException):
            for name, size_bytes in outcome[0].items():
                sizes[name] = max(size_bytes, sizes.get(name, 0))
    return sizes


def admin_handlers(context: AdminContext) -> dict[str, Handler]:
    """Returns the handlers of calls from other processes."""

    async def metrics(_: None, __: bytes) -> tuple[tuple[int, str], bytes]:
        return (context.peers.index, await _render_metrics(context)), b""

    async def sizes(_: None, __: bytes) -> tuple[dict[str, int], bytes]:
        return context.own_sizes(), b""

    return {"metrics": handler(NoneType, metrics), "sizes": handler(NoneType, sizes)}


async def _render_metrics(context: AdminContext) -> str:
    families = context.metrics.collect()
    return (await context.offload.in_thread(lambda: text_of(families))).decode()
