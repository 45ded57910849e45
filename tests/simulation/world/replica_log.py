"""One partition's log in the simulation: the engine's planning, writing, truncation and recovery, without its event
loop.

The node does in virtual time what the committer and the writer thread do in real time: a write completes at once; a
sync begins and ends. Log, its plans, carry_out, truncation, recovery and the epochs are the real ones. As in
engine/partition/partition.py, a sync moves durable_end to the log end at its begin.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from engine.cleaning.log_start import remove_segment, save_state_below
from engine.compaction.progress import lower_progress
from engine.directory.data_directory import DataDirectory
from engine.errors import Corrupt, EngineError
from engine.format import batch as record_batch
from engine.format.batch import KEYED_PRODUCER
from engine.format.batch_header import beginning_at
from engine.format.keyed_batch import KeyEntry, read_entries
from engine.log.leader_epochs import record_epoch
from engine.log.log import Roll, Run
from engine.log.recovery import Checkpoint, open_log
from engine.log.segment import Segment, save_index
from engine.log.truncation import batch_start, reset_to, truncate_to
from engine.partition.writer import Group, PartitionWork, carry_out
from engine.producers.append_validator import AppendValidator
from engine.producers.appends import Append, AppendConditions, Appended, SharedRequests
from engine.producers.snapshots import remembers, save_state
from engine.producers.state_loader import load_validator
from engine.producers.state_transfer import encoded, import_state, take_snapshot
from engine.topic_settings import TopicSettings

READ_BYTES = 400


@dataclass
class Sync:
    """A sync that has begun."""

    log_end: int
    segments: list[Segment]
    directory: bool
    generation: int


class ReplicaLog:
    """One replica's log. See the head of the file. `checkpoint` durably lowers the recovery point before a
    truncation.
    """

    def __init__(self, directory: DataDirectory, name: str, settings: TopicSettings, now_ms: int, points) -> None:
        self._data = directory
        self._now_ms = now_ms
        self._name = name
        self._points: dict[str, Checkpoint] = points
        self.settings = settings
        path = f"{directory.path}/topics/{name}"
        if directory.disk.stat(path) is None:  # as the catalog does for a topic: durable before its first record
            directory.disk.mkdir(path)
            directory.disk.fsync_dir(f"{directory.path}/topics")
            directory.disk.fsync_dir(directory.path)
        checkpoint = points.get(name, Checkpoint())
        self.log, self.report = open_log(directory.disk, path, checkpoint, directory.last_shutdown, now_ms=now_ms)
        if settings.is_compacted:  # as the shard does when it opens a log
            lower_progress(directory.disk, path, self.log.log_end)
        self.validator = self._rebuilt(now_ms)
        self.durable_end = self.log.log_end
        self.offline: EngineError | OSError | None = None
        self._unsynced: list[Segment] = []
        self._directory_unsynced = self.log.active.size_bytes == 0  # as a partition has it
        self.high_watermark = self.log.local_log_start  # as the hosting node knows it
        self.segments_lock = asyncio.Lock()  # held by a compaction; truncations and trims come again later
        self.compacted_end = self.compacted_by_all = 0
        self.cuts = 0  # truncations: each makes syncs void that began before it

    def __repr__(self) -> str:
        return f"ReplicaLog({self.log!r}, durable_end={self.durable_end}, epochs={self.log.epochs})"

    @property
    def has_unsynced(self) -> bool:
        return bool(self._unsynced)

    def append(self, batch: bytearray, now_ms: int) -> int:
        """Append as leader; return the records' offsets, those of the first append for a duplicate.

        Raises EngineError if nothing is stored or the partition is offline.
        """
        append = append_of(batch)
        if not self.validator.admit([append], self.log.log_end, now_ms):
            verdict = append.verdict if append.parts is None else append.parts[0].verdict
            if isinstance(verdict, Appended):
                return verdict.base_offset
            assert verdict is not None
            raise verdict
        base_offset = self.log.log_end
        try:
            rolled_at = self._write(self.log.plan([batch], self.settings, now_ms))
        except EngineError:
            self.validator.discard_staged()
            raise
        self.validator.commit_staged(self.settings, rolled_at)
        for state in self.validator.take_states():
            save_state(self.log.disk, self.log.directory, state, self.high_watermark)
        return base_offset

    def append_as_follower(self, data: bytes, now_ms: int) -> int:
        """Append as follower: check each batch, keep its bytes, and store each new epoch before its first batch."""
        batches = list(record_batch.walk(data))
        if batches and self.log.size_bytes == 0 and batches[0][1].base_offset < self.log.log_end:
            self.restart(batches[0][1].base_offset, self.log.log_start)  # log_start is within the leader's batch
        taken = 0
        for position, header in batches:
            if header.next_offset <= self.log.log_end:
                continue
            assert record_batch.has_valid_crc(data, position, header)
            if not self.log.epochs or header.leader_epoch != self.log.epochs[-1].epoch:
                record_epoch(self.log, header.leader_epoch, header.base_offset)
            run = Run(memoryview(data), start=position, headers=[header])
            for offset in self._write(self.log.plan_follower_append([run], self.settings, now_ms)):
                save_state(self.log.disk, self.log.directory, self.validator.state(offset), self.high_watermark)
            self.validator.apply_copied(
                [(header, data[position : position + header.size_bytes])], self.settings, now_ms, []
            )
            taken += 1
        return taken

    def start_epoch(self, epoch: int) -> None:
        record_epoch(self.log, epoch, self.log.log_end)
        self.log.leader_epoch = epoch

    def begin_sync(self) -> Sync:
        return Sync(self.log.log_end, list(self._unsynced), self._directory_unsynced, self.cuts)

    def end_sync(self, sync: Sync) -> bool:
        """End a sync; return whether durable_end has moved. A failure takes the log offline permanently."""
        if sync.generation != self.cuts or self.offline:
            return False
        segments = [s for s in sync.segments if s in self._unsynced]
        work = PartitionWork(self._name, self.log.directory, [], sync=segments, sync_directory=sync.directory)
        carry_out(self.log.disk, Group([work]))
        if work.sync_error is not None:
            self.offline = work.sync_error
            return False
        self._unsynced = [s for s in self._unsynced if s not in segments or (s is self.log.active)]
        if self.log.log_end == sync.log_end:
            self._unsynced = []
        self._directory_unsynced = self._directory_unsynced and not sync.directory
        moved = sync.log_end > self.durable_end
        self.durable_end = max(self.durable_end, sync.log_end)
        return moved

    def truncate(self, to: int) -> None:
        start = batch_start(self.log, to)
        if self.settings.is_compacted:
            self.compacted_end = min(self.compacted_end, start)
            lower_progress(self.log.disk, self.log.directory, start)
        self._cut(lambda: truncate_to(self.log, to), recovery_point=min(start, self.durable_end))

    def producer_state(self) -> bytes:
        """Return the producer state for a log that begins where this disk does."""
        return encoded(take_snapshot(self.validator, self.log.local_log_start))

    def restart(self, at: int, log_start: int | None = None, producer_state: bytes = b"") -> None:
        start = at if log_start is None else log_start

        def begin_anew() -> None:
            import_state(self.log.disk, self.log.directory, at, producer_state)
            if self.settings.is_compacted:
                self.compacted_end = 0
                lower_progress(self.log.disk, self.log.directory, 0)
            reset_to(self.log, at, start)

        self._cut(begin_anew, recovery_point=0)
        self.durable_end = at
        self.checkpoint()

    def trim(self, log_start: int, local: int) -> None:
        """Delete records below log_start and segments below `local`; the new start is durable first."""
        if log_start > self.log.log_start:
            self.log.log_start = log_start
            self.checkpoint()
        local = max(log_start, local)
        kept_from = self.log.kept_from(local)
        if not remembers(self.log.disk, self.log.directory, kept_from, self.high_watermark):
            save_state_below(
                self.log.disk, self.log.directory, take_snapshot(self.validator, kept_from), self.high_watermark
            )
        for segment in self.log.drop_oldest(local):
            remove_segment(self.log.disk, segment)
            segment.mark_deleted()
        self.forget_removed()

    def forget_removed(self) -> None:
        """Forget the segments that were deleted or replaced."""
        self._unsynced = [s for s in self._unsynced if s in self.log.segments]

    @property
    def recovery_point(self) -> int:
        return self._points.get(self._name, Checkpoint()).recovery_point

    def checkpoint(self) -> None:
        self._save(Checkpoint(self.durable_end, self.log.log_start))

    def read(self, offset: int, limit: int | None = None, max_bytes: int = READ_BYTES) -> bytes:
        """Return whole batches from the one that holds an offset, up to a size limit; at least one if there is any.

        Raises OSError and Corrupt where the disk has a fault.
        """
        end = self.log.log_end if limit is None else limit
        if offset >= end:
            return b""
        span = self.log.locate(offset, max_bytes, self.log.log_end, self.log.end_position)
        if span is None:
            return b""
        data = self.log.disk.pread(span.segment.handle, span.end - span.start, span.start)
        if self.log.disk.has_bad_sectors:
            check_batches(data, span.segment.path)
        begin = stop = None
        for position, header in record_batch.walk(data):
            if header.next_offset > end:
                break
            if begin is None and header.next_offset > offset:
                begin = position
            stop = position + header.size_bytes
        return b"" if begin is None else bytes(beginning_at(data[begin:stop], offset))

    def read_range(self, begin: int, end: int) -> bytes:
        """Return the batches of whole segments, if the log has them."""
        is_there = self.log.local_log_start <= begin and end <= self.log.log_end
        return b"".join(self.all_batches(end, begin)) if is_there else b""

    def all_batches(self, limit: int | None = None, begin: int | None = None) -> list[bytes]:
        batches, offset = [], self.log.local_log_start if begin is None else begin
        while data := self.read(offset, limit, 1 << 20):
            for position, header in record_batch.walk(data):
                batches.append(data[position : position + header.size_bytes])
                offset = header.next_offset
        return batches

    def _rebuilt(self, now_ms: int) -> AppendValidator:
        return load_validator(self._data.disk, self._name, self.log, self.settings, now_ms)

    def _write(self, steps) -> list[int]:
        """Write the plan; return the base offsets of new segments."""
        rolled = any(isinstance(step, Roll) for step in steps)
        sealed = self.log.active
        work = PartitionWork(self._name, self.log.directory, steps)
        carry_out(self.log.disk, Group([work]))
        if work.write_error is not None:
            if not work.write_error.retryable:
                self.offline = work.write_error
            raise work.write_error
        self.log.apply(steps)
        for step in steps:
            if step.segment not in self._unsynced:
                self._unsynced.append(step.segment)
        if rolled:
            self._directory_unsynced = True
            save_index(self.log.disk, sealed)
        return [step.segment.base_offset for step in steps if isinstance(step, Roll)]

    def _cut(self, cut, recovery_point: int) -> None:
        self._save(Checkpoint(recovery_point, self.log.log_start))
        cut()
        self.cuts += 1
        self.validator = self._rebuilt(self._now_ms)
        self.durable_end = min(self.durable_end, self.log.log_end)
        self.forget_removed()
        self.checkpoint()

    def _save(self, checkpoint: Checkpoint) -> None:
        self._points[self._name] = checkpoint
        self._data.save_checkpoints(self._points)


def check_batches(data: bytes, path: str) -> None:
    """Check bytes of a segment. Raises Corrupt."""
    for at, header in record_batch.walk(data):
        if not record_batch.has_valid_crc(data, at, header):
            raise Corrupt(f"{path}: damaged bytes of offset {header.base_offset}")


def append_of(batch: bytearray) -> Append:
    """Return the append of a batch of one request, whose key, if it has one, is in either of the two forms."""
    header = record_batch.read_header(batch)
    conditions = requests = None
    if header.producer_id == KEYED_PRODUCER:
        entries = read_entries(batch)
        assert isinstance(entries[0].entry, KeyEntry)
        conditions = AppendConditions(key=entries[0].entry)
        if header.base_sequence >= 0:
            of_part = conditions
            requests, conditions = SharedRequests(entries, lambda: [(batch, of_part)]), None
    return Append(batch, None, False, conditions, requests)  # type: ignore[arg-type] # no task waits for this future
