"""Groups the records of a body by partition, and encodes one batch for each.

Records come in three forms: values alone, as spans of the body or as objects, or rows with their fields, because most
requests carry only values and need no object per record.
Reads no clock, awaits nothing and appends nothing, so a large body can be encoded in a thread. The records of one
partition are accepted or rejected together: the first problem of one of them is the problem of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import NamedTuple

from msgspec import Struct

import penstock_codec
from engine.format import batch as record_batch
from engine.format import compiled_batch
from engine.format.batch import NOT_SEQUENCED, Codec, RowFields, StoredHeader
from engine.format.keyed_batch import KeyEntry, SourceEntry, stored_entry
from engine.producers.appends import NO_CONDITIONS, AppendConditions
from engine.shard.served_topics import Topic
from engine.topic_settings import TopicSettings
from gateway.http.problems import Problem
from gateway.produce.partitioner import Partitioner
from gateway.produce.value_checks import ValueRules, check_values, do_lines_follow
from gateway.registry.registered_schemas import RegisteredSchemas

_ANY_TIME = 2**63 - 1
CODECS = {codec.name.lower(): codec for codec in Codec}
RECORD_OVERHEAD_BYTES = 32  # lengths and deltas of a record: at most 3 varints of 5 bytes, 2 of 10, and its attributes
_new = tuple.__new__  # of a value without a frame for it
OWN_BYTES = 128  # of a batch without others: its header, and the entry of a key

Headers = list[tuple[str, bytes | None]]


class IncomingRow(Struct, gc=False):
    """A record from a client. None: the client did not give the field; a null value is a tombstone.

    A struct and not a tuple, because a body may make a hundred thousand of them (measured: 60 ns against 250).
    """

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None = None
    partition: int | None = None


class IncomingSpans(NamedTuple):
    """Records with a value alone, as the compiled codec has found them in the body. The longest has `longest` bytes."""

    body: bytes
    spans: bytes
    record_count: int
    longest: int
    are_lines: bool = False  # each line of the body is a value

    def rows(self, timestamp_ms: int, key: bytes | None) -> list[RowFields]:
        """Returns the rows of the records, with this timestamp and key."""
        assert penstock_codec.native is not None
        return penstock_codec.native.span_rows(self.body, self.spans, timestamp_ms, key)


class IncomingObjects(NamedTuple):
    """Record objects as the compiled codec has found them in the body, behind which are texts without their escapes.

    `plainly` decodes them without it.
    """

    body: bytes
    rows: bytes
    record_count: int
    are_lines: bool
    plainly: Callable[[], list[IncomingRow]]


Incoming = IncomingSpans | IncomingObjects | list[IncomingRow]


class ProducerSequence(NamedTuple):
    """The producer of some records, and the sequence number of the first of them."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class SharedRows(NamedTuple):
    """Records that share an append with those of other requests. They take at most `size_bytes` in it.

    `key` is the entry of the request's Idempotency-Key.
    """

    rows: list[RowFields]
    size_bytes: int
    sequenced: ProducerSequence | None = None
    key: KeyEntry | None = None


class Part(NamedTuple):
    """The records of a request for one partition of a topic, without their offsets.

    It has a `batch` or `shared` records, and a `topic`, or the `problem` for which it has none. A part without a
    partition has all records of its topic.
    """

    topic_name: str
    partition: int | None
    record_count: int
    topic: Topic | None
    batch: bytes | bytearray = b""
    shared: SharedRows | None = None  # instead of a batch of its own
    conditions: AppendConditions | None = None  # of the batch
    problem: Problem | None = None


