"""Finds the topics of the first data directory at a start, and handles directories that are not topics.

Removes the leftovers of an interrupted creation or deletion, and nothing else: an interrupted creation can hold only
empty logs, and the directory of a deleted topic has a `topic.json` that names its topic. Every other directory stays as
it is, so that an operator can restore it, and is reported. The table of what a start may remove is in
engine/format/FORMAT.md.
Invariant: idempotent; a second run on the same directory finds the same topics.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.directory.safe_delete import (
    STEPS_AT_ONCE,
    RemovalSteps,
    is_unfinished_creation,
    remove_if_empty,
    remove_topic_dir,
    run_some_steps,
)
from engine.directory.topic_directories import log_leftovers
from engine.directory.topics import TopicRecord, decoded_topic
from engine.errors import Corrupt
from engine.format import paths
from engine.runtime.disk import Disk, FileKind, read_file

log = logging.getLogger("penstock.engine")

HINT = f"restore {paths.TOPIC_FILE} and restart; to discard the records, move the directory elsewhere"


@dataclass(slots=True)
class TopicScan:
    """The content of a data directory. `without_metadata`: directories with files of a topic and no `topic.json`.

    `deleted` are topics with more files than are removed at once.
    """

    records: list[TopicRecord] = field(default_factory=list)
    without_metadata: list[tuple[str, str]] = field(default_factory=list)  # topic and topic id, taken from their paths
    deleted: list[tuple[str, str, str]] = field(default_factory=list)  # topic, id, and the remaining directory


def scan_topics(
    disk: Disk,
    data_dir: str,
    removal: Callable[[str, str, str], RemovalSteps[None]] | None = None,
) -> TopicScan:
    """Finds all topics, sorted by name. Raises OSError, Corrupt for a `topic.json` that is unreadable or misplaced.

    `removal` removes a deleted topic, by name, id and directory, from all data directories (None: there is only this
    one).
    """
    scan = TopicScan()
    for name in disk.listdir(paths.topics_dir(data_dir)):
        parent = f"{paths.topics_dir(data_dir)}/{name}"
        if not _is_directory(disk, parent):
            _log_foreign(parent)
            continue
        for topic_id in disk.listdir(parent):
            directory = f"{parent}/{topic_id}"
            if not _is_directory(disk, directory):
                _log_foreign(directory)
            elif topic_id.endswith(paths.DELETED_SUFFIX):
                _finish_deletion(disk, name, directory, removal, scan)
            elif not _is_readable(disk, directory, name, scan):
                continue
            elif (data := _topic_file(disk, directory)) is not None:
                scan.records.append(_checked(directory, name, topic_id, data))
            elif disk.kind(directory) is FileKind.DIRECTORY and is_unfinished_creation(disk, directory):
                if paths.is_topic_id(topic_id):
                    remove_topic_dir(disk, directory)
                else:
                    _log_foreign(directory)
            else:
                scan.without_metadata.append((name, topic_id))
                words = {"directory": directory, "hint": HINT}
                log.error(f"a topic has no {paths.TOPIC_FILE} and was quarantined; its files stay", extra=words)
        if paths.is_stored_topic_name(name):
            remove_if_empty(disk, parent)
    return scan


def _finish_deletion(
    disk: Disk,
    name: str,
    directory: str,
    removal: Callable[[str, str, str], RemovalSteps[None]] | None,
    scan: TopicScan,
) -> None:
    """Removes the rest of a deleted topic, if the directory is one. Otherwise it stays, and is logged."""
    topic_id = os.path.basename(directory).removesuffix(paths.DELETED_SUFFIX)
    reason = _reason_to_keep(disk, name, topic_id, directory)
    if reason:
        words = {"directory": directory, "reason": reason, "hint": "move it elsewhere, or remove it by hand"}
        log.error("a directory with the name of a deleted topic is kept", extra=words)
    elif removal is None:
        log_leftovers(remove_topic_dir(disk, directory))
    elif not run_some_steps(removal(name, topic_id, directory), STEPS_AT_ONCE):
        scan.deleted.append((name, topic_id, directory))


def _reason_to_keep(disk: Disk, name: str, topic_id: str, directory: str) -> str:
    """Returns why a directory cannot be the rest of a deletion; empty if it is one."""
    if disk.kind(directory) is not FileKind.DIRECTORY:
        return "it is a symbolic link"
    if disk.kind(directory.removesuffix(paths.DELETED_SUFFIX)) is not None:
        return "the topic itself exists too"
    data = _topic_file(disk, directory)
    if data is None:
        return "" if is_unfinished_creation(disk, directory) else f"it has files and no {paths.TOPIC_FILE}"
    try:
        _checked(directory, name, topic_id, data)
    except Corrupt as error:
        return error.detail
    return ""


def _checked(directory: str, name: str, topic_id: str, data: bytes) -> TopicRecord:
    record = decoded_topic(directory, data)
    if (record.name, record.topic_id) != (name, topic_id):
        raise Corrupt(
            f"{directory}/{paths.TOPIC_FILE} is that of topic {record.name!r} with id {record.topic_id}",
            hint="restore the right file, and restart",
        )
    return record


def _is_readable(disk: Disk, directory: str, name: str, scan: TopicScan) -> bool:
    """Sets a topic aside if its disk cannot read `topic.json` (EIO): the other topics of the node are served."""
    try:
        read_file(disk, f"{directory}/{paths.TOPIC_FILE}")
    except OSError as error:
        if error.errno != errno.EIO:  # of all files, such as a wrong owner
            return True
        scan.without_metadata.append((name, os.path.basename(directory)))
        words = {"directory": directory, "reason": str(error), "hint": HINT}
        log.error(
            f"the {paths.TOPIC_FILE} of a topic cannot be read; it was quarantined, and its files stay", extra=words
        )
        return False
    return True


def _topic_file(disk: Disk, directory: str) -> bytes | None:
    """Returns the bytes of `topic.json`; None without one. Raises Corrupt if it is unreadable."""
    file = f"{directory}/{paths.TOPIC_FILE}"
    try:
        return read_file(disk, file)
    except OSError as error:
        raise Corrupt(f"{file} cannot be read: {error.strerror}", hint="restore it, and restart") from error


def _is_directory(disk: Disk, path: str) -> bool:
    """True also for a link to a directory, which an operator may have made."""
    stat = disk.stat(path)
    return stat is not None and stat.is_dir


def _log_foreign(path: str) -> None:
    log.warning("not the directory of a topic: ignored", extra={"path": path})
