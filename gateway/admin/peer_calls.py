"""Calls to every process of a node or a cluster: metrics, sizes of partitions, the rules that are served."""

from __future__ import annotations

import asyncio
from types import NoneType

from engine.errors import EngineError
from gateway.access.access import Access
from gateway.admin.context import AdminContext
from gateway.links.link import Handler, handler
from gateway.links.link_client import LinkClient
from gateway.links.process_links import ProcessLinks
from gateway.metrics.metrics import text_of
from gateway.metrics.process_metrics import text_of_process

METRICS_S = 2.0
SERVED_S = 5.0  # until an answer names the nodes that do not serve a change of rules; they usually do within 0.1 s
REPLY_S = 0.5  # of it, for the way


async def collect_metrics(context: AdminContext, *, is_open: bool) -> dict[int | str, str]:
    """Returns the metrics of every process of the node that answers: shards by index, the others by name.

    `is_open`: as OpenMetrics.
    """
    links = context.peers.links.links(of_this_node=True)
    calls = [link.call("metrics", is_open, timeout_s=METRICS_S) for link in links]
    texts: dict[int | str, str] = {context.peers.index: await _render_metrics(context, is_open=is_open)}
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if not isinstance(outcome, BaseException):
            (index, text), _ = outcome
            texts[index] = text
    siblings = context.siblings()
    of_siblings = [text_of_process(caller, METRICS_S, is_open=is_open) for caller in siblings.values()]
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


async def nodes_behind(links: ProcessLinks, generation: int) -> list[int]:
    """Waits until the other live nodes serve a generation of the rules. Returns those that do not within SERVED_S."""
    processes = links.of_other_nodes()
    reached = await asyncio.gather(*(_has_reached(caller, generation) for _, caller in processes))
    return sorted({node_id for (node_id, _), is_reached in zip(processes, reached, strict=True) if not is_reached})


async def _has_reached(caller: LinkClient, generation: int) -> bool:
    deadline = asyncio.get_running_loop().time() + SERVED_S
    try:
        link = await caller.wait_connected_within(SERVED_S)
        left_s = deadline - asyncio.get_running_loop().time()
        reached, _ = await link.call("wait_access", generation, timeout_s=left_s)
    except EngineError:  # it restarts, hangs, or is of a version without this call
        return False
    return int(reached) >= generation


def access_handlers(access: Access) -> dict[str, Handler]:
    """Returns the handler of another node's question whether this process serves a generation of the rules."""

    async def wait_access(generation: int, _: bytes) -> tuple[int, bytes]:
        return await access.wait_generation(generation, SERVED_S - REPLY_S), b""

    return {"wait_access": handler(int, wait_access)}


def admin_handlers(context: AdminContext) -> dict[str, Handler]:
    """Returns the handlers of calls from other processes."""

    async def metrics(is_open: bool, _: bytes) -> tuple[tuple[int, str], bytes]:
        return (context.peers.index, await _render_metrics(context, is_open=is_open)), b""

    async def sizes(_: None, __: bytes) -> tuple[dict[str, int], bytes]:
        return context.own_sizes(), b""

    return {"metrics": handler(bool, metrics), "sizes": handler(NoneType, sizes)}


async def _render_metrics(context: AdminContext, *, is_open: bool) -> str:
    families = context.metrics.collect()
    return (await context.offload.in_thread(lambda: text_of(families, is_open=is_open))).decode()