class Destination(NamedTuple):
    """The destination of the records of one request and topic. The topic has the limits for records that arrive now.

    A record goes to the partition that it names, else to `partition`, else to that of its key, else to the `sticky`
    one. The `partitioner` is None if no record may name another partition than `partition`.
    """

    topic: Topic
    partitioner: Partitioner | None
    now_ms: int
    sticky: int
    partition: int | None = None
    key: bytes | None = None  # of records that have none
    sequenced: ProducerSequence | None = None  # then all records go to `partition`
    entry: KeyEntry | SourceEntry | None = None  # of the request's Idempotency-Key or Penstock-Source, for each batch
    conditions: AppendConditions | None = None  # of the request, beside the entry
    schemas: RegisteredSchemas | None = None  # of the node's registry

    @property
    def settings(self) -> TopicSettings:
        return self.topic.settings

    @property
    def value_rules(self) -> ValueRules:
        return ValueRules(self.topic.settings, self.topic.record.name, self.schemas)

    @property
    def append_conditions(self) -> AppendConditions | None:
        """The conditions of each batch, with the entry."""
        if self.entry is None:
            return self.conditions
        conditions = self.conditions or NO_CONDITIONS
        if isinstance(self.entry, SourceEntry):
            return conditions._replace(source=self.entry)
        return conditions._replace(key=self.entry)


Records = list[RowFields] | IncomingSpans
RecordsByPartition = dict[int, Records]
ProblemsByPartition = dict[int, Problem]


def to_batches(
    incoming: Incoming, to: Destination, records_max: int, share_bytes_max: int = 0, *, is_quick: bool = False
) -> list[Part]:
    """Returns a part for each partition, in ascending order. Records of up to `share_bytes_max` are not encoded yet.

    Raises Problem no_records, body_too_large, schema_mismatch, and the problem of the first record that has one; if it
    `is_quick`, TakesLong for values that need an exact look. Raises NeedsSchemas.
    """
    count = count_of(incoming)
    if not 0 < count <= records_max:
        check_count(count, records_max)
    if (settings := to.topic.settings).value_schema or settings.value_schema_type != "none":  # `must_check`
        _check_schema(incoming, to, is_quick=is_quick)
    if type(incoming) is IncomingSpans:
        return [_spans(incoming, to, share_bytes_max)]
    if not share_bytes_max and isinstance(incoming, IncomingObjects):
        found = grouped_objects(incoming, to)
        if found is not None:
            return [_encode_rows(partition, incoming, rows, to) for partition, rows in found.items()]
    grouped, problems = group_by_partition(incoming, to)
    if problems:
        raise next(iter(problems.values()))
    if share_bytes_max:
        return [
            _share_measured(partition, records, to, share_bytes_max) for partition, records in sorted(grouped.items())
        ]
    return [encode(partition, records, to) for partition, records in sorted(grouped.items())]


def _spans(incoming: IncomingSpans, to: Destination, share_bytes_max: int) -> Part:
    """Returns the part of records with a value alone, which all go to one partition."""
    count = incoming.record_count
    partition = to.sticky if to.partition is None and to.key is None else _common_partition(to)
    if not share_bytes_max:
        return encode(partition, incoming, to)
    key, rows = to.key, incoming.rows(to.now_ms, to.key)
    key_bytes = 0 if key is None else len(key)
    size_bytes = len(incoming.body) + (key_bytes + RECORD_OVERHEAD_BYTES) * count
    return _share(partition, rows, to, share_bytes_max, size_bytes, incoming.longest + key_bytes)


def _common_partition(to: Destination) -> int:
    """Returns the partition of records that name none and have no key of their own."""
    if to.partition is not None:
        return to.partition
    return to.sticky if to.key is None or to.partitioner is None else to.partitioner.for_key(to.key)


def _check_schema(incoming: Incoming, to: Destination, *, is_quick: bool) -> None:
    """Raises Problem schema_mismatch, registry_unavailable; InvalidConfig, TakesLong, NeedsSchemas."""
    if isinstance(incoming, IncomingSpans):
        count = incoming.record_count
        if incoming.are_lines and do_lines_follow(incoming.body, count, to.settings, is_quick=is_quick):
            return
        values = [value for _, _, value, _ in incoming.rows(0, None)]
    else:
        rows = incoming.plainly() if isinstance(incoming, IncomingObjects) else incoming
        values = [row.value for row in rows]
    check_values(values, to.value_rules, is_quick=is_quick)


