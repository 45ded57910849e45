"""The processor: reads topics as a member of a group, and stores the outputs of each record once.

A request has the outputs of a range of input positions for one output partition, and names the range. The partition
stores what is above the position that it remembers; the processor drops the rest (docs/guarantees.md). A delivery is
committed only after all of its outputs are stored, by asking for the next one.
Invariants: (1) the requests of a source to a partition are sent one after another, in the order of positions; (2) the
outputs of one input for one partition are in one request; (3) the partition of an output follows from its input.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from penstock.closing import AsyncClosing
from penstock.consumer.group_consumer import GroupConsumer
from penstock.errors import ClientClosed, ClientError, ProblemError
from penstock.options import ClientOptions
from penstock.producer.lines import Headers, as_record_line, key_bytes, line_of
from penstock.producer.partitioners import partition_of_key
from penstock.producer.preparation import encrypted
from penstock.records import Record
from penstock.transport import api
from penstock.transport.attempts import Attempts

if TYPE_CHECKING:
    from penstock.encryption.encryption import Encryption


class Output(NamedTuple):
    """A record to store. Without a `partition` its key chooses one, without a key the partition of its input."""

    topic: str
    value: Any
    key: Any = None
    headers: Headers | None = None
    partition: int | None = None


class OutputLine(NamedTuple):
    """The output of the input at this position, encoded."""

    position: int
    line: bytes


class Target(NamedTuple):
    """A source, and an output partition."""

    source: str
    topic: str
    partition: int


Outputs = Iterable[Output]
Process = Callable[[Record], Outputs | Awaitable[Outputs]]


class OutputPlan:
    """Groups the outputs of a delivery by source and output partition, encrypted with `encryption`.

    `counts` has the number of partitions of each output topic. It does not follow the growth of a topic: a second run
    would send outputs of the same input elsewhere.
    """

    def __init__(
        self,
        group: str,
        topic_ids: Mapping[str, str],
        counts: Mapping[str, int],
        encryption: Encryption | None = None,
    ) -> None:
        self.lines: dict[Target, list[OutputLine]] = {}
        self._group = group
        self._topic_ids = topic_ids
        self._counts = counts
        self._encryption = encryption

    def __repr__(self) -> str:
        return f"OutputPlan({ {target: len(lines) for target, lines in self.lines.items()} })"

    def add(self, record: Record, outputs: Outputs) -> None:
        """Adds the outputs of a record. Raises ValueError for a topic or a partition that is not in `counts`."""
        source = f"{self._group}/{self._topic_ids[record.topic]}/{record.partition}"
        for output in outputs:
            value, headers = output.value, output.headers
            if self._encryption is not None:
                value, headers = encrypted(self._encryption, output.topic, value, output.key, headers)
            text, is_plain = line_of(value, output.key, headers)
            target = Target(source, output.topic, self._partition(record, output))
            line = OutputLine(record.offset, as_record_line(text) if is_plain else text)
            self.lines.setdefault(target, []).append(line)

    def _partition(self, record: Record, output: Output) -> int:
        count = self._counts.get(output.topic, 0)
        if output.partition is not None:
            partition = output.partition
        elif count and output.key is not None:
            partition = partition_of_key(key_bytes(output.key), count)
        else:
            partition = record.partition % count if count else 0
        if not 0 <= partition < count:
            text = f"an output is for partition {partition} of topic {output.topic!r}"
            raise ValueError(f"{text}; `outputs` names {count} partitions of it")
        return partition


def first_request(lines: Sequence[OutputLine], bytes_max: int) -> Sequence[OutputLine]:
    """Returns the outputs of the first inputs, up to this size; those of one input at least."""
    size_bytes = count = 0
    for _, of_input in groupby(lines, key=lambda line: line.position):
        sizes = [len(line.line) + 1 for line in of_input]
        if count and size_bytes + sum(sizes) > bytes_max:
            break
        size_bytes, count = size_bytes + sum(sizes), count + len(sizes)
    return lines[:count]


class Processor(AsyncClosing):
    """Made by Client.processor(). `run()` processes until `stop()`."""

    def __init__(
        self,
        consumer: GroupConsumer,
        attempts: Attempts,
        options: ClientOptions,
        group: str,
        process: Process,
        outputs: Mapping[str, int],
        encryption: Encryption | None = None,
    ) -> None:
        self.processed = 0  # records
        self.dropped = 0  # outputs that were stored before
        self._consumer = consumer
        self._attempts = attempts
        self._options = options
        self._group = group
        self._process = process
        self._counts = dict(outputs)
        self._encryption = encryption
        self._is_stopping = False
        self._is_complete = True  # the outputs of the last delivery are stored

    def __repr__(self) -> str:
        return f"<Processor {self._consumer!r} processed={self.processed} dropped={self.dropped}>"

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        return self

    async def run(self) -> None:
        """Process until stop(). Raises what `process` raises, ValueError for its outputs, and ClientError.

        After an error the delivery is not committed. Close the processor; the records come to the next one.
        """
        while not self._is_stopping:
            await self.process_next()

    def stop(self) -> None:
        """Ends run() after the present delivery. Without one it takes up to a second."""
        self._is_stopping = True

    async def process_next(self, timeout_ms: int = 1000) -> int:
        """Process one delivery. Returns the number of its records, 0 if none arrived in time. Raises as run()."""
        records, plan = await self.poll(timeout_ms)
        for record in records:
            outputs = self._process(record)
            plan.add(record, await outputs if isinstance(outputs, Awaitable) else outputs)
        await self.store(plan, len(records))
        return len(records)

    async def poll(self, timeout_ms: int) -> tuple[list[Record], OutputPlan]:
        """Returns the next delivery and an empty plan for its outputs.

        Raises ClientError, and ClientClosed after a failed delivery.
        """
        if not self._is_complete:
            raise ClientClosed("a delivery failed; close the processor and make another one")
        records = await self._consumer.poll(timeout_ms)
        self._is_complete = not records
        if records and not self._consumer.topic_ids:
            raise ClientError("the node's version has no source positions; use a newer one")
        return records, OutputPlan(self._group, self._consumer.topic_ids, self._counts, self._encryption)

    async def store(self, plan: OutputPlan, count: int) -> None:
        """Stores the outputs of a delivery of this many records. The next poll commits it. Raises ClientError."""
        storing = (self._store(target, lines) for target, lines in plan.lines.items())
        for failed in await asyncio.gather(*storing, return_exceptions=True):
            if failed is not None:
                raise failed
        self._is_complete = True
        self.processed += count

    async def close(self) -> None:
        """Commits the last delivery if its outputs are stored, and leaves the group."""
        if self._is_complete:
            with contextlib.suppress(ClientError):  # then the records come again, and their outputs are dropped
                await self._consumer.commit()
        await self._consumer.close()

    async def _store(self, target: Target, lines: Sequence[OutputLine]) -> None:
        """Stores the outputs for one partition, one request after another."""
        while lines:
            request = first_request(lines, self._options.batch_bytes)
            position = await self._send(target, request)
            if position is None:
                lines = lines[len(request) :]
            else:
                others = [line for line in lines if line.position > position]
                self.dropped += len(lines) - len(others)
                lines = others

    async def _send(self, target: Target, lines: Sequence[OutputLine]) -> int | None:
        """Sends one request. Returns None if it is stored, else the position up to which outputs are stored."""
        first, last = lines[0].position, lines[-1].position
        headers = {"Penstock-Source": target.source, "Penstock-Source-Positions": f"{first}-{last}"}
        query: dict[str, str | int] = {"acks": "all", "timeout_ms": self._options.ack_timeout_ms, "ndjson": "records"}
        body = b"\n".join([line.line for line in lines])
        request = api.produce(
            target.topic, body, api.NDJSON_TYPE, partition=target.partition, query=query, headers=headers
        )
        deadline = asyncio.get_running_loop().time() + self._options.delivery_timeout_ms / 1000
        try:
            await self._attempts.send(request, deadline, is_repeatable=True)
        except ProblemError as problem:
            if problem.code != "source_position_stored":
                raise
            return int(problem.members["source_position"])
        return None
