"""The offsets that a job has ingested and lost, by topic, from all of its commits. Reads the whole history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_ingest.plan import Lost
from spark_ingest.protocol.commit import Commit, not_recovered
from spark_ingest.source.range_sets import union
from spark_ingest.source.slices import Range

TopicId = tuple[str, str]  # a name and an id


@dataclass(slots=True)
class Ingested:
    """Ranges with rows, dead letters or no record; and ranges that were lost and not recovered."""

    ranges: dict[TopicId, list[Range]] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)

    def of(self, topic: str, topic_id: str) -> list[Range]:
        return self.ranges.get((topic, topic_id), [])

    def lost_of(self, topic: str, topic_id: str) -> list[Range]:
        """Returns the lost ranges of a topic with a known end."""
        mine = (loss for loss in self.lost if (loss.topic, loss.topic_id) == (topic, topic_id))
        return union(Range(loss.partition, loss.start, loss.end) for loss in mine if loss.end is not None)


def ingested_by(commits: Iterable[Commit]) -> Ingested:
    """Returns the ranges of the results of commits."""
    by_topic: dict[TopicId, list[Range]] = {}
    counted = []
    for commit in commits:
        if commit.lost or commit.recovered:
            counted.append(commit)
        for result in commit.results:
            topic_id = (result.topic, commit.positions[result.topic].topic_id)
            by_topic.setdefault(topic_id, []).extend(Range(*span) for span in result.ranges)
    return Ingested({topic_id: union(ranges) for topic_id, ranges in by_topic.items()}, not_recovered(counted))
