"""`penstock group|subscription replay-dead-letters`: produces dead letters back to where they came from.

A share group of its own hands them out, so a command that is repeated goes on where the last one ended. Each produce
has an idempotency key made of the dead letter's place, so a lost answer makes no second record. A dead letter that the
node rejects, for instance because its topic was deleted, waits for the next run and holds back no other. In a
compacted topic a dead letter whose key has a later record, or is deleted, is superseded: it stays where it is, or an
old value would take the place of a newer one.
"""

from __future__ import annotations

from base64 import b64decode
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote

import click
import orjson

from penstock.admin.single_request import SingleRequestClient
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import print_json
from penstock.errors import ProblemError
from penstock.transport.exchange import Json, Request

PREFIX = "dead-letter-"  # of the headers that a dead letter has beside those of its record
GROUP, SUBSCRIPTION = "group", "subscription"
REPLAYING = {GROUP: "replay-dead-letters", SUBSCRIPTION: "replay-push-dead-letters"}  # a group for each kind of maker
AT_ONCE = 100
WAIT_MS = 1000  # for locks of other runs, each time
DELIVERIES_MAX = 1000  # the most that a group may have: a dead letter that fails more often would be dropped


class Maker(NamedTuple):
    """The group or the subscription that made the dead letters. `kind` is also the header that has its name."""

    kind: str
    name: str


class Replayed(NamedTuple):
    """Holds how many dead letters were replayed, superseded and rejected, and why the node rejected the first one."""

    replayed: int
    superseded: int
    rejected: int
    reason: str


def replay(client: SingleRequestClient, maker: Maker, topic: str | None, *, as_json: bool) -> None:
    """Replays the dead letters of a topic, and prints how many they were.

    Raises Failure without a topic, and if the node rejected some; ProblemError and ConnectionFailed. The next run goes
    on.
    """
    if topic is None:
        raise Failure(f"{maker.kind} {maker.name} has no dead_letter_topic; give --topic")
    replayed = replay_all(client, maker, topic)
    if as_json:
        counts = {"replayed": replayed.replayed, "superseded": replayed.superseded, "rejected": replayed.rejected}
        print_json({maker.kind: maker.name, "topic": topic, **counts})
    else:
        click.echo(f"Replayed {replayed.replayed} record{'' if replayed.replayed == 1 else 's'} from {topic}.")
        if replayed.superseded:
            count = replayed.superseded
            click.echo(f"Left {count} whose key has a later record in its compacted topic, or is deleted.")
    if replayed.rejected:
        text = f"the node rejected {replayed.rejected} of {topic}, which wait for the next run: {replayed.reason}"
        raise Failure(text, ExitCode.REFUSED)


def replay_all(client: SingleRequestClient, maker: Maker, topic: str) -> Replayed:
    """Replays the dead letters of a topic. Raises ProblemError and ConnectionFailed; the next run goes on."""
    return _Run(client, maker, topic).run()