def grouped_objects(incoming: IncomingObjects, to: Destination) -> dict[int, bytes] | None:
    """Returns the rows of each partition, in ascending order; None if a record has a problem."""
    assert penstock_codec.native is not None
    partitions = 0 if to.partitioner is None else to.partitioner.partitions
    fixed = -1 if to.partition is None else to.partition
    latest = to.now_ms + to.settings.timestamp_ahead_ms_max if to.settings.timestamp_type == "create" else _ANY_TIME
    return penstock_codec.native.group_objects(
        incoming.body, incoming.rows, partitions, fixed, _common_partition(to), latest
    )


def group_by_partition(
    incoming: Incoming, to: Destination, positions: Sequence[int] | None = None
) -> tuple[RecordsByPartition, ProblemsByPartition]:
    """Returns each partition's records in the order of the body, and the problem of each partition that has one.

    `positions` are the indexes of the records in the body, as problems name them; without it they are counted.
    """
    if isinstance(incoming, IncomingSpans):
        incoming = [IncomingRow(None, value, headers) for _, _, value, headers in incoming.rows(0, None)]
    elif isinstance(incoming, IncomingObjects):
        incoming = incoming.plainly()
    grouped: dict[int, list[RowFields]] = {}
    problems: ProblemsByPartition = {}
    partitioner, partition, sticky, default_key, now_ms = to.partitioner, to.partition, to.sticky, to.key, to.now_ms
    for_key = None if partitioner is None else partitioner.for_key
    for index, row in enumerate(incoming):
        key = default_key if row.key is None else row.key
        target = partition if row.partition is None else row.partition
        if target is None:
            target = sticky if key is None or for_key is None else for_key(key)
        timestamp = now_ms if row.timestamp is None else row.timestamp
        if row.partition is not None or timestamp > now_ms:
            problem = _problem_of(row, to, index if positions is None else positions[index])
            if problem is not None:
                problems.setdefault(target, problem)
        into = grouped.get(target)
        if into is None:
            into = grouped[target] = []
        into.append((timestamp, key, row.value, row.headers))
    return dict(grouped), problems


def partition_of(row: IncomingRow, to: Destination) -> int:
    """Returns the partition that `group_by_partition` gives a record."""
    key = to.key if row.key is None else row.key
    partition = to.partition if row.partition is None else row.partition
    if partition is None:
        return to.sticky if key is None or to.partitioner is None else to.partitioner.for_key(key)
    return partition


def encode(partition: int, records: Records, to: Destination) -> Part:
    """Returns one partition's records as a batch. Raises Problem record_too_large, batch_too_large; BatchTooLarge."""
    settings, entry = to.settings, None if to.entry is None else stored_entry(to.entry)
    codec, unpacked = CODECS[settings.compression], settings.batch_decoded_bytes_max
    if isinstance(records, IncomingSpans):
        _check_size(records.longest + len(to.key or b""), settings)
        data = compiled_batch.encode_spans(records.body, records.spans, to.now_ms, codec, unpacked, to.key, entry)
        return _batch(partition, data, records.record_count, to)
    _check_size(max(map(row_bytes, records)), settings)
    data = record_batch.encode(records, codec, unpacked, entry, to.sequenced or NOT_SEQUENCED)
    return _batch(partition, data, len(records), to, is_sequenced=True)


def _encode_rows(partition: int, incoming: IncomingObjects, rows: bytes, to: Destination) -> Part:
    """Returns the batch of the record objects of one partition. Raises as `encode` does."""
    settings = to.settings
    found, count, longest = compiled_batch.encode_objects(
        incoming.body, rows, to.now_ms, to.key, _entry(to), are_lines=incoming.are_lines
    )
    _check_size(longest, settings)
    codec = CODECS[settings.compression]
    return _batch(partition, compiled_batch.finished(found, codec, settings.batch_decoded_bytes_max), count, to)


def _entry(to: Destination) -> StoredHeader | None:
    return None if to.entry is None else stored_entry(to.entry)


