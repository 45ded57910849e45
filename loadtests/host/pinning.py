"""Gives the processes of a bench cores of their own, where the machine has enough. Pure but for the functions that pin.

A server process gets one core, because one process uses one for most of its work. The generator gets a core that no
server has; a supervisor and a worker, which do next to nothing, share it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.host.proc import PROC, process_tree

SERVING = (b"node.processes.shard_process",)


@dataclass(frozen=True, slots=True)
class Cores:
    """The core of each server process, and that of the generator and of all else."""

    servers: tuple[int, ...]
    generator: int


def assign(cores: Sequence[int], servers: int) -> Cores | None:
    """Returns a core for each server process and one for the generator; None if there are too few."""
    if len(cores) < servers + 1:
        return None
    *_, generator = cores
    return Cores(tuple(cores[:servers]), generator)


def describe(cores: Cores | None, available: Sequence[int], servers: int) -> str:
    """Returns what was pinned, or why nothing was, as a line of a report."""
    if cores is None:
        needed = f"{servers} server process{'es' if servers > 1 else ''} and the generator need {servers + 1} cores"
        return f"Nothing is pinned: {needed}, and this machine has {len(available)}."
    text = ", ".join(map(str, cores.servers))
    return f"Pinned: server processes to core {text}, the generator and all else to core {cores.generator}."


def pin_node(pid: int, cores: Cores) -> None:
    """Pins the processes of a node: shards to a core each, a node of one process to the first one."""
    serving: list[int] = []
    others: list[int] = []
    for member in process_tree(pid):
        (serving if _is_shard(member) else others).append(member)
    if not serving:
        serving, others = others, []
    for number, member in enumerate(serving):
        pin(member, {cores.servers[number % len(cores.servers)]})
    for member in others:
        pin(member, {cores.generator})


def pin(pid: int, cores: set[int]) -> None:
    """Pins all threads of a process to cores. New threads and processes inherit them."""
    for thread in (PROC / str(pid) / "task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)


@contextlib.contextmanager
def pin_processes(pids: Sequence[int], servers_max: int) -> Iterator[str]:
    """Pins nodes with up to `servers_max` server processes each, and this process with its generators.

    Nodes share cores: they are measured in turn. Yields what was pinned, or why nothing was.
    """
    available = sorted(os.sched_getaffinity(0))
    cores = assign(available, servers_max)
    if cores is None:
        yield describe(cores, available, servers_max)
        return
    for pid in pids:
        pin_node(pid, cores)
    pin(os.getpid(), {cores.generator})
    try:
        yield describe(cores, available, servers_max)
    finally:
        pin(os.getpid(), set(available))


def _is_shard(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return any(name in Path(PROC, str(pid), "cmdline").read_bytes() for name in SERVING)
    return False
