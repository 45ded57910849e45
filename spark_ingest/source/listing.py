"""Finds the newest manifest of each partition of topics, by listings. Reads no manifest.

A small topic takes one LIST: its keys are listed at once. A large one takes a LIST for its ids, one for the partitions
of each id, and one for each partition, which begins at the generation that is remembered, or at the store's hint.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from engine.format.paths import is_partition_number, store_partition_prefix, store_topic_prefix
from engine.tiering.manifest.chain import NewestRoot, find_newest
from engine.tiering.store.store import ObjectStore
from spark_ingest.source.known import KnownTopic, KnownTopics
from spark_ingest.source.requests import request_all, value_of

# A key of a page costs the processor a hundredth of a request.
KEYS_MIN = 1000  # a page
KEYS_PER_PARTITION = 50
_ROOT = re.compile(r"([^/]+)/(0|[1-9]\d*)/manifest/(\d{20})\.json")


class Place(NamedTuple):
    topic: str
    topic_id: str
    partition: int


class TopicListing(NamedTuple):
    """The newest root of each partition of the topic's newest id. `keys` as in KnownTopic."""

    keys: int
    newest: dict[Place, NewestRoot]


def newest_roots(
    store: ObjectStore, cluster: str, topics: Sequence[str], known_topics: KnownTopics
) -> dict[str, TopicListing]:
    """Returns what each topic has. Raises the error of a listing."""
    before = {topic: known_topics.get(topic, KnownTopic()) for topic in topics}
    small = [topic for topic in topics if before[topic].keys < _keys_max(before[topic])]
    pages = request_all(lambda topic: _all_at_once(store, cluster, topic, _keys_max(before[topic])), small)
    listings = dict(zip(small, map(value_of, pages), strict=True))
    large = [topic for topic in topics if topic not in listings or listings[topic].keys >= _keys_max(before[topic])]
    roots = _one_by_one(store, cluster, large, before)
    for topic in large:
        keys = listings[topic].keys if topic in listings else before[topic].keys
        listings[topic] = TopicListing(keys, roots[topic])
    return {topic: TopicListing(listings[topic].keys, _of_newest_id(listings[topic].newest)) for topic in topics}


def names_below(store: ObjectStore, prefix: str) -> list[str]:
    """Returns the names of the directories of a prefix."""
    return [listed.removeprefix(prefix).rstrip("/") for listed in store.list_prefixes(prefix)]


def _keys_max(topic: KnownTopic) -> int:
    return max(KEYS_MIN, KEYS_PER_PARTITION * len(topic.manifests))


def _all_at_once(store: ObjectStore, cluster: str, topic: str, keys_max: int) -> TopicListing:
    """Lists up to `keys_max` keys; the listing is complete if there are fewer."""
    prefix = f"{cluster}/{topic}/"
    roots: dict[Place, NewestRoot] = {}
    keys = 0
    for info in islice(store.list(prefix), keys_max):
        keys += 1
        match = _ROOT.fullmatch(info.key, len(prefix))
        if match:
            place = Place(topic, match[1], int(match[2]))
            root = NewestRoot(int(match[3]), info.size_bytes, info.modified_ms)
            roots[place] = max(root, roots.get(place, root))
    return TopicListing(keys, roots)


def _one_by_one(
    store: ObjectStore, cluster: str, topics: Sequence[str], known_topics: KnownTopics
) -> dict[str, dict[Place, NewestRoot]]:
    ids = request_all(lambda topic: names_below(store, f"{cluster}/{topic}/"), topics)
    pairs = [(topic, topic_id) for topic, names in zip(topics, ids, strict=True) for topic_id in value_of(names)]
    numbers = request_all(lambda of: _numbers(store, cluster, *of), pairs)
    places = [Place(*of, number) for of, names in zip(pairs, numbers, strict=True) for number in value_of(names)]
    roots = request_all(lambda place: _newest_root(store, cluster, place, known_topics[place.topic]), places)
    by_topic: dict[str, dict[Place, NewestRoot]] = {topic: {} for topic in topics}
    for place, root in zip(places, map(value_of, roots), strict=True):
        if root is not None:
            by_topic[place.topic][place] = root
    return by_topic


def _newest_root(store: ObjectStore, cluster: str, place: Place, known_topic: KnownTopic) -> NewestRoot | None:
    manifest = known_topic.manifests.get(place.partition) if known_topic.topic_id == place.topic_id else None
    return find_newest(store, store_partition_prefix(cluster, *place), manifest.generation if manifest else None)


def _numbers(store: ObjectStore, cluster: str, topic: str, topic_id: str) -> list[int]:
    names = names_below(store, store_topic_prefix(cluster, topic, topic_id))
    return sorted(int(name) for name in names if is_partition_number(name))


def _of_newest_id(roots: dict[Place, NewestRoot]) -> dict[Place, NewestRoot]:
    """Returns the partitions of the topic id with the newest root: a recreated topic has several ids."""
    if not roots:
        return {}
    newest = max(roots, key=lambda place: roots[place].modified_ms).topic_id
    return {place: roots[place] for place in sorted(roots) if place.topic_id == newest}