def _batch(partition: int, data: bytearray, count: int, to: Destination, *, is_sequenced: bool = False) -> Part:
    """Completes a batch, which may have its sequence already. Raises Problem batch_too_large."""
    settings, limit = to.settings, to.settings.batch_bytes_max
    if len(data) > limit:
        text = f"partition {partition} would get a batch of {len(data)} bytes, the topic allows {limit}"
        raise Problem("batch_too_large", text, limit=limit)
    if settings.timestamp_type == "append":
        record_batch.stamp_append_time(data, to.now_ms)
    if to.sequenced is not None and not is_sequenced:
        record_batch.stamp_sequence(data, *to.sequenced)
    return Part(to.topic.record.name, partition, count, to.topic, data, None, to.append_conditions)


def _share_measured(partition: int, records: Records, to: Destination, share_bytes_max: int) -> Part:
    assert isinstance(records, list)
    sizes = list(map(row_bytes, records))
    size_bytes = sum(sizes) + RECORD_OVERHEAD_BYTES * len(sizes)
    return _share(partition, records, to, share_bytes_max, size_bytes, max(sizes))


def _share(
    partition: int, rows: list[RowFields], to: Destination, share_bytes_max: int, size_bytes: int, longest: int
) -> Part:
    """Returns the records as they are, or encoded: a key or a header may make them much larger than the body."""
    topic, key = to.topic, to.entry
    if key is not None or to.sequenced is not None:
        size_bytes += OWN_BYTES
    if size_bytes > share_bytes_max:
        return encode(partition, rows, to)
    if longest > topic.settings.record_bytes_max:
        _check_size(longest, topic.settings)
    assert not isinstance(key, SourceEntry), "records of a source share no append"
    shared = _new(SharedRows, (rows, size_bytes, to.sequenced, key))
    return _new(Part, (topic.record.name, partition, len(rows), topic, b"", shared, None, None))


def check_timestamp(timestamp: int, settings: TopicSettings, now_ms: int, position: int) -> None:
    """Raises Problem invalid_body for a time too far in the future."""
    ahead, allowed = timestamp - now_ms, settings.timestamp_ahead_ms_max
    if ahead > allowed and settings.timestamp_type == "create":
        text = f"record {position}: its timestamp lies {ahead} ms in the future, {allowed} are allowed"
        raise Problem("invalid_body", text, record=position)


def check_count(count: int, records_max: int) -> None:
    """Raises Problem no_records, body_too_large."""
    if count == 0:
        raise Problem("no_records", "the body holds no record")
    if count > records_max:
        raise Problem(
            "body_too_large", f"the request has {count} records, {records_max} are allowed", limit=records_max
        )


def count_of(records: IncomingSpans | IncomingObjects | Sized) -> int:
    """Returns the number of records."""
    if type(records) is IncomingSpans or isinstance(records, IncomingObjects):
        return records.record_count
    return len(records)


def _problem_of(row: IncomingRow, to: Destination, position: int) -> Problem | None:
    try:
        if row.partition is not None and to.partitioner is not None:
            to.partitioner.check(row.partition)
        elif row.partition is not None and row.partition != to.partition:
            text = f"record {position} names partition {row.partition}, the request is for {to.partition}"
            raise Problem("invalid_body", text, record=position)
        if row.timestamp is not None:
            check_timestamp(row.timestamp, to.settings, to.now_ms, position)
    except Problem as problem:
        return problem
    return None


def row_bytes(row: RowFields) -> int:
    _, key, value, headers = row
    size = len(key or b"") + len(value or b"")
    for name, content in headers:  # no frame of a generator
        size += len(name) + len(content or b"")
    return size


def _check_size(size_bytes: int, settings: TopicSettings) -> None:
    if size_bytes > settings.record_bytes_max:
        text = f"a record has {size_bytes} bytes, the topic allows {settings.record_bytes_max}"
        raise Problem("record_too_large", text, limit=settings.record_bytes_max)
