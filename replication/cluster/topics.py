"""Topics of a cluster: created, changed, extended and deleted in the coordination store, by any node.

A topic exists once its key does, which is written last; partition states of an interrupted creation are ignored until
the controller deletes them. A deletion leaves a tombstone in the same commit, without which no node deletes the files.
All checks come before the first write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from engine.directory.ceilings import Ceiling, Count
from engine.directory.topics import REPLICATION_FACTOR_MAX, check_partitions, check_topic_name, grown_partitions
from engine.errors import InvalidConfig, TopicExists, UnknownTopic
from engine.runtime.clock import Clock
from engine.schemas.changes import check_schema, merged_settings, without_defaults
from engine.topic_settings import check_deletable, topic_settings
from replication.cluster.feature_level import check_level_of_topic
from replication.cluster.keys import STATES, block_key, block_of, deleted_key, topic_id_of, topic_key
from replication.cluster.partition_state_store import COMMIT_BYTES_MAX
from replication.cluster.topic_counts import TopicCounts
from replication.cluster.values import (
    TopicEntry,
    block_from_bytes,
    block_to_bytes,
    tombstone_to_bytes,
    topic_from_bytes,
    topic_to_bytes,
)
from replication.cluster.view import ClusterView, too_few_nodes
from replication.coordination.interface import (
    CommitUnknown,
    Conflict,
    Create,
    Delete,
    Operation,
    Put,
    Session,
    Versioned,
)
from replication.cores.assignment import assigned_replicas
from replication.cores.partition_state import PartitionState, VersionedState, initial_state

Wish = Mapping[str, object]


class ClusterTopics:
    """The topics of one session."""

    def __init__(self, session: Session, view: ClusterView, clock: Clock, new_id: Callable[[], str]) -> None:
        self._session = session
        self._view = view
        self._clock = clock
        self._new_id = new_id
        self._counts = TopicCounts(session)

    def __repr__(self) -> str:
        return f"ClusterTopics({self._view})"

    async def find(self, name: str) -> TopicEntry | None:
        """Reads a topic from the store; the view may be behind it."""
        stored = await self._session.get_latest(topic_key(name))
        return None if stored is None else topic_from_bytes(topic_key(name), stored.value)

    async def create(
        self, name: str, partitions: int, replication_factor: int, config: Wish, ceiling: Ceiling | None = None
    ) -> tuple[TopicEntry, bool]:
        """Create a topic. Returns it and whether it is new. Raises TopicExists, Invalid, NodesAbsent, CommitUnknown,
        QuotaExhausted.
        """
        check_topic_name(name)
        check_partitions(partitions)
        _check_settings(name, config, replication_factor)
        check_schema(config.get("value_schema"))
        config = _without_default_trace(without_defaults(config))
        while (existing := await self.find(name)) is None:
            await self._check_level(name, config)
            found = await self._create(name, partitions, replication_factor, config, ceiling)
            if found is not None:
                return found
        _check_same(existing, partitions, replication_factor, config)
        return existing, False

    async def _check_level(self, name: str, config: Wish) -> None:
        """Raises InvalidTopicName, InvalidConfig."""
        if not self._view.is_single_node:
            await check_level_of_topic(self._session, name, config)

    async def _create(
        self, name: str, partitions: int, replication_factor: int, config: Wish, ceiling: Ceiling | None
    ) -> tuple[TopicEntry, bool] | None:
        """Tries to create a topic. Returns what is there, and whether it is new; None: the counter has changed."""
        counter = await self._counts.change(name, Count(1, partitions), ceiling)
        topic = TopicEntry(name, self._new_id(), partitions, replication_factor, dict(config), self._clock.now_ms())
        blocks = self._first_states(topic, 0)
        operations: list[Operation] = [
            Create(block_key(block), block_to_bytes(states)) for block, states in blocks.items()
        ]
        is_refused = False
        try:
            await self._commit_last(operations, Create(topic_key(name), topic_to_bytes(topic)), *counter)
        except Conflict:
            is_refused = True
        except CommitUnknown:
            pass  # the read below shows the outcome
        topic_stored = await self.find(name)
        if topic_stored is None and is_refused and counter:
            return None
        if topic_stored is None:
            raise CommitUnknown(f"topic {name!r} may have been created", hint="describe the topic, then retry")
        if topic_stored.topic_id != topic.topic_id:
            _check_same(topic_stored, partitions, replication_factor, config)
        return topic_stored, topic_stored.topic_id == topic.topic_id

    async def alter(
        self, name: str, overrides: Wish, partitions: int | None, ceiling: Ceiling | None = None
    ) -> TopicEntry:
        """Changes the given settings, and grows to `partitions`. Raises UnknownTopic, InvalidConfig, NodesAbsent,
        QuotaExhausted.
        """
        while True:
            seen = await self._read_topic(name)
            topic = topic_from_bytes(topic_key(name), seen.value)
            _check_settings(name, {**topic.config, **overrides}, topic.replication_factor)
            merged = _without_default_trace(merged_settings(topic.config, overrides))
            partition_count = grown_partitions(name, topic.partitions, partitions)
            changed = replace(topic, config=merged, partitions=partition_count)
            if changed == topic:
                return topic
            if merged.keys() != topic.config.keys():
                await self._check_level(name, merged)
            added, counter = [], []
            if partition_count > topic.partitions:
                counter = await self._counts.change(name, Count(0, partition_count - topic.partitions), ceiling)
                added = await self._operations_to_add(topic, changed)
            try:
                await self._commit_last(added, Put(topic_key(name), topic_to_bytes(changed), seen.version), *counter)
                return changed
            except (Conflict, CommitUnknown):
                continue

    async def set_replication_factor(self, name: str, replication_factor: int) -> TopicEntry:
        """Changes the factor in the topic; operations.py moves the replicas. Raises UnknownTopic, Invalid."""
        while True:
            seen = await self._read_topic(name)
            topic = topic_from_bytes(topic_key(name), seen.value)
            changed = replace(topic, replication_factor=replication_factor)
            _check_settings(name, changed.config, replication_factor)
            if changed == topic:
                return topic
            try:
                await self._session.commit(Put(topic_key(name), topic_to_bytes(changed), seen.version))
                return changed
            except (Conflict, CommitUnknown):
                continue

    async def delete(self, name: str) -> TopicEntry:
        """Deletes a topic. Returns it as it was. Raises UnknownTopic, TopicProtected."""
        while True:
            seen = await self._read_topic(name)
            topic = topic_from_bytes(topic_key(name), seen.value)
            check_deletable(name, topic.config)
            tombstone = tombstone_to_bytes(name, self._clock.now_ms())
            counter = await self._counts.change(name, Count(-1, -topic.partitions), None)
            try:
                await self._session.commit(
                    Delete(topic_key(name), seen.version), Create(deleted_key(topic.topic_id), tombstone), *counter
                )
            except CommitUnknown:
                if not await self.is_deleted(topic.topic_id):
                    continue
            except Conflict:
                continue
            await self._remove_states(topic)
            return topic

    async def is_deleted(self, topic_id: str) -> bool:
        """True if a topic has a tombstone. Without one, the files of an unknown topic are kept."""
        return await self._session.get(deleted_key(topic_id)) is not None

    async def _read_topic(self, name: str) -> Versioned:
        seen = await self._session.get(topic_key(name))
        if seen is None:
            raise UnknownTopic(f"no topic is called {name!r}", topic=name)
        return seen

    def _first_states(self, topic: TopicEntry, first: int) -> dict[str, dict[int, VersionedState]]:
        """The states of the partitions from `first` on, by block. Raises InvalidConfig, NodesAbsent."""
        view = self._view
        nodes = {n: node.rack for n, node in view.nodes.items() if n not in view.drained}
        if topic.replication_factor > len(nodes):
            raise too_few_nodes(view, topic.replication_factor, len(nodes))
        existing = (versioned.state for versioned in view.states.values())
        replicas = assigned_replicas(nodes, topic.partitions - first, topic.replication_factor, existing)
        blocks: dict[str, dict[int, VersionedState]] = {}
        for number, chosen in enumerate(replicas, first):
            state: PartitionState = initial_state(chosen, view.registrations)
            blocks.setdefault(block_of(topic.topic_id, number), {})[number] = VersionedState(state, 0)
        return blocks

    async def _operations_to_add(self, topic: TopicEntry, grown: TopicEntry) -> list[Operation]:
        """The commits for the states of new partitions. States of an interrupted attempt are replaced."""
        operations: list[Operation] = []
        for block, states in self._first_states(grown, topic.partitions).items():
            seen = await self._session.get(block_key(block))
            if seen is None:
                operations.append(Create(block_key(block), block_to_bytes(states)))
                continue
            there = block_from_bytes(block_key(block), seen.value)
            settled = {number: versioned for number, versioned in there.items() if number < topic.partitions}
            newer = {n: replace(s, partition_epoch=_after(there.get(n))) for n, s in states.items()}
            operations.append(Put(block_key(block), block_to_bytes({**settled, **newer}), seen.version))
        return operations

    async def _commit_last(self, blocks: list[Operation], *topic: Operation) -> None:
        """Commits the blocks, in as many commits as needed, and the topic and its counter with the last one."""
        batch: list[Operation] = []
        for operation in blocks:
            if batch and _bytes_of(batch) + _bytes_of([operation]) > COMMIT_BYTES_MAX:
                await self._session.commit(*batch)
                batch = []
            batch.append(operation)
        await self._session.commit(*batch, *topic)

    async def _remove_states(self, topic: TopicEntry) -> None:
        """A crash here leaves states that the controller deletes."""
        for block in await self._session.children(STATES):
            if topic_id_of(block) == topic.topic_id:
                await self._remove(block_key(block))

    async def _remove(self, key: str) -> None:
        while (seen := await self._session.get(key)) is not None:
            try:
                await self._session.commit(Delete(key, seen.version))
            except (Conflict, CommitUnknown):
                continue


def _without_default_trace(config: Wish) -> dict[str, object]:
    """Returns the settings of a topic without the default of `trace_headers`, which earlier versions do not know."""
    return {name: value for name, value in config.items() if (name, value) != ("trace_headers", "sampled")}


def _after(versioned: VersionedState | None) -> int:
    return 0 if versioned is None else versioned.partition_epoch + 1


def _bytes_of(operations: list[Operation]) -> int:
    return sum(len(operation.value) + 1000 for operation in operations if isinstance(operation, Create | Put))


def _check_settings(name: str, config: Wish, replication_factor: int) -> None:
    """Raises InvalidConfig."""
    settings = topic_settings(config)
    if not 1 <= replication_factor <= REPLICATION_FACTOR_MAX:
        raise InvalidConfig(
            f"replication_factor is {replication_factor}",
            hint=f"give 1 to {REPLICATION_FACTOR_MAX}",
            setting="replication_factor",
        )
    if "min_insync_replicas" in config and settings.min_insync_replicas > replication_factor:
        raise InvalidConfig(
            f"min_insync_replicas is {settings.min_insync_replicas}, above the replication_factor {replication_factor}"
            f" of topic {name!r}: acks=all could never succeed",
            hint="give at most replication_factor",
            setting="min_insync_replicas",
        )


def _check_same(topic: TopicEntry, partitions: int, replication_factor: int, config: Wish) -> None:
    is_same = (topic.partitions, topic.replication_factor) == (partitions, replication_factor)
    if not is_same or topic_settings(topic.config) != topic_settings(config):
        raise TopicExists(f"topic {topic.name!r} exists with other partitions, replicas or settings")
