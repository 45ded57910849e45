"""Calls to every process of a cluster about its status: its findings, the numbers of its topics, its last hour."""

from __future__ import annotations

import asyncio
from types import NoneType
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from engine.runtime.slices import SLICE
from gateway.links.link import Handler, handler
from gateway.links.link_client import LinkClient
from gateway.routing.peers import Peers
from gateway.status.findings import Directory, Finding
from gateway.status.observer import Observer
from gateway.status.rates import TopicNumbers

CALL_S = 2.0  # a node that hangs delays a console for that time, and is named
R = TypeVar("R")


class ProcessStatus(Struct, frozen=True):
    """The status of one process. `of_cluster` is empty but for the first process of a node."""

    node_id: int
    findings: list[Finding]
    of_cluster: list[Finding]
    directories: list[Directory]
    values: dict[str, float]
    partitions: int
    log_bytes: int


class TopicsAsked(Struct, frozen=True, array_like=True):
    """The topics whose numbers are asked for."""

    names: list[str]


class HistoryAsked(Struct, frozen=True, array_like=True):
    """Series of a node, a topic or a group: the samples of the last `samples` steps."""

    kind: str
    name: str
    series: list[str]
    samples: int


class HistoryPart(Struct, frozen=True, array_like=True):
    """The series of one process. `samples`: how many steps it has been observed."""

    node_id: int
    samples: int
    series: dict[str, list[float]]


class Gathered(NamedTuple, Generic[R]):
    """The answers of the processes, and the nodes where a process has not answered."""

    own: R
    of_node: list[R]
    of_others: list[R]
    missing: list[int]

    @property
    def all(self) -> list[R]:
        return [self.own, *self.of_node, *self.of_others]


async def gather(peers: Peers, name: str, arguments: object, own: R, kind: type[R]) -> Gathered[R]:
    """Asks all other processes of the cluster. Waits at most CALL_S. Raises CancelledError."""
    siblings = peers.links.links(of_this_node=True)
    others = peers.links.of_other_nodes()

    async def ask(caller: LinkClient) -> Any:
        return await caller.link().call(name, arguments, timeout_s=CALL_S)

    calls = [link.call(name, arguments, timeout_s=CALL_S) for link in siblings]
    answers = await asyncio.gather(*calls, *(ask(caller) for _, caller in others), return_exceptions=True)
    node_ids = [*[peers.node_id] * len(siblings), *(node_id for node_id, _ in others)]
    gathered: Gathered[R] = Gathered(own, [], [], [])
    for number, (node_id, answer) in enumerate(zip(node_ids, answers, strict=True)):
        if isinstance(answer, Exception):  # it restarts, hangs, or is of a version without this call
            gathered.missing.append(node_id)
        elif isinstance(answer, BaseException):
            raise answer  # cancelled
        else:
            try:
                part = msgspec.convert(answer[0], kind)
            except msgspec.ValidationError:  # of another version
                gathered.missing.append(node_id)
                continue
            (gathered.of_node if number < len(siblings) else gathered.of_others).append(part)
    missing_shards = peers.count - 1 - len(siblings)
    return gathered._replace(missing=sorted({*gathered.missing, *([peers.node_id] if missing_shards > 0 else [])}))


async def status_of(observer: Observer) -> ProcessStatus:
    """Returns the status of this process."""
    findings, of_cluster = await observer.findings()
    return ProcessStatus(
        observer.node_id,
        findings,
        of_cluster,
        list(observer.directories()),
        observer.node_values,
        *observer.sizes(),
    )


async def numbers_of(observer: Observer, names: list[str]) -> dict[str, TopicNumbers]:
    """Returns the numbers of topics in this process, in slices of the loop."""
    numbers: dict[str, TopicNumbers] = {}
    for begin in range(0, len(names), SLICE):
        if begin:
            await asyncio.sleep(0)
        numbers |= observer.topic_numbers(names[begin : begin + SLICE])
    return numbers


def history_of(observer: Observer, asked: HistoryAsked) -> HistoryPart:
    """Returns the series of this process that are asked for."""
    rows = {name: observer.last((asked.kind, asked.name, name), asked.samples) for name in asked.series}
    series = {name: values for name, values in rows.items() if values is not None}
    return HistoryPart(observer.node_id, observer.history.samples, series)


def status_handlers(observer: Observer) -> dict[str, Handler]:
    """Returns the handlers of calls from other processes."""

    async def status(_: None, __: bytes) -> tuple[ProcessStatus, bytes]:
        return await status_of(observer), b""

    async def topics(asked: TopicsAsked, _: bytes) -> tuple[dict[str, TopicNumbers], bytes]:
        return await numbers_of(observer, asked.names), b""

    async def history(asked: HistoryAsked, _: bytes) -> tuple[HistoryPart, bytes]:
        return history_of(observer, asked), b""

    async def lag_trends(_: None, __: bytes) -> tuple[dict[str, list[float]], bytes]:
        return observer.lag_trends(), b""

    return {
        "status": handler(NoneType, status),
        "topic_numbers": handler(TopicsAsked, topics),
        "history": handler(HistoryAsked, history),
        "lag_trends": handler(NoneType, lag_trends),
    }
