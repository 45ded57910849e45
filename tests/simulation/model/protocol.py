"""The replication protocol as a small model: every state is a value, and every step is a function to a next state.

The functions of replication.cores make the decisions, as in real nodes. This file models only their environment: three
replicas, a store, a network that may keep one old fetch or lose an answer, processes that crash, sessions that expire
while the leader goes on, and power losses. It is Kip320.tla and AsyncIsr.tla with the strict minimum, eligible replicas
and unclean restarts added.

There is no time: any step may happen at any moment, so a lag or a timeout is just a step. A step that appends or copies
moves one record. `Rules` are the functions that tests replace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from engine.log.epochs import EpochStart, assigned, truncated_from_end
from replication.cores import election, follower, in_sync_set, leader, progress
from replication.cores.fetch import FollowerFetch, Send
from replication.cores.follower import FollowerPosition
from replication.cores.in_sync_set import with_in_sync
from replication.cores.partition_state import (
    Member,
    PartitionState,
    Registration,
    TopicRules,
    VersionedState,
    initial_state,
)
from replication.cores.role import Follow, Lead, role_of

PARTITION = "p"
NODES = (1, 2, 3)

Record = tuple[int, int]  # leader epoch, and a unique number


class Replica(NamedTuple):
    """One node, as a process and a disk. `ends`: what a leader knows of each node's (log_end, durable_end)."""

    is_running: bool
    broker_epoch: int  # of its registration; 0 without one
    known_broker_epoch: int  # the epoch that the process knows
    survives_from: int
    log: tuple[Record, ...]
    synced: int
    epochs: tuple[EpochStart, ...]
    hw: int
    view: VersionedState | None
    ends: tuple[tuple[int, int] | None, ...]
    proposal: PartitionState | None


class Flight(NamedTuple):
    """A compare-and-set that the store has not received yet."""

    by: int
    base: int
    state: PartitionState


class State(NamedTuple):
    store: VersionedState
    replicas: tuple[Replica, ...]
    flights: tuple[Flight, ...]
    stale: FollowerFetch | None
    committed: tuple[Record, ...]
    records: int
    broker_epochs: int
    crashes: int
    expiries: int
    power_losses: int


@dataclass(frozen=True)
class Bounds:
    """The bounds of an exploration."""

    records: int = 2
    epochs: int = 3
    versions: int = 5
    crashes: int = 1
    expiries: int = 1
    power_losses: int = 0


PAGE_CACHE = TopicRules(is_fsync_demanded=False)
FSYNC = TopicRules(is_fsync_demanded=True)


@dataclass(frozen=True)
class Rules:
    """The decisions under test, each as in the cores unless a test replaces it."""

    topic: TopicRules = PAGE_CACHE
    epoch_verdict: Callable[..., object] = leader.epoch_verdict
    position_verdict: Callable[..., object] = leader.position_verdict
    may_join: Callable[..., bool] = leader.may_join
    high_watermark: Callable[..., int] = progress.high_watermark
    maximal: Callable[..., set[int]] = in_sync_set.maximal
    reconciled: Callable[..., PartitionState] = election.reconciled
    checks_broker_epoch: bool = True
    checks_version: bool = True


def initial(rules: Rules) -> State:
    registrations = {node: Registration(node, 0) for node in NODES}
    store = VersionedState(initial_state(NODES, registrations), 0)
    replicas = tuple(Replica(True, n, n, 0, (), 0, (), 0, None, (None,) * 3, None) for n in NODES)
    return State(store, replicas, (), None, (), 0, len(NODES), 0, 0, 0)


def steps(state: State, rules: Rules, bounds: Bounds) -> Iterator[tuple[str, State]]:
    """Yield every next state with the name of its step."""
    yield from _controller(state, rules, bounds)
    for flight in state.flights:
        yield from _store_takes(state, flight, rules, bounds)
    for node in NODES:
        replica = state.replicas[node - 1]
        yield from _faults(state, node, replica, bounds)
        if replica.is_running and replica.known_broker_epoch:
            yield from _learn(state, node, replica, rules)
            if is_leading(node, replica):
                yield from _lead(state, node, replica, rules, bounds)
            elif _followed(node, replica) is not None:
                yield from _follow(state, node, replica, rules)
    if state.stale is not None:
        for node in NODES:
            if is_leading(node, state.replicas[node - 1]) and node != state.stale.node_id:
                yield (
                    f"stale fetch of {state.stale.node_id} reaches {node}",
                    _served(state._replace(stale=None), node, state.stale, rules),
                )


def own_member(node: int, replica: Replica) -> Member:
    return Member(node, replica.known_broker_epoch)


def is_leading(node: int, replica: Replica) -> bool:
    return (
        replica.is_running
        and replica.view is not None
        and isinstance(role_of(own_member(node, replica), replica.view.state), Lead)
    )


def registrations(state: State) -> dict[int, Registration]:
    return {
        node: Registration(replica.broker_epoch, replica.survives_from)
        for node, replica in zip(NODES, state.replicas, strict=True)
        if replica.broker_epoch
    }


