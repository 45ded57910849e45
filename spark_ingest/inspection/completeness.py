"""Compares what a job has ingested with what the nodes of its cluster accepted: records by topic and ten minutes.

The nodes write their counts into the store each minute (engine/tiering/manifest/accepted_object.py), commits have those
of what they read. Both count a batch under its greatest timestamp, so the numbers of a period are equal if no record is
missing. A node that was killed has lost the counts of up to a minute: then more is ingested than accepted, which says
nothing. Fewer is a loss, once the period is over, everything of it is in the store, and the job has read that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from engine.format.paths import accepted_hour_of, is_topic_name, store_accepted_prefix, store_deleted_prefix
from engine.tiering.manifest.accepted_object import ALL_PERIODS, HOUR_MS, CountedTopic, decode_accepted
from engine.tiering.manifest.deleted_topic import list_deleted
from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.decode.time_counts import PERIOD_MS
from spark_ingest.plan import REPLAY
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History
from spark_ingest.protocol.status import lag
from spark_ingest.source.discovery import topics_of
from spark_ingest.source.listing import names_below
from spark_ingest.source.requests import request_all

SETTLED_MS = 3 * HOUR_MS  # after the end of a period: its records are sealed, uploaded and read by then
ALL_SETTLED_MS = 1 << 62  # for deleted topics: nothing more comes
PERIODS_SHOWN = 1000

HourCounts = tuple[int, dict[CountedTopic, dict[int, int]]]


@dataclass(slots=True)
class TopicCompleteness:
    """The comparison of a topic, of all its ids. `missing` counts records of settled periods, `pending` those of later
    ones, `not_of_job` those of ids that were deleted before the job read the topic.

    `periods` has (start in ms, accepted, ingested) of settled periods with missing records; the start is None if they
    are too many to compare one by one. `unreadable_counts` are objects that cannot be read: `accepted` is too low.
    """

    accepted: int = 0
    ingested: int = 0
    missing: int = 0
    pending: int = 0
    not_of_job: int = 0
    is_deleted: bool = False
    unreadable_counts: int = 0
    periods: list[tuple[int | None, int, int]] = field(default_factory=list)

    def add(self, accepted: Counter[int], ingested: Counter[int], settled_ms: int) -> None:
        """Adds the comparison of an id of the topic."""
        self.accepted += accepted.total()
        if ALL_PERIODS in accepted or ALL_PERIODS in ingested:
            here = min(ingested.total(), accepted.total())
            self.ingested += here
            self.pending += accepted.total() - here  # cannot be dated
            return
        for period, count in sorted(accepted.items()):
            here = min(ingested[period], count)
            self.ingested += here
            if here == count:
                continue
            if (period + 1) * PERIOD_MS <= settled_ms:
                self.missing += count - here
                self.periods.append((period * PERIOD_MS, count, here))
            else:
                self.pending += count - here

    def document(self) -> dict[str, Any]:
        """Returns the counts for `--json`."""
        periods = [
            {"from": None if at is None else _time(at), "accepted": accepted, "ingested": ingested}
            for at, accepted, ingested in self.periods[:PERIODS_SHOWN]
        ]
        return asdict(self) | {"periods": periods}


def job_completeness(
    source: ObjectStore, output: ObjectStore, job: str, is_wanted: Callable[[str], bool] | None = None
) -> dict[str, TopicCompleteness]:
    """Returns the comparison of each wanted topic, or of those that the job reads. Raises the errors of the stores."""
    history = History(output, job)
    commits, head = list(history.commits()), history.head()
    if head is None:
        return {}
    is_wanted = is_wanted or head.progress.knows
    topics = lag(source, output, job, is_wanted, None)["topics"]
    oldest_ms = {topic: counts["oldest_ms"] for topic, counts in topics.items()}
    return completeness(source, [*commits[:-1], head], oldest_ms, is_wanted)


def completeness(
    source: ObjectStore,
    commits: Sequence[Commit],
    oldest_ms: Mapping[str, int | None],
    is_wanted: Callable[[str], bool] = lambda _: True,
) -> dict[str, TopicCompleteness]:
    """Returns the comparison of each wanted topic that is in the store, or was: it has counts, a marker or a position.

    `oldest_ms` has, by topic, the time of the oldest record in the store that the job has not committed.
    """
    if not commits:
        return {}
    head = commits[-1]
    hours, unreadable = load_accepted(source, head.cluster)
    ids: dict[str, set[str]] = {topic: head.progress.ids_of(topic) for topic in {*head.positions, *head.ended}}
    stored = topics_of(source, head.cluster, is_wanted)
    for topic in [*stored, *names_below(source, store_deleted_prefix(head.cluster))]:
        ids.setdefault(topic, set())
    for _, counts in hours:
        for topic, topic_id in counts:
            ids.setdefault(topic, set()).add(topic_id)
    ids = {topic: ids[topic] for topic in sorted(ids) if is_topic_name(topic) and is_wanted(topic)}
    markers = list_deleted(source, head.cluster, ids)
    lost = {(loss.topic, loss.topic_id) for commit in commits for loss in commit.deleted}
    by_topic: dict[str, TopicCompleteness] = {}
    for topic in ids:
        is_deleted = bool(markers[topic]) and topic not in stored
        done = by_topic[topic] = TopicCompleteness(unreadable_counts=unreadable, is_deleted=is_deleted)
        settled_ms = min(head.committed_ms - SETTLED_MS, oldest_ms.get(topic) or head.committed_ms)
        for topic_id in sorted(ids[topic]):
            is_read = bool(head.progress.ends_of(topic, topic_id)) or (topic, topic_id) in lost
            is_gone = topic_id in markers[topic]
            mine = [commit for commit in commits if has_topic(commit, topic, topic_id)]
            accepted = accepted_of(hours, CountedTopic(topic, topic_id), counted_since_ms(topic, mine))
            if is_gone and not is_read and (topic_id in head.ended.get(topic, ()) or not head.progress.knows(topic)):
                done.accepted += accepted.total()
                done.not_of_job += accepted.total()
            else:
                until_ms = ALL_SETTLED_MS if is_gone else 0 if topic in head.held else settled_ms
                done.add(accepted, count_ingested(topic, mine), until_ms)
    return by_topic


def accepted_of(hours: Iterable[HourCounts], counted: CountedTopic, since_ms: int | None) -> Counter[int]:
    accepted: Counter[int] = Counter()
    for hour, counts in hours:
        if since_ms is None or hour * HOUR_MS > since_ms:
            accepted.update(counts.get(counted, {}))
    return accepted


def has_topic(commit: Commit, topic: str, topic_id: str) -> bool:
    return topic in commit.positions and commit.positions[topic].topic_id == topic_id


def counted_since_ms(topic: str, commits: Iterable[Commit]) -> int | None:
    """Returns the time up to which accepted records may not be in the counts of commits; None if all are: the job did
    not start at the first offset, or an earlier release did not count batches.
    """
    since_ms: int | None = None
    started: set[int] = set()
    for commit in commits:
        results = [result for result in commit.results if result.topic == topic]
        begins = {span.partition: span.start for result in reversed(results) for span in reversed(result.ranges)}
        started |= {skipped.partition for skipped in commit.skipped.get(topic, ())}  # read from 0 on, and lost
        is_late = any(start > 0 for number, start in begins.items() if number not in started)
        started |= begins.keys()
        counted = commit.audit.get(topic)
        if is_late or (results and (counted is None or counted.batches is None)):
            since_ms = commit.committed_ms
    return since_ms


def count_ingested(topic: str, commits: Iterable[Commit]) -> Counter[int]:
    total: Counter[int] = Counter()
    for commit in commits:
        counted = commit.audit.get(topic)
        if counted is not None and commit.step != REPLAY:
            total.update(counted.batches or {})
    return total


def load_accepted(source: ObjectStore, cluster: str) -> tuple[list[HourCounts], int]:
    """Returns the hour and the counts of each object, and how many objects cannot be read: those count nothing."""
    prefix = store_accepted_prefix(cluster)
    keys = [
        (hour, info.key) for info in source.list(prefix) if (hour := accepted_hour_of(info.key.removeprefix(prefix)))
    ]

    def load(of: tuple[int, str]) -> dict[CountedTopic, dict[int, int]]:
        try:
            return decode_accepted(source.get(of[1]), of[1])
        except NoSuchObject:  # removed since it was listed, by its age
            return {}

    loaded = request_all(load, keys)
    counts = [
        (hour, counts_of_hour)
        for (hour, _), counts_of_hour in zip(keys, loaded, strict=True)
        if isinstance(counts_of_hour, dict)
    ]
    return counts, len(loaded) - len(counts)


def _time(at_ms: int) -> str:
    if at_ms < 0:
        return "without a time"
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)).isoformat()
