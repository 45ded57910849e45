"""Restores a data directory of a standalone node from the store. Blocking.

Builds the directory under another name beside it and renames it at the end, so that no node ever starts with a part of
it. A call after an interruption continues. Topics keep their names, ids, settings and offsets. The cluster id stays
too, so that a node continues to ship to the same place; a restore to a point in time gets a new one, because the store
has later records of the old one at the same offsets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from engine.directory.data_directory import open_data_directory
from engine.directory.topics import TopicRecord, save_topic
from engine.errors import StartRefused
from engine.format import paths
from engine.runtime.disk import Disk
from engine.tiering.audit.inventory import StoredPartition, partitions_of
from engine.tiering.audit.restore import RestoredPartition, restore_partition
from engine.tiering.manifest.chain import load_newest
from engine.tiering.manifest.deleted_topic import deleted_ends
from engine.tiering.manifest.stored_topic import load_description
from engine.tiering.store.store import ObjectStore

UNFINISHED = ".restoring"


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """The directory to build, and the node that it is for."""

    disk: Disk
    path: str
    node_id: int
    boot_id: str
    new_id: Callable[[], str]


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    """A restored topic. `has_description`: the store had its settings; otherwise it has the defaults.

    The record has one replica, as on a node alone; `replication_factor` is what the topic had in its cluster.
    """

    record: TopicRecord
    has_description: bool
    partitions: tuple[RestoredPartition, ...]
    replication_factor: int


class Publication(Protocol):
    """The cluster that a restored directory becomes a node of. Both methods may raise StartRefused."""

    def claim(self, directory: str, cluster_id: str) -> None:
        """Reserve the cluster, before anything is downloaded."""

    def finish(self, directory: str, topics: Sequence[RestoredTopic]) -> None:
        """Creates the cluster, when the directory is complete and before it gets its name."""


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic that a restore would take, and what the manifests of its partitions have."""

    record: TopicRecord
    segments: int
    size_bytes: int


def stored_topics(store: ObjectStore, cluster_id: str, topics: Iterable[str]) -> Iterator[StoredTopic]:
    """Yields the topics of these names that were not deleted. Raises StoreUnavailable, Corrupt."""
    for name in topics:
        if (live := _live(store, cluster_id, name)) is not None:
            record, _, partitions = live
            manifests = [
                manifest for partition in partitions if (manifest := load_newest(store, partition.prefix)) is not None
            ]
            yield StoredTopic(
                record,
                sum(manifest.entry_count for manifest in manifests),
                sum(manifest.data_bytes for manifest in manifests),
            )


def check_unused(target: RestoreTarget) -> None:
    """Checks that nothing would be overwritten. Raises StartRefused."""
    if target.disk.kind(target.path) is not None and target.disk.listdir(target.path):
        raise StartRefused(f"{target.path} is not empty", hint="give --data-dir a new path, or move its files away")


def restore_directory(
    store: ObjectStore,
    target: RestoreTarget,
    cluster_id: str,
    topics: Iterable[str],
    *,
    until_ms: int | None = None,
    on_restored: Callable[[int], None] = lambda _: None,
    publication: Publication | None = None,
) -> tuple[str, list[RestoredTopic]]:
    """Builds a data directory with these topics. Returns its cluster id and the topics.

    Raises StartRefused if the directory has files or is in use, and the errors of `restore_partition`.
    """
    disk, path, unfinished = target.disk, target.path, target.path + UNFINISHED
    check_unused(target)
    directory = open_data_directory(
        disk,
        unfinished,
        node_id=target.node_id,
        cluster_id=cluster_id if until_ms is None else None,
        boot_id=target.boot_id,
        new_id=target.new_id,
    )
    try:
        if publication is not None:
            publication.claim(unfinished, directory.identity.cluster_id)
        restored = []
        for name in topics:
            live = _live(store, cluster_id, name)
            if live is None:
                continue
            stored, has_description, partitions = live
            record = replace(stored, replication_factor=1)
            logs = [
                restore_partition(
                    store,
                    disk,
                    partition,
                    paths.partition_dir(unfinished, name, record.topic_id, partition.partition),
                    until_ms=until_ms,
                    on_restored=on_restored,
                )
                for partition in partitions
            ]
            restored.append(RestoredTopic(record, has_description, tuple(logs), stored.replication_factor))
        checkpoints = {
            f"{partition.record.topic_id}/{log.partition.partition}": log.checkpoint
            for partition in restored
            for log in partition.partitions
        }
        directory.save_checkpoints(checkpoints)
        for partition in restored:
            save_topic(disk, unfinished, partition.record)
        if publication is not None:
            publication.finish(unfinished, restored)
    except BaseException:
        directory.release()
        raise
    directory.close_clean()
    disk.rename(unfinished, path)
    disk.fsync_dir(os.path.dirname(path))
    return directory.identity.cluster_id, restored


def _live(store: ObjectStore, cluster_id: str, name: str) -> tuple[TopicRecord, bool, list[StoredPartition]] | None:
    """Returns the topic of this name that was not deleted: the newest of several. None if there is none."""
    by_id: dict[str, list[StoredPartition]] = {}
    newest_ms: dict[str, int] = {}
    for partition, objects in partitions_of(store, cluster_id, name):
        if partition is not None:
            by_id.setdefault(partition.topic_id, []).append(partition)
            modified_ms = max(info.modified_ms for info in objects)
            newest_ms[partition.topic_id] = max(newest_ms.get(partition.topic_id, 0), modified_ms)
    live = [topic_id for topic_id in by_id if deleted_ends(store, cluster_id, name, topic_id) is None]
    if not live:
        return None
    topic_id = max(live, key=newest_ms.__getitem__)
    partitions = by_id[topic_id]
    description = load_description(store, cluster_id, name, topic_id)
    count = max(
        [partition.partition + 1 for partition in partitions]
        + ([] if description is None else [description.partitions])
    )
    record = TopicRecord(name, topic_id, count) if description is None else description
    return replace(record, partitions=count), description is not None, partitions
