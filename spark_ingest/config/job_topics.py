"""The settings of a topic: [defaults] of a job file for all topics, [topics.NAME] for some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_ingest.choices import (
    DEAD_LETTER_ALLOWED_RECORDS,
    DEAD_LETTER_MAX_PERCENT,
    MISFIT_ALLOWED_VALUES,
    TopicChoice,
)
from spark_ingest.config.decoder_settings import DECODER_SETTINGS, decoder_options, misplaced, step_problem
from spark_ingest.config.layout_settings import LAYOUT_SETTINGS, layout_of, layout_problems
from spark_ingest.config.setting import NUMBER, TABLE, TABLES, TEXT, TEXTS, WHOLE, Setting
from spark_ingest.decode.declared_columns import column_problem
from spark_ingest.errors import IngestRefused
from spark_ingest.payload.decoder import converter_of
from spark_ingest.plan import EVENT_TIME_FALLBACKS, FAIL, RAW, RECORD, Recipe
from spark_ingest.types.json_types import is_decodable

WIDEN, KEEP = "widen", "keep"
ON_MISFIT = (FAIL, WIDEN, KEEP)
MISFIT_MAX_PERCENT = 10.0
CENTURY_S = 100 * 366 * 86_400


def _event_time(value: str) -> str | None:
    names = [value] if not value.startswith("/") else value[1:].split("/")
    wrong = [name for name in names if not is_decodable(name)]
    return f"names the member {wrong[0]!r}; write a name without quotes and backslashes" if wrong else None


def _formats(value: list[str]) -> str | None:
    from spark_ingest.decode.time_rules import format_problem  # with PyArrow

    return format_problem(value)


def _columns(value: Mapping[str, object]) -> str | None:
    for name, kind in value.items():
        problem = column_problem(name, kind, value)
        if problem:
            return f"{name!r} {problem}"
    return None


_SETTINGS = (
    *DECODER_SETTINGS.values(),
    Setting("transforms", TABLES, None, "Steps on the members of a record before it becomes a row, in order: `rename`, "
            "`drop`, `redact`, `hash`, `filter`, `drop-tombstones`, `drop-headers`, or an entry point of "
            "`penstock.ingest.transformers`.",
            check=step_problem),
    Setting("event_time", TEXT, None, "The member with the time of the event: `ts`, `meta.ts` or `/meta/ts`. "
            "Without it the record's timestamp counts; `\"\"` undoes that of `[defaults]`.", check=_event_time,
            may_be_empty=True),
    Setting("event_time_formats", TEXTS, None, "Patterns of Python's strptime, tried in order; without a zone the time "
            "is UTC. Without patterns text is ISO 8601.", check=_formats),
    Setting("event_time_unit", TEXT, "auto", "The unit of numbers since 1970; `auto` distinguishes by magnitude.",
            choices=("auto", "s", "ms", "us", "ns")),
    Setting("event_time_past_max_s", WHOLE, None, "A time longer before the record's timestamp counts as none, so one "
            "wrong clock does not make a day of its own.", minimum=1, maximum=CENTURY_S),
    Setting("event_time_future_max_s", WHOLE, None, "The same for a time after the record's timestamp.",
            minimum=1, maximum=CENTURY_S),
    Setting("event_time_fallback", TEXT, RECORD, "For a record without an event time: take the record's timestamp, "
            "write a dead letter, or fail the topic.", choices=EVENT_TIME_FALLBACKS),
    Setting("dead_letter_max_percent", NUMBER, DEAD_LETTER_MAX_PERCENT,
            "Above this share of dead letters the topic is not committed, so bad data is noticed.",
            minimum=0, maximum=100),
    Setting("dead_letter_allowed_records", WHOLE, DEAD_LETTER_ALLOWED_RECORDS,
            "So many dead letters of a topic in a commit never hold it back, so that one bad record of a small topic "
            "stops nothing. With `dead_letter_max_percent = 0` none are allowed.", minimum=0, maximum=1_000_000_000),
    Setting("on_misfit", TEXT, FAIL, "For a column with too many values of another type, which are in no sum: hold the "
            "topic back, make a bigint column decimal, or commit.", choices=ON_MISFIT),
    Setting("misfit_max_percent", NUMBER, MISFIT_MAX_PERCENT,
            "The largest share of a column's values that may have another type.", minimum=0, maximum=100),
    Setting("misfit_allowed_values", WHOLE, MISFIT_ALLOWED_VALUES,
            "So many such values of a column in a commit never hold the topic back. With `misfit_max_percent = 0` none "
            "are allowed.", minimum=0, maximum=1_000_000_000),
    *LAYOUT_SETTINGS.values(),
    Setting("small_files_max", WHOLE, None, "If an hour to which a run adds has more small files (below 64 MiB), the "
            "run makes one of them: late records otherwise leave a file for each run and task. For Parquet only.",
            minimum=1, maximum=100_000),
    Setting("columns", TABLE, None, "Types of columns that do not follow from the first values: `amt = \"double\"`.",
            check=_columns),
)  # fmt: skip
TOPIC_SETTINGS = {setting.name: setting for setting in _SETTINGS}


def choice_of(settings: Mapping[str, Any]) -> TopicChoice:
    """Returns the choice that checked settings make; settings that are absent have their defaults.

    Raises IngestRefused if settings do not fit together, or a file cannot be read.
    """
    values = _with_defaults(settings)
    on_misfit = values["on_misfit"]
    try:
        options = decoder_options(values)
    except ValueError as error:
        raise IngestRefused(str(error)) from error
    values["event_time"] = values["event_time"] or None
    plain = ("event_time", "event_time_fallback", "event_time_unit", "event_time_past_max_s", "event_time_future_max_s")
    recipe = Recipe(
        values["payload"],
        **{name: values[name] for name in plain},
        decoder=options,
        event_time_formats=tuple(values["event_time_formats"] or ()),
        layout=layout_of(values),
        transforms=() if values["payload"] == RAW else tuple(values["transforms"] or ()),
    )
    return TopicChoice(
        recipe=recipe,
        columns=values["columns"] or {},
        dead_letter_max_percent=values["dead_letter_max_percent"],
        dead_letter_allowed_records=values["dead_letter_allowed_records"],
        misfit_max_percent=100 if on_misfit == KEEP else values["misfit_max_percent"],
        misfit_allowed_values=values["misfit_allowed_values"],
        widens=on_misfit == WIDEN,
        small_files_max=values["small_files_max"],
    )


def _with_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: setting.default for name, setting in TOPIC_SETTINGS.items()} | dict(settings)


def relation_problems(settings: Mapping[str, Any], given_settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the names of settings of a section that do not fit together, each with what to do.

    `settings` are those of the section and of [defaults], `given_settings` those of the section.
    """
    whole = _with_defaults(settings)
    wrong = misplaced(given_settings, whole)
    wrong += layout_problems(whole, given_settings)
    try:
        converter_of(choice_of(settings).recipe)
    except IngestRefused as error:
        wrong.append(("", str(error)))
    return wrong
