"""Compares what a job has ingested with what the nodes of its cluster accepted: records by topic and ten minutes.

The nodes write their counts into the store each minute (engine/tiering/manifest/accepted_object.py), commits have those
of what they read. Both count a batch under its greatest timestamp, so the numbers of a period are equal if no record is
missing. A node that was killed has lost the counts of up to a minute: then more is ingested than accepted, which says
nothing. Fewer is a loss, once the period is over, everything of it is in the store, and the job has read that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypedDict

from engine.format.paths import accepted_hour_of, store_accepted_prefix
from engine.tiering.manifest.accepted_object import ALL_PERIODS, HOUR_MS, CountedTopic, decode_accepted
from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.decode.time_counts import PERIOD_MS
from spark_ingest.plan import REPLAY
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History
from spark_ingest.protocol.status import lag
from spark_ingest.source.requests import request_all

SETTLED_MS = 3 * HOUR_MS  # after the end of a period: its records are sealed, uploaded and read by then
PERIODS_SHOWN = 1000


PeriodDocument = TypedDict("PeriodDocument", {"from": str | None, "accepted": int, "ingested": int})


class CompletenessDocument(TypedDict):
    """The counts of a topic in `--json`."""

    accepted: int
    ingested: int
    missing: int
    pending: int
    unreadable_counts: int
    periods: list[PeriodDocument]


@dataclass(slots=True)
class TopicCompleteness:
    """The comparison of a topic. `missing` counts records of settled periods, `pending` those of later ones.

    `periods` has (start in ms, accepted, ingested) of settled periods with missing records; the start is None if they
    are too many to compare one by one. `unreadable` are objects of counts that cannot be read: `accepted` is too low.
    """

    accepted: int = 0
    ingested: int = 0
    missing: int = 0
    pending: int = 0
    unreadable: int = 0
    periods: list[tuple[int | None, int, int]] = field(default_factory=list)

    def document(self) -> CompletenessDocument:
        periods: list[PeriodDocument] = [
            {"from": None if at is None else _time(at), "accepted": accepted, "ingested": ingested}
            for at, accepted, ingested in self.periods[:PERIODS_SHOWN]
        ]
        return {
            "accepted": self.accepted,
            "ingested": self.ingested,
            "missing": self.missing,
            "pending": self.pending,
            "unreadable_counts": self.unreadable,
            "periods": periods,
        }


def job_completeness(source: ObjectStore, output: ObjectStore, job: str) -> dict[str, TopicCompleteness]:
    """Returns the comparison of each topic of a job. Raises the errors of the stores."""
    commits = list(History(output, job).commits())
    if not commits:
        return {}
    topics = lag(source, output, job, commits[-1].positions.__contains__, None)["topics"]
    return completeness(source, commits, {topic: one["oldest_ms"] for topic, one in topics.items()})


def completeness(
    source: ObjectStore, commits: Sequence[Commit], oldest_ms: Mapping[str, int | None]
) -> dict[str, TopicCompleteness]:
    """Returns the comparison of each topic that nodes have counted and the job has a position of.

    `oldest_ms` has, by topic, the time of the oldest record in the store that the job has not committed.
    """
    if not commits:
        return {}
    head = commits[-1]
    hours, unreadable = _accepted(source, head.cluster)
    found: dict[str, TopicCompleteness] = {}
    for topic, position in sorted(head.positions.items()):
        mine = [one for one in commits if _has(one, topic, position.topic_id)]
        since_ms = _since_ms(topic, mine)
        accepted: Counter[int] = Counter()
        for hour, counts in hours:
            if since_ms is None or hour * HOUR_MS > since_ms:
                accepted.update(counts.get(CountedTopic(topic, position.topic_id), {}))
        if accepted or unreadable:
            settled_ms = min(head.committed_ms - SETTLED_MS, oldest_ms.get(topic) or head.committed_ms)
            found[topic] = _compared(accepted, _ingested(topic, mine), 0 if topic in head.held else settled_ms)
            found[topic].unreadable = unreadable
    return found


def _compared(accepted: Counter[int], ingested: Counter[int], settled_ms: int) -> TopicCompleteness:
    done = TopicCompleteness(accepted.total())
    if ALL_PERIODS in accepted or ALL_PERIODS in ingested:
        done.ingested = min(ingested.total(), accepted.total())
        done.pending = done.accepted - done.ingested  # cannot be dated
        return done
    for period, count in sorted(accepted.items()):
        here = min(ingested[period], count)
        done.ingested += here
        if here == count:
            continue
        if (period + 1) * PERIOD_MS <= settled_ms:
            done.missing += count - here
            done.periods.append((period * PERIOD_MS, count, here))
        else:
            done.pending += count - here
    return done


def _has(commit: Commit, topic: str, topic_id: str) -> bool:
    return topic in commit.positions and commit.positions[topic].topic_id == topic_id


def _since_ms(topic: str, commits: Iterable[Commit]) -> int | None:
    """Returns the time up to which accepted records may not be in the counts of commits; None if all are: the job did
    not start at the first offset, or an earlier release did not count batches.
    """
    since_ms: int | None = None
    started: set[int] = set()
    for commit in commits:
        results = [one for one in commit.results if one.topic == topic]
        begins = {one.partition: one.start for result in reversed(results) for one in reversed(result.ranges)}
        is_late = any(start > 0 for number, start in begins.items() if number not in started)
        started |= begins.keys()
        counted = commit.audit.get(topic)
        if is_late or (results and (counted is None or counted.batches is None)):
            since_ms = commit.committed_ms
    return since_ms


def _ingested(topic: str, commits: Iterable[Commit]) -> Counter[int]:
    total: Counter[int] = Counter()
    for commit in commits:
        counted = commit.audit.get(topic)
        if counted is not None and commit.step != REPLAY:
            total.update(counted.batches or {})
    return total


def _accepted(source: ObjectStore, cluster: str) -> tuple[list[tuple[int, dict[CountedTopic, dict[int, int]]]], int]:
    """Returns the hour and the counts of each object, and how many objects cannot be read: those count nothing."""
    prefix = store_accepted_prefix(cluster)
    keys = [(hour, one.key) for one in source.list(prefix) if (hour := accepted_hour_of(one.key.removeprefix(prefix)))]

    def load(of: tuple[int, str]) -> dict[CountedTopic, dict[int, int]]:
        try:
            return decode_accepted(source.get(of[1]), of[1])
        except NoSuchObject:  # removed since it was listed, by its age
            return {}

    loaded = request_all(load, keys)
    counts = [(hour, one) for (hour, _), one in zip(keys, loaded, strict=True) if isinstance(one, dict)]
    return counts, len(loaded) - len(counts)


def _time(at_ms: int) -> str:
    if at_ms < 0:
        return "without a time"
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)).isoformat()
