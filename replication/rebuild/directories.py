"""Reads the inventory of a stopped node from its data directories. Holds their locks meanwhile, and changes nothing.

Works on copies of the directories too. A partition or a topic that cannot be read is named in the inventory, so that
the plan counts it as missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from engine.directory.data_directory import DataDirectory, Identity, read_meta
from engine.directory.log_directories import LogDirectories
from engine.directory.topics import TopicRecord, decoded_topic
from engine.errors import Corrupt, StartRefused
from engine.format import paths
from engine.log.log_extent import read_log_extent
from engine.log.recovery import Checkpoint, LastShutdown
from engine.producers.sequences import ID_MAX
from engine.producers.snapshots import read_latest
from engine.runtime.disk import Disk, read_file
from replication.cluster.keys import partition_name
from replication.cluster.registration_state import read_registration_state
from replication.cluster.start_counter import load_start_counter
from replication.rebuild.inventory import LogInventory, NodeInventory, StartInventory, TopicInventory

FIRST = ""


def read_inventory(disk: Disk, data_dirs: Sequence[str]) -> NodeInventory:
    """Reads all directories of one node, in any order. Raises StartRefused if one is in use or not of this node."""
    with ExitStack() as held:
        for path in data_dirs:
            held.enter_context(_lock(disk, path))
        metas = {path: read_meta(disk, path) for path in data_dirs}
        firsts = [path for path, meta in metas.items() if "directory_id" not in meta]
        if len(firsts) != 1:
            text = f"{len(firsts)} of {', '.join(data_dirs)} are the first data directory of a node"
            raise StartRefused(text, hint="give all directories of one node, and of no other")
        first = metas[firsts[0]]
        identity = Identity(first["cluster_id"], first["node_id"])
        for path, meta in metas.items():
            if (meta["cluster_id"], meta["node_id"]) != (identity.cluster_id, identity.node_id):
                raise StartRefused(f"{path} is of cluster {meta['cluster_id']}, node {meta['node_id']}")
        registered = read_registration_state(disk, firsts[0])
        if not registered.directory_id:
            text = f"{firsts[0]} was never the directory of a node in a cluster"
            raise StartRefused(text, hint="a standalone directory needs no rebuild: start it with --coordination")
        ids = {str(meta.get("directory_id", FIRST)): path for path, meta in metas.items()}
        if len(ids) != len(metas):
            raise StartRefused(f"two of {', '.join(data_dirs)} are copies of one directory", hint="give the newest")
        directories = LogDirectories(
            _open_directory(disk, firsts[0], identity, FIRST),
            [
                _open_directory(disk, path, identity, directory_id)
                for directory_id, path in ids.items()
                if directory_id != FIRST
            ],
        )
        counters = {
            directory_id or registered.directory_id: load_start_counter(disk, path)
            for directory_id, path in ids.items()
        }
        starts = {
            directory_id: StartInventory(number=c.number, nonce=c.nonces[0])
            for directory_id, c in counters.items()
            if c.number
        }
        absent = [str(row["path"]) for row in first.get("further", ()) if str(row["directory_id"]) not in ids]
        topics, unreadable = _read_topics(disk, directories)
        return NodeInventory(
            cluster_id=identity.cluster_id,
            node_id=identity.node_id,
            directory_id=registered.directory_id,
            starts=starts,
            topics=tuple(topics),
            unreadable=tuple(unreadable),
            absent_directories=tuple(absent),
        )


def node_of(disk: Disk, path: str) -> int:
    """Returns the id of the node that a directory is of. Raises StartRefused."""
    if disk.stat(os.path.join(path, paths.META)) is None:
        raise StartRefused(f"{path} is not the data directory of a node", hint="check the path, and mount its disk")
    return int(read_meta(disk, path)["node_id"])


@contextmanager
def _lock(disk: Disk, path: str) -> Iterator[None]:
    node_of(disk, path)
    try:
        handle = disk.lock(os.path.join(path, paths.LOCK))
    except BlockingIOError:
        text = f"the data directory {path} is in use by another process"
        raise StartRefused(text, hint="stop every node of the cluster first") from None
    except OSError as error:
        raise StartRefused(f"{path} cannot be locked: {error.strerror}", hint="check its owner") from error
    try:
        yield
    finally:
        disk.close(handle)


def _open_directory(disk: Disk, path: str, identity: Identity, directory_id: str) -> DataDirectory:
    return DataDirectory(disk, path, identity, last_shutdown=LastShutdown.CLEAN, directory_id=directory_id)


def _read_topics(disk: Disk, directories: LogDirectories) -> tuple[list[TopicInventory], list[str]]:
    checkpoints, watermarks = directories.load_checkpoints(), directories.load_high_watermarks()
    topics: list[TopicInventory] = []
    unreadable: list[str] = []
    root = paths.topics_dir(directories.first.path)
    for name in filter(paths.is_stored_topic_name, disk.listdir(root)):
        for topic_id in filter(paths.is_topic_id, disk.listdir(f"{root}/{name}")):
            file = f"{root}/{name}/{topic_id}/{paths.TOPIC_FILE}"
            record, stat = _record(disk, file), disk.stat(file)
            if record is None or (record.name, record.topic_id) != (name, topic_id):
                unreadable.append(topic_id)
                continue
            logs = {}
            for number in record.local_partitions:
                partition = partition_name(topic_id, number)
                checkpoint = checkpoints.get(partition, Checkpoint())
                logs[number] = _log(directories, record, number, checkpoint, watermarks.get(partition, 0))
            topics.append(
                TopicInventory(
                    name=name,
                    topic_id=topic_id,
                    partitions=record.partitions,
                    replication_factor=record.replication_factor,
                    created_ms=record.created_ms,
                    config=dict(record.overrides),
                    hosted=tuple(record.local_partitions),
                    logs=logs,
                    changed_ms=0 if stat is None else stat.modified_ms,
                )
            )
    return topics, unreadable


def _record(disk: Disk, file: str) -> TopicRecord | None:
    with suppress(OSError, Corrupt):
        data = read_file(disk, file)
        return None if data is None else decoded_topic(os.path.dirname(file), data)
    return None


def _log(
    directories: LogDirectories, record: TopicRecord, number: int, checkpoint: Checkpoint, watermark: int
) -> LogInventory:
    located = directories.locate(record, number)
    path = paths.partition_dir(located.directory.path, record.name, record.topic_id, number)
    if located.error is not None:
        return LogInventory(high_watermark=watermark, problem=located.error.detail)
    return read_log(located.directory.disk, path, checkpoint, watermark)


def read_log(disk: Disk, path: str, checkpoint: Checkpoint, watermark: int) -> LogInventory:
    """Reads the log in the directory of a partition. An error of the disk is its problem."""
    try:
        if disk.stat(path) is None:
            return LogInventory(high_watermark=watermark, problem=f"{path} is missing")
        extent = read_log_extent(disk, path, checkpoint)
        state = read_latest(disk, path, extent.log_end)
    except (OSError, Corrupt) as error:
        return LogInventory(high_watermark=watermark, problem=str(error))
    ids = [] if state is None else [producer_id for producer_id, _ in state.producers]
    if state is not None and state.forgotten_id_max < ID_MAX:
        ids.append(state.forgotten_id_max)
    return LogInventory(
        epochs=tuple((epoch.epoch, epoch.start_offset) for epoch in extent.epochs),
        log_start=checkpoint.log_start,
        log_end=extent.log_end,
        high_watermark=watermark,
        producer_id_max=max([extent.producer_id_max, *ids]),
        problem=extent.problem,
    )
