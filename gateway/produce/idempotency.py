"""`Idempotency-Key`: recognises the repeat of a request, and finds where the first request placed its records.

Runs before the records are placed; the partition then judges whether a batch has been stored
(engine/producers/append_validator.py). A key belongs to a topic. Two requests with one key are the same if everything
that decides what is stored is equal: `request_hash`.
Invariants: (1) a repeat is placed as the first request was, also after the topic has grown, so that each of its batches
meets the partition that remembers it; (2) a key that is in use for another request is rejected before any record is
placed, whichever partitions hold it, in this process or another; (3) a partition that cannot be asked (its shard
restarts) causes a 503, so that its keys are never taken for new.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple, Self

from xxhash import xxh3_128, xxh3_128_digest

from engine.errors import EngineError, KeyReused
from engine.format.keyed_batch import HASH_BYTES, KeyEntry
from engine.partition.partition import Partition
from engine.producers.appends import Appended
from engine.producers.partition_keys import FoundKey
from engine.shard.served_topics import Topic
from gateway.http.problems import Problem, from_engine
from gateway.links.link import LinkDown, LinkLost
from gateway.produce.context import ProduceContext
from gateway.produce.headers import IdempotencyKey
from gateway.routing.calls import FindKeyArguments
from gateway.routing.peers import Owner
from gateway.wire.messages import Header

WINDOW_HEADER = "Penstock-Idempotency-Window"
FIND_S = 30.0
JOINED_BYTES_MAX = 4096  # of a body that is copied, so that one call hashes it
_NOTHING_HASHED = blake2b(digest_size=HASH_BYTES)
_new = tuple.__new__  # of a value without a frame for it


class KeyedRequest(NamedTuple):
    """The hashes of a key and of the request that it names."""

    key_hash: bytes
    request_hash: bytes


def keyed_request(key: IdempotencyKey, body: bytes) -> KeyedRequest:
    """Returns the hashes of a key and of its request, over all that decides what is stored and where.

    The key's hash resists searches for two keys with one hash. The request's hash need not: two requests made to
    collide deceive only their own producer. It is twenty times faster.
    """
    if len(body) <= JOINED_BYTES_MAX:
        request_hash = xxh3_128_digest(key.decides + body)
    else:
        hashed = xxh3_128(key.decides)
        hashed.update(body)
        request_hash = hashed.digest()
    hashed_key = _NOTHING_HASHED.copy()  # half the time of a new one
    hashed_key.update(key.key)
    return _new(KeyedRequest, (hashed_key.digest(), request_hash))


class HeldKey:
    """A key that a request holds: until `release`, no other request of this process begins with it.

    `entry` is that of the batches of this request. `may_be_known`: the key is looked up before the records are placed.
    """

    __slots__ = ("_began", "_context", "_is_held", "_topic", "_window_ms", "entry", "may_be_known")

    def __init__(self, context: ProduceContext, topic: Topic, keyed: KeyedRequest, now_ms: int) -> None:
        """`now_ms` is the time of the request that clients see. Raises the problem of KeyReused."""
        key_hash, request_hash = keyed
        self._context = context
        self._topic = topic
        self._began = time.perf_counter()
        self._window_ms = topic.settings.idempotency_window_ms
        self._is_held = False
        try:
            partitions = context.keys.hold(topic.record.topic_id, key_hash, request_hash, topic.record.partitions)
        except KeyReused as error:
            context.keys.reused += 1
            raise self.with_window(error) from None
        self._is_held = True
        self.entry: KeyEntry = _new(KeyEntry, (key_hash, request_hash, partitions, now_ms))
        self.may_be_known = context.peers.has_others
        for partition in topic.partitions.values():
            if partition.validator.keys.knows(key_hash):
                self.may_be_known = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.release()
        if isinstance(error, Exception):
            raise self.with_window(error) from None

    async def look_up(self) -> None:
        """Looks for the key in all partitions of the topic: a repeat is placed as the first request was.

        Raises the problems of KeyReused and Busy, and holds nothing then.
        """
        key_hash, request_hash, _, now_ms = self.entry
        try:
            found = await _find(self._context, self._topic, KeyedRequest(key_hash, request_hash))
        except BaseException as error:
            self.release()
            if isinstance(error, Exception):
                raise self.with_window(error) from None
            raise
        if found is not None:
            self._window_ms = found.kept_ms
            self.entry = KeyEntry(key_hash, request_hash, found.partitions, now_ms)

    def release(self) -> None:
        """No-op if it was released."""
        if self._is_held:
            self._is_held = False
            self._context.keys.release(self._topic.record.topic_id, self.entry[0])

    def with_window(self, error: Exception) -> Exception:
        """Returns the problem of an error, with the window of the key; any other exception as it is."""
        if isinstance(error, EngineError):
            error = from_engine(error)
        if isinstance(error, Problem):
            return with_window(error, self._window_ms - int(1000 * (time.perf_counter() - self._began)))
        return error


def with_window(problem: Problem, kept_ms: int) -> Problem:
    problem.headers.setdefault(WINDOW_HEADER, str(max(0, kept_ms) // 1000))
    return problem


def window_header(window_ms: int, outcomes: Sequence[object], spent_s: float) -> Header:
    """Returns the header with the seconds from now for which a repeat of any part of this request is recognised.

    `window_ms`: the shortest of its topics. `spent_s`: the seconds since before any part was judged.
    """
    kept_ms = window_ms
    for outcome in outcomes:
        if type(outcome) is Appended and (of_key := outcome.key_kept_ms) is not None and of_key < kept_ms:
            kept_ms = of_key
    return _window_of(int(kept_ms / 1000 - spent_s))


@lru_cache(maxsize=64)  # of windows that few settings and the seconds of a request make
def _window_of(seconds: int) -> Header:
    return WINDOW_HEADER, str(max(0, seconds))


def find_in_partitions(
    partitions: Iterable[Partition], key_hash: bytes, request_hash: bytes, now_ms: int
) -> FoundKey | None:
    """Finds the key in partitions of this process; an entry of another request comes first. `now_ms` is steady time."""
    found = None
    for partition in partitions:
        one = partition.validator.keys.find(key_hash, now_ms)
        if one is not None:
            if one.request_hash != request_hash:
                return one
            found = one
    return found


async def _find(context: ProduceContext, topic: Topic, keyed: KeyedRequest) -> FoundKey | None:
    """Returns the entry of the key in any partition. Raises KeyReused's problem if it is another request's; Busy."""
    if context.peers.has_others:
        found = await _find_in_all(context, topic, keyed)
    else:
        found = [find_in_partitions(topic.partitions.values(), *keyed, context.clock.steady_ms())]
    known = [one for one in found if one is not None]
    for one in known:
        if one.request_hash != keyed.request_hash:
            text = "the Idempotency-Key belongs to another request; give each request a key of its own"
            context.keys.reused += 1
            raise with_window(from_engine(KeyReused(text)), one.kept_ms)
    return known[0] if known else None


async def _find_in_all(context: ProduceContext, topic: Topic, keyed: KeyedRequest) -> list[FoundKey | None]:
    """Waits for every leader: one that is still loading its log may miss the key. Raises EngineError."""
    budget = context.budgets.begin()
    while True:
        try:
            return await _find_now(context, topic, keyed)
        except EngineError as error:
            if not context.router.may_retry(error):
                raise
            await budget.pause(error)


async def _find_now(context: ProduceContext, topic: Topic, keyed: KeyedRequest) -> list[FoundKey | None]:
    """Makes one call to each process that answers for partitions of the topic. Raises LinkDown, EngineError."""
    record, peers = topic.record, context.peers
    by_owner: dict[Owner, list[int]] = {}
    for number in range(record.partitions):
        by_owner.setdefault(peers.owner(record.topic_id, number), []).append(number)
    local = by_owner.pop(Owner(None, peers.index), [])
    led = [context.partitions.led_partition(topic, number) for number in local]
    links = [(peers.link(owner), numbers) for owner, numbers in by_owner.items()]
    now_ms = context.clock.now_ms()  # only for processes of an older version, which judge ages by it
    begun = [
        link.begin("find_key", FindKeyArguments(record.name, record.topic_id, numbers, *keyed, now_ms))
        for link, numbers in links
    ]
    found = [find_in_partitions(led, *keyed, context.clock.steady_ms())]
    for one in begun:
        try:
            async with asyncio.timeout(FIND_S):
                fields, _ = await one
        except (LinkLost, TimeoutError):
            raise LinkDown("the connection to a process that may have the key was lost") from None
        found.append(None if fields is None else FoundKey(*fields))
    return found
