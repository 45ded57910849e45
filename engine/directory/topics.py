"""The topics of a data directory: created, changed, deleted. Handles directories, not records.

engine/directory/topic_scan.py finds them at a start.
Invariants: a topic exists once its `topic.json` does, which is written last and atomically. A deleted topic's directory
is renamed first, so that the topic vanishes at once and permanently, and removed afterwards. Paths carry the topic id,
so that a name can be used again at once.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from engine.errors import Corrupt, InvalidConfig, InvalidTopicName
from engine.format import paths
from engine.format.spare_files import write_without_room
from engine.runtime.disk import Disk
from engine.schemas.changes import check_schema, merged_settings
from engine.topic_settings import TopicSettings, topic_settings

FORMAT_VERSION = 3  # of a topic with some partitions on other nodes
FORMAT_IN_SEVERAL_DIRECTORIES = 2
FORMAT_IN_ONE_DIRECTORY = 1  # of a topic in the first data directory only: every version reads it
PARTITIONS_MAX = 10_000
REPLICATION_FACTOR_MAX = 16  # three survive a node failure, five two; more cost more than they save


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """The content of `topic.json`. `overrides` are the settings that differ from the defaults.

    `directory_ids` has the ids of other data directories by partition number as text.
    `hosted` are the partitions on this node, in a cluster; None on a standalone node, which hosts all of them.
    """

    name: str
    topic_id: str
    partitions: int
    replication_factor: int = 1
    overrides: Mapping[str, object] = field(default_factory=dict)
    created_ms: int = 0
    directory_ids: Mapping[str, str] = field(default_factory=dict)
    hosted: tuple[int, ...] | None = None

    @property
    def local_partitions(self) -> Sequence[int]:
        """The partitions on this node."""
        return range(self.partitions) if self.hosted is None else self.hosted

    @property
    def settings(self) -> TopicSettings:
        return topic_settings(self.overrides)


_HINT_DAMAGED = "restore it from a backup"
NAME_RULE = (
    f"use 1 to {paths.TOPIC_CHARS_MAX} of A-Z a-z 0-9 . _ - ; not '.' or '..', no leading '{paths.RESERVED_PREFIX}', "
    f"and none of {', '.join(sorted(paths.RESERVED_TOPICS))}"
)


def check_topic_name(name: str) -> None:
    """Checks the naming rule. Raises InvalidTopicName."""
    if not paths.is_stored_topic_name(name):
        raise InvalidTopicName(f"{name!r} cannot name a topic", hint=NAME_RULE)


def check_new_topic(
    name: str,
    partitions: int,
    replication_factor: int,
    overrides: Mapping[str, object],
    *,
    replication_factor_max: int = 1,
) -> None:
    """Checks whether a topic can be created. Raises InvalidTopicName, InvalidConfig."""
    check_topic_name(name)
    topic_settings(overrides)
    check_schema(overrides.get("value_schema"))
    check_partitions(partitions)
    if not 1 <= replication_factor <= replication_factor_max:
        bounds = f"give a whole number from 1 to {replication_factor_max}"
        hint = "this node is standalone: use 1" if replication_factor_max == 1 else bounds
        raise InvalidConfig(f"replication_factor is {replication_factor}", hint=hint)


def changed_topic(topic: TopicRecord, overrides: Mapping[str, object], partitions: int | None) -> TopicRecord:
    """Returns a topic with the given settings and partition count. Raises InvalidConfig."""
    topic_settings({**topic.overrides, **overrides})
    merged = merged_settings(topic.overrides, overrides)
    grown = grown_partitions(topic.name, topic.partitions, partitions)
    return dataclasses.replace(topic, overrides=merged, partitions=grown)


def grown_partitions(name: str, count: int, requested: int | None) -> int:
    """Returns the partition count of a topic after a change; None changes nothing. Raises InvalidConfig."""
    if requested is None:
        return count
    check_partitions(requested)
    if requested < count:
        raise InvalidConfig(
            f"topic {name!r} has {count} partitions and cannot have {requested}: the number can only grow",
            hint="make another topic with fewer partitions and copy the records",
        )
    return requested


def check_partitions(partitions: int) -> None:
    """Checks the bounds of a partition count. Raises InvalidConfig."""
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidConfig(f"partitions is {partitions}", hint=f"give 1 to {PARTITIONS_MAX}")


def save_topic(disk: Disk, data_dir: str, topic: TopicRecord, added: Iterable[int] | None = None) -> None:
    """Makes a topic durable, or its new partitions. The directory entries are durable when this returns.

    Makes partition directories first: they do not count until `topic.json` counts them. Directories outside the first
    data directory are durable already. Makes nothing else: a missing partition must stay missing.
    """
    directory = paths.topic_dir(data_dir, topic.name, topic.topic_id)
    if topic.directory_ids or topic.hosted is not None:
        disk.mkdir(directory)  # perhaps all of them are in other directories
    for partition in topic.local_partitions if added is None else added:
        if str(partition) not in topic.directory_ids:
            disk.mkdir(f"{directory}/{partition}")
    disk.fsync_dir(directory)
    save_settings(disk, data_dir, topic)
    for parent in (os.path.dirname(directory), paths.topics_dir(data_dir), data_dir):
        disk.fsync_dir(parent)


def save_settings(disk: Disk, data_dir: str, topic: TopicRecord) -> None:
    """Replaces the stored settings of an existing topic."""
    directory = paths.topic_dir(data_dir, topic.name, topic.topic_id)
    write_without_room(disk, f"{directory}/{paths.TOPIC_FILE}", encoded_topic(topic))


def unlist_topic(disk: Disk, data_dir: str, topic: TopicRecord) -> str:
    """Makes a topic vanish durably; returns the directory left to remove. After a failure a second call continues."""
    directory = paths.topic_dir(data_dir, topic.name, topic.topic_id)
    renamed = directory + paths.DELETED_SUFFIX
    if not is_deletion_begun(disk, data_dir, topic):
        disk.rename(directory, renamed)
    disk.fsync_dir(os.path.dirname(directory))
    return renamed


def is_deletion_begun(disk: Disk, data_dir: str, topic: TopicRecord) -> bool:
    """True if a topic's directory is renamed, perhaps not durably."""
    directory = paths.topic_dir(data_dir, topic.name, topic.topic_id)
    return disk.kind(directory) is None and disk.kind(directory + paths.DELETED_SUFFIX) is not None