def _followed(node: int, replica: Replica) -> Follow | None:
    role = role_of(own_member(node, replica), replica.view.state) if replica.view is not None else None
    return role if isinstance(role, Follow) else None


def _with(state: State, node: int, **changes: object) -> State:
    replicas = list(state.replicas)
    replicas[node - 1] = replicas[node - 1]._replace(**changes)
    return state._replace(replicas=tuple(replicas))


# The store and the controller.


def _controller(state: State, rules: Rules, bounds: Bounds) -> Iterator[tuple[str, State]]:
    nodes = registrations(state)
    for what, decide in (("controller", rules.reconciled), ("preferred leader", election.with_preferred_leader)):
        decided = decide(PARTITION, state.store.state, rules.topic, nodes)
        if decided != state.store.state:
            yield from _written(state, decided, what, bounds)


def _written(state: State, written: PartitionState, what: str, bounds: Bounds) -> Iterator[tuple[str, State]]:
    version = state.store.partition_epoch + 1
    if written.leader_epoch <= bounds.epochs and version <= bounds.versions:
        yield what, state._replace(store=VersionedState(written, version))


def _store_takes(state: State, flight: Flight, rules: Rules, bounds: Bounds) -> Iterator[tuple[str, State]]:
    after = state._replace(flights=tuple(f for f in state.flights if f is not flight))
    if flight.base == state.store.partition_epoch or not rules.checks_version:
        yield from _written(after, flight.state, f"store takes the proposal of {flight.by}", bounds)
    else:
        yield f"store refuses the proposal of {flight.by}", after


def _learn(state: State, node: int, replica: Replica, rules: Rules) -> Iterator[tuple[str, State]]:
    """Apply the newest state. A new leader starts an epoch and forgets the positions of the other replicas."""
    if replica.view is not None and replica.view.partition_epoch >= state.store.partition_epoch:
        return
    versioned = state.store
    is_same = replica.view is not None and replica.view.state.leader_epoch == versioned.state.leader_epoch
    changes: dict[str, object] = {"view": versioned, "proposal": None}
    if not is_same:
        changes["ends"] = (None,) * 3
        if isinstance(role_of(own_member(node, replica), versioned.state), Lead):
            changes["epochs"] = tuple(assigned(replica.epochs, versioned.state.leader_epoch, len(replica.log)))
    yield f"{node} learns", _advanced(_with(state, node, **changes), node, rules)


# A leader.


def _lead(state: State, node: int, replica: Replica, rules: Rules, bounds: Bounds) -> Iterator[tuple[str, State]]:
    assert replica.view is not None
    seen = replica.view.state
    if state.records < bounds.records:
        log = (*replica.log, (seen.leader_epoch, state.records))
        yield f"{node} writes", _advanced(_with(state._replace(records=state.records + 1), node, log=log), node, rules)
    if replica.proposal is not None or replica.view.partition_epoch >= bounds.versions:
        return
    nodes = registrations(state)
    for other in NODES:
        if other == node:
            continue
        if seen.is_in_sync(other):
            in_sync = tuple(member for member in seen.in_sync if member.node_id != other)
            yield f"{node} leaves {other} out", _proposed(state, node, with_in_sync(seen, in_sync, rules.topic), rules)
            continue
        ends = replica.ends[other - 1]
        if ends is None or other not in nodes:
            continue
        if rules.may_join(_end(ends, rules), replica.hw, replica.epochs[-1].start_offset):
            in_sync = (*seen.in_sync, Member(other, nodes[other].broker_epoch))
            grown = with_in_sync(seen, in_sync, rules.topic)
            yield f"{node} takes {other} in", _proposed(state, node, grown, rules)


def _proposed(state: State, node: int, proposal: PartitionState, rules: Rules) -> State:
    replica = state.replicas[node - 1]
    assert replica.view is not None
    flight = Flight(node, replica.view.partition_epoch, proposal)
    after = _with(state._replace(flights=(*state.flights, flight)), node, proposal=proposal)
    return _advanced(after, node, rules)


def _end(ends: tuple[int, int], rules: Rules) -> int:
    return ends[1] if rules.topic.is_fsync_demanded else ends[0]


def _advanced(state: State, node: int, rules: Rules) -> State:
    """Move the high watermark after a change; records below it are committed permanently."""
    replica = state.replicas[node - 1]
    if not is_leading(node, replica) or replica.view is None:
        return state
    seen = replica.view.state
    waited_for = rules.maximal(seen.in_sync, replica.proposal.in_sync if replica.proposal else ())
    others = [replica.ends[n - 1] for n in sorted(waited_for) if n != node]
    ends = [-1 if other is None else _end(other, rules) for other in others]
    own_end = _end((len(replica.log), replica.synced), rules)
    minimum = rules.topic.min_in_sync(seen.counted_replicas)
    hw = rules.high_watermark(replica.hw, own_end, ends, len(seen.in_sync), minimum)
    if hw == replica.hw:
        return state
    after = _with(state, node, hw=hw)
    return after._replace(committed=replica.log[:hw]) if hw > len(state.committed) else after


