"""Administrative operations on a running cluster: reassign, drain, decommission, balance, change replication factors.

Writes the target to the store; replicas, leaders and the controller carry it out. All checks come before the first
write, and each write is a compare-and-set on the state that it was decided for. Repeating an interrupted operation
completes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from engine.errors import InvalidConfig, UnknownPartition, UnknownTopic
from replication.cluster.keys import PartitionKey, drained_key, partition_key, partition_name
from replication.cluster.partition_state_store import StateBlocks
from replication.cluster.topics import ClusterTopics
from replication.cluster.values import Confirmed, OutcomeUnknown, Proposal, Rejected, TopicEntry
from replication.cluster.view import ClusterView, too_few_nodes
from replication.coordination.interface import CommitUnknown, Conflict, Create, Delete, Session, SessionLost
from replication.cores.assignment import Bytes, Move, TooFewNodes, balanced, evacuated, resized
from replication.cores.election import with_preferred_leader
from replication.cores.partition_state import PartitionState, VersionedState
from replication.cores.reassignment import UnknownNodes, cancelled, with_reassignment
from replication.errors import NoOtherNode

Changed = Callable[[PartitionState], PartitionState]


class Operations:
    """The operations of one session."""

    def __init__(
        self,
        session: Session,
        view: ClusterView,
        topics: ClusterTopics,
        blocks: StateBlocks,
        wait_in_view: Callable[[Callable[[], bool]], Awaitable[None]],
    ) -> None:
        self._wait_in_view = wait_in_view  # the next operation is decided from the view
        self._session = session
        self._view = view
        self._topics = topics
        self._blocks = blocks

    def __repr__(self) -> str:
        return f"Operations({self._view})"

    async def reassign(self, topic_name: str, targets: Mapping[int, Iterable[int]]) -> None:
        """Reassign partitions to these nodes, preferred leader first.

        Raises UnknownTopic, UnknownPartition, InvalidConfig.
        """
        topic = self._topic(topic_name)
        replicas = {self._key(topic, number): tuple(nodes) for number, nodes in targets.items()}
        for nodes in replicas.values():
            if len(nodes) != topic.replication_factor:
                raise InvalidConfig(
                    f"{list(nodes)} are {len(nodes)} replicas, and topic {topic_name!r} has replication_factor "
                    f"{topic.replication_factor}",
                    hint="change replication_factor for more or fewer",
                    setting="replicas",
                )
        await self._move(replicas)

    async def cancel_reassignment(self, topic_name: str, number: int) -> None:
        """Revert a reassignment to the replicas from before; no-op without one.

        Raises UnknownTopic, UnknownPartition, InvalidConfig.
        """
        key = self._key(self._topic(topic_name), number)
        state = self._view.states[key].state
        if (state.adding or state.removing) and cancelled(state) == state:
            raise InvalidConfig(
                f"only new replicas of {topic_name}/{number} are in sync: a cancellation would lose records",
                hint="wait for the reassignment to end, or give other replicas",
                setting="replicas",
            )
        await self._change({key: cancelled})

    async def elect_preferred(self, topic_name: str, numbers: Iterable[int]) -> list[int]:
        """Makes the first replica of partitions their leader, where it is in sync and stays.

        Returns the partitions that it leads then. Raises UnknownTopic, UnknownPartition.
        """
        topic = self._topic(topic_name)
        registrations = {node_id: node.registration for node_id, node in self._view.nodes.items()}
        elected: set[int] = set()

        def elect(key: PartitionKey) -> Changed:
            def change(state: PartitionState) -> PartitionState:
                found = with_preferred_leader(partition_name(*key), state, topic.rules, registrations)
                if found.leader is not None and found.leader.node_id == found.replicas[0]:
                    elected.add(key[1])
                return found

            return change

        await self._change({key: elect(key) for key in (self._key(topic, number) for number in numbers)})
        return sorted(elected)

    async def change_replication_factor(self, topic_name: str, replication_factor: int) -> TopicEntry:
        """Add or remove replicas of every partition. Returns the topic. Raises UnknownTopic, InvalidConfig,
        NodesAbsent.
        """
        topic = self._topic(topic_name)
        racks = self._racks()
        if replication_factor > len(racks):
            raise too_few_nodes(self._view, replication_factor, len(racks))
        states = {
            partition_name(topic.topic_id, n): versioned.state for n, versioned in self._view.partitions_of(topic)
        }
        targets = _within(lambda: resized(states, replication_factor, racks, lambda _: 0), "replication_factor")
        changed = await self._topics.set_replication_factor(topic_name, replication_factor)
        await self._wait_in_view(lambda: self._view.topics.get(topic_name) == changed)
        await self._move({partition_key(name): target for name, target in targets.items()})
        return changed

    async def drain_node(self, node_id: int, is_drained: bool = True) -> None:
        """Drain a node, or undo that. A drained node keeps its replicas, leads only what no other node can, and
        receives no new replicas. Raises InvalidConfig, NoOtherNode.
        """
        self._check_node(node_id)
        if is_drained and node_id not in self._view.drained:
            self._check_other_nodes(node_id)
        key = drained_key(node_id)
        while True:
            mark = await self._session.get(key)
            if (mark is not None) == is_drained:
                return await self._wait_in_view(lambda: (node_id in self._view.drained) == is_drained)
            try:
                await self._session.commit(Create(key, b"{}") if mark is None else Delete(key, mark.version))
            except (Conflict, CommitUnknown):
                continue

    async def decommission_node(self, node_id: int, bytes_of: Bytes) -> int:
        """Drain a node and reassign all its replicas. Returns how many partitions are reassigned.

        The node may be off already; otherwise stop it once it has no replicas. Raises InvalidConfig if too few nodes
        remain, NoOtherNode.
        """
        self._check_node(node_id)
        self._check_other_nodes(node_id)
        racks = {node: rack for node, rack in self._racks().items() if node != node_id}
        states = self._named_states()
        targets = _within(lambda: evacuated(states, node_id, racks, bytes_of), "replicas")
        await self.drain_node(node_id)
        await self._move({partition_key(name): target for name, target in targets.items()})
        return len(targets)

    async def plan_balance(self, bytes_of: Bytes) -> list[Move]:
        """Returns few moves that even out the bytes per node. Runs in a thread: many partitions take a while."""
        return await asyncio.to_thread(balanced, self._named_states(), self._racks(), bytes_of)

    async def apply(self, moves: Iterable[Move]) -> None:
        await self._move({partition_key(move.partition): move.target for move in moves})

    def _topic(self, name: str) -> TopicEntry:
        topic = self._view.topics.get(name)
        if topic is None:
            raise UnknownTopic(f"no topic is called {name!r}", topic=name)
        return topic

    def _key(self, topic: TopicEntry, number: int) -> PartitionKey:
        key = (topic.topic_id, number)
        if key not in self._view.states:
            raise UnknownPartition(f"topic {topic.name!r} has no partition {number}", partitions=topic.partitions)
        return key

    def _racks(self) -> dict[int, str]:
        """The racks of the nodes that may receive replicas."""
        return {n: node.rack for n, node in self._view.nodes.items() if n not in self._view.drained}

    def _named_states(self) -> dict[str, PartitionState]:
        return {partition_name(*key): versioned.state for key, versioned in self._view.states.items()}

    def _check_node(self, node_id: int) -> None:
        is_used = any(node_id in versioned.state.replicas for versioned in self._view.states.values())
        if node_id not in self._view.nodes and node_id not in self._view.drained and not is_used:
            node_ids = sorted(self._view.nodes)
            raise InvalidConfig(f"no node has the id {node_id}", hint=f"there are {node_ids}", setting="node_id")

    def _check_other_nodes(self, node_id: int) -> None:
        if not self._racks().keys() - {node_id}:
            text = f"node {node_id} is the only node that could lead"
            raise NoOtherNode(text, hint=self._view.hint_of_more("start another node, or end the drain of one"))

    async def _move(self, targets: Mapping[PartitionKey, tuple[int, ...]]) -> None:
        """Idempotent: a target that is already in progress changes nothing."""
        node_ids = self._view.nodes.keys()

        def to(target: tuple[int, ...]) -> Changed:
            return lambda state: with_reassignment(state, target, {*node_ids, *state.replicas})

        for (topic_id, number), target in targets.items():
            try:
                to(target)(self._view.states[topic_id, number].state)
            except UnknownNodes as error:
                hint = f"the known nodes are {sorted(node_ids)}"
                raise InvalidConfig(f"partition {number}: {error}", hint=hint, setting="replicas") from None
        await self._change({key: to(target) for key, target in targets.items()})

    async def _change(self, changes: Mapping[PartitionKey, Changed]) -> None:
        """Retries each change until the store has it, whatever else is written meanwhile."""
        left = {key: (change, self._view.states[key]) for key, change in changes.items()}
        while left:
            proposals = [
                Proposal(*key, versioned.partition_epoch, changed)
                for key, (change, versioned) in left.items()
                if (changed := change(versioned.state)) != versioned.state
            ]
            outcomes = await self._blocks.write(proposals)
            again: dict[PartitionKey, tuple[Changed, VersionedState]] = {}
            for proposal, outcome in zip(proposals, outcomes, strict=True):
                key = (proposal.topic_id, proposal.number)
                match outcome:
                    case Confirmed() | Rejected(None):
                        pass  # done, or deleted
                    case Rejected(newer) if newer is not None:
                        again[key] = (changes[key], newer)
                    case OutcomeUnknown():
                        raise SessionLost(
                            "the session ended during the operation; repeat the command",
                            hint="moves that started continue",
                        )
            left = again


def _within(decide: Callable[[], dict[str, tuple[int, ...]]], setting: str) -> dict[str, tuple[int, ...]]:
    try:
        return decide()
    except TooFewNodes as error:
        raise InvalidConfig(str(error), hint="start more nodes, or lower replication_factor", setting=setting) from None
