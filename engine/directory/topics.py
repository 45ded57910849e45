"""Which topics a data directory holds: made, changed, deleted. No records here, only directories.

A start finds them again by engine/directory/found_topics.py.
Invariants: a topic exists once its `topic.json` does, which is written last and atomically. A deleted topic's directory
is renamed first, so that it is gone at once and for ever, and removed afterwards. Paths carry the topic id: a name can
be used again at once.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from engine.errors import Corrupt, InvalidConfig, InvalidTopicName
from engine.format import paths
from engine.runtime.disk import Disk, write_atomically
from engine.settings import TopicSettings, topic_settings

FORMAT_VERSION = 3  # of a topic of which some partitions lie on other nodes
FORMAT_IN_SEVERAL_DIRECTORIES = 2
FORMAT_IN_ONE_DIRECTORY = 1  # of a topic that lies in the first data directory only: what every version reads
PARTITIONS_MAX = 10_000
REPLICATION_FACTOR_MAX = 16  # three survive a node, five two; more cost more than they save


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """What `topic.json` holds. `overrides` are the settings that differ from the defaults.

    `elsewhere` has the ids of the further data directories in which partitions lie, by partition number as text.
    `hosted` are the partitions that lie on this node, in a cluster; None, of a node that is alone: all of them.
    """

    name: str
    topic_id: str
    partitions: int
    replication_factor: int = 1
    overrides: Mapping[str, object] = field(default_factory=dict)
    created_ms: int = 0
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    hosted: tuple[int, ...] | None = None

    @property
    def here(self) -> Sequence[int]:
        """The partitions that lie on this node."""
        return range(self.partitions) if self.hosted is None else self.hosted

    @property
    def settings(self) -> TopicSettings:
        return topic_settings(self.overrides)


def check_topic_name(name: str) -> None:
    if not paths.is_topic_name(name):
        raise InvalidTopicName(
            f"{name!r} cannot name a topic",
            hint="use 1 to 200 of A-Z a-z 0-9 . _ - ; not '.' or '..', and no leading '__'",
        )


def check_topic_wish(
    name: str, partitions: int, replication_factor: int, overrides: Mapping[str, object], *, is_standalone: bool = True
) -> None:
    """Whether such a topic could be made. Raises InvalidTopicName, InvalidConfig."""
    check_topic_name(name)
    topic_settings(overrides)
    check_partitions(partitions)
    if is_standalone and replication_factor != 1:
        raise InvalidConfig(f"replication_factor is {replication_factor}", hint="this node is alone: give 1")
    if not 1 <= replication_factor <= REPLICATION_FACTOR_MAX:
        hint = f"give a whole number from 1 to {REPLICATION_FACTOR_MAX}"
        raise InvalidConfig(f"replication_factor is {replication_factor}", hint=hint)


def changed_topic(topic: TopicRecord, overrides: Mapping[str, object], partitions: int | None) -> TopicRecord:
    """A topic with other settings, where they are named, and more partitions, if wanted. Raises InvalidConfig."""
    merged = {**topic.overrides, **overrides}
    topic_settings(merged)
    wanted = topic.partitions if partitions is None else partitions
    check_partitions(wanted)
    if wanted < topic.partitions:
        raise InvalidConfig(
            f"topic {topic.name!r} has {topic.partitions} partitions and cannot have {wanted}: it may only gain some",
            hint="make another topic with fewer partitions and copy the records",
        )
    return dataclasses.replace(topic, overrides=merged, partitions=wanted)


def check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidConfig(f"partitions is {partitions}", hint=f"give 1 to {PARTITIONS_MAX}")


def save_topic(disk: Disk, data_dir: str, topic: TopicRecord, added: Iterable[int] | None = None) -> None:
    """Make a topic durable, or the partitions that it has gained. The directory entries are durable when this returns.

    Directories of partitions come first: until `topic.json` counts them they are not there. Those of partitions that
    lie elsewhere are durable already. Nothing else is made: a partition that is missing must stay so.
    """
    directory = paths.topic_dir(data_dir, topic.name, topic.topic_id)
    if topic.elsewhere or topic.hosted is not None:
        disk.mkdir(directory)  # perhaps all of them lie elsewhere
    for partition in topic.here if added is None else added:
        if str(partition) not in topic.elsewhere:
            disk.mkdir(f"{directory}/{partition}")
    disk.fsync_dir(directory)
    save_settings(disk, data_dir, topic)
    for parent in (os.path.dirname(directory), paths.topics_dir(data_dir), data_dir):
        disk.fsync_dir(parent)


def save_settings(disk: Disk, data_dir: str, topic: TopicRecord) -> None:
    """Change what is written of a topic that is there."""
    directory = paths.topic_dir(data_dir, topic.name, topic.topic_id)
    write_atomically(disk, f"{directory}/{paths.TOPIC_FILE}", _encoded(topic))


def unlist_topic(disk: Disk, data_dir: str, topic: TopicRecord) -> str:
    """Make a topic vanish durably; returns the directory that is left to remove. After a failure it can go on."""
    directory = paths.topic_dir(data_dir, topic.name, topic.topic_id)
    renamed = directory + paths.DELETED_SUFFIX
    if not has_vanished(disk, data_dir, topic):
        disk.rename(directory, renamed)
    disk.fsync_dir(os.path.dirname(directory))
    return renamed


def has_vanished(disk: Disk, data_dir: str, topic: TopicRecord) -> bool:
    """Whether a topic's directory is renamed, perhaps not durably."""
    directory = paths.topic_dir(data_dir, topic.name, topic.topic_id)
    return disk.kind(directory) is None and disk.kind(directory + paths.DELETED_SUFFIX) is not None


def _encoded(topic: TopicRecord) -> bytes:
    fields = {
        "format": _format_of(topic),
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "config": dict(topic.overrides),
        "created_ms": topic.created_ms,
    }
    if topic.elsewhere:
        fields["elsewhere"] = dict(topic.elsewhere)
    if topic.hosted is not None:
        fields["hosted"] = list(topic.hosted)
    return orjson.dumps(fields, option=orjson.OPT_INDENT_2)


def _format_of(topic: TopicRecord) -> int:
    """The least that a version must know to take the topic for what it is."""
    if topic.hosted is not None:
        return FORMAT_VERSION
    return FORMAT_IN_SEVERAL_DIRECTORIES if topic.elsewhere else FORMAT_IN_ONE_DIRECTORY


def decoded_topic(directory: str, data: bytes) -> TopicRecord:
    """What `topic.json` of a directory says. Raises Corrupt."""
    try:
        raw = orjson.loads(data)
        if raw["format"] > FORMAT_VERSION:
            raise Corrupt(f"{directory}: topic format {raw['format']} is newer than this version of penstock")
        elsewhere = dict(raw.get("elsewhere", {}))
        if not all(isinstance(place, str) for place in elsewhere.values()):
            raise TypeError(f"elsewhere is {elsewhere}")
        hosted = raw.get("hosted")
        if hosted is not None and not all(isinstance(one, int) for one in hosted):
            raise TypeError(f"hosted is {hosted}")
        return TopicRecord(
            raw["topic"],
            raw["topic_id"],
            raw["partitions"],
            raw["replication_factor"],
            raw["config"],
            raw["created_ms"],
            elsewhere,
            None if hosted is None else tuple(hosted),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"{directory}/{paths.TOPIC_FILE} is damaged: {error!r}") from error