class _Run:
    """One run. Rejected dead letters stay locked until its end, so that the node hands out the others."""

    def __init__(self, client: SingleRequestClient, maker: Maker, topic: str) -> None:
        self._client, self._maker = client, maker
        self._replaying = f"{maker.name}.{REPLAYING[maker.kind]}"
        self._request = {"topics": [topic], "max_records": AT_ONCE, "value": "base64"}
        self._held: dict[str, list[Json]] = {}  # records by their lock
        self._rejected: dict[tuple[int, int], str] = {}  # reasons by partition and offset
        self._count = 0
        self._superseded_count = 0
        self._compacted: dict[str, bool] = {}  # by topic
        self._topic_ids: dict[str, str] = {}

    def run(self) -> Replayed:
        config = {"kind": "share", "deliveries_max": DELIVERIES_MAX, "redelivery_delay_ms": 0}  # those of a killed run
        self._client.configure_group(self._replaying, config)
        try:
            while self._replay_next(0) or self._are_others_held():
                pass
        finally:
            for lock, records in self._held.items():
                with suppress(ProblemError):  # a lock that is over has released them
                    self._acknowledge(lock, records, "release")
        return Replayed(
            self._count, self._superseded_count, len(self._rejected), next(iter(self._rejected.values()), "")
        )

    def _are_others_held(self) -> bool:
        """Replays what other runs hold, as one that was killed does until its locks end. Returns False if none does."""
        in_flight = sum(caller["in_flight"] for caller in self._client.describe_group(self._replaying)["callers"])
        if in_flight <= sum(_count(record) for records in self._held.values() for record in records):
            return False
        self._replay_next(WAIT_MS)
        return True

    def _replay_next(self, wait_ms: int) -> bool:
        """Replays the next dead letters. Returns False if there are none that this run has not tried."""
        acquired = self._client.acquire_records(self._replaying, self._request | {"wait_ms": wait_ms})
        lock, records = acquired["lock"], acquired["records"]
        fresh = [record for record in records if _place(record) not in self._rejected]
        done: list[Json] = []
        try:
            for record in fresh:
                if self._is_accepted(record):
                    done.append(record)
        finally:
            if len(done) < len(records):
                self._held[lock] = [record for record in records if record not in done]
            self._acknowledge(lock, done, "accept")
        return bool(fresh)

    def _is_accepted(self, record: Json) -> bool:
        """Produces a record of the maker, and returns whether it is finished."""
        if _maker(record) != self._maker:
            return True
        try:
            if self._is_of_deleted_topic(record):
                text = f"topic {_origin(record, 'topic')} was deleted and created again since: produce it yourself"
                self._rejected[_place(record)] = text
                return False
            if self._is_superseded(record):
                self._superseded_count += 1
                return True
            self._produce(record)
        except ProblemError as problem:
            if problem.retryable:
                raise
            self._rejected[_place(record)] = problem.detail
            return False
        self._count += 1
        return True

    def _is_of_deleted_topic(self, record: Json) -> bool:
        """Returns whether the record's topic is another one by now. Dead letters of earlier releases do not say."""
        topic, ids = _origin(record, "topic"), _values(record, PREFIX + "topic-id")
        if len(ids) < len(_values(record, PREFIX + "topic")):
            return False
        if topic not in self._topic_ids:
            self._topic_ids[topic] = str(self._client.describe_topic(topic)["topic_id"])
        return self._topic_ids[topic] != ids[-1]

    def _is_superseded(self, record: Json) -> bool:
        """Returns whether the record's topic is compacted, and has a later record of its key."""
        topic, partition = _origin(record, "topic"), int(_origin(record, "partition"))
        key = b64decode(record["key_base64"]) if "key_base64" in record else record.get("key")
        if key is None or not self._is_compacted(topic):
            return False
        try:
            latest = self._client.table(topic).get(key, partition=partition)
        except ProblemError as problem:
            if problem.code != "unknown_key":
                raise
            return not _is_tombstone(record)
        return bool(latest["offset"] > int(_origin(record, "offset")))

    def _is_compacted(self, topic: str) -> bool:
        if topic not in self._compacted:
            policy = self._client.describe_topic(topic)["config"]["cleanup_policy"]
            self._compacted[topic] = "compact" in policy
        return self._compacted[topic]

    def _produce(self, record: Json) -> None:
        topic, partition = _origin(record, "topic"), _origin(record, "partition")
        copy: dict[str, Any] = {
            name: record[name] for name in ("key", "key_base64", "value", "value_base64") if name in record
        }
        copy["headers"] = _headers_before(record)
        path = f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}/records"
        key = f"replay:{record['topic']}:{record['partition']}:{record['offset']}:{record['timestamp']}"
        sent = {"Content-Type": "application/json", "Idempotency-Key": key}
        self._client.send(Request("POST", path, body=orjson.dumps({"records": [copy]}), headers=sent)).check()

    def _acknowledge(self, lock: str, records: list[Json], outcome: str) -> None:
        if records:
            entries = [
                {name: record[name] for name in ("topic", "partition", "offset", "last_offset") if name in record}
                for record in records
            ]
            body = {"lock": lock, "outcome": outcome, "records": entries}
            self._client.acknowledge_records(self._replaying, body | ({"delay_ms": 0} if outcome == "release" else {}))


def _values(record: Json, name: str) -> list[str]:
    """Returns the values of a header. A dead letter that has been one before has several."""
    value = record.get("headers", {}).get(name, [])
    return value if isinstance(value, list) else [value]


def _origin(record: Json, name: str) -> str:
    return (_values(record, PREFIX + name) or [""])[-1]


def _maker(record: Json) -> Maker | None:
    """Returns what made a record a dead letter. One that was one before has the header of its last maker last."""
    kinds = [kind for name in record.get("headers", {}) if (kind := name.removeprefix(PREFIX)) in REPLAYING]
    return Maker(kinds[-1], _origin(record, kinds[-1])) if kinds else None


def _headers_before(record: Json) -> dict[str, list[str]]:
    """Returns the headers that the record had before it became a dead letter."""
    maker = _maker(record)
    assert maker is not None
    depth, topics = len(_values(record, PREFIX + maker.kind)), len(_values(record, PREFIX + "topic"))
    added = {PREFIX + name for name in ("topic", "partition", "offset", "reason", "attempts", maker.kind)}
    headers = {name: _values(record, name) for name in record["headers"]}
    for name, values in headers.items():
        is_error = name == PREFIX + "error" and maker.kind == GROUP and len(values) == depth
        is_of_last = name == PREFIX + "topic-id" and len(values) == topics  # an earlier release has written none
        if name in added or is_error or is_of_last:
            values.pop()
    return {name: values for name, values in headers.items() if values}


def _is_tombstone(record: Json) -> bool:
    return record.get("value") is None and "value_base64" not in record


def _place(record: Json) -> tuple[int, int]:
    return record["partition"], record["offset"]


def _count(record: Json) -> int:
    """Returns how many records an entry has: those of a batch that cannot be decoded are one entry."""
    first: int = record["offset"]
    last: int = record.get("last_offset", first)
    return last - first + 1
