"""Runs a recipe under kills of its workers, of a shard and of the node, and judges what is stored in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple, Self

import psutil

from penstock import ClientError
from penstock.options import ClientOptions
from penstock.sync import Client
from tests.checking.checkers import check_values
from tests.checking.history import History, Produced
from tests.e2e.node_process import ROOT, NodeProcess, running_process
from tests.exactly_once.worker import BY_HAND, BY_KEY, GROUP, INPUT, PARTITIONS

INPUT_PARTITIONS = 3
PER_KILL = 90  # inputs
LOST, REPEATED, DISORDERED = ("C1 lost",), ("C4 duplicate", "C12 invented"), ("C11 order",)
RECIPES = {  # the findings that each excludes
    "at_most_once": REPEATED,
    "at_least_once": LOST,
    "exactly_once": (*LOST, *REPEATED, *DISORDERED),
}
KINDS = ("worker", "twin", "node", "shard")
PATIENT = ClientOptions(delivery_timeout_ms=300_000, unreachable_timeout_ms=300_000)
WAIT_S = 300


class Report(NamedTuple):
    inputs: int
    kills: Counter[str]
    findings: dict[str, list[str]]

    def failures(self, recipe: str) -> list[str]:
        """Return the findings that the recipe excludes."""
        return [f"{topic} {text}" for topic, found in self.findings.items() for text in breaks(recipe, found)]


def check_outputs(inputs: int, outputs: Mapping[int, Sequence[int]]) -> list[str]:
    """Check the inputs 0, 1, … in the partitions of an output topic. Those of one input partition are in its order."""
    produced = [Produced(f"input {n % INPUT_PARTITIONS}", "", (str(n),), outcome="ok") for n in range(inputs)]
    return check_values(History(produced), {str(number): [*map(str, found)] for number, found in outputs.items()})


def breaks(recipe: str, findings: Sequence[str]) -> list[str]:
    return [text for text in findings if text.startswith(RECIPES[recipe])]


class Run:
    """One node of two shards and two workers, which are started whenever they have ended."""

    def __init__(self, directory: Path, recipe: str, seed: int) -> None:
        self.random = Random(seed)
        self.inputs = 0
        self.kills: Counter[str] = Counter()
        self._directory = directory
        self._recipe = recipe
        self._node_stack = ExitStack()
        self.node = self._start_node(0)
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def urls(self) -> list[str]:
        return [self.node.url]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.kill()
            worker.wait()
        self._node_stack.close()

    def start_workers(self) -> None:
        for member in ("one", "two"):
            if member not in self._workers or self._workers[member].poll() is not None:
                self._workers[member] = self._worker(member)

    def kill(self, kind: str) -> None:
        """Kill something, and start it."""
        self.kills[kind] += 1
        member = self.random.choice(("one", "two"))
        if kind == "worker":
            self._workers[member].kill()
            self._workers[member].wait()
        elif kind == "twin":  # a second worker of the same member: both process the same partitions
            twin = self._worker(member)
            time.sleep(self.random.uniform(0.3, 0.8))
            older, self._workers[member] = self._workers[member], twin
            older.kill()
            older.wait()
        elif kind == "node":
            children = psutil.Process(self.node.pid).children(recursive=True)
            self.node.kill()
            for process in children:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(children, 30)
            self._node_stack.close()
            self.node = self._start_node(self.node.port)
        else:
            children = psutil.Process(self.node.pid).children(recursive=True)
            os.kill(self.random.choice(children).pid, signal.SIGKILL)
        self.start_workers()

    def _start_node(self, port: int) -> NodeProcess:
        """A connection of a worker may have the port for a moment: it is in the range of outgoing connections."""
        for left in reversed(range(20)):
            self._node_stack = ExitStack()
            try:
                return self._node_stack.enter_context(running_process(self._directory, port=port, shards=2))
            except AssertionError as error:
                if not left or "Address already in use" not in str(error):
                    raise
                time.sleep(0.5)
        raise AssertionError("unreachable")

    def _worker(self, member: str) -> subprocess.Popen[bytes]:
        with (self._directory / f"{member}.err").open("ab") as errors:
            command = [sys.executable, "-m", "tests.exactly_once.worker", ",".join(self.urls), self._recipe, member]
            return subprocess.Popen(command, cwd=ROOT, stderr=errors)


def run(
    directory: Path,
    recipe: str,
    kills: int,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
    make: Callable[[Path, str, int], Run] = Run,
) -> Report:
    # two processes of one member commit the same delivery, so both may process it: at most once needs one of each
    kinds = [kind for kind in KINDS if kind != "twin" or recipe != "at_most_once"]
    with make(directory, recipe, seed) as running, Client(running.urls, options=PATIENT) as client:
        client.create_topic(INPUT, partitions=INPUT_PARTITIONS, replication_factor=len(running.urls))
        for topic in (BY_KEY, BY_HAND):
            client.create_topic(topic, partitions=PARTITIONS, replication_factor=len(running.urls))
        running.start_workers()
        with client.producer() as producer:
            for number in range(kills):
                for n in range(running.inputs, running.inputs + PER_KILL):
                    producer.send(INPUT, n, partition=n % INPUT_PARTITIONS)
                running.inputs += PER_KILL
                producer.flush()
                _wait_progress(client, running)
                running.kill(kinds[number % len(kinds)])
                say(f"{number + 1} of {kills}: {dict(running.kills)}")
        _wait_done(client, running)
        findings = {topic: check_outputs(running.inputs, _stored(client, topic)) for topic in (BY_KEY, BY_HAND)}
        return Report(running.inputs, running.kills, findings)


def _committed(client: Client) -> int:
    try:
        return sum(one["offset"] for one in client.group_offsets(GROUP)["offsets"])
    except ClientError:
        return 0


def _wait_progress(client: Client, running: Run) -> None:
    """Wait until the workers have committed some of the last inputs, so that a kill comes in between."""
    wanted = running.inputs - PER_KILL + running.random.randrange(1, PER_KILL // 2)
    _wait(lambda: _committed(client) >= wanted, running)


def _wait_done(client: Client, running: Run) -> None:
    _wait(lambda: _committed(client) >= running.inputs, running)
    for _ in range(2):  # the outputs of what was committed before them (at most once)
        time.sleep(1)


def _wait(is_done: Callable[[], bool], running: Run) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < deadline, f"the workers make no progress: {running.kills}"
        running.start_workers()
        time.sleep(0.02)


def _stored(client: Client, topic: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    for record in client.consume(topic, follow=False):
        found[record.partition].append(record.json()["n"])
    return found
