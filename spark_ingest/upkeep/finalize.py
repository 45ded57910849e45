"""Marks hours of tables as complete: an object `_SUCCESS` in the directory of each hour, created once.

"Hour" is the period of the table. A table by positions or by fields alone has no markers.

An hour of a topic is complete when every partition's watermark is past its end, by `delay_ms`. The watermark of a
partition is the time up to which its records are committed: the least timestamp of a segment that is not committed; if
all are, the greatest timestamp of the newest one. A partition whose records are all committed holds back no hour that
ended `idle_ms` ago: there may be no later records.

Timestamps are those of records, so `delay_ms` must also cover the time from an event to its record. Rows that come
later are in the files of an hour all the same; `late` counts those of the newest commits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.output import names
from spark_ingest.output.directories import end_ms_of
from spark_ingest.output.owners import layouts_of
from spark_ingest.output.stored_file import StoredFile
from spark_ingest.output.stores import put_if_absent
from spark_ingest.plan import Positions
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History
from spark_ingest.source.discovery import TieredPartition, discover, load_folded, resolve_cluster, unread_entries
from spark_ingest.upkeep.rewrite import live_files

DELAY_MS = 3_600_000
LATE_COMMITS = 100  # markers of hours without files of the newest commits are not read
IDLE_MS = 3 * 3_600_000  # more than segment_ms, so that a record of the last hour is in the store


class Marker(msgspec.Struct, frozen=True):
    """The content of `_SUCCESS`: what the hour had when it was marked."""

    job: str
    commit: int
    watermark_ms: int
    files: int
    rows: int


@dataclass(slots=True)
class Finalized:
    """The hours that were marked now, all marked ones, watermarks by topic, and rows that came after the marker."""

    marked: list[str] = field(default_factory=list)
    complete: int = 0
    watermarks: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)


def finalize(
    source: ObjectStore,
    output: ObjectStore,
    job: str,
    topics: re.Pattern[str],
    *,
    now_ms: int,
    delay_ms: int = DELAY_MS,
    idle_ms: int = IDLE_MS,
    is_dry: bool = False,
) -> Finalized:
    """Creates the markers that are due, oldest first. After a kill, the next call creates the others."""
    history, done = History(output, job), Finalized()
    head = history.head()
    if head is None:
        return done
    cluster = resolve_cluster(source, None, head.cluster)
    partitions = discover(source, cluster, lambda topic: bool(topics.fullmatch(topic)) and topic in head.positions)
    done.watermarks = watermarks(source, partitions, head.positions, now_ms - idle_ms)
    hours: dict[str, list[StoredFile]] = {}
    for file in live_files(output, history, history.effect()).files:
        hours.setdefault(file.directory, []).append(file)
    layouts = layouts_of(output)
    for topic, watermark_ms in done.watermarks.items():
        prefix, layout = names.table_prefix(topic), layouts(topic)
        markers = {info.key for info in output.list(prefix) if names.is_marker(info.key)}
        done.complete += len(markers)
        for directory, files in sorted(hours.items()):
            end_ms = end_ms_of(layout, directory) if directory.startswith(prefix) else None
            if end_ms is None or end_ms + delay_ms > watermark_ms:
                continue
            key = names.marker_key(directory)
            if key in markers:
                if any((names.plan_number_of(file.key) or 0) > head.number - LATE_COMMITS for file in files):
                    _count_late(output, key, files, done)
                continue
            done.marked.append(directory)
            if not is_dry:
                _mark(output, key, head, watermark_ms, files)
    return done


def watermarks(
    source: ObjectStore, partitions: Sequence[TieredPartition], positions: Positions, idle_since_ms: int
) -> dict[str, int]:
    """Returns the least watermark of each topic's partitions."""
    starts = [(partition, _committed(partition, positions)) for partition in partitions]
    folded = load_folded(source, [(partition, start, partition.tiered_end) for partition, start in starts])
    least: dict[str, int] = {}
    for tiered, start in starts:
        unread = unread_entries(tiered, start, folded)
        if unread:
            watermark_ms = min(entry.min_timestamp_ms for entry in unread)
        else:
            entries = tiered.manifest.entries if tiered.manifest else ()
            watermark_ms = max([idle_since_ms, *(entry.max_timestamp_ms for entry in entries)])
        least[tiered.topic] = min(watermark_ms, least.get(tiered.topic, watermark_ms))
    return least


def _committed(partition: TieredPartition, positions: Positions) -> int:
    position = positions.get(partition.topic)
    is_same = position is not None and position.topic_id == partition.topic_id
    return max(partition.log_start, position.ends.get(partition.partition, 0) if position and is_same else 0)


def _mark(output: ObjectStore, key: str, head: Commit, watermark_ms: int, files: Sequence[StoredFile]) -> None:
    marker = Marker(head.job, head.number, watermark_ms, len(files), sum(file.rows for file in files))
    put_if_absent(output, key, msgspec.json.encode(marker))  # another call may have made it


def _count_late(output: ObjectStore, key: str, files: Sequence[StoredFile], done: Finalized) -> None:
    """Counts the rows that the hour has more than its marker says. A marker of another program says nothing."""
    rows = sum(file.rows for file in files)
    try:
        marker = msgspec.json.decode(output.get(key), type=Marker)
    except (NoSuchObject, msgspec.DecodeError, UnicodeDecodeError):
        return
    if rows > marker.rows:
        done.late[key.rpartition("/")[0] + "/"] = rows - marker.rows
