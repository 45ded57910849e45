"""Members of a group in the simulation, each with the poll of gateway/groups/poll.py in itself.

A member hangs, dies, leaves and comes again, under its name or another. Its requests are never repeated by the network,
as on a connection, but may arrive long after it has given them up.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gateway.groups.core.coordinator import Coordinator
from gateway.groups.model.errors import StaleToken
from gateway.groups.model.values import Grant, LeaveCall, PollCall, Position, Token
from tests.checking.group_history import GroupHistory, Poll
from tests.checking.history import records_of
from tests.simulation.clients import TIMEOUT_S, ConnectedClient
from tests.simulation.groups.hosting import TOPIC

GROUP = "g"
SESSION_MS = 1500
RETRY_S = 0.05


class Member(ConnectedClient):
    def __init__(self, *args: Any, groups: str, polls: GroupHistory) -> None:
        super().__init__(*args)
        self._groups, self._polls = groups, polls
        self.is_calm = False
        self._life = 0
        self._coordinator: int | None = None
        self._token: Token | None = None
        self._delivery: Poll | None = None  # its token is sent next
        self._last: Poll | None = None
        self._number = 0
        self._hostings: list[tuple[int, int]] = []

    @property
    def member_id(self) -> str:
        return f"{self.name}.{self._life}"

    def run(self) -> None:
        """Poll. A request without an answer is repeated at another node."""
        if self.is_stopped:
            return
        self._number += 1
        self._end_holding()
        self._last = Poll(self.member_id, self.world.now, self._delivery)
        self._polls.polls.append(self._last)
        self._hostings = []
        self._ask(self._number, ())
        self.world.after(TIMEOUT_S, self._give_up, self._number)

    def _ask(self, number: int, starts: tuple[Position, ...]) -> None:
        call = PollCall(GROUP, self.member_id, (TOPIC,), self._token, starts, SESSION_MS, 5 * SESSION_MS)
        node = self._coordinator or self.any_node()
        decide = partial(_poll, call)
        self.call(node, "on_group", self._groups, decide, lambda *a: self._on_grant(number, node, *a))

    def _on_grant(self, number: int, node: int, outcome: str, answer: Any) -> None:
        if number != self._number:
            return
        if outcome == "error":
            assert isinstance(answer, StaleToken), answer
            self.world.count("stale tokens")
            self._forget()
        if outcome != "ok":
            self._coordinator = None
            self._again()
            return
        grant, hosting, sequence = answer
        self._coordinator = node
        if sequence:
            self._hostings.append((hosting, sequence))
        starts = tuple(_at(assigned, 0) for assigned in grant.assignment if assigned.offset < 0)
        if starts:
            self._ask(number, starts)
            return
        self._read(number, grant, 0, {})

    def _read(self, number: int, grant: Grant, index: int, records: dict[int, tuple[int, ...]]) -> None:
        """Read the partitions one after the other; those that fail are not in the delivery."""
        if index == len(grant.assignment):
            self._wait_stored(number, grant, records)
            return
        assigned = grant.assignment[index]

        def on_answer(what: str, data: bytes, *_: object) -> None:
            if number == self._number:
                offsets = tuple(at for at, _ in records_of(data) if at >= assigned.offset) if what == "ok" else ()
                self._read(number, grant, index + 1, {**records, assigned.partition: offsets})

        self.call(self.any_node(), "on_read", f"{TOPIC}-{assigned.partition}", assigned.offset, on_answer)

    def _wait_stored(self, number: int, grant: Grant, records: dict[int, tuple[int, ...]]) -> None:
        if not self._hostings:
            self._deliver(number, grant, records)
            return
        hosting, sequence = self._hostings.pop()

        def on_answer(outcome: str, _: object) -> None:
            if number != self._number:
                return
            if outcome == "ok":
                self._wait_stored(number, grant, records)
            else:
                self._coordinator = None
                self._again()

        assert self._coordinator is not None
        self.call(self._coordinator, "on_group_stored", hosting, sequence, on_answer)

    def _deliver(self, number: int, grant: Grant, records: dict[int, tuple[int, ...]]) -> None:
        assert self._last is not None
        self._number += 1  # ends the timeout
        self._last.offsets = {partition: offsets for partition, offsets in records.items() if offsets}
        self._last.answered_at = self.world.now
        ends = {partition: offsets[-1] + 1 for partition, offsets in self._last.offsets.items()}
        moved = tuple(
            _at(assigned, ends[assigned.partition]) for assigned in grant.assignment if assigned.partition in ends
        )
        self._token = Token(self.member_id, grant.member_epoch, grant.resets, moved, grant.delivery)
        self._delivery = self._last
        self.world.counts["records delivered to members"] += sum(map(len, self._last.offsets.values()))
        self._work()

    def _work(self) -> None:
        random, wait_s = self.world.random, 0.1 * self.world.random.random()
        what = "work" if self.is_calm else random.choices(("work", "hang", "die", "leave"), (12, 1, 1, 1))[0]
        if what == "hang":
            wait_s += 1.5 * SESSION_MS / 1000
        elif what in ("die", "leave"):
            self._end_holding()
            self._last = None
            if what == "leave":
                leave = partial(_leave, LeaveCall(GROUP, self.member_id))
                self.call(self._coordinator or self.any_node(), "on_group", self._groups, leave, lambda *_: None)
            self._life += what == "leave" or random.random() < 0.5
            self._forget()
        self.world.count(f"members {what}")
        self.world.after(wait_s, self.run)

    def _again(self) -> None:
        self._number += 1
        self.world.after(RETRY_S, self.run)

    def _give_up(self, number: int) -> None:
        if number == self._number:
            self._coordinator = None
            self.world.count("polls without an answer")
            self.run()

    def _forget(self) -> None:
        self._token = self._delivery = None

    def _end_holding(self) -> None:
        if self._last is not None:
            self._last.held_until = min(self._last.held_until, self.world.now)


def _poll(call: PollCall, core: Coordinator, now: Any, source: Any) -> Grant:
    return core.poll(call, now, source)


def _leave(call: LeaveCall, core: Coordinator, now: Any, source: Any) -> None:
    core.leave(call, now, source)


def _at(position: Position, offset: int) -> Position:
    return Position(position.topic, position.topic_id, position.partition, offset)
