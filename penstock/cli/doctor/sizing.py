"""Computes what a node needs for a workload, from measured costs of requests. Values in, values out.

It computes averages: peaks, other programs and slower machines need more, so processors are planned at half of their
time, and disks with a fifth left free. `python -m loadtests.capacity` measures the costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import NamedTuple

from penstock.cli.doctor.machine import Machine
from penstock.cli.doctor.machine_checks import FAIL, OK, WARN, Finding
from penstock.cli.output import format_bytes
from penstock.units import with_units

DAY_MS = 86_400_000
BUSY_SHARE_MAX = 0.5  # of the time of a processor, so that a peak of twice the average fits
FULL_SHARE_MAX = 0.8  # of a disk
RECORD_OVERHEAD_BYTES, BATCH_OVERHEAD_BYTES = 10, 61  # of Kafka's record format
SEGMENT_BYTES = 64 << 20  # the default of segment_bytes: what an active segment takes at most
PROCESS_BYTES, PARTITION_BYTES = 80 << 20, 18_000  # of memory, as measured (docs/operate/capacity.md)
CACHE_S = 60  # records that readers near the end of the log find in the page cache
FETCHES_PER_S_MAX = 1000  # of one reader, which asks again when it has the answer
WORKLOAD_MAX = 10**15


class Costs(NamedTuple):
    """Processor time of a node. One request costs `request_us`, each record and byte in it costs more."""

    request_us: float
    record_us: float
    byte_ns: float

    def seconds(self, requests: float, records: float, size_bytes: float) -> float:
        return (requests * self.request_us + records * self.record_us) / 1e6 + size_bytes * self.byte_ns / 1e9


PRODUCE = Costs(request_us=67, record_us=0.01, byte_ns=4.5)  # NDJSON, acks=all
FETCH = MappingProxyType(
    {
        "json": Costs(request_us=100, record_us=0.25, byte_ns=2.1),
        "batch": Costs(request_us=81, record_us=1e-06, byte_ns=0.78),
    }
)  # the form that readers ask for


@dataclass(frozen=True, slots=True)
class Workload:
    """The load of a cluster, all topics together. `readers` read every record once each."""

    records_per_s: float
    record_bytes: float
    request_records: float = 100
    readers: int = 1
    reads: str = "json"
    retention_ms: float = 7 * DAY_MS
    times_smaller: float = 1
    partitions: int = 12
    replicas: int = 1
    nodes: int = 0  # 0: as many as replicas


@dataclass(frozen=True, slots=True)
class Plan:
    """The needs of each node, if load and partitions are even."""

    nodes: int
    disk_bytes: int
    disk_bytes_per_s: int
    network_in_bytes_per_s: int
    network_out_bytes_per_s: int
    processors: float
    shards: int
    memory_bytes: int


def parse_workload(pairs: Sequence[str]) -> Workload:
    """Parses `name=value` pairs; retention takes a unit (`retention=7d`). Raises ValueError with what is wrong."""
    given: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{pair!r} is not name=value")
        given[name.strip()] = value.strip()
    names = [field.name for field in fields(Workload)]
    given = with_units(given, names)
    if unknown := sorted(given.keys() - set(names)):
        raise ValueError(f"{unknown[0]} is not a part of a workload; these are: {', '.join(names)}")
    for name in names[:2]:
        if name not in given:
            raise ValueError(f"a workload needs {name}")
    reads = str(given.pop("reads", "json"))
    if reads not in FETCH:
        raise ValueError(f"reads is one of {', '.join(FETCH)}")
    workload = Workload(**{name: _number(name, value) for name, value in given.items()})  # type: ignore[arg-type]
    workload = replace(workload, reads=reads, nodes=workload.nodes or workload.replicas)
    if workload.nodes < workload.replicas:
        raise ValueError(f"{workload.replicas} replicas need as many nodes, not {workload.nodes}")
    return workload


def _number(name: str, value: object) -> float:
    try:
        number = float(str(value).replace("_", ""))
    except ValueError:
        raise ValueError(f"{name}={value} is not a number") from None
    least = 0 if name in ("readers", "retention_ms") else 1
    if not least <= number <= WORKLOAD_MAX:
        raise ValueError(f"{name} is from {least:,} to {WORKLOAD_MAX:,}")
    if name in ("readers", "partitions", "replicas", "nodes"):
        if number != int(number):
            raise ValueError(f"{name} is a whole number")
        return int(number)
    return number


def plan_node(workload: Workload) -> Plan:
    """Returns what each of the nodes needs."""
    of_each = 1 / workload.nodes  # the part of a node, as it leads evenly
    copies = workload.replicas * of_each
    sent_bytes = workload.records_per_s * workload.record_bytes
    requests = workload.records_per_s / workload.request_records
    overhead = workload.records_per_s * RECORD_OVERHEAD_BYTES + requests * BATCH_OVERHEAD_BYTES
    stored_bytes = (sent_bytes + overhead) / workload.times_smaller
    partitions = workload.partitions * copies
    fetches = workload.readers * min(requests, FETCHES_PER_S_MAX)
    read_records, read_bytes = workload.readers * workload.records_per_s, workload.readers * sent_bytes
    busy_s = PRODUCE.seconds(requests, workload.records_per_s, sent_bytes) * copies
    busy_s += FETCH[workload.reads].seconds(fetches, read_records, read_bytes) * of_each
    processors = busy_s / BUSY_SHARE_MAX
    shards = max(1, math.ceil(processors))
    answered_bytes = read_bytes if workload.reads == "json" else workload.readers * stored_bytes
    return Plan(
        nodes=workload.nodes,
        disk_bytes=round(
            (stored_bytes * copies * workload.retention_ms / 1000 + partitions * SEGMENT_BYTES) / FULL_SHARE_MAX
        ),
        disk_bytes_per_s=round(stored_bytes * copies),
        network_in_bytes_per_s=round(sent_bytes * of_each + stored_bytes * (copies - of_each)),
        network_out_bytes_per_s=round(
            answered_bytes * of_each + stored_bytes * (copies - of_each) + stored_bytes * of_each
        ),
        processors=processors,
        shards=shards,
        memory_bytes=round(shards * PROCESS_BYTES + partitions * PARTITION_BYTES + stored_bytes * copies * CACHE_S),
    )


def check_plan(plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Yields what each node needs, beside what this machine has."""
    yield Finding("plan", OK, f"what each of {plan.nodes} nodes needs" if plan.nodes > 1 else "what the node needs")
    todo = "take more nodes or larger disks, compress, or tier to a store with a shorter local_retention_ms"
    text = f"{format_bytes(plan.disk_bytes)}; the disk of {machine.examined_dir} has {format_bytes(machine.size_bytes)}"
    yield Finding("disk", OK, text) if plan.disk_bytes <= machine.size_bytes else Finding("disk", FAIL, text, todo)
    yield Finding("disk writes", OK, f"{format_bytes(plan.disk_bytes_per_s)}/s")
    yield Finding(
        "network",
        OK,
        f"{format_bytes(plan.network_in_bytes_per_s)}/s in, {format_bytes(plan.network_out_bytes_per_s)}/s out, "
        "uploads to the store among them",
    )
    text = f"{max(plan.processors, 0.1):.1f} at half of their time; this machine has {machine.processors}"
    if plan.processors <= 1:
        yield Finding("processors", OK, text)
    elif plan.processors <= machine.processors:
        yield Finding("processors", WARN, text, f"--shards {plan.shards}: one process uses one processor")
    else:
        todo = "send more records a request, take more nodes, or machines with more processors and --shards"
        yield Finding("processors", FAIL, text, todo)
    text = f"{format_bytes(plan.memory_bytes)}; this machine has {format_bytes(machine.memory_bytes)}"
    todo = "readers near the end of the log read from the disk then: take more memory or more nodes"
    is_enough = plan.memory_bytes <= machine.memory_bytes
    yield Finding("memory", OK, text) if is_enough else Finding("memory", WARN, text, todo)
