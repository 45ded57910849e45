"""What can go wrong with ingestion, by what the person at the command does about it."""

from __future__ import annotations

from engine.errors import EngineError


class IngestRefused(EngineError):
    """The job cannot start as asked: an option, the environment or the owner of a table is wrong. Mend it."""

    code = "ingest_refused"


class LostRecords(EngineError):
    """Records that were never ingested are gone from the store, or it went backwards. Decide; nothing was done."""

    code = "lost_records"


class TooManyBadRecords(EngineError):
    """More records than allowed make no row. Nothing was committed; the plan stays and can be resumed or abandoned."""

    code = "too_many_bad_records"


class NoEventTime(EngineError):
    """A record has no readable event time and the policy is to fail. Nothing was committed; abandon the plan."""

    code = "no_event_time"


class OutputConflict(EngineError):
    """An output object exists with another content than this plan makes. Nothing was overwritten; look who wrote it."""

    code = "output_conflict"
