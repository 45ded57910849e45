"""Reads and checks a job file, before anything else is opened. Finds all mistakes at once.

    [job]
    store = "penstock-data/store"
    output = "lake"
    topics = "flights|rides"

    [defaults]
    event_time = "ts"

    [topics.rides]
    payload = "raw"

A section of a topic counts for the topic of that name; without one, the first section in the file counts whose name
matches the whole name of the topic as a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from spark_ingest.choices import TopicChoice
from spark_ingest.config.job_settings import JOB_SETTINGS
from spark_ingest.config.job_topics import TOPIC_SETTINGS, choice_of, relation_problems
from spark_ingest.config.setting import Setting, is_expression
from spark_ingest.errors import IngestRefused
from spark_ingest.run_limits import RunLimits
from spark_ingest.toml_file import parse_toml, read_text

_SECTIONS = ("job", "defaults", "topics")


@dataclass(frozen=True, slots=True)
class JobFile:
    """The settings of a checked file, as given: defaults are not filled in."""

    job: Mapping[str, Any]
    defaults: Mapping[str, Any]
    topics: Mapping[str, Mapping[str, Any]]

    @property
    def run_limits(self) -> RunLimits:
        records, size_bytes, seconds = map(self.job.get, ("run_records_max", "run_bytes_max", "run_max_s"))
        span_s = self.job.get("run_span_max_s")
        return RunLimits(records, size_bytes, seconds, None if span_s is None else span_s * 1000)

    def section_of(self, topic: str) -> str | None:
        """Returns the name of the section that counts for a topic; None if the defaults do."""
        if topic in self.topics:
            return topic
        return next((name for name in self.topics if re.fullmatch(name, topic)), None)

    def settings_of(self, topic: str, defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Returns the settings of a topic. `defaults` replaces the file's own ones."""
        section = self.section_of(topic)
        base = self.defaults if defaults is None else defaults
        return {**base, **(self.topics[section] if section is not None else {})}

    def choice_of(self, topic: str, defaults: Mapping[str, Any] | None = None) -> TopicChoice:
        """Returns the choice for a topic."""
        return choice_of(self.settings_of(topic, defaults))


def read_job_file(path: Path) -> JobFile:
    """Returns the settings of a file. Raises IngestRefused with every mistake."""
    text = read_text("--config", path)
    document = parse_toml("--config", path, text)
    mistakes = _mistakes(document, text)
    if mistakes:
        counted = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise IngestRefused(f"--config {path} has {counted}:\n" + "\n".join(f"  {mistake}" for mistake in mistakes))
    return JobFile(document.get("job", {}), document.get("defaults", {}), document.get("topics", {}))


def _mistakes(document: Mapping[str, Any], text: str) -> list[str]:
    """Returns a line for each mistake, in the order of the file where a line is known."""
    lines = _Lines(text)
    mistakes: list[tuple[int, str]] = []

    def add(section: str, name: str, problem: str) -> None:
        line = lines.of(section, name)
        line_text = f"line {line}: " if line else ""
        mistakes.append((line, f"{line_text}{'.'.join(filter(None, (section, name)))} {problem}"))

    for name in document:
        if name not in _SECTIONS:
            add("", name, f"is not a section; write [{'], ['.join(_SECTIONS[:2])}] or [topics.NAME]")
    parts: dict[str, dict[str, Any]] = {}
    for name in _SECTIONS:
        value = document.get(name, {})
        if not isinstance(value, dict):
            add("", name, f"is a value; write a section [{name}]")
        parts[name] = value if isinstance(value, dict) else {}
    sections = [("job", parts["job"], JOB_SETTINGS), ("defaults", parts["defaults"], TOPIC_SETTINGS)]
    for name, settings in parts["topics"].items():
        section = f"topics.{name}"
        if not isinstance(settings, dict):
            add("topics", name, f"is a value; write a section [topics.{name}]")
            continue
        if problem := is_expression(name):
            add(section, "", problem)
        sections.append((section, settings, TOPIC_SETTINGS))
    defaults_are_right = not problems_of(parts["defaults"], TOPIC_SETTINGS)
    for section, settings, settings_known in sections:
        problems = problems_of(settings, settings_known)
        if settings_known is TOPIC_SETTINGS and not problems and defaults_are_right:
            problems = relation_problems({**parts["defaults"], **settings}, settings)
        for name, problem in problems:
            add(section, name, problem)
    return [text for _, text in sorted(mistakes, key=lambda mistake: mistake[0] or 1 << 30)]


def problems_of(settings: Mapping[str, Any], settings_known: Mapping[str, Setting]) -> list[tuple[str, str]]:
    """Returns the names of wrong, unknown and missing settings of a section, each with what to do."""
    problems = []
    for name, value in settings.items():
        setting = settings_known.get(name)
        if setting is None:
            near = get_close_matches(name, settings_known, 1)
            problems.append(
                (name, "is unknown; " + (f"write {near[0]}" if near else f"there are: {', '.join(settings_known)}"))
            )
        elif problem := setting.problem(value):
            problems.append((name, problem))
    missing = [
        setting.name for setting in settings_known.values() if setting.is_required and setting.name not in settings
    ]
    return problems + [(name, f"is missing; write {name} = …") for name in missing]


class _Lines:
    """Finds the line of a setting, for messages only: tomllib gives no positions. 0 if it is not found."""

    def __init__(self, text: str) -> None:
        self._lines: dict[tuple[str, str], int] = {}
        section = ""
        for number, line in enumerate(text.splitlines(), 1):
            if header := re.fullmatch(r"\s*\[+\s*(.*?)\s*\]+\s*(#.*)?", line):
                section = _unquoted(header[1])
                self._lines.setdefault((section, ""), number)
            elif key := re.match(r"\s*(\"[^\"]*\"|'[^']*'|[\w-]+)\s*=", line):
                self._lines.setdefault((section, _unquoted(key[1])), number)

    def of(self, section: str, name: str) -> int:
        return self._lines.get((section, name)) or self._lines.get((section, ""), 0) or self._lines.get((name, ""), 0)


def _unquoted(name: str) -> str:
    return re.sub(r"[\"'](.*?)[\"']", r"\1", name)
