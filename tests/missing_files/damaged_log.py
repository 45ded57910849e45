"""A log on a real disk, ways to damage its files, and readers for every form of fetch that read it to its end.

A reader continues at the offset that a `records_damaged` problem names, and judges each answer: its records begin at
the requested offset, none is missing, and each has the value that was produced. `Reading` has the result.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from engine.cleaning.scrubber import Restore, Scrubber
from engine.errors import Corrupt, Damaged
from engine.format import batch as record_batch
from engine.format.batch import MEDIA_TYPE, Header
from engine.format.index import INDEX_INTERVAL_BYTES
from engine.runtime.disk import RealDisk
from engine.tiering.shipping.plan import Upload
from engine.tiering.shipping.scan import scan_upload
from engine.tiering.store.store import open_store
from engine.tiering.tier import local_log
from node.processes.process_parts import segment_restorer
from node.processes.server import local_partitions_of
from tests.scenarios.event_source import event_source
from tests.scenarios.gateways import Answer, InProcess, in_process

NDJSON = "application/x-ndjson"
SEGMENTS, BATCHES, COUNT = 3, 8, 3  # sealed segments and the active one; batches per segment; records per batch
PER_SEGMENT = BATCHES * COUNT
END = (SEGMENTS + 1) * PER_SEGMENT
SETTINGS = {"scrub_bytes_per_second": 0, "tier_check_ms": 3_600_000}
RECORDS = "/v1/topics/t/partitions/0/records"


def value_of(offset: int) -> str:
    """Return the value at an offset. Some batches are smaller, some larger than the distance of index entries."""
    return f"{offset}:" + "x" * (400 if offset // COUNT % 3 else 1700)


@dataclass
class Reading:
    """The records that one reader received, and the ranges of offsets that were rejected."""

    found: set[int] = field(default_factory=set)
    refused: list[tuple[int, int]] = field(default_factory=list)

    @property
    def offsets_refused(self) -> set[int]:
        return {offset for first, end in self.refused for offset in range(first, end)}


class DamagedLog:
    """A running node with the log."""

    def __init__(self, gateway: InProcess) -> None:
        self.gateway = gateway
        self.shard = gateway.node.shard
        self.partition = self.shard.partition("t", 0)

    def path(self, number: int, suffix: str = ".log") -> Path:
        return Path(self.partition.log.directory, f"{number * PER_SEGMENT:020d}{suffix}")

    async def scrub(self, restore: Restore = lambda *_: None) -> None:
        own = local_partitions_of(self.shard)
        scrubber = Scrubber(RealDisk(), lambda: own, restore, bytes_per_second=1 << 40, interval_ms=1000)
        await scrubber.scrub_all()
        await scrubber.stop()

    async def read_all(self, form: str, max_bytes: int = 3000) -> Reading:
        """Read from the first offset to the end of the log."""
        reading, offset = Reading(), 0
        while offset < END:
            answer = await FORMS[form](self, offset, max_bytes)
            if isinstance(answer, dict):
                assert answer["code"] == "records_damaged", answer
                first, end = answer["damaged_from"], answer["damaged_end"]
                assert first <= offset < end, (offset, answer)
                assert str(end) in answer["detail"]
                reading.refused.append((offset, end))
                offset = end
                continue
            offsets, next_offset = answer
            assert offsets == list(range(offset, next_offset)), (form, offset, offsets, next_offset)
            assert next_offset > offset, f"{form} at {offset}: neither records nor a problem"
            reading.found.update(offsets)
            offset = next_offset
        return reading

    def from_store(self) -> Restore:
        store = open_store(self.gateway.node.tier.store_url)
        return segment_restorer(store, RealDisk(), self.shard.directory.identity)

    async def tiered(self) -> None:
        """Wait until all sealed segments are in the store."""
        async with asyncio.timeout(60):
            while (await self.gateway.node.tier.statistics(self.partition)).tiered_end < END - PER_SEGMENT:
                await asyncio.sleep(0.01)

    async def get(self, path: str, accept: str) -> Answer:
        return await self.gateway.send("GET", path, b"", {"Accept": accept})


Answered = dict[str, Any] | tuple[list[int], int]
Form = Callable[[DamagedLog, int, int], Awaitable[Answered]]


def checked(records: list[dict[str, Any]]) -> list[int]:
    for record in records:
        assert record["value"] == value_of(record["offset"])
    return [record["offset"] for record in records]


async def as_json(log: DamagedLog, offset: int, max_bytes: int) -> Answered:
    answer = await log.get(f"{RECORDS}?offset={offset}&max_bytes={max_bytes}", "application/json")
    if answer.status != 200:
        assert answer.status == 500, answer.body
        return answer.json
    return checked(answer.json["records"]), answer.json["next_offset"]


async def as_lines(log: DamagedLog, offset: int, max_bytes: int) -> Answered:
    answer = await log.get(f"{RECORDS}?offset={offset}&max_bytes={max_bytes}&ndjson=records", NDJSON)
    if answer.status != 200:
        return answer.json
    return checked(answer.lines), int(answer.headers["Penstock-Next-Offset"])


async def as_values(log: DamagedLog, offset: int, max_bytes: int) -> Answered:
    answer = await log.get(f"{RECORDS}?offset={offset}&max_bytes={max_bytes}&ndjson=values", NDJSON)
    if answer.status != 200:
        return answer.json
    next_offset = int(answer.headers["Penstock-Next-Offset"])
    assert answer.lines == [value_of(one) for one in range(offset, offset + len(answer.lines))]
    return list(range(offset, offset + len(answer.lines))), next_offset


async def as_batches(log: DamagedLog, offset: int, max_bytes: int) -> Answered:
    answer = await log.get(f"{RECORDS}?offset={offset}&max_bytes={max_bytes}", MEDIA_TYPE)
    if answer.status != 200:
        return answer.json
    return batches_from(answer.body, offset), int(answer.headers["Penstock-Next-Offset"])


def batches_from(data: bytes | bytearray, offset: int) -> list[int]:
    offsets: list[int] = []
    for position, header in record_batch.walk(data):
        assert record_batch.has_valid_crc(data, position, header)
        for record in record_batch.decode_one(bytes(data[position : position + header.size_bytes])):
            assert orjson.loads(record.value) == value_of(record.offset)
            offsets += [record.offset] if record.offset >= offset else []
    return offsets


async def as_many(log: DamagedLog, offset: int, max_bytes: int) -> Answered:
    wish = {"partitions": [{"topic": "t", "partition": 0, "offset": offset}], "max_bytes": max_bytes}
    answer = await log.gateway.send("POST", "/v1/fetch", orjson.dumps(wish), {"Content-Type": "application/json"})
    (entry,) = answer.json["partitions"]
    if "problem" in entry:
        assert answer.status == 500, answer.body
        return dict(entry["problem"])
    return checked(entry["records"]), entry["next_offset"]


async def as_events(log: DamagedLog, offset: int, _: int) -> Answered:
    """Read one stream to its end: the records up to the problem that ends it, or the problem alone."""
    offsets: list[int] = []
    path = f"{RECORDS}?offset={offset}"
    async with event_source(log.gateway.port, path) as source:
        if source.status != 200:
            return dict((await log.get(path, "text/event-stream")).json)
        while not offsets or offsets[-1] < END - 1:
            event = await source.next()
            assert event is not None
            if event.kind == "problem":
                if not offsets:
                    return dict(event.json)
                break
            offsets += checked([event.json])
            assert event.id.endswith(f".{offsets[-1] + 1}")
    return offsets, offsets[-1] + 1


async def as_follower(log: DamagedLog, offset: int, max_bytes: int) -> Answered:
    """Return what a fetching follower receives."""
    try:
        chunk = await log.shard.reader.read_uncommitted(log.partition, offset, max_bytes)
    except Damaged as error:
        return {"code": error.code, "detail": str(error), **error.members}
    assert chunk is not None
    return batches_from(chunk.data, offset), chunk.next_offset


FORMS: dict[str, Form] = {
    "json": as_json,
    "ndjson": as_lines,
    "values": as_values,
    "batches": as_batches,
    "fetch": as_many,
    "events": as_events,
    "follower": as_follower,
}


def shippable(log: DamagedLog) -> set[int]:
    """Return the sealed segments, by number, that the shipper would upload; each must equal the bytes that were
    sealed.
    """
    found = set()
    for segment in local_log(log.partition, 0).sealed:
        try:
            scan = scan_upload(log.shard.disk, Upload(segment, segment.base_offset), with_crc32=True)
        except (Corrupt, OSError):
            continue
        assert (scan.aux.base_offset, scan.aux.end_offset) == (segment.base_offset, segment.end_offset)
        assert scan.aux.record_count == PER_SEGMENT
        found.add(segment.base_offset // PER_SEGMENT)
    return found


async def fill(directory: Path) -> None:
    """Write the log on a node and stop the node cleanly."""
    async with in_process(directory, **SETTINGS) as gateway:
        topic = await gateway.create("t", retention_ms=None)
        for offset in range(0, END, COUNT):
            if offset and offset % PER_SEGMENT == 0:
                assert (await topic.roll()).status == 200
            await topic.post_records(
                *({"value": value_of(one), "timestamp": 1000 * one} for one in range(offset, offset + COUNT))
            )


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[DamagedLog]:
    async with in_process(directory, **SETTINGS) as gateway:
        yield DamagedLog(gateway)


def batches_of(data: bytes) -> list[tuple[int, Header]]:
    """Return the batches of an intact segment file, with their positions."""
    return list(record_batch.walk(data))


def touched(good: bytes, first: int, end: int) -> set[int]:
    """Return the offsets of the batches that contain one of these bytes."""
    return {
        offset
        for position, header in batches_of(good)
        if position < end and position + header.size_bytes > first
        for offset in range(header.base_offset, header.next_offset)
    }


def within_reach(good: bytes, first: int, end: int) -> set[int]:
    """Return the offsets that may be rejected for damage to these bytes: up to the next index entry if headers are
    damaged.
    """
    reach = INDEX_INTERVAL_BYTES + max(header.size_bytes for _, header in batches_of(good))
    return touched(good, first, end + reach)


def rewrite(path: Path, data: bytes) -> None:
    """Write in place: the running node has the file open."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate(len(data))
        os.fsync(file.fileno())
