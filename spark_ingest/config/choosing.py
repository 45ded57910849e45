"""Joins the options of `penstock ingest run` with the sections of a job file to the choice for each topic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

from spark_ingest.choices import TopicChoice
from spark_ingest.config.job_file import JobFile
from spark_ingest.config.job_topics import TOPIC_SETTINGS, choice_of
from spark_ingest.decode.declared_columns import Declared
from spark_ingest.errors import IngestRefused
from spark_ingest.layout import Layout
from spark_ingest.payload.decoder import converter_of

OPTIONS_OF_TOPICS = ("payload", "event_time", "event_time_fallback", "on_misfit", "misfit_max_percent")
_TOPICS_KEPT = 10_000


class TopicChoices:
    """The choice for each topic: its section of the file, then the options, then [defaults], then the defaults."""

    def __init__(self, file: JobFile, options: Mapping[str, Any], declared: Declared) -> None:
        self._file = file
        self._defaults = {**file.defaults, **{name: value for name, value in options.items() if value is not None}}
        self._declared = declared
        self.defaults = choice_of(self._defaults)
        self._kept = lru_cache(_TOPICS_KEPT)(self._choice_of)

    @property
    def may_widen(self) -> bool:
        """True if a column of any topic may become decimal."""
        return any(choice.widens for choice in self._choices)

    def check(self) -> None:
        """Raises IngestRefused if the decoder of the options or of a section is not usable here."""
        for choice in self._choices:
            converter_of(choice.recipe)

    @property
    def gathers(self) -> bool:
        """True if runs gather the small files of any topic."""
        return any(choice.small_files_max is not None for choice in self._choices)

    @property
    def layouts(self) -> set[Layout]:
        """Returns the layouts of all topics."""
        return {choice.recipe.layout for choice in self._choices}

    @cached_property
    def _choices(self) -> list[TopicChoice]:
        """The choice of topics without a section, and that of each section."""
        return [self.defaults, *(self._file.choice_of(name, self._defaults) for name in self._file.topics)]

    def __call__(self, topic: str) -> TopicChoice:
        return self._kept(topic)

    def _choice_of(self, topic: str) -> TopicChoice:
        settings = self._file.settings_of(topic, self._defaults)
        settings["columns"] = {**(settings.get("columns") or {}), **self._declared.get(topic, {})}
        return choice_of(settings)


def check_event_time(field: str | None) -> None:
    """Raises IngestRefused if the decoder cannot look up a member of the path."""
    if field == "":
        raise IngestRefused("--event-time is empty", hint="write a text, or omit --event-time")
    if field is not None and (problem := TOPIC_SETTINGS["event_time"].problem(field)):
        what, _, hint = problem.partition("; ")
        raise IngestRefused(f"--event-time {what}", hint=f"{hint}, or omit --event-time")
