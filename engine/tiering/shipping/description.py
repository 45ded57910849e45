"""Keeps the description of one topic in the store as the topic is now. Blocking; for the shippers of its partitions.

Only the leader of a partition with a manifest writes it, so that a topic without tiered records leaves nothing in the
store.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.directory.topics import TopicRecord
from engine.tiering.manifest.stored_topic import description_key, encode_description
from engine.tiering.store.store import NoSuchObject, ObjectStore


class TopicDescription:
    """Remembers the record that the store has. `record` returns the current one, or None after a deletion."""

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
        """Write the description unless the store has the same. Raises StoreUnavailable."""
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
