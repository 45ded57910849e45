"""The topic of the fetch cases: written once and read once, so the size of every response is known.

The offsets and timestamps that are read have the same number of digits, so JSON responses have one size too.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from loadtests.bench.cases import BATCH_RECORDS, FETCH_BYTES, TOPIC_CONFIG
from loadtests.generators.bodies import BATCH_TYPE, JSON_TYPE, NDJSON_TYPE, batch_body, json_values
from loadtests.host.admin_client import AdminClient

BATCHES = 300
FIRST_BATCH = 100  # offset 100000: from here on all offsets have six digits
TARGETS = 16


class FetchData:
    """A topic of equal batches, and the fetches that read it."""

    def __init__(self, control: AdminClient, topic: str) -> None:
        self._control = control
        self._topic = topic
        self._values = json_values(BATCH_RECORDS)
        self._batch = batch_body(self._values, time.time_ns() // 1_000_000)
        self._batches_each = FETCH_BYTES // len(self._batch.data)
        self.records_each = self._batches_each * BATCH_RECORDS
        self._sizes: dict[str, int] = {}
        control.create_topic(topic, TOPIC_CONFIG)
        for _ in range(BATCHES):
            control.produce(topic, self._batch, acks="1")
        assert control.wait_log_end(topic, BATCHES * BATCH_RECORDS) == BATCHES * BATCH_RECORDS

    def targets(self) -> list[str]:
        """Returns fetches spread over the topic, each of the same number of whole batches."""
        max_bytes = self._batches_each * len(self._batch.data)
        choice = range(FIRST_BATCH, BATCHES - self._batches_each)
        batches = [choice[number * len(choice) // TARGETS] for number in range(TARGETS)]
        path = f"/v1/topics/{self._topic}/partitions/0/records"
        return [f"{path}?offset={batch * BATCH_RECORDS}&max_bytes={max_bytes}" for batch in batches]

    def bare_targets(self, size_bytes: int) -> list[str]:
        """Returns reads of the bare file of the same size."""
        return [f"/?position={number * 4096}&length={size_bytes}" for number in range(TARGETS)]

    def fill(self, path: Path) -> None:
        """Writes the file that the bare function reads."""
        largest = max(self._sizes.values())
        path.write_bytes(b"x" * (largest + TARGETS * 4096))

    def answer_bytes(self, accept: str) -> int:
        """Returns the size of each response in a form; checks every response the first time.

        Raises RuntimeError if a response has other records or another size.
        """
        if accept not in self._sizes:
            sizes = {self._look_into(target, accept) for target in self.targets()}
            if len(sizes) != 1:
                raise RuntimeError(f"answers as {accept} have different sizes: {sorted(sizes)}")
            self._sizes[accept] = sizes.pop()
        return self._sizes[accept]

    def _look_into(self, target: str, accept: str) -> int:
        """Raises RuntimeError unless the answer has the right records at the right offsets."""
        headers, data = self._control.request("GET", target, accept=accept)
        first = int(target.partition("offset=")[2].partition("&")[0])
        if accept == BATCH_TYPE:
            is_right = _without_stamps(data, len(self._batch.data)) == self._expected_without_stamps()
        else:
            is_right = _offsets_and_values(data, accept) == [
                (first + number, json.loads(self._values[number % BATCH_RECORDS]))
                for number in range(self.records_each)
            ]
        if not is_right or int(headers["Penstock-Next-Offset"]) != first + self.records_each:
            raise RuntimeError(f"GET {target} as {accept} answered other records than were stored")
        return len(data)

    def _expected_without_stamps(self) -> list[bytes]:
        return _without_stamps(self._batch.data, len(self._batch.data)) * self._batches_each


def _without_stamps(data: bytes, batch_bytes: int) -> list[bytes]:
    """Returns each batch without its first 16 bytes: base offset, length and leader epoch."""
    return [data[start + 16 : start + batch_bytes] for start in range(0, len(data), batch_bytes)]


def _offsets_and_values(data: bytes, accept: str) -> list[tuple[int, object]]:
    assert accept in (JSON_TYPE, NDJSON_TYPE)
    records = json.loads(data)["records"] if accept == JSON_TYPE else map(json.loads, data.splitlines())
    return [(record["offset"], record["value"]) for record in records]
