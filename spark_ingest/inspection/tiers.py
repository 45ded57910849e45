"""Compares the counts of records at four tiers, by topic and ten minutes: client, gateway, store and tables.

The client counts what was acknowledged to it, the gateway what its partitions accepted, the store is read batch by
batch, and the tables are what commits have counted. A record that a later tier has is not lost at an earlier one,
whatever that one counted: a kill loses counts of up to a minute. So the tier at which records were lost is the first
with fewer records, there and behind it, than the tier before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.tiering.manifest.accepted_object import ALL_PERIODS, CountedTopic
from engine.tiering.store.store import ObjectStore
from spark_ingest.decode.time_counts import PERIOD_MS
from spark_ingest.inspection.completeness import (
    SETTLED_MS,
    accepted_of,
    count_ingested,
    counted_since_ms,
    has_topic,
    load_accepted,
)
from spark_ingest.protocol.commit import Commit
from spark_ingest.source.discovery import TieredPartition, discover, load_folded, slices_of
from spark_ingest.source.scan import scan

TIERS = ("client", "gateway", "store", "tables")

ClientCounts = Mapping[str, Mapping[int, int]]  # by topic and period


class TierLoss(NamedTuple):
    """Records that a tier does not have, of those that the tier before had. `counts` are in the order of TIERS."""

    topic: str
    from_ms: int
    tier: str
    records: int
    counts: tuple[int | None, ...]


@dataclass(slots=True)
class TierCounts:
    """The records of a topic at each tier, and its losses. `reason`: why it was not compared."""

    totals: dict[str, int | None] = field(default_factory=dict)
    pending: int = 0  # records of periods that are not settled yet, at the tier that has most
    losses: list[TierLoss] = field(default_factory=list)
    reason: str | None = None


def compare_tiers(
    source: ObjectStore,
    commits: Sequence[Commit],
    clients: ClientCounts,
    is_wanted: Callable[[str], bool] = lambda _: True,
    settled_ms: int = SETTLED_MS,
) -> dict[str, TierCounts]:
    """Returns the comparison of each topic that the job has read. Raises Corrupt, NoSuchObject."""
    if not commits:
        return {}
    head = commits[-1]
    topics = sorted(topic for topic in head.positions if is_wanted(topic))
    partitions: dict[str, list[TieredPartition]] = {topic: [] for topic in topics}
    for partition in discover(source, head.cluster, partitions.__contains__):
        if partition.topic_id == head.positions[partition.topic].topic_id:
            partitions[partition.topic].append(partition)
    hours, _ = load_accepted(source, head.cluster)
    compared: dict[str, TierCounts] = {}
    for topic in topics:
        topic_id = head.positions[topic].topic_id
        mine = [commit for commit in commits if has_topic(commit, topic, topic_id)]
        if counted_since_ms(topic, mine) is not None:
            compared[topic] = TierCounts(
                reason="the job did not begin with the first record, or commits have no counts"
            )
            continue
        accepted = accepted_of(hours, CountedTopic(topic, topic_id), None)
        stored = _count_stored(source, partitions[topic])
        compared[topic] = _compare(
            topic, clients.get(topic), (accepted, stored, count_ingested(topic, mine)), head.committed_ms - settled_ms
        )
    return compared


def _count_stored(source: ObjectStore, partitions: Sequence[TieredPartition]) -> Counter[int]:
    """Counts each batch of the store under its greatest timestamp, as a gateway does when it accepts it."""
    counts: Counter[int] = Counter()
    for partition in partitions:
        start, end = partition.log_start, partition.tiered_end
        folded = load_folded(source, [(partition, start, end)])
        for batch in scan(source, slices_of(partition, start, end, folded)):
            counts[batch.header.max_timestamp // PERIOD_MS] += batch.header.record_count
    return counts


def _compare(
    topic: str, client: Mapping[int, int] | None, counted: Sequence[Mapping[int, int]], until_ms: int
) -> TierCounts:
    columns: list[Mapping[int, int] | None] = [client, *counted]
    compared = TierCounts({tier: _total(column) for tier, column in zip(TIERS, columns, strict=True)})
    if any(column is not None and ALL_PERIODS in column for column in columns):
        compared.reason = "its records have too many different times to compare them by ten minutes"
        return compared
    for period in sorted({period for column in columns if column is not None for period in column}):
        counts = tuple(None if column is None else column.get(period, 0) for column in columns)
        if (period + 1) * PERIOD_MS > until_ms:
            compared.pending += max(count or 0 for count in counts)
            continue
        later = 0 if client is None else _surplus(period + 1, client, counted)
        compared.losses += _losses(topic, period, counts, later)
    return compared


def _surplus(period: int, client: Mapping[int, int], counted: Sequence[Mapping[int, int]]) -> int:
    """Returns what the tiers behind the client have beyond it: batches on the border of two periods count in the later
    one, where one of their records is.
    """
    return max(max(column.get(period, 0) for column in counted) - client.get(period, 0), 0)


def _losses(topic: str, period: int, counts: tuple[int | None, ...], later: int) -> list[TierLoss]:
    losses: list[TierLoss] = []
    before: int | None = None
    for at, tier in enumerate(TIERS):
        if counts[at] is None:
            continue
        here = max(count or 0 for count in counts[at:])  # what a later tier has was here
        if before is not None:
            lost = before - here - (later if TIERS[at - 1] == "client" else 0)
            if lost > 0:
                losses.append(TierLoss(topic, period * PERIOD_MS, tier, lost, counts))
        before = here
    return losses


def _total(column: Mapping[int, int] | None) -> int | None:
    return None if column is None else sum(column.values())
