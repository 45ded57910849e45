"""Validates the appends of one partition before the write: accepted, duplicate, or rejected.

Pure: no disk, no clock, no waiting. `admit` runs when a group starts (Partition.take_work), where offsets are
assigned, and only for plans that need it (Partition.has_conditions). One plan per partition is in progress at a time,
so the state then holds all earlier writes; the changes of the plan itself are tentative: applied by `written`, dropped
by `failed`. Rejections and duplicates are reported when the plan is written, never before, so that a duplicate of an
append in the same plan shares its outcome.

The order of the checks: (1) duplicate, also by source positions: returns its first positions, writes nothing; (2) the
fencing token of the partition; (3) the expected log end of the append; (4) its own sequence. So a retry of a
conditional append that has succeeded is a duplicate, not a mismatch.

To add a condition: a field of AppendConditions, which crosses links as it is; its state in AppendValidator, with a line
in Partition.has_conditions if appends without that field can be rejected too, a case in `_validate`, and its tentative
change in `_stage`, applied by `_commit`. A property of the batch is in its header and needs no field.
Invariants: an append without conditions costs one check of its conditions and one of its header; a verdict never
changes; `written` and `failed` both leave nothing tentative; the applied state covers exactly the log up to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import (
    DuplicateOlderThanWindow,
    EngineError,
    KeyReused,
    LogEndMismatch,
    ProducerFenced,
    SequenceGap,
)
from engine.format import batch as record_batch
from engine.format.batch import KEYED_PRODUCER, Buffer, Header
from engine.format.batch_header import CONTROL
from engine.format.keyed_batch import RequestEntry, SequenceEntry, SourceEntry, read_entries
from engine.producers.appends import NO_CONDITIONS, Append, AppendConditions, Appended, SharedRequests
from engine.producers.fencing import Fencing
from engine.producers.key_window import KeyRecord, StoredKey
from engine.producers.partition_keys import PartitionKeys
from engine.producers.sequences import ID_MAX, First, Producers, StagedRequest
from engine.producers.snapshots import State
from engine.producers.sources import Sources
from engine.topic_settings import TopicSettings


@dataclass(slots=True)
class AppendCounts:
    """Counts of verdicts since the partition was opened, including failed plans."""

    duplicates: int = 0
    duplicates_older: int = 0
    fenced: int = 0
    gaps: int = 0
    token_mismatches: int = 0
    key_duplicates: int = 0
    keys_reused: int = 0
    source_repeats: int = 0


class AppendValidator:
    """Judges the appends of one partition."""

    def __init__(self, name: str) -> None:
        self.producers = Producers()
        self.fencing = Fencing()
        self.keys = PartitionKeys()
        self.sources = Sources()
        self.counts = AppendCounts()
        self.has_state = False  # the log may hold state, or has since the start
        self._name = name
        self.is_judged = False  # the plan in progress was admitted here
        self._staged: list[StagedRequest] = []
        self._states: list[State] = []

    def __repr__(self) -> str:
        parts = (self.producers, self.fencing, self.keys, self.sources, self.counts)
        return f"AppendValidator({self._name}, {', '.join(map(repr, parts))})"

    def expect(self, append: Append) -> None:
        """Notes that an append is queued: its keys are found from now on."""
        if append.conditions is not None and append.conditions.key is not None:
            self.keys.expect((append.conditions.key,))
        if append.requests is not None:
            self.keys.expect_together(append.requests)

    def drop(self, queue: list[Append]) -> int:
        """Forgets what was expected of a whole queue that no plan takes any more. Returns its bytes."""
        self.keys.forget([append.conditions.key for append in queue if append.conditions and append.conditions.key])
        return sum(len(append.batch) for append in queue)

    def admit(self, appends: list[Append], log_end: int, now_ms: int) -> list[Append]:
        """Returns the appends to write, in order; the others get a verdict. `log_end` is where the plan begins.

        `now_ms` here and below is steady time (engine/runtime/clock.py).
        """
        self.has_state = self.is_judged = True
        admitted, end = list[Append](), log_end
        key_kept_ms = self.keys.kept_ms(now_ms)
        headers = record_batch.read_headers([append.batch for append in appends])
        for append, header in zip(appends, headers, strict=True):
            if append.requests is None:
                if self._admit_one(append, header, end, now_ms, key_kept_ms):
                    admitted.append(append)
                    end += header.last_offset_delta + 1
            elif self._stage_all(append.requests, end, now_ms):
                append.key_kept_ms = key_kept_ms
                admitted.append(append)
                end += header.last_offset_delta + 1
            else:
                self.keys.part(append.requests)
                append.parts = [
                    Append(batch, append.written, append.wants_sync, conditions)
                    for batch, conditions in append.requests.apart()
                ]
                for part in append.parts:
                    of_part = record_batch.read_header(part.batch)
                    if self._admit_one(part, of_part, end, now_ms, key_kept_ms):
                        admitted.append(part)
                        end += of_part.last_offset_delta + 1
        return admitted

    def _admit_one(self, append: Append, header: Header, end: int, now_ms: int, key_kept_ms: int) -> bool:
        """Judges the batch of one request. Without a verdict, note what it changes, and return True."""
        conditions, producer_id = append.conditions, header.producer_id
        append.verdict = None
        if conditions is not None or self.fencing.is_in_use:
            append.verdict = self._validate(header, conditions or NO_CONDITIONS, end, now_ms)
        elif producer_id >= 0:  # nothing else is to be judged
            append.verdict = self._by_sequence(header)
        if append.verdict is not None:
            return False
        if producer_id >= 0:
            self._staged.append((end, producer_id, self.producers.stage(header, end, now_ms)))
        if header.attributes & CONTROL:
            self.fencing.stage(append.batch, end)
        if conditions is not None:
            count = header.last_offset_delta + 1
            if conditions.key is not None:
                self.keys.stage(conditions.key, end, count, now_ms)
                append.key_kept_ms = key_kept_ms
            if conditions.source is not None:
                self.sources.stage(conditions.source, end, count, now_ms)
        return True

    def _stage_all(self, requests: SharedRequests, end: int, now_ms: int) -> bool:
        """Notes a batch of several requests if all of them are new, in one pass. False, with nothing noted, if not."""
        if self.fencing.is_in_use:
            return False
        sequenced: list[StagedRequest] | None = []
        if requests.key_count < len(requests.entries):
            sequenced = self.producers.after_all(requests.entries, end, now_ms)
        if sequenced is None or not self.keys.stage_all(requests, end, now_ms):
            return False
        if sequenced:
            self.producers.stage_all(sequenced)
            self._staged += sequenced
        return True

    def commit_staged(self, settings: TopicSettings, rolled_at: Sequence[int]) -> None:
        """Applies the tentative changes: the last judged plan is in the log.

        It began new segments at these offsets; the state at each is kept for `take_states`.
        """
        if not (self.is_judged or rolled_at):
            return
        self.is_judged = False
        for offset in rolled_at:
            self._commit(settings, offset)
            self.fencing.commit(offset)
            self.keys.commit(settings, offset)
            self.sources.commit(settings.sources_max, offset)
            self._states.append(self.state(offset))
        if self._staged or rolled_at:  # changes before the last roll are committed already, but still noted below
            self._commit(settings, None)
            self.producers.discard_staged()
        self.fencing.commit()
        self.keys.commit(settings, None)
        self.sources.commit(settings.sources_max)

    def discard_staged(self) -> None:
        """Drops the tentative changes: the last judged plan is not in the log."""
        self.is_judged = False
        self._staged.clear()
        self.producers.discard_staged()
        self.fencing.discard_staged()
        self.keys.discard_staged()
        self.sources.discard_staged()

    def state(self, log_end: int) -> State:
        """Returns the applied state; costs a reference for each item."""
        rows, files = self.keys.to_save(log_end)
        producers, sources = self.producers, self.sources.items()
        fence, forgotten = self.fencing.present, producers.forgotten_id_max
        return State(log_end, producers.items(), fence, rows, files, sources, forgotten)

    def take_states(self) -> list[State]:
        """Returns the states of the rolls since the last call, to be saved."""
        taken, self._states = self._states, []
        return taken

    def restore(self, state: State, settings: TopicSettings, now_ms: int) -> None:
        """Begins with a saved state, perhaps by another clock: its producers and sources count as used now."""
        self.has_state = True
        self.producers.forgotten_id_max = state.forgotten_id_max
        for producer_id, producer in state.producers:
            self.producers.commit(producer_id, producer.used_at(now_ms), settings.producers_max)
        self.fencing.restore(state.fence)
        self.sources.restore(state.sources, settings.sources_max, now_ms)

    def replay(self, header: Header, settings: TopicSettings, now_ms: int) -> None:
        """Applies a batch of the log. It counts as used now, since the actual time is unknown.

        `replay_entries` handles keyed ones: their entry is not in the header.
        """
        if header.producer_id >= 0:
            self.producers.replay(header, now_ms, settings.producers_max)

    def replay_entries(
        self,
        header: Header,
        requests: Sequence[RequestEntry],
        settings: TopicSettings,
        now_ms: int,
        since_ms: int | None = None,
    ) -> None:
        """Applies entries of a keyed batch of the log, appended at `since_ms` or later."""
        keys = list[StoredKey]()
        for entry, first, count in requests:
            offset = header.base_offset + first
            if isinstance(entry, SourceEntry):
                self.sources.replay(entry, offset, count, now_ms, settings.sources_max)
            elif isinstance(entry, SequenceEntry):
                self.producers.replay_request(entry, offset, count, now_ms, settings.producers_max)
            else:
                keys.append((entry, offset, count))
        if keys:
            self.keys.replay(keys, now_ms, since_ms)

    def apply_copied(
        self,
        batches: Sequence[tuple[Header, Buffer]],
        settings: TopicSettings,
        now_ms: int,
        rolled_at: Sequence[int],
    ) -> None:
        """Applies batches appended as follower, whose log began new segments at these offsets, without verdicts.

        `batches` are those among them that have state for the validator.
        """
        self.has_state |= bool(batches)
        if settings.is_compacted:  # batches of expired producers may have been removed before they were copied
            self.producers.forgotten_id_max = ID_MAX
        rolls = deque(rolled_at)
        for header, batch in batches:
            while rolls and rolls[0] <= header.base_offset:
                self._states.append(self.state(rolls.popleft()))
            self.replay(header, settings, now_ms)
            if header.is_control:
                self.fencing.replay(batch, header.base_offset)
            if header.producer_id == KEYED_PRODUCER:
                self.replay_entries(header, read_entries(batch), settings, now_ms)
        self._states += [self.state(offset) for offset in rolls]

    def expire(self, now_ms: int, settings: TopicSettings) -> None:
        """Drops producers, keys and sources that were unused for the time of the settings."""
        self.producers.expire(now_ms - settings.producer_expiry_ms)
        self.keys.use(settings)
        self.keys.expire(now_ms)
        self.sources.expire(now_ms - settings.source_expiry_ms)

    def _validate(
        self, header: Header, conditions: AppendConditions, end: int, now_ms: int
    ) -> Appended | EngineError | None:
        """The cases are those of the file's head. `end` is where this append would begin."""
        by_sequence = self._by_sequence(header) if header.producer_id >= 0 else None
        if isinstance(by_sequence, Appended | DuplicateOlderThanWindow):
            return by_sequence
        if conditions.key is not None:
            verdict = self.keys.validate(conditions.key, now_ms)
            if verdict is not None:
                return self._answer_of_key(verdict)
        if conditions.source is not None and (stored := self._validate_source(conditions.source)) is not None:
            return stored
        if conditions.fencing_token is not None or self.fencing.is_in_use:
            refused = self.fencing.validate(self._name, header, conditions.fencing_token)
            if refused is not None:
                self.counts.token_mismatches += 1
                return refused
        if conditions.expected_end is not None and conditions.expected_end != end:
            text = f"{self._name}: the log ends at {end}, not at {conditions.expected_end}"
            return LogEndMismatch(text, log_end=end)
        return by_sequence

    def _by_sequence(self, header: Header) -> Appended | EngineError | None:
        verdict = self.producers.validate(header)
        if verdict is None:
            return None
        self._count(verdict)
        return Appended(*verdict, is_duplicate=True) if isinstance(verdict, First) else verdict

    def _answer_of_key(self, verdict: tuple[KeyRecord, int] | KeyReused) -> Appended | EngineError:
        if isinstance(verdict, KeyReused):
            self.counts.keys_reused += 1
            return verdict
        self.counts.key_duplicates += 1
        first, kept_ms = verdict
        return Appended(first.base_offset, first.record_count, first.time_ms, is_duplicate=True, key_kept_ms=kept_ms)

    def _validate_source(self, entry: SourceEntry) -> Appended | None:
        stored = self.sources.validate(entry)
        if stored is None:
            return None
        self.counts.source_repeats += 1
        batch, position = stored
        return Appended(batch.base_offset, batch.record_count, batch.time_ms, True, source_position=position)

    def _commit(self, settings: TopicSettings, below: int | None) -> None:
        """Applies the plan's changes below an offset, or all of them."""
        count = len(self._staged)
        if below is not None:
            count = next((at for at, staged in enumerate(self._staged) if staged[0] >= below), count)
        self.producers.commit_all(self._staged[:count], settings.producers_max)
        del self._staged[:count]

    def _count(self, verdict: First | EngineError) -> None:
        match verdict:
            case First():
                self.counts.duplicates += 1
            case ProducerFenced():
                self.counts.fenced += 1
            case SequenceGap():
                self.counts.gaps += 1
            case DuplicateOlderThanWindow():
                self.counts.duplicates_older += 1
