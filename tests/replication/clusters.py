"""Agents of several nodes in one event loop, over one coordination store, each with a listener that records its
calls.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from engine.errors import StartRefused
from engine.runtime.clock import SystemClock
from replication.cluster.agent import AgentSettings, ClusterAgent
from replication.cluster.membership import OwnNode
from replication.cluster.registration_state import RegistrationState
from replication.cluster.values import ClusterIdentity, Outcome, Proposal, TopicEntry
from replication.cluster.view import ClusterView, StateChange
from replication.coordination.interface import Session
from replication.cores.partition_state import Member, PartitionState, sorted_members
from tests.replication.coordinations import Coordination, embedded

WAIT_S = 60.0  # allows for a busy machine
_ids = (f"{n:032x}" for n in itertools.count(1))


class ViewListener:
    """Implements ClusterListener."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.members: list[Member] = []
        self.contacts: list[float] = []
        self.states: dict[tuple[str, int], PartitionState] = {}
        self.topics: dict[str, TopicEntry] = {}
        self.deleted: list[str] = []
        self.fenced: list[StartRefused] = []
        self.secrets: tuple[str, ...] = ()

    def on_registered(self, member: Member) -> None:
        self.events.append("registered")
        self.members.append(member)

    def on_session_lost(self) -> None:
        self.events.append("lost")
        self.states.clear()

    def on_fenced(self, error: StartRefused) -> None:
        self.fenced.append(error)

    def on_contact(self, at: float) -> None:
        self.contacts.append(at)

    def on_identity(self, identity: ClusterIdentity) -> None:
        self.secrets = identity.secrets

    def on_nodes(self, view: ClusterView) -> None:
        self.events.append(f"nodes {sorted(view.nodes)}")

    def on_topics(self, changed: list[TopicEntry], deleted: list[TopicEntry]) -> None:
        self.topics |= {topic.name: topic for topic in changed}
        self.deleted += [topic.name for topic in deleted]
        for topic in deleted:
            self.topics.pop(topic.name, None)

    def on_states(self, changed: list[StateChange]) -> None:
        known = {topic.topic_id for topic in self.topics.values()}
        for topic_id, number, found in changed:
            assert topic_id in known, "topics are reported before their states"
            self.states[topic_id, number] = found.state


class Cluster:
    def __init__(self, coordination: Coordination) -> None:
        self.agents: dict[int, ClusterAgent] = {}
        self.listeners: dict[int, ViewListener] = {}
        self.sessions: dict[int, list[Session]] = {}
        self.coordination = coordination

    def agent(self, node_id: int, *, rack: str = "", directory: str = "", settings: AgentSettings | None = None):
        sessions = self.sessions.setdefault(node_id, [])

        async def open_session() -> Session:
            sessions.append(await self.coordination.session())
            return sessions[-1]

        urls = tuple(f"http://node{node_id}:{7000 + shard}" for shard in range(2))
        own = OwnNode(
            node_id,
            f"http://node{node_id}:8080",
            rack=rack,
            internal_urls=urls,
            registration_state=RegistrationState(directory_id=directory or f"directory {node_id}"),
        )
        listener = self.listeners[node_id] = ViewListener()
        settings = settings or AgentSettings(session_timeout_ms=3000, leader_imbalance_check_ms=3_600_000)
        return ClusterAgent(open_session, own, listener, SystemClock(), _ids.__next__, Random(1), settings)

    async def start(self, node_id: int, **how) -> ClusterAgent:
        agent = self.agents[node_id] = self.agent(node_id, **how)
        await agent.join_cluster()
        await agent.start()
        return agent

    async def start_all(self, *node_ids: int, **how) -> list[ClusterAgent]:
        for node_id in node_ids:
            await self.start(node_id, **how)
        await self.until(lambda: all(len(agent.view.nodes) == len(self.agents) for agent in self.agents.values()))
        return [self.agents[node_id] for node_id in node_ids]

    async def stop(self) -> None:
        for agent in self.agents.values():
            await agent.stop()

    async def end(self, node_id: int) -> None:
        """End the node at once."""
        await self.agents.pop(node_id).stop()

    async def expire(self, node_id: int) -> None:
        """Expire the node's session; the node keeps running."""
        await self.coordination.expire(self.sessions[node_id][-1])

    def controller(self) -> ClusterAgent | None:
        return next((agent for agent in self.agents.values() if agent.is_controller), None)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.01)


def states_of(agent: ClusterAgent, topic: TopicEntry) -> list[PartitionState]:
    return [found.state for _, found in agent.view.partitions_of(topic)]


def leaders(agent: ClusterAgent, topic: TopicEntry) -> list[int | None]:
    return [None if state.leader is None else state.leader.node_id for state in states_of(agent, topic)]


async def propose(agent: ClusterAgent, topic: TopicEntry, number: int, state: PartitionState) -> Outcome:
    epoch = agent.view.states[topic.topic_id, number].partition_epoch
    (outcome,) = await agent.propose([Proposal(topic.topic_id, number, epoch, state)])
    return outcome


async def catch_up(agent: ClusterAgent, topic: TopicEntry) -> None:
    """Add new replicas to the in-sync set once they have caught up, as leaders do."""
    for number in range(topic.partitions):
        while (wanted := open_state(agent, topic, number)) is not None:
            await propose(agent, topic, number, wanted)
            await asyncio.sleep(0)


def open_state(agent: ClusterAgent, topic: TopicEntry, number: int) -> PartitionState | None:
    """Return the state if all live replicas are in sync, else None."""
    state = agent.view.states[topic.topic_id, number].state
    members = {m.node_id: m for m in state.in_sync}
    alive = {n: Member(n, agent.view.nodes[n].broker_epoch) for n in state.replicas if n in agent.view.nodes}
    wanted = sorted_members({**alive, **members}.values())
    return None if wanted == state.in_sync else replace(state, in_sync=wanted, eligible=())


@asynccontextmanager
async def embedded_cluster(path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Run a cluster over a journal."""
    async with embedded(path, request) as coordination:
        made = Cluster(coordination)
        yield made
        await made.stop()
