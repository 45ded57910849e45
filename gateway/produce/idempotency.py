"""`Idempotency-Key`: which request is the same as which, and where the first one of them put its records.

Finds out before the records are placed; whether a batch has been stored is then the partition's judgement
(engine/producers/append_validator.py). A key belongs to a topic. The same key is the same request if all is the same
that decides what would be stored: `request_hash`.
What must hold: (1) a repeat is placed as the first one was, also after the topic has grown, so that each of its batches
meets what is remembered of it; (2) a key that is in use for another request is refused before anything is placed,
whichever partitions hold it, in this process or another; (3) what cannot be asked (a shard that restarts) is answered
503, never taken for new.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from aiohttp import web
from xxhash import xxh3_128

from engine.errors import EngineError, KeyReused
from engine.format.keyed_batch import HASH_BYTES, KeyEntry
from engine.partition.partition import Partition
from engine.producers.append_validator import Appended
from engine.producers.partition_keys import FoundKey
from engine.shard.served_topics import Topic
from gateway.http.problems import Problem, from_engine
from gateway.links.link import LinkDown, LinkLost
from gateway.produce.appending import Outcome
from gateway.produce.cloud_events import binary_attributes
from gateway.produce.conditions import has_sequence
from gateway.produce.context import ProduceContext
from gateway.routing.leader_failover import will_pass
from gateway.routing.peers import Owner

HEADER = "Idempotency-Key"
WINDOW_HEADER = "Penstock-Idempotency-Window"
FIND_S = 30.0
UNSTORED = ("acks", "timeout_ms")  # names of the query that change nothing of what is stored

_KEY = re.compile(r"[!-~]{1,255}")


class KeyedRequest(NamedTuple):
    """A key, and the request that it names."""

    key_hash: bytes
    request_hash: bytes


def read_key(request: web.Request) -> bytes | None:
    """None for a request without a key, which is most of them. Raises Problem invalid_header."""
    if HEADER not in request.headers:
        return None
    texts = request.headers.getall(HEADER)
    if len(texts) > 1 or not _KEY.fullmatch(texts[0]):
        raise Problem("invalid_header", f"{HEADER} is 1 to 255 visible ASCII characters, given once")
    if has_sequence(request):
        raise Problem("invalid_header", f"a request has an {HEADER} or a Producer-Id, not both")
    return texts[0].encode()


def keyed_request(key: bytes, request: web.Request, body: bytes) -> KeyedRequest:
    """All that decides what would be stored, and where: not how long to wait for it, nor how the body was packed.

    The key's hash withstands those who look for two keys with the same one. The request's need not: whoever made two
    requests alike to it would deceive nobody but himself. It is the faster one by twenty times.
    """
    headers = request.headers
    query = [one for one in request.query.items() if one[0] not in UNSTORED]
    attributes = binary_attributes(headers)
    fixed = (headers.get("Content-Type"), headers.get("Penstock-Key"), request.match_info.get("partition"))
    what = (fixed, query and sorted(query), attributes and sorted(attributes.items()))
    digest = xxh3_128(repr(what).encode("utf-8", "backslashreplace"))  # no two of them look alike
    digest.update(body)
    return KeyedRequest(blake2b(key, digest_size=HASH_BYTES).digest(), digest.digest())


class KeyInFlight:
    """`async with` gives the entry for the batches of this request; until the end nobody else in this process begins
    with its key. Raises KeyReused's and Busy's problems, and tells those on the way with the window.

    `now_ms` is the time of the request that is told to clients.
    """

    __slots__ = ("_began_ms", "_context", "_is_held", "_keyed", "_now_ms", "_topic", "_window_ms")

    def __init__(self, context: ProduceContext, topic: Topic, keyed: KeyedRequest, now_ms: int) -> None:
        self._context = context
        self._topic = topic
        self._keyed = keyed
        self._now_ms = now_ms
        self._began_ms = context.clock.steady_ms()
        self._window_ms = topic.settings.idempotency_window_ms
        self._is_held = False

    async def __aenter__(self) -> KeyEntry:
        key_hash, request_hash = self._keyed
        record = self._topic.record
        try:
            partitions = self._context.keys.hold(record.topic_id, key_hash, request_hash, record.partitions)
            self._is_held = True
            found = await _found(self._context, self._topic, self._keyed)
        except (EngineError, Problem) as error:
            if isinstance(error, KeyReused):
                self._context.keys.reused += 1
            self._let_go()
            raise self._told(error) from None
        except BaseException:
            self._let_go()
            raise
        if found is not None:
            self._window_ms = found.kept_ms
            partitions = found.partitions
        return KeyEntry(key_hash, request_hash, partitions, self._now_ms)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._let_go()
        if isinstance(error, (EngineError, Problem)):
            raise self._told(error) from None

    def _let_go(self) -> None:
        if self._is_held:
            self._is_held = False
            self._context.keys.let_go(self._topic.record.topic_id, self._keyed.key_hash)

    def _told(self, error: EngineError | Problem) -> Problem:
        problem = from_engine(error) if isinstance(error, EngineError) else error
        return with_window(problem, self._window_ms - (self._context.clock.steady_ms() - self._began_ms))


def with_window(problem: Problem, kept_ms: int) -> Problem:
    problem.headers.setdefault(WINDOW_HEADER, str(max(0, kept_ms) // 1000))
    return problem


def window_headers(topics: Sequence[Topic], outcomes: Sequence[Outcome], spent_s: float) -> dict[str, str]:
    """For how many seconds from now a repeat is recognised, of whatever of this request is stored or will be.

    `spent_s`: since before any of it was judged.
    """
    kept_ms = min([topic.settings.idempotency_window_ms for topic in topics], default=0)
    for one in outcomes:
        if isinstance(one, Appended) and one.key_kept_ms is not None and one.key_kept_ms < kept_ms:
            kept_ms = one.key_kept_ms
    return {WINDOW_HEADER: str(int(max(0.0, kept_ms / 1000 - spent_s)))}


def find_here(partitions: Iterable[Partition], key_hash: bytes, request_hash: bytes, now_ms: int) -> FoundKey | None:
    """Among partitions of this process. One that tells of another request comes first."""
    found = None
    for partition in partitions:
        one = partition.validator.keys.find(key_hash, now_ms)
        if one is not None:
            if one.request_hash != request_hash:
                return one
            found = one
    return found


async def _found(context: ProduceContext, topic: Topic, keyed: KeyedRequest) -> FoundKey | None:
    """What any partition knows of the key. Raises KeyReused if it is of another request, Busy."""
    if context.peers.nodes is not None:
        found = await _found_in_cluster(context, topic, keyed)
    else:
        found = [find_here(topic.partitions.values(), *keyed, context.clock.steady_ms())]
        if context.peers.count > 1:
            found += await _found_elsewhere(context, topic, keyed)
    known = [one for one in found if one is not None]
    for one in known:
        if one.request_hash != keyed.request_hash:
            text = "the Idempotency-Key belongs to another request; give each request a key of its own"
            context.keys.reused += 1
            raise with_window(from_engine(KeyReused(text)), one.kept_ms)
    return known[0] if known else None


async def _found_in_cluster(context: ProduceContext, topic: Topic, keyed: KeyedRequest) -> list[FoundKey | None]:
    """As soon as each partition's leader has told: one that does not know its log yet may not know the key either."""
    budget = context.budgets.begin()
    while True:
        try:
            return await _found_elsewhere(context, topic, keyed)
        except EngineError as error:
            if not will_pass(error):
                raise
            await budget.pause(error)


async def _found_elsewhere(context: ProduceContext, topic: Topic, keyed: KeyedRequest) -> list[FoundKey | None]:
    """One call to each process that answers for partitions of the topic, all at once; none to this one, if alone."""
    record, peers = topic.record, context.peers
    by_owner: dict[Owner, list[int]] = {}
    for number in range(record.partitions):
        by_owner.setdefault(peers.owner(record.topic_id, number), []).append(number)
    here = by_owner.pop(Owner(None, peers.index), [])
    links = [(peers.link(owner), numbers) for owner, numbers in by_owner.items()]
    now_ms = context.clock.now_ms()  # for processes of an older version only, which judge ages by it
    begun = [link.begin("find_key", (record.name, record.topic_id, numbers, *keyed, now_ms)) for link, numbers in links]
    found: list[FoundKey | None] = []
    if peers.nodes is not None:
        led = [context.partitions.led(topic, number) for number in here]
        found.append(find_here(led, *keyed, context.clock.steady_ms()))
    for one in begun:
        try:
            async with asyncio.timeout(FIND_S):
                fields, _ = await one
        except (LinkLost, TimeoutError):
            raise LinkDown("a process that may know the key went away") from None
        found.append(None if fields is None else FoundKey(*fields))
    return found
