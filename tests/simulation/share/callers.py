"""Callers of a share group in the simulation, each with the acquire of gateway/groups/acquire.py in itself.

A caller accepts, releases, rejects, extends, gives records back, forgets some, hangs beyond its lock and dies. Requests
are repeated until they are answered.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from zlib import crc32

from gateway.groups.core import sharing
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.model.errors import LockUnknown
from gateway.groups.model.values import ConfigCall
from gateway.groups.share import values
from gateway.groups.share.values import (
    AcquireCall,
    Acquired,
    Bound,
    Granted,
    KeyRun,
    Outcome,
    Place,
    Refused,
    SettleCall,
    Settled,
)
from tests.checking.group_history import Acquisition, Record, Settlement, ShareHistory
from tests.checking.history import records_of
from tests.simulation.clients import TIMEOUT_S, ConnectedClient
from tests.simulation.groups.hosting import TOPIC, TOPIC_ID

GROUP = "s"
LOCK_S = 1.0
DELAY_MS = 200  # of a record that was released once
RETRY_S = 0.05
KEYS = 4
TRIES_MAX = 8  # of an outcome
ROUNDS_MAX = 10  # of reads of keys in one acquire
WORKS = {"accept": 8, "release": 3, "reject": 1, "extend": 2, "return": 1, "forget": 2, "hang": 1, "die": 1}
OUTCOMES = {"release": Outcome.RELEASE, "reject": Outcome.REJECT, "return": Outcome.RETURN}


def key_of(value: str) -> int:
    """Returns the key of a value: the records of the simulation have none."""
    return crc32(value.encode()) % KEYS + 1


class Caller(ConnectedClient):
    def __init__(self, *args: Any, groups: str, topic_partitions: list[str], history_of_share: ShareHistory) -> None:
        super().__init__(*args)
        self._groups, self._partitions, self._share = groups, topic_partitions, history_of_share
        self._config = {
            "kind": "share",
            "deliveries_max": history_of_share.deliveries_max,
            "redelivery_delay_ms": DELAY_MS,
            "order": "key" if history_of_share.is_ordered else "none",
            "in_flight_max": 40,
        }
        self.is_calm = False
        self._number = 0
        self.coordinator: int | None = None
        self._leaders: dict[int, int] = {}

    def run(self) -> None:
        """Acquires records. Without an answer it begins again."""
        if self.is_stopped:
            return
        self._number += 1
        self._bounds(self._number, self.world.now, ())
        self.world.after(TIMEOUT_S, self._give_up, self._number)

    def _bounds(self, number: int, asked_at: float, answers: tuple[Bound | None, ...]) -> None:
        """Asks for the end of one partition after the other; those without an answer are left out."""
        partition = len(answers)
        if partition == len(self._partitions):
            bounds = tuple(bound for bound in answers if bound is not None)
            count = self.world.random.choice((1, 3, 10))
            lock = f"{self.name}.{number}"
            call = AcquireCall(GROUP, lock, (TOPIC,), bounds, count, int(LOCK_S * 1000), self.name)
            self._acquire(number, asked_at, call, 0)
            return
        node = self._leaders.pop(partition, None) or self.any_node()

        def on_answer(what: str, offset: int | None, _: int) -> None:
            if number == self._number:
                bound = None
                if what == "ok" and offset is not None:
                    self._leaders[partition] = node
                    bound = Bound(TOPIC, TOPIC_ID, partition, 0, offset)
                self._bounds(number, asked_at, (*answers, bound))

        self.call(node, "on_latest", self._partitions[partition], on_answer)

    def _acquire(self, number: int, asked_at: float, call: AcquireCall, rounds: int) -> None:
        node = self.coordinator or self.any_node()
        decide = partial(_acquire, self._config, self._share, call, lambda: self.world.now)

        def on_answer(outcome: str, answer: Any) -> None:
            if number != self._number:
                return
            assert outcome != "error", answer
            if outcome != "ok":
                self.coordinator = None
                self._again()
                return
            acquired, hosting, sequence = answer
            self.coordinator = node
            if sequence and acquired.granted:
                on_confirmed = partial(self._take_confirmed, number, asked_at, call, rounds, hosting, acquired)
                self.call(node, "on_group_stored", hosting, sequence, on_confirmed)
            else:
                self._take_confirmed(number, asked_at, call, rounds, hosting, acquired, "ok", None)

        self.call(node, "on_group", self._groups, decide, on_answer)

    def _take_confirmed(
        self,
        number: int,
        asked_at: float,
        call: AcquireCall,
        rounds: int,
        hosting: int,
        acquired: Acquired,
        outcome: str,
        _: Any,
    ) -> None:
        """Take records once it is certain that their coordinator leads."""
        if number != self._number:
            return
        if outcome != "ok":
            self.coordinator = None
            self._again()
        elif acquired.keys_to_learn and rounds < ROUNDS_MAX:
            self._keys(number, asked_at, call, rounds, acquired.keys_to_learn, ())
        else:
            self._begin_work(asked_at, call.lock, hosting, acquired)

    def _keys(
        self,
        number: int,
        asked_at: float,
        call: AcquireCall,
        rounds: int,
        places: tuple[Place, ...],
        key_runs: tuple[KeyRun, ...],
    ) -> None:
        if not places:
            more = AcquireCall(
                GROUP, call.lock, (TOPIC,), call.bounds, call.max_records, call.lock_ms, self.name, key_runs
            )
            self._acquire(number, asked_at, more, rounds + 1 if key_runs else ROUNDS_MAX)
            return
        first, *rest = places

        def on_answer(what: str, data: bytes, *_: object) -> None:
            if number != self._number:
                return
            runs = key_runs
            records = [(at, key_of(value)) for at, value in records_of(data) if first.offset <= at < first.limit]
            if what == "ok" and records:
                offsets, keys = (list(part) for part in zip(*records, strict=True))
                runs = (*key_runs, KeyRun(TOPIC, first.partition, first.offset, offsets[-1] + 1, offsets, keys))
            self._keys(number, asked_at, call, rounds, tuple(rest), runs)

        self.call(self.any_node(), "on_read", self._partitions[first.partition], first.offset, on_answer)

    def _begin_work(self, asked_at: float, lock: str, hosting: int, acquired: Acquired) -> None:
        self._number += 1  # ends the timeout
        if not acquired.granted:
            self.world.after(2 * RETRY_S, self.run)
            return
        records = {record: number for run in acquired.granted for record, number in _records(run)}
        now = self.world.now
        taken = Acquisition(self.name, asked_at, asked_at + LOCK_S, now, records=records, lock=lock, hosting=hosting)
        self._share.acquisitions.append(taken)
        self.world.counts["records acquired"] += len(records)
        work = "accept"
        if not self.is_calm:
            work = self.world.random.choices(list(WORKS), list(WORKS.values()))[0]
        self.world.count(f"callers {work}")
        self.world.after(0.1 * self.world.random.random(), self._work, work, taken)

    def _work(self, work: str, taken: Acquisition) -> None:
        records = frozenset(taken.records)
        if work == "die":
            self.run()
        elif work == "hang":
            self.world.after(1.5 * LOCK_S, self._settle, taken, Outcome.ACCEPT, records, self.run)
        elif work == "extend":
            later = partial(self._settle, taken, Outcome.ACCEPT, records, self.run)
            self._settle(taken, Outcome.EXTEND, records, partial(self.world.after, 0.8 * LOCK_S, later))
        elif work == "forget":
            some = frozenset(self.world.random.sample(sorted(records), (len(records) + 1) // 2))
            self._settle(taken, Outcome.ACCEPT, some, self.run)
        else:
            self._settle(taken, OUTCOMES.get(work, Outcome.ACCEPT), records, self.run)

    def _settle(self, taken: Acquisition, outcome: Outcome, records: frozenset[Record], then: Any) -> None:
        settlement = Settlement(taken, outcome, records, self.world.now, tries=0)
        self._share.settlements.append(settlement)
        self._send(settlement, then)

    def _send(self, settlement: Settlement, then: Any) -> None:
        """Sends an outcome until it is answered."""
        if self.is_stopped or settlement.tries == TRIES_MAX:
            then()
            return
        settlement.tries += 1
        self._number += 1
        number, node = self._number, self.coordinator or self.any_node()
        wishes = tuple(
            values.Settlement(TOPIC, *record, record[1], settlement.outcome) for record in sorted(settlement.records)
        )
        decide = partial(_settle, SettleCall(GROUP, settlement.acquisition.lock, wishes))

        def again() -> None:
            if number == self._number:
                self.coordinator = None
                self.world.after(RETRY_S, self._send, settlement, then)
                self._number += 1

        def on_stored(outcome: str, settled: Settled) -> None:
            if number != self._number:
                return
            if outcome != "ok":
                again()
                return
            self._number += 1
            settlement.answered_at = self.world.now
            parts = [(part.partition, range(part.first, part.last + 1)) for part in settled.refused]
            settlement.refused = frozenset((partition, offset) for partition, offsets in parts for offset in offsets)
            if settlement.refused:
                self.world.count("outcomes refused")
            elif settlement.outcome is Outcome.EXTEND:
                settlement.acquisition.until = max(settlement.acquisition.until, settlement.asked_at + LOCK_S)
            then()

        def on_answer(outcome: str, answer: Any) -> None:
            if number != self._number:
                return
            assert outcome != "error", answer
            if outcome != "ok":
                again()
                return
            settled, hosting, sequence = answer
            self.coordinator = node
            if not sequence:
                on_stored("ok", settled)
                return
            self.call(node, "on_group_stored", hosting, sequence, lambda what, _: on_stored(what, settled))

        self.call(node, "on_group", self._groups, decide, on_answer)
        self.world.after(TIMEOUT_S, again)

    def _again(self) -> None:
        self._number += 1
        self.world.after(RETRY_S, self.run)

    def _give_up(self, number: int) -> None:
        if number == self._number:
            self.coordinator = None
            self.world.count("acquires without an answer")
            self.run()


def _records(granted: Granted) -> list[tuple[Record, int]]:
    return [((granted.partition, at), granted.deliveries) for at in range(granted.first, granted.last + 1)]


def _acquire(
    config: dict[str, Any],
    history: ShareHistory,
    call: AcquireCall,
    clock: Any,
    core: Coordinator,
    now: Any,
    source: Any,
) -> Acquired:
    if GROUP not in core.groups:
        core.configure(ConfigCall(GROUP, config), now, source)
    acquired = sharing.acquire(core, call, now, source)
    for run in acquired.granted:
        for record, _ in _records(run):
            history.handed[record].setdefault(call.lock, clock())
    return acquired


def _settle(call: SettleCall, core: Coordinator, now: Any, source: Any) -> Settled:
    if call.group not in core.groups:  # it was not stored
        return Settled(0, tuple(_refused(settlement) for settlement in call.settlements))
    try:
        return sharing.settle(core, call, now, source)
    except LockUnknown:
        return Settled(0, tuple(_refused(settlement) for settlement in call.settlements))


def _refused(settlement: values.Settlement) -> Refused:
    return Refused(settlement.topic, settlement.partition, settlement.first, settlement.last, is_settled=False)
