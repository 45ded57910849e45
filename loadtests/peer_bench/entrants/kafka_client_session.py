"""A session of Kafka's own producer: `kafka-producer-perf-test`, which batches records as users' producers do.

It shows whether the raw protocol is a fair stand-in for Kafka's client. Its JVM starts with each run, so its rate says
little; the CPU of the broker is the figure.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from loadtests.generators.load import GeneratorFailed, Outcome
from loadtests.peer_bench.entrants.session import Counted
from loadtests.peer_bench.entrants.wire_session import RUN_S, UNBOUNDED

PROPERTIES = ("acks=1", "linger.ms=5", "enable.idempotence=false")
_SENT = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)


class KafkaClientSession:
    """Runs the tool at one topic. A request is a batch of as many records as in the raw protocol."""

    requests_step = 1
    requests_max = UNBOUNDED

    def __init__(
        self,
        command: list[str],
        payload: Path,
        records_each: int,
        batch_bytes: int,
        *,
        count: Callable[[], int],
        close: Callable[[], None],
    ) -> None:
        properties = (*PROPERTIES, f"batch.size={batch_bytes}")
        self._command = [*command, "--throughput", "-1", "--payload-file", str(payload)]
        self._command += ["--command-property", *properties]
        self._count = count
        self._close = close
        self._sent = 0
        self.records_each = float(records_each)

    def run(self, requests: int) -> Counted:
        """Run the tool once. Raises GeneratorFailed."""
        records = requests * round(self.records_each)
        cpu_before = _children_cpu_s()
        try:
            done = subprocess.run(
                [*self._command, "--num-records", str(records)],
                capture_output=True, text=True, timeout=RUN_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise GeneratorFailed(f"Kafka's producer was not over after {RUN_S:.0f} s") from None
        if done.returncode != 0:
            raise GeneratorFailed(f"Kafka's producer ended with {done.returncode}: {done.stderr[-500:]}")
        sent, per_s = parse_printed(done.stdout)
        self._sent += sent
        outcome = Outcome(
            good=requests,
            bad=0,
            seconds=sent / per_s,
            durations_us=[],
            answer_bytes=0,
            generator_cpu_s=_children_cpu_s() - cpu_before,
        )
        return Counted(outcome, sent)

    def problem(self) -> str:
        stored = self._count()
        return "" if stored == self._sent else f"the log has {stored} records, Kafka's producer sent {self._sent}"

    def close(self) -> None:
        self._close()


def parse_printed(text: str) -> tuple[int, float]:
    """Returns the records sent and their rate, of the last line. Raises GeneratorFailed."""
    found = _SENT.findall(text)
    if not found:
        raise GeneratorFailed(f"Kafka's producer printed something unknown: {text[-300:]}")
    sent, per_s = found[-1]
    return int(sent), float(per_s)


def _children_cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system
