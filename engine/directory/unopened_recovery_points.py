"""Recovery points of partitions that lie here and are not open: they are written on with those of the open ones.

A topic that the cluster does not know is closed, and its files stay. When it comes back, in this life of the process or
in a later one, what was fsynced of it is no torn tail, and what was given up stays so. Not which topics there are: that
is the first data directory's to say (engine/directory/topics.py).
Invariant: from when a partition is closed until it is open again or its topic is deleted, each save has its points.
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
    """While it is being closed its partitions are asked: a cut that comes to its end may lower their points."""

    topic_id: str
    directory: str  # as long as it is there, so is the topic; a deletion renames it first
    closing: list[tuple[DataDirectory, Partition]] = field(default_factory=list)
    points: list[tuple[DataDirectory, str, Checkpoint]] = field(default_factory=list)

    def now(self) -> Iterator[tuple[DataDirectory, str, Checkpoint]]:
        yield from self.points
        for directory, one in self.closing:
            yield directory, f"{self.topic_id}/{one.number}", Checkpoint(one.durable_end, one.log.log_start)

    def closed(self) -> None:
        """Nothing works on its partitions any more."""
        self.points, self.closing = list(self.now()), []


class UnopenedRecoveryPoints:
    """By topic; of each point it is known which data directory's file has it."""

    def __init__(self, disk: Disk, directories: LogDirectories) -> None:
        self._disk = disk
        self._directories = directories
        self._topics: dict[str, ClosedTopic] = {}

    def __repr__(self) -> str:
        return f"UnopenedRecoveryPoints(topics={list(self._topics)})"

    def __bool__(self) -> bool:
        return bool(self._topics)

    def learn(self, found: Iterable[str], opened: Iterable[TopicRecord], owns: Callable[[str, int], bool]) -> None:
        """At a start: of the points found, by key, those of topics that are there and are not opened now."""
        ids = {record.topic_id for record in opened}
        wanted = {}
        for key in found:
            topic_id, _, number = key.rpartition("/")
            if topic_id not in ids and number.isdecimal() and owns(topic_id, int(number)):
                wanted[key] = topic_id
        if not wanted:
            return
        found_dirs = self._topic_dirs(set(wanted.values()))
        for directory in self._directories.usable:
            for key, checkpoint in directory.load_checkpoints().items():
                topic_id = wanted.get(key, "")
                if topic_id in found_dirs:
                    topic = self._topics.setdefault(topic_id, ClosedTopic(topic_id, found_dirs[topic_id]))
                    topic.points.append((directory, key, checkpoint))

    @contextmanager
    def closing(self, record: TopicRecord, partitions: Iterable[Partition]) -> Iterator[None]:
        """A topic is closed within. If that fails nobody knows what still works on it, and it is asked on."""
        closing = [(self._directories.holding(one.log.directory), one) for one in partitions]
        directory = paths.topic_dir(self._directories.first.path, record.name, record.topic_id)
        topic = ClosedTopic(record.topic_id, directory, closing)
        self._topics[record.topic_id] = topic
        yield
        topic.closed()

    def of_topic(self, topic_id: str) -> Mapping[str, Checkpoint]:
        """To open it with."""
        merged: dict[str, Checkpoint] = {}
        if topic_id in self._topics:
            for _, key, (recovery_point, log_start) in self._topics[topic_id].now():
                other = merged.get(key, Checkpoint())
                merged[key] = Checkpoint(max(recovery_point, other[0]), max(log_start, other[1]))
        return merged

    def of_directory(self, directory: DataDirectory) -> dict[str, Checkpoint]:
        """To be written there."""
        having = (point for topic in self._topics.values() for point in topic.now())
        return {key: checkpoint for lies_in, key, checkpoint in having if lies_in is directory}

    def opened(self, topic_id: str) -> None:
        """Its partitions speak for themselves again; those that lie here no longer begin anew if they come back."""
        self._topics.pop(topic_id, None)

    def deleted(self) -> list[str]:
        """The topics that are not there any more. Asks the disk."""
        return [topic.topic_id for topic in list(self._topics.values()) if self._is_gone(topic.directory)]

    def forget(self, topic_ids: Iterable[str]) -> None:
        for topic_id in topic_ids:
            self._topics.pop(topic_id, None)

    def _is_gone(self, directory: str) -> bool:
        try:
            return self._disk.stat(directory) is None
        except OSError:  # a disk that does not answer is no evidence
            return False

    def _topic_dirs(self, topic_ids: set[str]) -> dict[str, str]:
        """The directories of those that are there, with a `topic.json` or without."""
        first = self._directories.first.path
        found = {}
        for name in self._disk.listdir(paths.topics_dir(first)):
            parent = f"{paths.topics_dir(first)}/{name}"
            stat = self._disk.stat(parent)
            if stat is not None and stat.is_dir:
                for topic_id in topic_ids.intersection(self._disk.listdir(parent)):
                    found[topic_id] = paths.topic_dir(first, name, topic_id)
        return found
