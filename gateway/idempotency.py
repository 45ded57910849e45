"""`Idempotency-Key`: which request is the same as which, and where the first one of them put its records.

Finds out before the records are placed; whether a batch has been stored is then the partition's judgement
(engine/admission.py). A key belongs to a topic. The same key is the same request if all is the same that decides what
would be stored: `request_hash`.
What must hold: (1) a repeat is placed as the first one was, also after the topic has grown, so that each of its batches
meets what is remembered of it; (2) a key that is in use for another request is refused before anything is placed,
whichever partitions hold it, in this process or another; (3) what cannot be asked (a shard that restarts) is answered
503, never taken for new.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import NamedTuple

from aiohttp import web

from engine.admission import Appended
from engine.errors import EngineError, KeyReused
from engine.keyed_batch import HASH_BYTES, KeyEntry
from engine.partition_keys import FoundKey
from engine.shard import Topic
from gateway.appending import Outcome
from gateway.link import Busy, LinkLost
from gateway.node import Node
from gateway.problems import Problem, from_engine
from gateway.terms import SEQUENCE_HEADERS

HEADER = "Idempotency-Key"
WINDOW_HEADER = "Penstock-Idempotency-Window"
FIND_S = 30.0

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
    if any(header in request.headers for header in SEQUENCE_HEADERS):
        raise Problem("invalid_header", f"a request has an {HEADER} or a Producer-Id, not both")
    return texts[0].encode()


def keyed_request(key: bytes, request: web.Request, body: bytes) -> KeyedRequest:
    """All that decides what would be stored, and where: not how long to wait for it, nor how the body was packed."""
    headers = request.headers
    query = [one for one in sorted(request.query.items()) if one[0] not in ("acks", "timeout_ms")]
    attributes = sorted((name.lower(), value) for name, value in headers.items() if name[:3].lower() == "ce-")
    fixed = (headers.get("Content-Type"), headers.get("Penstock-Key"), request.match_info.get("partition"))
    what = repr((fixed, query, attributes)).encode("utf-8", "backslashreplace")  # no two of them look alike
    digest = blake2b(what, digest_size=HASH_BYTES)
    digest.update(body)
    return KeyedRequest(blake2b(key, digest_size=HASH_BYTES).digest(), digest.digest())


@asynccontextmanager
async def in_hand(node: Node, topic: Topic, keyed: KeyedRequest, now_ms: int) -> AsyncIterator[KeyEntry]:
    """The entry for the batches of this request; until the end nobody else in this process begins with its key.

    Raises KeyReused, Busy. Problems on the way are told with the window.
    """
    key_hash, request_hash = keyed
    window_ms = topic.settings.idempotency_window_ms
    try:
        with node.key_holds.hold(topic.record.topic_id, key_hash, request_hash, topic.record.partitions) as partitions:
            found = await _found(node, topic, keyed, now_ms)
            if found is not None:
                window_ms = found.kept_ms
                partitions = found.partitions
            yield KeyEntry(key_hash, request_hash, partitions, now_ms)
    except EngineError as error:
        if isinstance(error, KeyReused):
            node.key_holds.reused += 1
        raise with_window(from_engine(error), window_ms - (node.clock.now_ms() - now_ms)) from None
    except Problem as problem:
        raise with_window(problem, window_ms - (node.clock.now_ms() - now_ms)) from None


def with_window(problem: Problem, kept_ms: int) -> Problem:
    problem.headers.setdefault(WINDOW_HEADER, str(max(0, kept_ms) // 1000))
    return problem


def window_headers(topics: Sequence[Topic], outcomes: Sequence[Outcome], began_ms: int, now_ms: int) -> dict[str, str]:
    """For how many seconds from now a repeat is recognised, of whatever of this request is stored or will be."""
    spent_ms = max(0, now_ms - began_ms)
    kept_ms = [max(0, topic.settings.idempotency_window_ms - spent_ms) for topic in topics]
    kept_ms += [one.key_kept_ms for one in outcomes if isinstance(one, Appended) and one.key_kept_ms is not None]
    return {WINDOW_HEADER: str(min(kept_ms, default=0) // 1000)}


def find_here(topic: Topic, key_hash: bytes, request_hash: bytes, now_ms: int) -> FoundKey | None:
    """Among the partitions of this process. One that tells of another request comes first."""
    found = None
    for partition in topic.partitions.values():
        one = partition.admission.keys.find(key_hash, now_ms)
        if one is not None:
            if one.request_hash != request_hash:
                return one
            found = one
    return found


async def _found(node: Node, topic: Topic, keyed: KeyedRequest, now_ms: int) -> FoundKey | None:
    """What any partition knows of the key. Raises KeyReused if it is of another request, Busy."""
    found = [find_here(topic, *keyed, now_ms)]
    if node.peers.count > 1:
        found += await _found_elsewhere(node, topic, keyed, now_ms)
    known = [one for one in found if one is not None]
    for one in known:
        if one.request_hash != keyed.request_hash:
            text = "the Idempotency-Key belongs to another request; give each request a key of its own"
            node.key_holds.reused += 1
            raise with_window(from_engine(KeyReused(text)), one.kept_ms)
    return known[0] if known else None


async def _found_elsewhere(node: Node, topic: Topic, keyed: KeyedRequest, now_ms: int) -> list[FoundKey | None]:
    """One call to each other process that has partitions of the topic, all at once."""
    topic_id = topic.record.topic_id
    owners = {node.peers.owner(topic_id, number) for number in range(topic.record.partitions)} - {node.peers.index}
    arguments = (topic.record.name, topic_id, *keyed, now_ms)
    begun = [node.peers.link(owner).begin("find_key", arguments) for owner in owners]
    found: list[FoundKey | None] = []
    for one in begun:
        try:
            async with asyncio.timeout(FIND_S):
                fields, _ = await one
        except (LinkLost, TimeoutError):
            raise Busy("a process that may know the key went away") from None
        found.append(None if fields is None else FoundKey(*fields))
    return found
