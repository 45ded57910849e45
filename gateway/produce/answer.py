"""Answers a produce with the outcome of each of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypedDict

import orjson

from engine.producers.appends import Appended
from engine.shard.served_topics import Topic
from gateway.http.problems import Problem
from gateway.http.response import JSON_TYPE, Response, form_of
from gateway.produce.batching import Part
from gateway.produce.queue import Outcome
from gateway.wire.messages import Header
from replication.replica.acks import Acks

DURABILITIES = ("none", "page_cache", "fsync")  # the weakest first


class Result(TypedDict, total=False):
    """One entry of an answer. `topic` and `durability` are of a produce to many topics."""

    topic: str
    partition: int | None
    base_offset: int | None
    count: int
    timestamp: int | None
    duplicate: bool
    status: int
    problem: dict[str, object]
    durability: str


def answer(
    parts: Sequence[Part],
    outcomes: Sequence[Outcome],
    acks: Acks,
    now_ms: int,
    topic: Topic | None,
    headers: tuple[Header, ...] = (),
) -> Response:
    """Returns 200, or 202 with acks=0; if some parts failed 207 with a status for each. `headers` are further ones.

    `topic` is None for a produce to many topics: then each result names its own. Raises the problem of one part if all
    failed; for many topics it has all results.
    """
    success = 202 if acks is Acks.NONE else 200
    if topic is not None and len(outcomes) == 1:
        outcome = outcomes[0]
        if outcome is None or (type(outcome) is Appended and not outcome.is_duplicate):
            body = _body_of_one(topic, parts[0], outcome, acks, now_ms)
            form = form_of(success, (JSON_TYPE, *headers)) if headers else _FORMS[success]
            return Response(body, _NO_HEADERS, success, form)
    has_failed = any(isinstance(outcome, Problem) for outcome in outcomes)
    status = success if has_failed else None
    results = [
        _result(part, outcome, acks, now_ms, status, names_topic=topic is None)
        for part, outcome in zip(parts, outcomes, strict=True)
    ]
    if has_failed:
        try:
            check_one_success(outcomes)
        except Problem as problem:
            if topic is None:
                problem.members["results"] = results
            raise
    if topic is not None:
        document = _document(topic, acks, results)
    else:
        durability = min((one["durability"] for one in results if "problem" not in one), key=DURABILITIES.index)
        document = {"acks": _WORDS[acks], "durability": durability, "results": results}
    if all(isinstance(outcome, Appended) and outcome.is_duplicate for outcome in outcomes):
        headers = (("Penstock-Duplicate", "true"), *headers)
    return Response(orjson.dumps(document), dict((JSON_TYPE, *headers)), 207 if has_failed else success)


def _document(topic: Topic, acks: Acks, results: list[Result]) -> dict[str, object]:
    durability = _durability(acks, topic)
    return {"topic": topic.record.name, "acks": _WORDS[acks], "durability": durability, "results": results}


def _body_of_one(topic: Topic, part: Part, appended: Appended | None, acks: Acks, now_ms: int) -> bytes:
    """Returns the document for one part that is stored and no duplicate, which is most of them."""
    name, partition, count = part.topic_name, part.partition, part.record_count
    assert partition is not None
    if appended is None:
        return b'%bnull,"count":%d,"timestamp":%d}]}' % (_start_of_one(name, "0", "none", partition), count, now_ms)
    if acks is Acks.ALL:
        start = _start_of_one(name, "all", "fsync" if topic.settings.durability == "group" else "page_cache", partition)
    else:  # the hash of an Enum has a frame
        start = _start_of_one(name, "1", "page_cache", partition)
    return b'%b%d,"count":%d,"timestamp":%d}]}' % (start, appended.base_offset, count, now_ms)


@lru_cache(maxsize=4096)  # bounded: topics have many partitions
def _start_of_one(topic_name: str, acks: str, durability: str, partition: int) -> bytes:
    document = {"topic": topic_name, "acks": acks, "durability": durability, "results": []}
    return orjson.dumps(document).removesuffix(b"]}") + b'{"partition":%d,"base_offset":' % partition


def _durability(acks: Acks, topic: Topic) -> str:
    """Returns the durability that an answer may claim: where the records were when it was sent."""
    if acks is Acks.NONE:
        return "none"
    return "fsync" if acks is Acks.ALL and topic.settings.durability == "group" else "page_cache"


def check_one_success(outcomes: Iterable[Outcome]) -> None:
    """Raises a Problem if all failed: if there is one, one that may have stored something."""
    outcomes = list(outcomes)
    failed = [outcome for outcome in outcomes if isinstance(outcome, Problem)]
    if len(failed) == len(outcomes):
        raise min(failed, key=lambda problem: bool(problem.document()["no_side_effects"]))


def _result(part: Part, outcome: Outcome, acks: Acks, now_ms: int, status: int | None, *, names_topic: bool) -> Result:
    """Returns an entry of the answer. `status` is the status of a success if other parts have failed."""
    result: Result = {}
    if names_topic:
        result["topic"] = part.topic_name
    result |= {"partition": part.partition, "base_offset": None, "count": part.record_count, "timestamp": now_ms}
    if isinstance(outcome, Problem):
        result |= {"status": outcome.status, "problem": outcome.document()}
    else:
        if outcome is not None:
            result["base_offset"] = outcome.base_offset
            if outcome.is_duplicate:
                result |= {"count": outcome.record_count, "timestamp": outcome.timestamp_ms, "duplicate": True}
        if status is not None:
            result["status"] = status
    if names_topic:
        result["durability"] = "none"
        if part.topic is not None and not isinstance(outcome, Problem):
            result["durability"] = _durability(acks, part.topic)
    return result


_WORDS = {acks: acks.value for acks in Acks}  # a look-up costs a quarter of `value`
_FORMS = {status: form_of(status, (JSON_TYPE,)) for status in (200, 202)}  # a look-up costs a quarter of the cache's
_NO_HEADERS: dict[str, str] = {}  # of an answer with a form
