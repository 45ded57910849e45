"""The topics that a process serves, by name, and their total count of partitions.

engine/directory/catalog.py has the list of existing topics.
Invariant: `partition_count` is the sum over all topics, whichever process or node has their partitions, and `by_id` has
the same topics. So every change is made by a method here. A sum at each creation would make each slower than the one
before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.directory.topics import TopicRecord
from engine.partition.partition import Partition
from engine.topic_settings import TopicSettings


@dataclass(slots=True)
class Topic:
    """A topic as this process serves it."""

    record: TopicRecord
    settings: TopicSettings
    partitions: dict[int, Partition] = field(default_factory=dict)  # those that this shard owns


class ServedTopics(dict[str, Topic]):
    """By name, in the order in which they were opened; `by_id` by their ids."""

    def __init__(self) -> None:
        super().__init__()
        self.partition_count = 0
        self.by_id: dict[str, Topic] = {}

    def serve(self, topics: Mapping[str, Topic]) -> None:
        """Serves these topics, in place of others of their names."""
        for name, topic in topics.items():
            replaced = self.get(name)
            self.partition_count += topic.record.partitions - (replaced.record.partitions if replaced else 0)
            if replaced is not None:
                self.by_id.pop(replaced.record.topic_id, None)
            self[name] = self.by_id[topic.record.topic_id] = topic

    def change(self, topic: Topic, record: TopicRecord) -> None:
        """Replaces the record of a served topic: new settings or more partitions."""
        self.partition_count += record.partitions - topic.record.partitions
        topic.record, topic.settings = record, record.settings

    def stop_serving(self, name: str) -> Topic | None:
        """Stops serving a topic. Returns it; None if it was not served."""
        topic = self.pop(name, None)
        if topic is not None:
            self.partition_count -= topic.record.partitions
            self.by_id.pop(topic.record.topic_id, None)
        return topic
