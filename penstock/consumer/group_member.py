"""The calls of one member of a consumer group: poll, heartbeat, commit, leave.

Knows the member's epoch and the token of its last delivery, and joins again when the membership has ended. Every call
may be repeated, so a lost answer is a retry. penstock/consumer/group_consumer.py decides when to call.
Invariant: a token is sent by poll() only, so a delivery is committed by asking for the next one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from penstock.admin import api
from penstock.consumer.delivery import Delivery, Positions, TopicPartition, decode_delivery
from penstock.consumer.deserializers import Deserializers
from penstock.errors import ClientError, ProblemError
from penstock.options import ClientOptions
from penstock.transport.attempts import Attempts
from penstock.transport.exchange import Json, Request

_FIRST_HEARTBEAT_MS = 400  # until an answer has the group's: less than half of the shortest session
_HAS_ENDED = frozenset({"stale_token", "invalid_token", "unknown_member", "member_fenced", "unknown_group"})
_FENCED = frozenset({"stale_token", "member_fenced"})  # records are delivered again, perhaps because of another client
_NOT_OWNED = frozenset({"member_fenced", "unknown_topic", "unknown_partition"})
UNKNOWN_TOPIC = "unknown_topic"
_DELETED_PAUSE_S = 0.5  # the coordinator looks at the topics every second
_JOIN_AGAIN = {"member_epoch": 0}  # `recover` of a member_fenced that is of the member, not of a partition


_log = logging.getLogger(__name__)


class FailedRecord(NamedTuple):
    """Holds the first record of a partition that could not be processed, and why."""

    topic: str
    partition: int
    offset: int
    error: str


class GroupTerms(NamedTuple):
    """Holds what one member asks of its group."""

    group: str
    topics: Sequence[str]
    member_id: str
    auto_commit: bool = True
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    max_records: int | None = None  # of a delivery
    filters: Sequence[str] = ()
    topics_pattern: str | None = None  # RE2; the node finds the topics
    topics_exclude: str | None = None
    value: str | None = "json"  # how values appear; None: texts by their content-type
    min_bytes: int | None = None  # a poll waits for this much, or for its time
    deserializers: Deserializers | None = None


class GroupMember:
    def __init__(self, attempts: Attempts, terms: GroupTerms, options: ClientOptions) -> None:
        self._attempts = attempts
        self._options = options
        self.terms = terms
        self.joins = 0
        self.heartbeat_ms = _FIRST_HEARTBEAT_MS
        self._epoch = 0  # 0: the next poll joins
        self.paused: set[TopicPartition] = set()  # kept and not read
        self._token: str | None = None
        self._failures = 0  # answers in a row that had a problem and no records
        self._deleted: set[str] = set()  # topics, as far as that was logged
        self._left_out: set[str] = set()  # of the topics, when the member joins again: they do not exist

    def __repr__(self) -> str:
        return f"<GroupMember {self.terms.group}/{self.terms.member_id} epoch={self._epoch} joins={self.joins}>"

    async def poll(self, failed: Sequence[FailedRecord] = ()) -> Delivery:
        """Commits the last delivery and returns the next, which is empty if nothing arrived in time.

        `failed` are records of the last delivery: it is committed up to them.

        Joins, at first and when the membership has ended: `joins` rises, and the positions are the committed ones.
        Raises ClientError.
        """
        give_up_at = math.inf
        while True:
            body, wait_ms = self._wish(failed), self._options.fetch_wait_ms
            request = api.group_poll(self.terms.group, self.terms.member_id, body, self._options.rack)
            give_up_ms = self._options.unreachable_timeout_ms
            try:
                answer = await self._attempts.send_with_retries(request, give_up_ms, wait_ms=wait_ms)
                break
            except ProblemError as problem:
                if problem.code == UNKNOWN_TOPIC and (self._epoch or self.joins):
                    give_up_at = min(give_up_at, asyncio.get_running_loop().time() + give_up_ms / 1000)
                    await self._pass_over_deleted(problem, give_up_at)
                    continue
                was_removed = problem.code == "unknown_member"  # also by DELETE during the first poll
                if problem.code not in _HAS_ENDED or not (self._epoch or was_removed):
                    raise
                if problem.code in _FENCED:
                    names = self.terms.group, self.terms.member_id, problem.detail
                    _log.warning("group %s: member %s joins again: %s", *names)
                self.forget()
        try:
            delivery = decode_delivery(answer.body)
        except ValueError as error:
            raise ClientError(f"the answer to a poll of group {self.terms.group} is not a node's: {error}") from error
        self.joins += not self._epoch
        self._epoch, self._token = delivery.member_epoch, delivery.token
        await self._pause_after(delivery)
        return delivery

    async def find_missing_topics(self) -> list[str]:
        """Returns those of the consumer's topics that do not exist."""
        missing = []
        for topic in self.terms.topics:
            try:
                await self._send(api.describe_topic(topic))
            except ProblemError as problem:
                if problem.code == UNKNOWN_TOPIC:
                    missing.append(topic)
        return missing

    async def check_topics(self) -> None:
        """Notes deleted topics. Raises ProblemError if all topics of the consumer are, and it has no pattern."""
        missing = await self.find_missing_topics()
        for topic in missing:
            self.note_deleted(topic)
        self._left_out = set(missing)
        if missing and len(missing) == len(self.terms.topics) and self.terms.topics_pattern is None:
            text = f"all topics of the consumer were deleted: {', '.join(missing)}"
            raise ProblemError(text, status=404, code=UNKNOWN_TOPIC, retryable=False, no_side_effects=True)

    def note_deleted(self, topic: str) -> None:
        """Logs once that a topic is gone."""
        if topic not in self._deleted:
            self._deleted.add(topic)
            _log.warning("group %s: topic %s was deleted, the others are read", self.terms.group, topic)

    def note_read(self, topics: Iterable[str]) -> None:
        """Notes that topics exist: one that is deleted again is logged again."""
        self._deleted.difference_update(topics)

    async def _pass_over_deleted(self, problem: ProblemError, give_up_at: float) -> None:
        """Waits until the coordinator takes away the partitions of deleted topics. Raises if all topics are gone."""
        await self.check_topics()
        if asyncio.get_running_loop().time() >= give_up_at:
            raise problem
        await asyncio.sleep(_DELETED_PAUSE_S)

    def forget(self) -> None:
        """Forgets the membership, which has ended, and the delivery. The next poll joins."""
        self._epoch, self._token = 0, None

    async def heartbeat(self) -> list[TopicPartition] | None:
        """Keeps the session alive. Returns the assigned partitions; None if the membership has ended."""
        body = {"member_id": self.terms.member_id, "member_epoch": self._epoch}
        request = api.group_heartbeat(self.terms.group, body)
        try:
            document = await self._send(request)
        except ProblemError as problem:
            if problem.code not in _HAS_ENDED:
                raise
            return None
        self.heartbeat_ms = document["heartbeat_ms"]
        return [TopicPartition(partition["topic"], partition["partition"]) for partition in document["assignment"]]

    async def commit(self, positions: Positions) -> bool:
        """Commits positions. Returns False if some partitions are another member's by now: those are left out."""
        if not self._epoch:
            return False
        offsets = [{"topic": slot.topic, "partition": slot.partition, "offset": at} for slot, at in positions.items()]
        member = {"member_id": self.terms.member_id, "member_epoch": self._epoch}
        try:
            await self._send(api.commit_offsets(self.terms.group, offsets, member=member))
        except ProblemError as problem:
            if problem.code not in _HAS_ENDED | _NOT_OWNED:
                raise
            is_of_one = problem.code in _NOT_OWNED and problem.members.get("recover") != _JOIN_AGAIN
            if not is_of_one or len(positions) == 1:
                return False
            for slot, at in positions.items():  # a commit stores all of its positions or none
                await self.commit({slot: at})
            return False
        return True

    async def leave(self) -> None:
        await self._send(api.leave_group(self.terms.group, self.terms.member_id))
        self.forget()

    async def commit_by_hand(self) -> None:
        """Sets the group's `auto_commit` to false: tokens then carry positions and commit nothing."""
        try:
            described = await self._send(api.describe_group(self.terms.group))
        except ProblemError as problem:
            if problem.code != "unknown_group":
                raise
            described = {"config": {}}
        if described["config"].get("auto_commit", True):
            await self._send(api.configure_group(self.terms.group, {"auto_commit": False}))

    async def _send(self, request: Request) -> Json:
        return (await self._attempts.send_with_retries(request, self._options.unreachable_timeout_ms)).json()

    def _wish(self, failed: Sequence[FailedRecord]) -> dict[str, Any]:
        """Returns the body of the next poll. Only one that joins has topics: a late one must not join after leave()."""
        terms, options = self.terms, self._options
        body: dict[str, Any] = {"wait_ms": options.fetch_wait_ms, "max_bytes": options.fetch_bytes_max}
        wished = {
            "max_records": terms.max_records,
            "min_bytes": terms.min_bytes,
            "value": terms.value,
            "filter": list(terms.filters) or None,
            "paused": [slot._asdict() for slot in sorted(self.paused)] or None,
        }
        body |= {name: value for name, value in wished.items() if value is not None}
        if self._epoch:
            reports = {"failed": [failure._asdict() for failure in failed]} if failed else {}
            return {**body, **reports, "token": self._token}
        timeouts = {
            "session_timeout_ms": terms.session_timeout_ms,
            "rebalance_timeout_ms": terms.rebalance_timeout_ms,
        }
        topics = {
            "topics": [topic for topic in terms.topics if topic not in self._left_out],
            "topics_pattern": terms.topics_pattern,
            "topics_exclude": terms.topics_exclude,
        }
        return {**body, **{name: value for name, value in topics.items() if value}, **timeouts}

    async def _pause_after(self, delivery: Delivery) -> None:
        """Pauses before the poll after an answer that has a problem and no records: it was answered at once."""
        problem = delivery.problem()
        is_stuck = problem is not None and not delivery.slots()
        self._failures = self._failures + 1 if is_stuck else 0
        if problem is not None and self._failures:
            await asyncio.sleep(self._attempts.delay_s(problem, self._failures))
