"""Starts a node on damaged files, reads everything from it, and reports errors.

Correct is a start that fails with a reason. Correct is also a node that returns each acknowledged record unchanged or a
problem that says why not, and that has removed nothing except what a start may remove (engine/format/FORMAT.md).
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import orjson

from engine.errors import EngineError
from engine.format import batch
from tests.missing_files.faults import judged_tree_of
from tests.missing_files.template import KEY, KEYED_VALUE, TIER_CACHE_BYTES, Template
from tests.scenarios.gateways import Answer, InProcess, Topic, in_process

JSON = "application/json"
SAYS_WHY = ("records_damaged", "storage_failed", "offset_below_log_start", "store_unavailable")

MAY_VANISH = re.compile(
    r"running|topics/.*/\d{20}\.(index|timeindex|checksum|quarantine|snapshot)(\.tmp)?"
    r"|topics/.*/(\d{20}\.log|leader-epochs|fenced|topic\.json)\.tmp|tier-cache/.*"
)
_LOG = re.compile(r"(topics/([^/]+)/[^/]+/(\d+))/(\d{20})\.log")
MAY_CHANGE = re.compile(
    r"store-identities|recovery-points|high-watermarks|coordination|running|topics/.*/\d{20}\..*|store/.*/latest\.json"
    r"|store/[^/]+/[^/]+/[^/]+/topic\.json"  # made from that of the data directory
    r"|tier-cache/.*"  # blocks are replaced in place
    r"|spare/[0-7]"  # its bytes mean nothing
)

KEPT = re.compile(r"topics/.*/\d{20}\.foreign-[0-9a-f]{8}")


class Verdict:
    """The result of one start. `wrong` is empty if it is correct."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.refused = ""
        self.unserved: dict[tuple[str, int], str] = {}  # by topic and partition: one of the problems
        self.served = 0

    @property
    def is_whole(self) -> bool:
        return not self.refused and not self.unserved


# by topic and partition: the first offset with another partition's records, and that partition
Exchanged = dict[tuple[str, int], tuple[int, tuple[str, int]]]


def exchanged_logs(intact: dict[str, bytes], now: dict[str, bytes]) -> Exchanged:
    """Return the active logs whose bytes are the active log of another partition with the same first offset.

    Both are valid logs; no byte in them names their partition (engine/format/FORMAT.md).
    """
    active = {name: match for name in intact if (match := _LOG.fullmatch(name)) and name == _last_log(intact, match[1])}
    found: Exchanged = {}
    for name, match in active.items():
        for other, others in active.items():
            if other != name and others[4] == match[4] and now.get(name) == intact[other]:
                found[match[2], int(match[3])] = int(match[4]), (others[2], int(others[3]))
    return found


async def judged(root: Path, template: Template, exchanged: Exchanged | None = None) -> Verdict:
    """Judge one start. `root` holds `data`. If a partition has another one's log, that one's records are expected."""
    verdict = Verdict()
    data = root / "data"
    before = judged_tree_of(data)
    try:
        async with in_process(root, tier_cache_bytes_max=TIER_CACHE_BYTES) as gateway:
            gateway.send = partial(_send, gateway)  # type: ignore[method-assign] # the contract is held elsewhere
            for (topic, partition), records in template.records.items():
                records = _with_exchanged(template, records, (exchanged or {}).get((topic, partition)))
                await _read(verdict, Topic(gateway, topic), partition, records, template)
            await _repeat(verdict, gateway, template)
    except EngineError as error:
        verdict.refused = str(error)
        if not any(word in verdict.refused for word in (str(data), "topics")):
            verdict.wrong.append(f"the refusal names no file: {error}")
    except Exception as error:
        verdict.wrong.append(f"a traceback: {error!r} {''.join(traceback.format_tb(error.__traceback__)[-2:])}")
    verdict.wrong += _removed(before, judged_tree_of(data))
    return verdict


def _with_exchanged(
    template: Template, records: dict[int, str], other: tuple[int, tuple[str, int]] | None
) -> dict[int, str]:
    if other is None:
        return records
    begin, whose = other
    foreign = {offset: value for offset, value in template.records[whose].items() if offset >= begin}
    return {offset: value for offset, value in records.items() if offset < begin} | foreign


async def _send(
    gateway: InProcess,
    method: str,
    path: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    **query: object,
) -> Answer:
    return await gateway._send(method, path + ("?" + urlencode(query) if query else ""), dict(headers or {}), body)


