"""The description of a topic in the store: its settings and its number of partitions, for a restore.

Has the fields of `topic.json` of a data directory (engine/format/FORMAT.md), without the places of partitions. Only a
restore reads it, so it may be old: the leader of any partition rewrites it after a change.
"""

from __future__ import annotations

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
