"""The batches of a stream, without Spark: where it starts, what each batch has, and what was lost."""

from __future__ import annotations

import pytest

from engine.testing.memory_store import MemoryStore
from engine.tiering.manifest.deleted_topic import mark_deleted
from spark_ingest.errors import IngestRefused, LostRecords
from spark_ingest.frames.stream_offsets import StreamOffset, from_json
from spark_ingest.frames.stream_options import parse_stream_options
from spark_ingest.frames.stream_plan import StreamPlan
from tests.spark_ingest.tiered import CLUSTER, TOPIC_ID, TieredLog, json_rows

Places = list[tuple[str, int, int]]


class Query:
    """A stream as Spark runs it: offsets first, then the tasks between two of them. The clock stands unless moved."""

    def __init__(self, log: TieredLog, **options: object) -> None:
        given = {"store": "memory://", "topics": "flights|rides", "pollMs": 0} | options
        wanted = parse_stream_options({name: str(value) for name, value in given.items()})
        self.now = 0.0
        self.plan = StreamPlan(wanted, log.store, lambda: self.now)
        self.offset = StreamOffset()

    def next_batch(self, *, is_limited: bool = True) -> Places:
        before, self.offset = self.offset, self.plan.next_offset(self.offset, is_limited=is_limited)
        return self.between(before, self.offset)

    def between(self, start: StreamOffset, end: StreamOffset) -> Places:
        tasks = self.plan.tasks(start, end)
        return [
            (topic, one.partition, at) for topic, group in tasks for one in group for at in range(one.start, one.end)
        ]


@pytest.fixture
def log() -> TieredLog:
    log = TieredLog(MemoryStore())
    log.add(0, json_rows(30))
    log.add(1, json_rows(10))
    return log


EVERYTHING = [*(("flights", 0, at) for at in range(30)), *(("flights", 1, at) for at in range(10))]


def test_the_first_batch_is_empty_and_has_the_start(log: TieredLog) -> None:
    query = Query(log)
    assert query.next_batch() == []
    assert query.offset.started
    assert query.next_batch() == EVERYTHING
    reached = query.offset
    assert query.next_batch() == []
    assert query.offset == reached


def test_a_query_may_start_at_the_end_or_at_offsets(log: TieredLog) -> None:
    at_end, at_offsets = Query(log, startOffset="latest"), Query(log, startOffset='{"0": 28}')
    for query in (at_end, at_offsets):
        query.next_batch()
    log.add(1, json_rows(1))
    assert at_end.next_batch() == [("flights", 1, 10)]
    assert at_offsets.next_batch() == [
        ("flights", 0, 28),
        ("flights", 0, 29),
        *(("flights", 1, at) for at in range(11)),
    ]