# A follower. A fetch and its answer are one step; one fetch may be delayed and arrive at any later time.


def _follow(state: State, node: int, replica: Replica, rules: Rules) -> Iterator[tuple[str, State]]:
    role = _followed(node, replica)
    assert role is not None
    fetch = follower.next_fetch(node, replica.known_broker_epoch, _position(node, replica))
    if state.stale is None:
        yield f"{node} sends a fetch that is late", state._replace(stale=fetch)
    if is_leading(role.leader, state.replicas[role.leader - 1]):
        yield f"{node} fetches", _served(state, role.leader, fetch, rules)
        yield f"{node} fetches, the answer is lost", _served(state, role.leader, fetch, rules, is_lost=True)


def _position(node: int, replica: Replica) -> FollowerPosition:
    role = _followed(node, replica)
    epoch = role.leader_epoch if role is not None else -1
    return FollowerPosition(epoch, 0, 0, len(replica.log), replica.synced, replica.hw, replica.epochs)


def _served(state: State, by: int, fetch: FollowerFetch, rules: Rules, *, is_lost: bool = False) -> State:
    replica = state.replicas[by - 1]
    assert replica.view is not None
    if rules.epoch_verdict(replica.view.state.leader_epoch, fetch) is not None:
        return state
    registration = registrations(state).get(fetch.node_id)
    if rules.checks_broker_epoch and registration is not None and fetch.broker_epoch < registration.broker_epoch:
        return state
    answer = rules.position_verdict(replica.epochs, leader.LogBounds(0, 0, len(replica.log)), fetch)
    if answer is None:
        ends = list(replica.ends)
        ends[fetch.node_id - 1] = (fetch.log_end, fetch.durable_end)
        state = _advanced(_with(state, by, ends=tuple(ends)), by, rules)
        answer = Send(fetch.log_end, state.replicas[by - 1].hw, 0)
    return state if is_lost else _answered(state, by, fetch, answer)


def _answered(state: State, by: int, fetch: FollowerFetch, answer: object) -> State:
    node = fetch.node_id
    replica, source = state.replicas[node - 1], state.replicas[by - 1]
    if not replica.is_running or not replica.known_broker_epoch or _followed(node, replica) is None:
        return state
    match follower.on_answer(_position(node, replica), fetch, answer):  # type: ignore[arg-type]
        case follower.Truncate(to, _) | follower.ResetLog(to, _):
            return _with(
                state,
                node,
                log=replica.log[:to],
                synced=min(replica.synced, to),
                epochs=tuple(truncated_from_end(replica.epochs, to)),
                hw=min(replica.hw, to),
            )
        case follower.Append(hw, _):
            log, epochs = replica.log, replica.epochs
            if len(source.log) > len(log):
                record = source.log[len(log)]
                epochs = tuple(assigned(epochs, record[0], len(log)))
                log = (*log, record)
            return _with(state, node, log=log, epochs=epochs, hw=follower.follower_watermark(replica.hw, hw, len(log)))
        case _:
            return state


# Failures.


def _faults(state: State, node: int, replica: Replica, bounds: Bounds) -> Iterator[tuple[str, State]]:
    if replica.is_running and replica.synced < len(replica.log):
        yield f"{node} syncs", _with(state, node, synced=len(replica.log))
    if replica.is_running and state.crashes < bounds.crashes:
        yield f"{node} crashes", _down(state, node, replica)._replace(crashes=state.crashes + 1)
    if replica.is_running and state.power_losses < bounds.power_losses:
        log = replica.log[: replica.synced]
        after = _with(
            _down(state, node, replica),
            node,
            log=log,
            epochs=tuple(truncated_from_end(replica.epochs, len(log))),
            survives_from=-1,
        )
        yield f"{node} loses power", after._replace(power_losses=state.power_losses + 1)
    if replica.is_running and replica.broker_epoch and state.expiries < bounds.expiries:
        yield f"session of {node} expires", _with(state, node, broker_epoch=0)._replace(expiries=state.expiries + 1)
    if not replica.broker_epoch:  # restart after a crash, or a process that finds its session expired
        broker_epoch = state.broker_epochs + 1
        survives = broker_epoch if replica.survives_from == -1 else replica.survives_from
        yield (
            f"{node} registers",
            _with(
                state._replace(broker_epochs=broker_epoch),
                node,
                is_running=True,
                broker_epoch=broker_epoch,
                known_broker_epoch=broker_epoch,
                survives_from=survives,
                view=None,
                proposal=None,
                ends=(None,) * 3,
                hw=replica.hw if replica.is_running else 0,
            ),
        )


def _down(state: State, node: int, replica: Replica) -> State:
    """Stop the process and remove its registration at once. A later removal adds nothing: the controller may not have
    seen it.
    """
    flights = tuple(flight for flight in state.flights if flight.by != node)
    return _with(
        state._replace(flights=flights),
        node,
        is_running=False,
        broker_epoch=0,
        known_broker_epoch=0,
        view=None,
        proposal=None,
        ends=(None,) * 3,
        hw=0,
    )
