"""The calls on a subscription at the leader of its group's partition, and its views as links carry them."""

from __future__ import annotations

from copy import copy
from functools import partial

from msgspec import Struct

from engine.partition.partition import Partition
from gateway.groups.model.state import Group
from gateway.groups.model.values import PushCall, ResetCall
from gateway.routing.router import Answering, PartitionCall
from gateway.subscriptions.hosting import PushHost
from gateway.subscriptions.runner import Attempt, Counts, Runner


class View(Struct, frozen=True, array_like=True):
    """A subscription where it runs. `definition` has its secrets: routes do not show it."""

    name: str
    definition: str | None
    offsets: tuple[tuple[str, int, int], ...]
    is_running: bool
    counts: Counts
    waiting: int
    last_error: str
    attempts: tuple[Attempt, ...]
    forbidden: str = ""  # the right that its owner lacks


PUT: PartitionCall[PushCall, bool | None] = PartitionCall("push_put", PushCall)
RESET: PartitionCall[ResetCall, None] = PartitionCall("push_reset", ResetCall)
DELETE: PartitionCall[str, None] = PartitionCall("push_delete", str)
DESCRIBE: PartitionCall[str, View] = PartitionCall("push_describe", str)
LIST: PartitionCall[None, list[View]] = PartitionCall("push_list", None)


def push_calls(host: PushHost) -> list[Answering]:
    """Returns the calls to subscriptions of this process."""

    async def put(partition: Partition, call: PushCall) -> tuple[bool | None, bytes]:
        return await host.put(partition, call), b""

    async def reset(partition: Partition, call: ResetCall) -> tuple[None, bytes]:
        await host.reset(partition, call)
        return None, b""

    async def delete(partition: Partition, name: str) -> tuple[None, bytes]:
        await host.delete(partition, name)
        return None, b""

    return [
        PUT.by(put),
        RESET.by(reset),
        DELETE.by(delete),
        DESCRIBE.by(partial(_describe, host)),
        LIST.by(partial(_list, host)),
    ]


async def _describe(host: PushHost, partition: Partition, name: str) -> tuple[View, bytes]:
    return _view(host, *await host.find(partition, name)), b""


async def _list(host: PushHost, partition: Partition, _: None) -> tuple[list[View], bytes]:
    groups = (await host.load_coordinator(partition)).groups.values()
    subscriptions = [await host.find(partition, group.name) for group in groups if group.definition is not None]
    return [_view(host, *subscription) for subscription in subscriptions], b""


def _view(host: PushHost, group: Group, runner: Runner | None) -> View:
    name = group.name.partition(":")[2]
    offsets = tuple((slot.topic, slot.partition, committed.offset) for slot, committed in sorted(group.offsets.items()))
    if runner is None:
        return View(name, group.definition, offsets, False, Counts(), 0, "", (), host.forbidden(group.name))
    counts, attempts, error = copy(runner.counts), tuple(runner.attempts), runner.last_error
    if runner.missing:
        error = f"deleted topics: {', '.join(runner.missing)}; the others are delivered"
    return View(name, group.definition, offsets, True, counts, runner.waiting, error, attempts)