def test_batches_are_bounded_and_together_have_every_record_once(log: TieredLog) -> None:
    query = Query(log, maxRecordsPerBatch=7)
    query.next_batch()
    batches = []
    while batch := query.next_batch():
        batches.append(batch)
    assert max(map(len, batches)) <= 7
    assert sorted(place for batch in batches for place in batch) == EVERYTHING
    in_bytes = Query(log, maxBytesPerBatch=sum(one.size_bytes for one in log.store.list("") if ".log" in one.key) // 4)
    in_bytes.next_batch()
    assert 8 <= len(in_bytes.next_batch()) <= 10
    assert len(in_bytes.next_batch(is_limited=False)) >= 30


def test_a_replayed_batch_is_the_same_after_the_store_has_grown(log: TieredLog) -> None:
    query = Query(log, maxRecordsPerBatch=20)
    query.next_batch()
    start = query.offset
    batch = query.next_batch()
    log.add(0, json_rows(50))
    log.add(2, json_rows(5))
    again = Query(log, maxRecordsPerBatch=3)
    assert again.between(start, query.offset) == batch


def test_new_partitions_and_topics_are_read_from_their_beginning(log: TieredLog) -> None:
    query = Query(log, startOffset="latest")
    query.next_batch()
    log.add(2, json_rows(2))
    TieredLog(log.store, topic="rides").add(0, json_rows(1))
    assert query.next_batch() == [("flights", 2, 0), ("flights", 2, 1), ("rides", 0, 0)]


def test_available_now_stops_at_the_end_of_its_start(log: TieredLog) -> None:
    query = Query(log, maxRecordsPerBatch=39)
    query.plan.stop_at_present_end()
    query.next_batch()
    log.add(0, json_rows(5))
    TieredLog(log.store, topic="rides").add(0, json_rows(5))
    assert sorted([*query.next_batch(), *query.next_batch()]) == EVERYTHING
    assert query.next_batch() == []


def test_the_store_is_not_asked_within_the_poll_interval(log: TieredLog) -> None:
    query = Query(log, pollMs=1000)
    query.next_batch()
    query.next_batch()
    log.add(0, json_rows(5))
    query.now = 0.999
    assert query.next_batch() == []
    query.now = 1.0
    assert len(query.next_batch()) == 5
    assert query.plan.ends().topics["flights"].ends == {0: 35, 1: 10}


def test_records_that_retention_took_fail_the_query_or_are_counted(log: TieredLog) -> None:
    strict, lenient = Query(log), Query(log, onLost="skip")
    for query in (strict, lenient):
        query.next_batch()
    log.raise_log_start(0, 12)
    with pytest.raises(LostRecords, match=r"flights partition 0: 12 records, offsets 0 to 11 .*onLost=skip"):
        strict.next_batch()
    assert lenient.next_batch() == EVERYTHING[12:]
    assert lenient.offset.lost == {"retention": 12}
    log.raise_log_start(0, 30)
    log.raise_log_start(1, 10)
    assert lenient.next_batch() == []
    assert lenient.offset.lost == {"retention": 12}


def test_lost_records_are_counted_once_if_nothing_is_left_to_read(log: TieredLog) -> None:
    query = Query(log, onLost="skip")
    query.next_batch()
    log.raise_log_start(0, 30)
    query.next_batch()
    query.next_batch()
    assert query.offset.lost == {"retention": 30}


def test_a_planned_batch_whose_records_are_gone_is_an_error(log: TieredLog) -> None:
    strict = Query(log)
    strict.next_batch()
    start = strict.offset
    strict.next_batch()
    log.raise_log_start(0, 12)
    with pytest.raises(LostRecords, match="flights partition 0: the store lacks some of offsets 0 to 29"):
        Query(log).between(start, strict.offset)
    assert Query(log, onLost="skip").between(start, strict.offset) == EVERYTHING[12:]


def test_a_deleted_topic_fails_the_query_or_is_counted(log: TieredLog) -> None:
    strict, lenient, done = Query(log), Query(log, onLost="skip"), Query(log)
    for query in (strict, lenient, done):
        query.next_batch()
    done.next_batch()
    mark_deleted(log.store, CLUSTER, "flights", TOPIC_ID, 2)
    for one in list(log.store.list(f"{CLUSTER}/flights/")):
        log.store.delete(one.key)
    TieredLog(log.store, topic="flights", topic_id="b" * 32).add(0, json_rows(3))
    with pytest.raises(LostRecords, match=f"topic {TOPIC_ID} was deleted"):
        strict.next_batch()
    for query in (lenient, done):
        assert query.next_batch() == [("flights", 0, 0), ("flights", 0, 1), ("flights", 0, 2)]
    assert lenient.offset.lost == {"topic_deleted": 40}
    assert done.offset.lost == {}


def test_a_store_that_went_back_is_an_error(log: TieredLog) -> None:
    query = Query(log)
    query.offset = from_json({"started": True, "topics": {"flights": {"topic_id": TOPIC_ID, "ends": {"0": 31}}}})
    with pytest.raises(LostRecords, match="ends at 30, the query is at 31"):
        query.next_batch()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"endOffset": 5}, "a stream has no end"), ({"onLost": "maybe"}, "onLost"), ({"maxRecordsPerBatch": 0}, "maxrec")],
)
def test_a_wrong_option_of_a_stream_is_named(log: TieredLog, options: dict[str, object], message: str) -> None:
    with pytest.raises(IngestRefused, match=message):
        Query(log, **options)
