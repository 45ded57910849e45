"""A log of Penstock to read: fetches spread over it, each checked record by record before it is measured."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import NamedTuple

from aiokafka.record import MemoryRecords

from loadtests.bench.entrants.session import FETCH_BYTES
from loadtests.generators.bodies import BATCH_TYPE, JSON_TYPE
from loadtests.host.admin_client import AdminClient

TARGETS = 8


class Target(NamedTuple):
    """A fetch, with the size of its answer and the records in it."""

    path: str
    answer_bytes: int
    records: int


class PenstockLog:
    """A topic of `records` records whose values repeat."""

    def __init__(self, admin: AdminClient, topic: str, records: int, values: Sequence[bytes]) -> None:
        self._admin = admin
        self._path = f"/v1/topics/{topic}/partitions/0/records"
        self._records = records
        self._values = values
        self._targets: dict[str, tuple[Target, ...]] = {}

    def targets(self, media_type: str) -> tuple[Target, ...]:
        """Returns fetches whose offsets are multiples of the stored batches. Raises RuntimeError for a wrong answer."""
        if media_type not in self._targets:
            step = max(len(self._values), self._records // (2 * TARGETS))
            offsets = [number * step // len(self._values) * len(self._values) for number in range(TARGETS)]
            self._targets[media_type] = tuple(self._check_target(offset, media_type) for offset in offsets)
        return self._targets[media_type]

    def _check_target(self, offset: int, media_type: str) -> Target:
        """Raises RuntimeError unless the answer has the right records from the offset on."""
        path = f"{self._path}?offset={offset}&max_bytes={FETCH_BYTES}"
        headers, data = self._admin.request("GET", path, accept=media_type)
        count = int(headers["Penstock-Next-Offset"]) - offset
        is_right = count > 0 and (
            _is_contiguous(data, offset, count)
            if media_type == BATCH_TYPE
            else _offsets_and_values(data, media_type) == self._expected_records(offset, count)
        )
        if not is_right:
            raise RuntimeError(
                f"GET {path} as {media_type} answered other records than were stored: {len(data)} bytes, "
                f"the next offset is {offset + count}"
            )
        return Target(path, len(data), count)

    def _expected_records(self, offset: int, count: int) -> list[tuple[int, object]]:
        values = [json.loads(value) for value in self._values]
        return [(at, values[at % len(values)]) for at in range(offset, offset + count)]


def _is_contiguous(data: bytes, offset: int, count: int) -> bool:
    """Returns whether the batches have no gap; the first one may begin before the offset."""
    reader = MemoryRecords(data)
    batches = []
    while reader.has_next():
        batches.append(reader.next_batch())
    follow = all(earlier.next_offset == later.base_offset for earlier, later in itertools.pairwise(batches))
    return follow and batches[0].base_offset <= offset and batches[-1].next_offset == offset + count


def _offsets_and_values(data: bytes, media_type: str) -> list[tuple[int, object]]:
    records = json.loads(data)["records"] if media_type == JSON_TYPE else map(json.loads, data.splitlines())
    return [(record["offset"], record["value"]) for record in records]
