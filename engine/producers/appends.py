"""An append to a partition: its batch, its conditions, and its outcome.

engine/producers/append_validator.py judges it. Pure. Invariant: outcomes are reported in the order of arrival, and each
written batch belongs to one append, or to one part of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.errors import EngineError, Invalid
from engine.format.batch import Header
from engine.format.keyed_batch import KeyEntry, RequestFields, SourceEntry, keys_in


class AppendConditions(NamedTuple):
    """The conditions of an append besides its batch. An append without any has None instead."""

    expected_end: int | None = None
    fencing_token: str | None = None
    key: KeyEntry | None = None  # the same as in the batch
    source: SourceEntry | None = None  # the same as in the batch


NO_CONDITIONS = AppendConditions()


def conditions_of(fields: Sequence[Any] | None) -> AppendConditions | None:
    """Decodes conditions from a link, perhaps from a newer version. Raises Invalid for an unknown condition."""
    if fields is None:
        return None
    field_count = len(AppendConditions._fields)
    if any(unknown is not None for unknown in fields[field_count:]):
        raise Invalid("the append has a condition that this version does not support", hint="upgrade the leader's node")
    conditions = AppendConditions(*fields[:field_count])
    key, source = conditions.key, conditions.source
    return conditions._replace(
        key=None if key is None else KeyEntry(*key), source=None if source is None else SourceEntry(*source)
    )


def fields_of(conditions: AppendConditions | None) -> tuple[Any, ...] | None:
    """Encodes conditions for a link: without a `source` they are those of versions that do not know it."""
    return conditions if conditions is None or conditions.source is not None else conditions[:-1]


class Appended(NamedTuple):
    """Where the records of an append are stored: now, or at its first arrival.

    `timestamp_ms` is set for a duplicate only: the latest time of the stored records, or, by key, the time of the first
    request. `key_kept_ms`: for how long its key is remembered, if it has one. `source_position`: nothing was stored,
    because the positions of the append up to this one are; where their latest batch is stored.
    """

    base_offset: int
    record_count: int
    timestamp_ms: int | None = None
    is_duplicate: bool = False
    key_kept_ms: int | None = None
    source_position: int | None = None

    @property
    def end(self) -> int:
        return self.base_offset + self.record_count

    @classmethod
    def of(cls, fields: Sequence[Any]) -> Appended:
        """Decodes a result from a link; ignores the extra fields of a newer version."""
        return cls(*fields[: len(cls._fields)])


class SharedRequests:
    """The requests of a batch of several: their `entries`, as in the batch. `apart` encodes a batch for each request.

    It is called if one of them is a repeat or is to be rejected. `keys` are those of the entries by their hashes: fewer
    than `key_count` if two requests have one key.
    """

    __slots__ = ("apart", "entries", "key_count", "keys")

    def __init__(
        self,
        entries: Sequence[RequestFields],
        apart: Callable[[], list[tuple[bytes | bytearray, AppendConditions | None]]],
    ) -> None:
        self.entries = entries
        self.apart = apart
        self.keys, self.key_count = keys_in(entries)

    def __repr__(self) -> str:
        return f"SharedRequests({len(self.entries)}, keys={self.key_count})"


class AppendedApart(NamedTuple):
    """The outcome of a batch of several requests that was not stored as one: the positions or the error of each."""

    outcomes: list[Appended | EngineError]


QueuedBatch = tuple[bytes | bytearray, AppendConditions | None, SharedRequests | None]


@dataclass(slots=True)
class Append:
    """A batch on its way into the log. Without a verdict it is written; else the verdict is its answer.

    With `parts` these are judged and written in its place.
    """

    batch: bytes | bytearray
    written: asyncio.Future[Any]  # Appended, or AppendedApart with `parts`
    wants_sync: bool
    conditions: AppendConditions | None = None
    requests: SharedRequests | None = None
    parts: list[Append] | None = None
    verdict: Appended | EngineError | None = None
    key_kept_ms: int | None = None


def resolve_appends(headers: list[Header], taken: list[Append]) -> None:
    """Reports to each append of a written plan its positions or its error. `headers`: those of the written batches."""
    written = iter(headers)
    for append in taken:
        if append.parts is None:
            outcome: Appended | AppendedApart | EngineError = _outcome(append, written)
        else:
            outcome = AppendedApart([_outcome(part, written) for part in append.parts])
        if append.written.done():
            continue
        if isinstance(outcome, EngineError):
            append.written.set_exception(outcome)
        else:
            append.written.set_result(outcome)
    assert next(written, None) is None, "each written batch is of an append"


def _outcome(append: Append, written: Iterator[Header]) -> Appended | EngineError:
    """Returns the verdict of an append, or the positions of the next of the written batches."""
    if append.verdict is not None:
        return append.verdict
    header = next(written)
    fields = (header.base_offset, header.last_offset_delta + 1, None, False, append.key_kept_ms, None)
    return tuple.__new__(Appended, fields)  # a quarter of the time of Appended()


def resolve_failed(taken: list[Append], log_end: int, error: EngineError) -> None:
    """Reports a failed write to each append, but to a repeat of a stored one its positions."""
    for append in taken:
        if append.written.done():
            continue
        if append.parts is not None:
            append.written.set_result(AppendedApart([_failed(part, log_end, error) for part in append.parts]))
        elif isinstance(outcome := _failed(append, log_end, error), Appended):
            append.written.set_result(outcome)
        else:
            append.written.set_exception(outcome)


def _failed(append: Append, log_end: int, error: EngineError) -> Appended | EngineError:
    verdict = append.verdict
    return verdict if isinstance(verdict, Appended) and verdict.end <= log_end else error
