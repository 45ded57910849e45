"""How far a job or a query has read each topic, by name and id; also the ids that are gone. Pure.

A topic id that comes back goes on where it was: the store may have been another one meanwhile. A partition without a
position, of a topic whose name is known, is at 0: none of its records was in the store when the topic was first read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from spark_ingest.plan import Ended, Lost, Positions, TopicPosition


class Progress(NamedTuple):
    """`positions` has the newest id of each topic, `ended` the ends of earlier ids, and no ends of ids that were
    deleted unread. `is_complete` is False if `ended` lacks ids that were deleted before the topic was first read.
    """

    positions: Positions
    ended: Ended
    is_complete: bool = True

    def knows(self, topic: str) -> bool:
        return topic in self.positions or topic in self.ended

    def ids_of(self, topic: str) -> set[str]:
        position = self.positions.get(topic)
        return {*self.ended.get(topic, ()), *([position.topic_id] if position else [])}

    def ends_of(self, topic: str, topic_id: str) -> Mapping[int, int]:
        position = self.positions.get(topic)
        if position is not None and position.topic_id == topic_id:
            return position.ends
        return self.ended.get(topic, {}).get(topic_id, {})

    def reached(self, topic: str, topic_id: str, partition: int) -> int | None:
        """Returns how far a partition is read; None if its topic was never read."""
        return self.ends_of(topic, topic_id).get(partition, 0) if self.knows(topic) else None

    def advanced(
        self, positions: Positions, deleted: Sequence[Lost] = (), settled: Mapping[str, Iterable[str]] | None = None
    ) -> Progress:
        """Returns the progress with the positions, and without the ids of deleted topics.

        `settled` are ids by topic that were deleted before the topic was first read.
        """
        gone = {(loss.topic, loss.topic_id) for loss in deleted}
        after, ended = dict(self.positions), {topic: dict(ids) for topic, ids in self.ended.items()}
        for topic, position in self.positions.items():
            is_replaced = topic in positions and positions[topic].topic_id != position.topic_id
            if is_replaced or (topic, position.topic_id) in gone:
                ended.setdefault(topic, {})[position.topic_id] = after.pop(topic).ends
        for topic, topic_id in [
            *gone,
            *((topic, topic_id) for topic, ids in (settled or {}).items() for topic_id in ids),
        ]:
            ended.setdefault(topic, {}).setdefault(topic_id, {})
        for topic, position in positions.items():
            before = self.ends_of(topic, position.topic_id)
            ended.get(topic, {}).pop(position.topic_id, None)
            after[topic] = TopicPosition(position.topic_id, {**before, **position.ends})
        return Progress(after, {topic: ids for topic, ids in ended.items() if ids}, self.is_complete)
