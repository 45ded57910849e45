"""Rebuilds the producer state of a partition when it is opened: from the latest snapshot and the batches behind it.

Reads batch headers, control batches, and the end of the first record of a keyed batch. Without a snapshot the walk
begins at the oldest batch still of use: expiry bounds its age, counted back from the log's last write, not from now,
since the wall clock may have been set. State found by the walk counts as new. A fencing token does not expire, so a log
that has ever had one (`fenced`) is then walked as a whole. Rejects nothing: batches in the log are accepted.
Invariant: the state claims nothing that the log does not have, since it replays only the log's own batches and uses no
snapshot beyond its end. It claims that no producer was forgotten only after a walk of a whole log from which no
compaction has removed a batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from engine.errors import Corrupt
from engine.format import keyed_batch
from engine.format.batch import HEADER_BYTES, KEYED_PRODUCER, Codec, Header, has_valid_crc
from engine.format.keyed_batch import KeyEntry, RequestEntry, SequenceEntry, SourceEntry
from engine.log.log import Log
from engine.log.segment import Segment, headers
from engine.producers.append_validator import AppendValidator
from engine.producers.fence_file import load_fence
from engine.producers.sequences import ID_MAX
from engine.producers.snapshots import load_keys, load_latest
from engine.runtime.disk import Disk
from engine.topic_settings import TopicSettings

_START_BYTES = HEADER_BYTES + 10  # the length of the first record is a varint

log = logging.getLogger("penstock.engine")


class _Begins(NamedTuple):
    """The offsets from which a walk applies the batches to each part of the state."""

    producers: int
    keys: int
    sources: int

    def of(self, entry: KeyEntry | SourceEntry | SequenceEntry) -> int:
        if isinstance(entry, SequenceEntry):
            return self.producers
        return self.sources if isinstance(entry, SourceEntry) else self.keys


def load_validator(
    disk: Disk,
    name: str,
    of: Log,
    settings: TopicSettings,
    now_ms: int,
    *,
    is_replicated: bool = False,
    is_new: bool = False,
) -> AppendValidator:
    """Builds the validator of an opened log. Raises OSError.

    `is_replicated`: other replicas may have learned of its keys earlier, and drop them earlier. `is_new`: the log has
    just been made in an empty directory, which is not searched.
    """
    validator = AppendValidator(name)
    state = None if is_new else load_latest(disk, of.directory, of.log_end)
    fence = None if is_new else load_fence(disk, of.directory)
    if state is None:
        written_ms = 0 if fence is not None else _last_write_ms(of) - settings.producer_expiry_ms
        begin = _first_of_use(of, written_ms)
        validator.producers.forgotten_id_max = ID_MAX if begin else -1
    else:
        begin = state.offset
        validator.restore(state, settings, now_ms)
    if fence is not None:
        validator.fencing.restore_saved(fence)
    validator.keys.use(settings)
    since_ms = None if is_replicated else now_ms
    key_states, has_all_keys = ([], False) if state is None else load_keys(disk, of.directory, state)
    for key_state in key_states:
        if has_all_keys:
            validator.keys.restore(key_state.offset, key_state.keys, now_ms, since_ms)
        else:  # the only copy of keys whose records are deleted: the walk does not find them
            validator.keys.restore_in_part(key_state.keys, now_ms, since_ms)
    keys_begin = begin if has_all_keys else _first_of_use(of, _last_write_ms(of) - settings.idempotency_window_ms)
    sources_begin = begin if state is not None else _first_of_use(of, _last_write_ms(of) - settings.source_expiry_ms)
    begins = _Begins(begin, keys_begin, sources_begin)
    for segment in of.segments:
        if segment.next_offset > min(begins):
            _replay(validator, segment, begins, settings, now_ms, since_ms)
    entry_count = len(validator.producers) + len(validator.keys) + len(validator.sources)
    validator.has_state |= bool(entry_count or validator.fencing.has_been_used)
    return validator


def _headers_from(segment: Segment, begin: int) -> Iterator[tuple[int, Header]]:
    """From a little before an offset on."""
    position = segment.index.position_at_or_before(begin) if begin > segment.base_offset else 0
    expected = segment.index.offset_at(position) if position else segment.base_offset
    return headers(segment, position, expected)


def _entries_of(segment: Segment, position: int, header: Header) -> list[RequestEntry]:
    """For an uncompressed batch of any size, two small reads are enough."""
    if header.codec != Codec.NONE:
        return keyed_batch.read_entries(segment.pread(header.size_bytes, position))
    start = segment.pread(min(header.size_bytes, _START_BYTES), position)
    try:
        end = keyed_batch.first_record_end(start)
    except IndexError:
        return []
    if end > header.size_bytes:
        return []
    tail_at = max(HEADER_BYTES, end - keyed_batch.tail_bytes(header))
    return keyed_batch.entries_in(header, segment.pread(end - tail_at, position + tail_at))


def _last_write_ms(of: Log) -> int:
    return max((segment.last_append_ms for segment in of.segments if segment.size_bytes), default=0)


def _first_of_use(of: Log, since_ms: int) -> int:
    """Returns the base of the oldest of the last segments that were written since then."""
    first = of.log_end
    for segment in reversed(of.segments):
        if segment.size_bytes and segment.last_append_ms < since_ms:
            break
        first = segment.base_offset
    return first


def _replay(
    validator: AppendValidator,
    segment: Segment,
    begins: _Begins,
    settings: TopicSettings,
    now_ms: int,
    since_ms: int | None,
) -> None:
    try:
        for position, header in _headers_from(segment, min(begins)):
            if header.base_offset >= begins.producers:
                validator.replay(header, settings, now_ms)
                if header.record_count <= header.last_offset_delta:  # compacted
                    validator.producers.forgotten_id_max = ID_MAX
                if header.is_control:
                    batch = segment.pread(header.size_bytes, position)
                    if has_valid_crc(batch, 0, header):
                        validator.fencing.replay(batch, header.base_offset)
            if header.producer_id == KEYED_PRODUCER and header.base_offset >= min(begins):
                entries = [
                    entry
                    for entry in _entries_of(segment, position, header)
                    if header.base_offset >= begins.of(entry.entry)
                ]
                validator.replay_entries(header, entries, settings, now_ms, since_ms)
    except Corrupt as error:  # a damaged sealed segment: its state is not claimed
        validator.producers.forgotten_id_max = ID_MAX
        log.warning("producer state was rebuilt without the damaged records", extra={"reason": str(error)})
