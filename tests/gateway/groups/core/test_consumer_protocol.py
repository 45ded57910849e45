"""Members of KIP-848 in the core: whatever they send, a partition has one reader, and the records give the state."""

from __future__ import annotations

import random

import pytest

from gateway.groups.core import consumer_protocol
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.model.classic import Refusal
from gateway.groups.model.consumer_protocol import AWAY, JOIN, LEAVE, ConsumerAnswer, ConsumerCall
from gateway.groups.model.errors import GroupError
from gateway.groups.model.settings import CoordinatorLimits
from gateway.groups.model.state import Group
from gateway.groups.model.values import Now, Row, TopicSize
from tests.gateway.groups.core.coordinators import Topics

PARTITIONS = 7
TOPICS = Topics({"t": TopicSize("id-t", PARTITIONS)})


class Client:
    """A client that gives up before it takes: `owned` is what it reads."""

    def __init__(self, number: int) -> None:
        self.instance = f"i{number}" if number % 2 else None
        self.number, self.starts = number, 0
        self.restart()

    def restart(self) -> None:
        self.starts += 1
        self.member_id, self.epoch = f"m{self.number}-{self.starts}", JOIN
        self.owned: set[int] = set()
        self.has_lost = False  # an answer: it says all of itself again

    def call(self, epoch: int) -> ConsumerCall:
        is_join = epoch == JOIN
        owned = None if epoch < 0 else tuple(("t", number) for number in sorted(() if is_join else self.owned))
        topics = ("t",) if is_join else None
        whole = is_join or self.has_lost
        return ConsumerCall("g", self.member_id, epoch, self.instance, topics, None, None, None, owned, 60_000, whole)

    def take(self, answer: ConsumerAnswer) -> None:
        self.epoch, self.has_lost = answer.member_epoch, False
        if answer.assignment is not None:
            self.owned = {number for _, number in answer.assignment}


def state_of(group: Group) -> object:
    members = {
        name: (one.epoch, one.joined_epoch, one.assigned, one.revoking, one.kafka, one.topics)
        for name, one in group.members.items()
    }
    return group.epoch, members, group.owners


@pytest.mark.parametrize("seed", range(20))
def test_each_partition_has_one_reader_and_the_records_give_the_state(seed: int) -> None:
    chance, now_ms = random.Random(seed), 1000
    core, log = Coordinator(CoordinatorLimits()), dict[bytes, bytes | None]()
    clients = [Client(number) for number in range(5)]
    for _ in range(150):
        now_ms += 100
        client, now = chance.choice(clients), Now(now_ms, now_ms)
        kind = chance.random()
        epoch = client.epoch if kind < 0.8 or not client.epoch else (AWAY if client.instance else LEAVE)
        try:
            answer = consumer_protocol.heartbeat(core, client.call(epoch), now, TOPICS)
        except GroupError:
            client.restart()
            continue
        finally:
            log |= {row.key: row.value for row in core.take_rows()}
        if epoch < 0:
            client.restart()
        elif answer.refusal == Refusal.NONE and chance.random() < 0.9:
            client.take(answer)
        else:
            client.has_lost = True
        readers = [number for one in clients for number in one.owned]
        assert len(readers) == len(set(readers)), "two clients read a partition"
        group = core.groups["g"]
        replayed = Coordinator(CoordinatorLimits())
        for key, value in log.items():
            replayed.replay(Row(key, value))
        assert state_of(replayed.groups["g"]) == state_of(group)
    for _ in range(10):
        for client in clients:
            now_ms += 100
            client.take(consumer_protocol.heartbeat(core, client.call(client.epoch), Now(now_ms, now_ms), TOPICS))
    assert sorted(number for one in clients for number in one.owned) == list(range(PARTITIONS))