async def _read(verdict: Verdict, topic: Topic, partition: int, records: dict[int, str], template: Template) -> None:
    which, at, end = (topic.name, partition), template.log_starts.get((topic.name, partition), 0), max(records) + 1
    while at <= end:
        answer = await topic.fetch(at, partition, wait_ms=0)
        if answer.status != 200:
            problem = answer.json
            if problem["code"] not in SAYS_WHY or not problem["detail"]:
                verdict.wrong.append(f"{which} at {at}: {answer.status} {problem}")
                return
            verdict.unserved.setdefault(which, f"{at}: {problem['code']} {problem['detail']}")
            if "damaged_end" not in problem:  # no record of the partition is served
                return
            at = problem["damaged_end"]
            continue
        given = answer.json["records"]
        for record in given:
            if record["offset"] != at or (at < end and record.get("value") != records[at]):
                verdict.wrong.append(f"{which} at {at}: got {record}")
                return
            at += 1
        verdict.served += len(given)
        if answer.json["next_offset"] != at:
            verdict.wrong.append(f"{which}: after {at} comes {answer.json['next_offset']}")
            return
        if not given or at == answer.json["high_watermark"]:
            if at < end:
                verdict.wrong.append(f"{which} ends at {at}, not at {end}")
            return


async def _repeat(verdict: Verdict, gateway: InProcess, template: Template) -> None:
    """Repeats are recognised or rejected, never stored; a new producer id is not in use."""
    topic = Topic(gateway, "keyed")
    if "keyed" in {name for name, _ in verdict.unserved}:
        return
    body = orjson.dumps({"records": [{"value": KEYED_VALUE}]})
    answer = await topic.post(body, JSON, KEY, to=0)
    if answer.status == 200 and answer.json["results"][0]["base_offset"] != template.keyed_offset:
        verdict.wrong.append(f"a keyed request is stored twice: {answer.json}")
    answer = await gateway.send("POST", "/v1/producers")
    if answer.status == 201:
        made = answer.json
        fields = {"Producer-Id": made["producer_id"], "Producer-Epoch": made["producer_epoch"], "Producer-Seq": 0}
        headers = {name: str(value) for name, value in fields.items()}
        answer = await topic.post(orjson.dumps({"records": [{"value": "new"}]}), JSON, headers, to=0)
        if answer.status == 200 and answer.json["results"][0]["base_offset"] <= template.keyed_offset:
            verdict.wrong.append(f"the record of a new producer is taken for an old one: {answer.json}")


def _removed(before: dict[str, bytes], after: dict[str, bytes]) -> Iterator[str]:
    """Return the files that must not be missing. A batch may have left a file if another file has it, as after a
    repair.
    """
    there = b"".join(data for name, data in after.items() if name.endswith(".log") or KEPT.fullmatch(name))
    for name, data in before.items():
        if name not in after:
            if not MAY_VANISH.fullmatch(name) and not _holds_nothing(before, name):
                yield f"{name} was removed"
        elif after[name] != data and not MAY_CHANGE.fullmatch(name):
            yield f"{name} was changed"
        elif name.endswith(".log") and after[name] != data:
            for covered, header in _batches(data):
                if covered not in there:
                    yield f"{name}: the batch of offset {header.base_offset} was removed"


def _holds_nothing(files: dict[str, bytes], name: str) -> bool:
    """True if it is an empty active segment, as a roll creates it."""
    match = _LOG.fullmatch(name)
    return match is not None and not files[name] and name == _last_log(files, match[1])


def _last_log(files: dict[str, bytes], directory: str) -> str:
    """Return the active segment of a partition's directory."""
    return max(name for name in files if (match := _LOG.fullmatch(name)) and match[1] == directory)


def _batches(data: bytes) -> Iterator[tuple[bytes, batch.Header]]:
    """Return the checksummed part of every complete batch, at any position."""
    at = 0
    while at + batch.HEADER_BYTES <= len(data):
        header = batch.read_header(data, at)
        is_whole = header.magic == batch.MAGIC and batch.HEADER_BYTES <= header.size_bytes <= len(data) - at
        if is_whole and batch.has_valid_crc(data, at, header):
            yield data[at + 21 : at + header.size_bytes], header
            at += header.size_bytes
        else:
            at += 1
