"""The choices of the operator for one topic. Values only; config/ reads them from a job file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from spark_ingest.plan import Recipe

DEAD_LETTER_MAX_PERCENT = 0.1
DEAD_LETTER_ALLOWED_RECORDS = 10
MISFIT_ALLOWED_VALUES = 10


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """How records of a topic become rows, and its limits. Only the recipe is part of plans."""

    recipe: Recipe = field(default_factory=Recipe)
    columns: Mapping[str, str] = field(default_factory=dict)  # declared types by member
    dead_letter_max_percent: float = DEAD_LETTER_MAX_PERCENT
    dead_letter_allowed_records: int = DEAD_LETTER_ALLOWED_RECORDS
    misfit_max_percent: float = 100
    misfit_allowed_values: int = MISFIT_ALLOWED_VALUES
    widens: bool = False  # a bigint column with fractions becomes a decimal
    small_files_max: int | None = None  # of an hour; a run makes one file of more


Choices = Callable[[str], TopicChoice]
