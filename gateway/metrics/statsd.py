"""Sends the metrics of a node to statsd: counters as what was added since the last packet, gauges as they are.

It reads the pages that /metrics is made of. A histogram is its count and its sum. The first time that a process is
read, its counters have an unknown past, and only its gauges are sent. Parsing, the name server and the socket are in a
thread.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor
from typing import NamedTuple

from engine.runtime.statsd import datagrams, look_up, plain_name
from engine.runtime.tasks import failures, keep_running
from gateway.metrics.metrics import numbers_of

DOING = "sending to statsd"
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:]+)\]|([^\s/:@?#\[\]]+)):([0-9]{1,5})")

ReadTexts = Callable[[], Awaitable[Mapping[str, str]]]
Counters = dict[str, float]

log = logging.getLogger("penstock.statsd")


class StatsdOptions(NamedTuple):
    host: str
    port: int
    prefix: str
    interval_s: float


def address_of(text: str) -> tuple[str, int]:
    """Returns host and port. Raises ValueError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match[3]) < 65536:
        raise ValueError(text)
    return match[1] or match[2], int(match[3])


class StatsdSender:
    """`read_texts` returns the metrics of each process that answers, by a name that may be empty."""

    def __init__(self, options: StatsdOptions, read_texts: ReadTexts, executor: Executor | None) -> None:
        self._options = options
        self._read_texts = read_texts
        self._executor = executor
        self._counters: dict[str, Counters] = {}  # as last sent, by process
        self._reason = ""  # of the last failure, which is logged once
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"StatsdSender({self._options.host}:{self._options.port})"

    def start(self) -> None:
        self._task = keep_running(self._run, DOING)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def send(self) -> None:
        """Sends what there is now. A failure is counted, and logged once until it works again."""
        texts = await self._read_texts()
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._send, texts)
        except (OSError, UnicodeError) as error:
            failures[DOING] += 1
            if str(error) != self._reason:
                log.warning("statsd was not reached", extra={"target": repr(self), "reason": str(error)})
            self._reason = str(error)
        else:
            self._reason = ""

    async def _run(self) -> None:
        while True:
            await self.send()
            await asyncio.sleep(self._options.interval_s)

    def _send(self, texts: Mapping[str, str]) -> None:
        target = look_up(self._options.host, self._options.port)  # if that fails, counts wait for the next time
        packets = datagrams([line for process, text in texts.items() for line in self._lines(process, text)])
        target.send(packets)

    def _lines(self, process: str, text: str) -> Iterator[str]:
        before, now = self._counters.get(process), Counters()
        for metric, labels, value, is_counter in numbers_of(text):
            name = ".".join((metric, *map(plain_name, (process, *labels) if process else labels)))
            if is_counter:
                now[name] = value
                added = 0.0 if before is None else value - before.get(name, 0.0)
                if added := value if added < 0 else added:  # below: the process has restarted
                    yield f"{self._options.prefix}{name}:{added:.15g}|c"
            else:
                if value < 0:  # a sign would change the gauge by that much
                    yield f"{self._options.prefix}{name}:0|g"
                yield f"{self._options.prefix}{name}:{value:.15g}|g"
        self._counters[process] = now
