"""Judges of the object store at the end of a run (C13). Pure functions, as in checkers.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from crc32c import crc32c

from engine.format import batch as record_batch
from engine.format.batch import read_header
from engine.tiering.manifest.manifest import Manifest, problem_of
from tests.checking.checkers import FinalLog


@dataclass
class FinalTier:
    """The tiered state of one partition: its chain in commit order, the newest root, and all objects below its
    prefix.
    """

    partition: str
    roots: Sequence[Manifest]
    newest: Manifest | None
    objects: Mapping[str, bytes]
    batches: list[bytes] = field(default_factory=list)


def check_tier(tier: FinalTier, leader: FinalLog, deleted_below: int, *, is_one_history: bool) -> list[str]:
    """C13: the chain only grows, its objects exist and are intact, and disk and store together have no gap.

    `is_one_history`: no election has dropped committed records, so the store has the same records as the leader.
    """
    findings = chain_going_back(tier)
    if tier.newest is not None:
        findings += broken_objects(tier, tier.newest)
        findings += different_records(tier, leader) if is_one_history else []
    return findings + (gaps(tier, leader, deleted_below) if is_one_history else [])


def chain_going_back(tier: FinalTier) -> list[str]:
    """Report roots that do not extend their predecessor. A late root whose slot is free again, with newer roots, counts
    as no commit.
    """
    findings = [f"C13 unsound: {tier.partition} {problem}" for root in tier.roots if (problem := problem_of(root))]
    newest = [root.generation for root in tier.roots]
    counted = [root for at, root in enumerate(tier.roots) if root.generation >= max(newest[: at + 1])]
    for before, after in pairwise(counted):
        if after.generation != before.generation + 1:
            findings.append(
                f"C13 chain of {tier.partition}: {after.generation} was committed after {before.generation}"
            )
        if after.leader_epoch < before.leader_epoch:
            text = f"epoch {after.leader_epoch} committed {after.generation} after epoch {before.leader_epoch}"
            findings.append(f"C13 not fenced: {tier.partition} {text}")
        if after.end_offset < before.end_offset:
            findings.append(f"C13 end of {tier.partition} went back from {before.end_offset} to {after.end_offset}")
    return findings


def broken_objects(tier: FinalTier, newest: Manifest) -> list[str]:
    findings = []
    for entry in newest.entries:
        data = tier.objects.get(entry.key)
        if data is None or entry.aux_key not in tier.objects:
            findings.append(f"C13 missing: {entry.key} is named, and is not there whole")
        elif (len(data), crc32c(data)) != (entry.size_bytes, entry.crc32c):
            findings.append(f"C13 changed: {entry.key} is not what the manifest names")
        else:
            headers = [header for _, header in record_batch.walk(data)]
            ends = [entry.base_offset, *(header.next_offset for header in headers)]
            if [header.base_offset for header in headers] != ends[:-1] or ends[-1] != entry.end_offset:
                findings.append(f"C13 offsets: {entry.key} has {ends}")
    return findings


def different_records(tier: FinalTier, leader: FinalLog) -> list[str]:
    """A batch that is on disk and in the store is the same in both."""
    local = {read_header(batch).base_offset: batch for batch in leader.batches}
    return [
        f"C13 differs: {tier.partition} {base} in the store is not what node {leader.node_id} has"
        for batch in tier.batches
        if local.get(base := read_header(batch).base_offset, batch) != batch
    ]


def gaps(tier: FinalTier, leader: FinalLog, deleted_below: int) -> list[str]:
    """Records from log_start that this disk has deleted are in the store.

    A new leader need not know the deletions of its predecessor yet.
    """
    start = max(leader.log_start, deleted_below)
    begin, end = (tier.newest.base_offset, tier.newest.end_offset) if tier.newest else (0, 0)
    if leader.local_log_start > start and not begin <= start <= leader.local_log_start <= end:
        text = f"node {leader.node_id} has {start}.. from {leader.local_log_start} on"
        return [f"C13 gap: {text}, the store has {begin}..{end} of {tier.partition}"]
    return []


def left_behind(tier: FinalTier) -> list[str]:
    """After the day of grace and a cleaning the store has no object that is not named.

    Objects that begin at or above the manifest's end may belong to a lost newer manifest, so they stay until a commit
    has passed them.
    """
    newest = tier.newest.entries if tier.newest is not None else ()
    end_offset = tier.newest.end_offset if tier.newest is not None else 0
    named = {key for entry in newest for key in (entry.key, entry.aux_key)}
    passed = [key for key in tier.objects if "/manifest/" not in key and begin_of(key) < end_offset]
    return [f"C13 orphan: {key} is left" for key in passed if key not in named]


def begin_of(key: str) -> int:
    """Return the first offset of an object; -1 for names that tiering does not use."""
    name = key.rpartition("/")[2].partition("-")[0]
    return int(name) if name.isdigit() else -1
