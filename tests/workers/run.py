"""Starts workers, disturbs them, feeds their topic, and waits until the group has committed everything."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from penstock.sync import Client
from tests.checking.worker_checkers import Life, check_workers, ended
from tests.e2e.node_process import running_process
from tests.workers.languages import BUILD, command

GROUP, TOPIC = "workers", "numbers"
PARTITIONS = 16  # one for each worker of the beginning, also of those that join last
SESSION_MS = 3000
HANG_S = 1.5 * SESSION_MS / 1000
EVERY_S = 0.7  # between disturbances
RECORDS_A_TICK, TICK_S = 10, 0.05
WAIT_S = 120


class Worker:
    """One process. Its lines are read as they come."""

    def __init__(self, url: str, language: str, member: str) -> None:
        self.life = Life(language, member)
        arguments, environment = command(language, GROUP, TOPIC, member)
        with (BUILD / f"{language}.err").open("ab") as errors:
            self._process = subprocess.Popen(
                arguments,
                env={**os.environ, **environment, "PENSTOCK_URL": url},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # signals go to all processes of a worker
            )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def end(self, number: signal.Signals) -> None:
        """End the process, at the latest with SIGKILL."""
        ended(self.life, time.monotonic())
        self.signal(number)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self.signal(signal.SIGKILL)
        self._process.wait()
        self._reading.join(10)

    def hang(self, seconds: float) -> None:
        began = time.monotonic()
        self.signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.signal(signal.SIGCONT)
        self.life.disturbed.append((began, time.monotonic()))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):  # a kill may cut the last one
                self.life.printed.append((time.monotonic(), line.decode().strip()))


class Run:
    """Two workers of each language, and one more of a random one now and then."""

    def __init__(self, url: str, languages: Sequence[str], seed: int) -> None:
        self.workers: list[Worker] = []
        self.disturbances: Counter[str] = Counter()
        self._url, self._languages, self._random = url, languages, Random(seed)
        self._ended: list[Life] = []
        self._started = 0

    @property
    def lives(self) -> list[Life]:
        return self._ended + [worker.life for worker in self.workers]

    def start(self, language: str, member: str | None = None) -> None:
        self._started += 1
        self.workers.append(Worker(self._url, language, member or f"{language}-{self._started}"))

    def disturb(self) -> None:
        """Kill a worker and start it, with its name or another; let one leave; let one hang; or start one more."""
        worker = self._random.choice(self.workers)
        what = self._random.choice(("kill", "leave", "hang", "more"))
        self.disturbances[what] += 1
        if what == "hang":
            worker.hang(HANG_S)
        elif what == "more" and len(self.workers) < 3 * len(self._languages):
            self.start(self._random.choice(self._languages))
        else:
            self._end(worker, signal.SIGKILL if what == "kill" else signal.SIGTERM)
            member = worker.life.member if self._random.random() < 0.5 else None
            if len(self.workers) < 2 * len(self._languages):
                self.start(worker.life.language, member)

    def idle(self, languages: Sequence[str]) -> list[str]:
        return sorted(set(languages) - {life.language for life in self.lives if life.printed})

    def check(self) -> list[str]:
        """Return the workers that have ended by themselves."""
        return [f"{one.life.member} has ended" for one in self.workers if not one.is_running]

    def end(self) -> None:
        for worker in list(self.workers):
            self._end(worker, signal.SIGTERM)

    def _end(self, worker: Worker, number: signal.Signals) -> None:
        self.workers.remove(worker)
        worker.end(number)
        self._ended.append(worker.life)


@contextmanager
def feeding(client: Client) -> Iterator[list[str]]:
    """Produce numbers until the end; the list has those that are stored."""
    values: list[str] = []
    stopping = threading.Event()

    def feed() -> None:
        with client.producer() as producer:
            while not stopping.is_set():
                for _ in range(RECORDS_A_TICK):
                    producer.send(TOPIC, len(values), key=str(len(values)))
                    values.append(str(len(values)))
                producer.flush()
                time.sleep(TICK_S)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield values
    finally:
        stopping.set()
        thread.join()


def run(directory: Path, languages: Sequence[str], seconds: float, seed: int) -> tuple[list[str], Run, int]:
    """Return what is wrong, the run, and the number of records."""
    with running_process(directory, shards=2) as node, Client(node.url) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
        client.configure_group(GROUP, {"session_timeout_ms": SESSION_MS})
        running = Run(node.url, languages, seed)
        try:
            with feeding(client) as values:
                for language in languages:
                    running.start(language)
                    running.start(language)
                _wait_all(running, languages)
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    time.sleep(EVERY_S)
                    running.disturb()
            found = _committed(client, len(values)) + running.check()
        finally:
            running.end()
        found += [f"idle: no worker in {language} got a record" for language in running.idle(languages)]
        return found + check_workers(values, running.lives), running, len(values)


def _wait_all(running: Run, languages: Sequence[str]) -> None:
    """Wait until each language has printed something."""
    deadline = time.monotonic() + WAIT_S
    while running.idle(languages) and time.monotonic() < deadline:
        time.sleep(0.05)


def _committed(client: Client, count: int) -> list[str]:
    deadline, committed = time.monotonic() + WAIT_S, 0
    while time.monotonic() < deadline:
        committed = sum(one["offset"] for one in client.group_offsets(GROUP)["offsets"])
        if committed == count:
            return []
        time.sleep(0.2)
    return [f"not committed: {committed} of {count}"]
