"""Runs the cells of a plan, round by round, and checks after each that the log holds exactly what was acknowledged.

A produce round has a fresh topic, so that its log end counts its records and deleting it bounds the disk. A fetch round
reads one topic, made at the start, whose responses were checked before and have one size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from loadtests.bench.cases import TOPIC_CONFIG, Cell, Group, Plan, body_of
from loadtests.bench.fetch_data import FetchData
from loadtests.bench.figures import Round
from loadtests.generators.generators import Generators
from loadtests.generators.load import Load, Outcome
from loadtests.host import proc
from loadtests.host.admin_client import AdminClient
from loadtests.host.servers import Server, bare_file

WARM_UP_S = 0.15
WARM_UP_GROWTH = 4
ROUND_BYTES_MAX = 1 << 30  # the maximum that a round leaves on the disk
SETTLE_S = 0.1  # for the after-effects of a cell: a last flush, deleted files

# A context manager around each measured load, such as a profiler. The last argument is the number of requests.
RoundHook = Callable[[Cell, Server, int], AbstractContextManager[None]]


def no_hook(cell: Cell, server: Server, requests: int) -> AbstractContextManager[None]:
    return nullcontext()


class Rounds:
    """The two servers, the generators and what has been measured so far."""

    def __init__(
        self,
        plan: Plan,
        directory: Path,
        nodes: Mapping[int, Server],
        bare: Server,
        generators: Generators,
        round_hook: RoundHook,
    ) -> None:
        self._plan = plan
        self._directory = directory
        self._nodes = nodes  # by the extra duration of their disk's flush, in ms; always has 0
        self._bare = bare
        self._generators = generators
        self._around = round_hook
        self._controls = {delay_ms: AdminClient(node.url) for delay_ms, node in nodes.items()}
        self._bare_control = AdminClient(bare.url)
        self._rates: dict[str, float] = {}
        self._topics = 0
        self._fetch_data: FetchData | None = None
        self.measured: dict[str, list[Round]] = {}
        self.checked = 0
        self.mismatches: list[str] = []

    def run(self, groups: list[Group], deadline: float, show_status: Callable[[str], None]) -> None:
        """Runs all rounds; after the deadline (of time.monotonic) only the first round of each group runs."""
        for number in range(self._plan.rounds):
            for group in groups:
                if number and time.monotonic() > deadline:
                    return
                cells = group.cells if number % 2 == 0 else group.cells[::-1]  # alternates which one is first
                for cell in cells:
                    show_status(f"round {number + 1} of {self._plan.rounds}: {group.title}, {cell.peer} {cell.acks}")
                    self.measured.setdefault(cell.key, []).append(self._round(group, cell))
                    self._server(cell).check_alive()

    def _server(self, cell: Cell) -> Server:
        return self._bare if cell.peer == "bare" else self._nodes[cell.flush_delay_ms]

    def _round(self, group: Group, cell: Cell) -> Round:
        if cell.is_fetch:
            return self._fetch_round(group, cell)
        body = body_of(group.key)
        topic = self._begin(cell)
        load = Load(
            url=self._server(cell).url,
            targets=(f"/v1/topics/{topic}/records?acks={cell.acks}" if cell.peer == "penstock" else "/",),
            requests=0,
            connections=group.connections,
            streams=group.streams,
            body_file=self._body_file(group.key, body.data),
            headers=(("content-type", body.media_type),),
        )
        sent: list[Outcome] = []
        round_ = self._measure(cell, load, body.records, len(body.data), sent)
        self._check_stored(cell, topic, sent, body.records, len(body.data))
        self._end(cell, topic)
        return round_

    def _fetch_round(self, group: Group, cell: Cell) -> Round:
        if self._fetch_data is None:
            self._fetch_data = FetchData(self._controls[0], "bench-fetch")
        data = self._fetch_data
        size = data.answer_bytes(cell.accept)
        if cell.peer == "bare":
            data.fill(bare_file(self._directory))
        targets = data.targets() if cell.peer == "penstock" else data.bare_targets(size)
        load = Load(
            url=self._server(cell).url,
            targets=tuple(targets),
            requests=0,
            connections=group.connections,
            streams=group.streams,
            headers=(("accept", cell.accept),),
        )
        sent: list[Outcome] = []
        round_ = self._measure(cell, load, data.records_each, size, sent)
        for outcome in sent:
            self._check(f"{cell.key}: bytes of all answers", outcome.answer_bytes, outcome.good * size, outcome)
        self._end(cell, "")
        return round_

    def _measure(self, cell: Cell, load: Load, records: int, body_bytes: int, sent: list[Outcome]) -> Round:
        """Do one measured round; a warm-up before the first one finds the number of requests for its duration."""
        if cell.key not in self._rates:
            self._warm_up(cell, load, sent)
        target_requests = round(self._rates[cell.key] * self._plan.round_s)
        requests = max(load.in_flight, min(target_requests, ROUND_BYTES_MAX // body_bytes))
        before, others = self._usage(cell), proc.Others()
        with self._around(cell, self._server(cell), requests):
            outcome = self._send(load, requests, sent)
        after, others_share = self._usage(cell), others.share()
        self._rates[cell.key] = outcome.good / outcome.seconds
        return Round(
            outcome=outcome,
            records_each=records,
            body_bytes_each=body_bytes,
            server_cpu_s=after.cpu_s - before.cpu_s,
            rss_bytes=after.rss_bytes,
            others_share=others_share,
        )

    def _warm_up(self, cell: Cell, load: Load, sent: list[Outcome]) -> None:
        requests = load.in_flight
        while (outcome := self._send(load, requests, sent)).seconds < WARM_UP_S and outcome.bad == 0:
            requests *= WARM_UP_GROWTH
        self._rates[cell.key] = max(1, outcome.good) / outcome.seconds

    def _send(self, load: Load, requests: int, sent: list[Outcome]) -> Outcome:
        outcome = self._generators.run_closed(replace(load, requests=requests), timeout_s=20 * self._plan.round_s + 20)
        sent.append(outcome)
        return outcome

    def _usage(self, cell: Cell) -> proc.Usage:
        return proc.usage(self._server(cell).pid)

    def _begin(self, cell: Cell) -> str:
        if cell.peer == "bare":
            return ""
        self._topics += 1
        topic = f"bench-{self._topics}"
        self._controls[cell.flush_delay_ms].create_topic(topic, TOPIC_CONFIG)
        return topic

    def _end(self, cell: Cell, topic: str) -> None:
        if cell.peer == "bare":
            self._bare_control.request("DELETE", "/")
        elif topic:
            self._controls[cell.flush_delay_ms].delete_topic(topic)
        time.sleep(SETTLE_S)

    def _body_file(self, group: str, data: bytes) -> Path:
        path = self._directory / f"{group}.body"
        if not path.exists():
            path.write_bytes(data)
        return path

    def _check_stored(self, cell: Cell, topic: str, sent: list[Outcome], records: int, body_bytes: int) -> None:
        """Checks that the log end moved by exactly the acknowledged records, and the bare file by their bytes."""
        good, last = sum(outcome.good for outcome in sent), sent[-1]
        if cell.peer == "bare":
            stored = bare_file(self._directory).stat().st_size
            self._check(f"{cell.key}: bytes in the file", stored, good * body_bytes, last)
        else:
            expected = good * records
            self._check(
                f"{cell.key}: log end",
                self._controls[cell.flush_delay_ms].wait_log_end(topic, expected),
                expected,
                last,
            )

    def _check(self, what: str, seen: int, expected: int, outcome: Outcome) -> None:
        self.checked += 1
        if outcome.bad:
            self.mismatches.append(f"{what}: {outcome.bad} requests failed ({outcome.what_went_wrong})")
        elif seen != expected:
            self.mismatches.append(f"{what} is {seen}, acknowledged were {expected}")
