"""Keeps the recovery points of partitions on this disk that are not open, and saves them with those of open ones.

A topic that the cluster does not know is closed, and its files stay. When it returns, in this process or a later one,
its recovery point and log_start still apply. The first data directory lists the topics (engine/directory/topics.py).
Invariant: each save has the points of a partition from its close until it is open again or its topic is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from engine.directory.data_directory import DataDirectory
from engine.directory.log_directories import LogDirectories
from engine.directory.topics import TopicRecord
from engine.format import paths
from engine.log.recovery import Checkpoint
from engine.partition.partition import Partition
from engine.runtime.disk import Disk


@dataclass(slots=True)
class ClosedTopic:
    """A closing or closed topic. While closing it asks its partitions: a truncation may still lower their points."""

    topic_id: str
    directory: str  # the topic exists as long as this path does; a deletion renames it first
    closing: list[tuple[DataDirectory, Partition]] = field(default_factory=list)
    points: list[tuple[DataDirectory, str, Checkpoint]] = field(default_factory=list)

    def now(self) -> Iterator[tuple[DataDirectory, str, Checkpoint]]:
        yield from self.points
        for directory, partition in self.closing:
            yield (
                directory,
                f"{self.topic_id}/{partition.number}",
                Checkpoint(partition.durable_end, partition.log.log_start),
            )

    def keep_last(self) -> None:
        """Keeps the last points: no task changes its partitions any more."""
        self.points, self.closing = list(self.now()), []


class UnopenedRecoveryPoints:
    """The points by topic, each with the data directory whose file has it."""

    def __init__(self, disk: Disk, directories: LogDirectories) -> None:
        self._disk = disk
        self._directories = directories
        self._topics: dict[str, ClosedTopic] = {}

    def __repr__(self) -> str:
        return f"UnopenedRecoveryPoints(topics={list(self._topics)})"

    def __bool__(self) -> bool:
        return bool(self._topics)

    def load(self, keys: Iterable[str], opened: Iterable[TopicRecord], owns: Callable[[str, int], bool]) -> None:
        """Stores the points found at a start, by key, for existing topics that are not opened."""
        ids = {record.topic_id for record in opened}
        to_load = {}
        for key in keys:
            topic_id, _, number = key.rpartition("/")
            if topic_id not in ids and number.isdecimal() and owns(topic_id, int(number)):
                to_load[key] = topic_id
        if not to_load:
            return
        found_dirs = self._topic_dirs(set(to_load.values()))
        for directory in self._directories.usable:
            for key, checkpoint in directory.load_checkpoints().items():
                topic_id = to_load.get(key, "")
                if topic_id in found_dirs:
                    topic = self._topics.setdefault(topic_id, ClosedTopic(topic_id, found_dirs[topic_id]))
                    topic.points.append((directory, key, checkpoint))

    @contextmanager
    def closing(self, record: TopicRecord, partitions: Iterable[Partition]) -> Iterator[None]:
        """Closes a topic within this context. After a failure tasks may still run: its partitions are still asked."""
        closing = [(self._directories.holding(partition.log.directory), partition) for partition in partitions]
        directory = paths.topic_dir(self._directories.first.path, record.name, record.topic_id)
        topic = ClosedTopic(record.topic_id, directory, closing)
        self._topics[record.topic_id] = topic
        yield
        topic.keep_last()

    def of_topic(self, topic_id: str) -> Mapping[str, Checkpoint]:
        """Returns the points to open a topic with."""
        merged: dict[str, Checkpoint] = {}
        if topic_id in self._topics:
            for _, key, (recovery_point, log_start) in self._topics[topic_id].now():
                other = merged.get(key, Checkpoint())
                merged[key] = Checkpoint(max(recovery_point, other[0]), max(log_start, other[1]))
        return merged

    def of_directory(self, directory: DataDirectory) -> dict[str, Checkpoint]:
        """Returns the points to save in a directory."""
        having = (point for topic in self._topics.values() for point in topic.now())
        return {key: checkpoint for lies_in, key, checkpoint in having if lies_in is directory}

    def drop(self, topic_id: str) -> None:
        """Drops the points of an opened topic: its partitions report their own."""
        self._topics.pop(topic_id, None)

    def find_deleted(self) -> list[str]:
        """Returns the topics that do not exist any more. Asks the disk."""
        return [topic.topic_id for topic in list(self._topics.values()) if self._is_gone(topic.directory)]

    def remove(self, topic_ids: Iterable[str]) -> None:
        for topic_id in topic_ids:
            self._topics.pop(topic_id, None)

    def _is_gone(self, directory: str) -> bool:
        try:
            return self._disk.stat(directory) is None
        except OSError:  # a failing disk proves nothing
            return False

    def _topic_dirs(self, topic_ids: set[str]) -> dict[str, str]:
        """Returns the directories of the existing ones, with or without a `topic.json`."""
        first = self._directories.first.path
        topic_dirs = {}
        for name in self._disk.listdir(paths.topics_dir(first)):
            parent = f"{paths.topics_dir(first)}/{name}"
            stat = self._disk.stat(parent)
            if stat is not None and stat.is_dir:
                for topic_id in topic_ids.intersection(self._disk.listdir(parent)):
                    topic_dirs[topic_id] = paths.topic_dir(first, name, topic_id)
        return topic_dirs
