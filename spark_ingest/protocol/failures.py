"""Failures of single topics: a topic that fails holds back its own records only, and the others are committed.

Values and decisions; runner.py acts on them. A retryable error, as of a store that does not answer, is not a failure
of a topic: it ends the run, and the next one resumes the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from engine.errors import EngineError
from spark_ingest.choices import Choices
from spark_ingest.errors import ColumnsWidened, TooManyBadRecords, TooManyMisfits, TopicsFailed
from spark_ingest.output.stored_file import StoredFile
from spark_ingest.plan import TableSchema
from spark_ingest.protocol.results import Misfits, TaskResult, add_misfits
from spark_ingest.types.json_types import Members, is_widened, merge_members

Failures = Mapping[str, EngineError]  # by topic


class Held(msgspec.Struct, frozen=True):
    """Why a commit has no records of a topic of its plan. `dead_letters` stay until the topic is planned again."""

    plan: int
    code: str
    detail: str
    dead_letters: tuple[StoredFile, ...] = ()


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A task with an error that a retry does not cure."""

    topic: str
    error: EngineError


Outcome = TaskResult | FailedTask


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a topic in one plan. They are not part of plans: they may differ between attempts.

    A share above the limit holds a topic back only beyond the allowed number. A limit of 0 allows none.
    """

    dead_letter_max_percent: float
    dead_letter_max_percents: Mapping[str, float]  # of single topics
    misfit_max_percent: float = 100
    widens: bool = False
    dead_letter_allowed_records: int = 0
    misfit_allowed_values: int = 0
    choices: Choices | None = None  # of single topics; they replace all but `dead_letter_max_percents`

    def of(self, topic: str) -> Limits:
        """Returns the limits of one topic."""
        if self.choices is None:
            return replace(self, dead_letter_max_percent=self._percent_of(topic, self.dead_letter_max_percent))
        choice = self.choices(topic)
        percent = self._percent_of(topic, choice.dead_letter_max_percent)
        return Limits(
            percent,
            {},
            choice.misfit_max_percent,
            choice.widens,
            choice.dead_letter_allowed_records,
            choice.misfit_allowed_values,
        )

    def _percent_of(self, topic: str, otherwise: float) -> float:
        return self.dead_letter_max_percents.get(topic, otherwise)


def failures_of(
    outcomes: Sequence[Outcome], schemas: Mapping[str, TableSchema], limits: Limits
) -> dict[str, EngineError]:
    """Returns the error of each topic with a failed task, too many dead letters, or a column with too many misfits."""
    failures: dict[str, EngineError] = {}
    results: dict[str, list[TaskResult]] = {}
    for outcome in outcomes:
        if isinstance(outcome, FailedTask):
            failures.setdefault(outcome.topic, outcome.error)
        else:
            results.setdefault(outcome.topic, []).append(outcome)
    for topic, done in results.items():
        mine = limits.of(topic)
        error = _bad_records(topic, done, mine) or _misfits(topic, done, schemas[topic], mine)
        if topic not in failures and error:
            failures[topic] = error
    return failures


def held_topics(plan: int, failures: Failures, outcomes: Sequence[Outcome]) -> dict[str, Held]:
    letters: dict[str, tuple[StoredFile, ...]] = {}
    for outcome in outcomes:
        if isinstance(outcome, TaskResult):
            letters[outcome.topic] = letters.get(outcome.topic, ()) + outcome.dead_letters
    return {
        topic: Held(plan, error.code, error.detail, letters.get(topic, ())) for topic, error in sorted(failures.items())
    }


def check_no_failures(failures: Failures) -> None:
    """Raises the error of the only failed topic, or TopicsFailed with all of them."""
    if len(failures) == 1:
        raise next(iter(failures.values()))
    if failures:
        text = "; ".join(_named(topic, error) for topic, error in sorted(failures.items()))
        raise TopicsFailed(f"{len(failures)} topics were not ingested: {text}")


def _named(topic: str, error: EngineError) -> str:
    text = str(error)
    return text if topic in text else f"{topic}: {text}"


def _exceeds(count: int, total: int, percent_max: float, allowed: int) -> bool:
    return count * 100 > percent_max * total and (count > allowed or not percent_max)


def _bad_records(topic: str, results: Sequence[TaskResult], limits: Limits) -> TooManyBadRecords | None:
    bad = sum(result.bad for result in results)
    total = bad + sum(result.rows for result in results)
    percent_max = limits.dead_letter_max_percent
    if not _exceeds(bad, total, percent_max, limits.dead_letter_allowed_records):
        return None
    reasons: dict[str, int] = {}
    for result in results:
        for reason, count in result.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    counted = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    where = next(result.dead_letters[0].key for result in results if result.dead_letters)
    return TooManyBadRecords(
        f"{topic}: {bad} of {total} records are dead letters ({counted}); the limit is {percent_max:g} %",
        hint=f"see {where}; correct the producer or the options and abandon the plan, or raise the limit and run again",
    )


def _misfits(
    topic: str, results: Sequence[TaskResult], schema: TableSchema, limits: Limits
) -> TooManyMisfits | ColumnsWidened | None:
    counts: dict[str, Misfits] = {}
    seen: Members = []
    for result in results:
        counts = add_misfits(counts, result.misfits)
        seen = merge_members(seen, result.seen)
    most, allowed = limits.misfit_max_percent, limits.misfit_allowed_values
    wrong = {name: count for name, count in counts.items() if _exceeds(count.count, count.values, most, allowed)}
    if not wrong:
        return None
    published, seen_types = dict(schema.members), dict(seen)
    texts = [f"{name} ({published[name]}): {count.count} of {count.values}" for name, count in sorted(wrong.items())]
    what = f"{topic}: values of other types than their column: {', '.join(texts)}; the limit is {most:g} %"
    if limits.widens and any(is_widened(published[name], seen_types.get(name)) for name in wrong):
        return ColumnsWidened(what)
    hint = "--on-misfit widen makes a bigint column decimal, --schema declares types, --on-misfit keep commits as it is"
    return TooManyMisfits(what, hint=hint)
