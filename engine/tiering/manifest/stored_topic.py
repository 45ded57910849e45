"""The description of a topic in the store: its settings and its number of partitions, for a restore.

Has the fields of `topic.json` of a data directory (engine/format/FORMAT.md), without the places of partitions. Only a
restore reads it, so it may be old: the leader of any partition rewrites it after a change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.directory.topics import TopicRecord, decoded_topic, encoded_topic
from engine.format.paths import TOPIC_FILE, store_topic_prefix
from engine.tiering.store.store import NoSuchObject, ObjectStore


def description_key(cluster_id: str, topic: str, topic_id: str) -> str:
    return f"{store_topic_prefix(cluster_id, topic, topic_id)}{TOPIC_FILE}"


def encode_description(topic: TopicRecord) -> bytes:
    return encoded_topic(replace(topic, directory_ids={}, hosted=None))


def load_description(store: ObjectStore, cluster_id: str, topic: str, topic_id: str) -> TopicRecord | None:
    """Return the description of a topic; None without one, as of a version before. Raises Corrupt, StoreUnavailable."""
    try:
        data = store.get(description_key(cluster_id, topic, topic_id))
    except NoSuchObject:
        return None
    return decoded_topic(store_topic_prefix(cluster_id, topic, topic_id).rstrip("/"), data)


class TopicDescription:
    """Keeps the description of one topic as the topic is now. Blocking; for the shippers of its partitions.

    Remembers the record that the store has. `record` returns the current one, or None after a deletion. Only the leader
    of a partition with a manifest writes, so that a topic without tiered records leaves nothing in the store.
    """

    def __init__(self, store: ObjectStore, cluster_id: str, record: Callable[[], TopicRecord | None]) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._record = record
        self._written: TopicRecord | None = None

    def is_due(self) -> bool:
        """True if the topic has changed since the last write; no request to the store."""
        record = self._record()
        return record is not None and record is not self._written

    def write(self) -> None:
        """Writes the description unless the store has the same. Raises StoreUnavailable."""
        record = self._record()
        if record is None:
            return
        key, data = description_key(self._cluster_id, record.name, record.topic_id), encode_description(record)
        try:
            is_same = self._store.get(key) == data
        except NoSuchObject:
            is_same = False
        if not is_same:
            self._store.put(key, data)
        self._written = record