def encoded_topic(topic: TopicRecord) -> bytes:
    """Encodes `topic.json`."""
    fields = {
        "format": _format_of(topic),
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "config": dict(topic.overrides),
        "created_ms": topic.created_ms,
    }
    if topic.directory_ids:
        fields["elsewhere"] = dict(topic.directory_ids)
    if topic.hosted is not None:
        fields["hosted"] = list(topic.hosted)
    return orjson.dumps(fields, option=orjson.OPT_INDENT_2)


def _format_of(topic: TopicRecord) -> int:
    """Returns the oldest format version that reads the topic correctly."""
    if topic.hosted is not None:
        return FORMAT_VERSION
    return FORMAT_IN_SEVERAL_DIRECTORIES if topic.directory_ids else FORMAT_IN_ONE_DIRECTORY


def decoded_topic(directory: str, data: bytes) -> TopicRecord:
    """Decodes `topic.json` of a directory. Raises Corrupt if that fails."""
    file = f"{directory}/{paths.TOPIC_FILE}"
    try:
        raw = orjson.loads(data)
        if raw["format"] > FORMAT_VERSION:
            raise Corrupt(f"{directory}: topic format {raw['format']} is newer than this version of penstock")
        directory_ids = dict(raw.get("elsewhere", {}))
        if not all(isinstance(directory_id, str) for directory_id in directory_ids.values()):
            raise _wrong_kind(file)
        hosted = raw.get("hosted")
        if hosted is not None and not all(isinstance(number, int) for number in hosted):
            raise _wrong_kind(file)
        return TopicRecord(
            raw["topic"],
            raw["topic_id"],
            raw["partitions"],
            raw["replication_factor"],
            raw["config"],
            raw["created_ms"],
            directory_ids,
            None if hosted is None else tuple(hosted),
        )
    except orjson.JSONDecodeError as error:
        raise Corrupt(f"{file} is damaged: it is not JSON", hint=_HINT_DAMAGED) from error
    except KeyError as error:
        raise Corrupt(f"{file} is damaged: it lacks the field {error.args[0]}", hint=_HINT_DAMAGED) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise _wrong_kind(file) from error


def _wrong_kind(file: str) -> Corrupt:
    return Corrupt(f"{file} is damaged: a value in it is of the wrong kind", hint=_HINT_DAMAGED)
