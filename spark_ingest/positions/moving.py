"""Moves the positions of a job, as a plan without tasks and its commit.

The commit names what the move skips (`passed`) and what it lets come twice (`repeated`). A repetition is refused unless
it is asked for. A killed move is finished by the next run or move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine.tiering.manifest.deleted_topic import list_deleted
from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import IngestRefused
from spark_ingest.plan import MOVE, TOPIC_DELETED, Lost, Plan, Positions, Recipe, positions_from
from spark_ingest.positions.ingested import Ingested, ingested_by
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History
from spark_ingest.protocol.lost import living_ids
from spark_ingest.protocol.planner import Selection
from spark_ingest.protocol.runner import Components
from spark_ingest.source.discovery import TieredPartition, discover
from spark_ingest.source.range_sets import common, offset_count
from spark_ingest.source.slices import Range

_SHOWN = 5  # in an error


@dataclass(frozen=True, slots=True)
class Change:
    """The move of one partition. `before` is None if the job has no position there.

    `passed` is the range that the job will not read, `gone` the part before it that retention removed. `reopened` is
    the range that it will read again, `repeated` the parts of it that are ingested, `recovered` those that were lost.
    """

    topic: str
    topic_id: str
    partition: int
    before: int | None
    after: int
    gone: tuple[Range, ...] = ()
    passed: tuple[Range, ...] = ()
    reopened: tuple[Range, ...] = ()
    repeated: tuple[Range, ...] = ()
    recovered: tuple[Range, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.topic} partition {self.partition}"

    @property
    def repeated_records(self) -> int:
        return offset_count(self.repeated)


def changes_to(
    history: History, head: Commit | None, partitions_there: Sequence[TieredPartition], positions: Positions
) -> list[Change]:
    """Returns the moves of partitions whose position differs. Raises IngestRefused for one that the store lacks."""
    partitions = {(partition.topic, partition.partition): partition for partition in partitions_there}
    changes = []
    ingested: Ingested | None = None
    for topic, position in sorted(positions.items()):
        for number, after in sorted(position.ends.items()):
            partition = partitions.get((topic, number))
            if partition is None or position.topic_id not in ("", partition.topic_id):
                raise IngestRefused(
                    f"{topic} partition {number} is not in the store", hint="see penstock ingest status"
                )
            _check(partition, after, head)
            before = head.progress.reached(topic, partition.topic_id, number) if head else None
            if before == after:
                continue
            ingested = ingested or ingested_by(history.commits())
            changes.append(_change(partition, before, after, ingested))
    return changes


def _check(partition: TieredPartition, after: int, head: Commit | None) -> None:
    title = f"{partition.topic} partition {partition.partition}"
    if not partition.log_start <= after <= partition.tiered_end:
        raise IngestRefused(
            f"{title} has offsets {partition.log_start} to {partition.tiered_end} in the store, {after} is outside",
            hint="choose a position within",
        )
    position = head.positions.get(partition.topic) if head else None
    if position is not None and position.topic_id != partition.topic_id:
        hint = "run penstock ingest run first, which records what is lost with the earlier topic"
        raise IngestRefused(f"{partition.topic} was deleted and created again", hint=hint)


def _change(partition: TieredPartition, before: int | None, after: int, ingested: Ingested) -> Change:
    start = partition.log_start if before is None else before
    if after >= start:
        cut = min(max(start, partition.log_start), after)
        gone, passed = _ranges(partition.partition, start, cut), _ranges(partition.partition, cut, after)
        return Change(partition.topic, partition.topic_id, partition.partition, before, after, gone, passed)
    reopened = _ranges(partition.partition, after, start)
    repeated = common(reopened, ingested.of(partition.topic, partition.topic_id))
    recovered = common(reopened, ingested.lost_of(partition.topic, partition.topic_id))
    return Change(
        partition.topic,
        partition.topic_id,
        partition.partition,
        before,
        after,
        (),
        (),
        reopened,
        tuple(repeated),
        tuple(recovered),
    )


def _ranges(partition: int, start: int, end: int) -> tuple[Range, ...]:
    return (Range(partition, start, end),) if start < end else ()


def check_no_repetition(changes: Sequence[Change]) -> None:
    """Raises IngestRefused if a move lets ingested records come twice."""
    wrong = [change for change in changes if change.repeated]
    if wrong:
        texts = [
            f"{change.place}: {change.repeated_records:,} from offset {change.repeated[0].start} on" for change in wrong
        ]
        more = f"; and {len(texts) - _SHOWN} more partitions" if len(texts) > _SHOWN else ""
        raise IngestRefused(
            f"records that are ingested would come twice: {'; '.join(texts[:_SHOWN])}{more}",
            hint="penstock ingest replay replaces rows; --repeat adds them again",
        )


def missing_topics(source: ObjectStore, cluster: str, head: Commit, is_wanted: Callable[[str], bool]) -> list[Lost]:
    """Returns what is lost with topics of the job that the store does not have, nor a marker of their deletion.

    A run refuses these: only a person knows that they were deleted.
    """
    living = living_ids(discover(source, cluster, is_wanted))
    gone = {
        topic: position
        for topic, position in head.positions.items()
        if is_wanted(topic) and living.get(topic) != position.topic_id
    }
    markers = list_deleted(source, cluster, gone)
    return [
        Lost(topic, position.topic_id, partition, end, None, TOPIC_DELETED)
        for topic, position in sorted(gone.items())
        if position.topic_id not in markers[topic]
        for partition, end in sorted(position.ends.items())
    ]


def move_plan(
    job: str,
    head: Commit | None,
    selection: Selection,
    parts: Components,
    changes: Sequence[Change],
    deleted: Sequence[Lost] = (),
) -> Plan:
    """Returns the plan of moves, and of topics that the job drops, in the cluster of the selection."""
    assert selection.cluster is not None
    return Plan(
        job=job,
        number=head.number + 1 if head else 1,
        nonce=parts.new_id(),
        created_ms=parts.now_ms(),
        store=parts.source.url,
        cluster=selection.cluster,
        recipe=Recipe(),
        positions=positions_from((change.topic, change.topic_id, change.partition, change.after) for change in changes),
        schemas={},
        tasks=(),
        step=MOVE,
        skipped=_by_topic({change: change.gone for change in changes}),
        passed=_by_topic({change: change.passed for change in changes}),
        reopened=_by_topic({change: change.reopened for change in changes}),
        repeated=_by_topic({change: change.repeated for change in changes}),
        recovered=_by_topic({change: change.recovered for change in changes}),
        deleted=tuple(deleted),
    )


def _by_topic(ranges: Mapping[Change, Sequence[Range]]) -> dict[str, list[Range]]:
    by_topic: dict[str, list[Range]] = {}
    for change, some in ranges.items():
        if some:
            by_topic.setdefault(change.topic, []).extend(some)
    return by_topic
