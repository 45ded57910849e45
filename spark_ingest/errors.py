"""Errors of ingestion, one kind for each action of the operator."""

from __future__ import annotations

from engine.errors import EngineError


class IngestRefused(EngineError):
    """The job cannot start: an option, the environment or the owner of a table is wrong. Correct it and run again."""

    code = "ingest_refused"


class LostRecords(EngineError):
    """The store no longer has records that were not ingested, or its end moved back. Nothing was done."""

    code = "lost_records"


class RepeatedRecords(EngineError):
    """A plan has offsets that are committed. Nothing was committed; abandon the plan."""

    code = "repeated_records"


class TooManyBadRecords(EngineError):
    """The share of dead letters exceeds the limit. Nothing was committed; resume or abandon the plan."""

    code = "too_many_bad_records"


class TooManyMisfits(EngineError):
    """A column has too many values of another type. The topic was not committed; declare the type or widen."""

    code = "too_many_misfits"


class ColumnsWidened(EngineError):
    """A bigint column has fractions. The same run plans the topic again, with decimals."""

    code = "columns_widened"


class NoEventTime(EngineError):
    """A record has no readable event time and the fallback is `fail`. Nothing was committed; abandon the plan."""

    code = "no_event_time"


class TopicsFailed(EngineError):
    """Several topics were not ingested, each for its own reason. The others were committed."""

    code = "topics_failed"


class HistoryDamaged(EngineError):
    """A plan or commit is missing or not the expected one. Nothing was removed; find out what removed it."""

    code = "history_damaged"


class OutputConflict(EngineError):
    """An output object exists with different rows. Nothing was overwritten; find out who wrote it."""

    code = "output_conflict"


class NotPublished(EngineError):
    """A catalog did not take files that are committed. Run it again: what is missing is added then."""

    code = "not_published"
