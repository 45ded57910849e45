"""Options that several ingest commands share, and their types. Imports neither Spark nor PyArrow."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import click

from engine.tiering.store.store import url_of
from spark_ingest.output.names import JOB_NAME

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class Pattern(click.ParamType[re.Pattern[str]]):
    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> re.Pattern[str]:
        try:
            return re.compile(value)
        except re.error as error:
            self.fail(f"{value!r} is not a regular expression: {error}", param, ctx)


def topic_filter(topics: re.Pattern[str], exclude: re.Pattern[str] | None = None) -> Callable[[str], bool]:
    """Returns the choice of topics that a run makes with `--topics` and `--exclude`."""
    return lambda topic: bool(topics.fullmatch(topic)) and not (exclude and exclude.fullmatch(topic))


class TopicPercent(click.ParamType[tuple[str | None, float]]):
    """PERCENT, or TOPIC=PERCENT for one topic."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str | None, float]:
        topic, _, percent = str(value).rpartition("=")
        return topic or None, click.FloatRange(0, 100)(percent, param, ctx)


_UNITS = MappingProxyType({"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400})


def duration_s(text: str) -> float | None:
    """Returns the seconds of 30s, 10min, 1h or 1d; None for other text, and for zero."""
    match = re.fullmatch(r"(\d{1,6})(s|min|m|h|d)", text)
    return float(int(match[1]) * _UNITS[match[2]]) if match and int(match[1]) else None


class Seconds(click.ParamType[float]):
    """A duration as text: 30s, 10min (or 10m), 1h, 1d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = duration_s(str(value))
        if seconds is None:
            self.fail(f"{value!r} is not a duration such as 30s, 10min or 1h", param, ctx)
        return seconds


class Start(click.ParamType[str]):
    """`earliest`, `latest`, or an age as a duration."""

    name = "start"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in ("earliest", "latest") and duration_s(str(value)) is None:
            self.fail(f"{value!r} is not earliest, latest or an age such as 12h or 7d", param, ctx)
        return str(value)


class Moment(click.ParamType[int]):
    """A time as ISO 8601 text, in UTC without a zone; or milliseconds since 1970. Returns milliseconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if re.fullmatch(r"\d{1,15}", text) and len(text) != 8:
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r} is not a time such as 2026-11-21T05:00:00Z, nor milliseconds since 1970", param, ctx)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


class PayloadName(click.ParamType[str]):
    """The name of a decoder, built in or installed."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from spark_ingest.payload.decoder import BUILT_IN, is_known

        if not is_known(str(value)):
            self.fail(f"{value!r} is not a decoder; there are: {', '.join(BUILT_IN)}", param, ctx)
        return str(value)


class Address(click.ParamType[tuple[str, int]]):
    """HOST:PORT, with brackets around an IPv6 address."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+):(\d{1,5})", str(value))
        if match is None or not 0 < int(match[2]) < 65536:
            self.fail(f"{value!r} is not HOST:PORT", param, ctx)
        return match[1].strip("[]"), int(match[2])


class StoreUrl(click.ParamType[str]):
    """A store's URL; a path is converted to a `file://` URL."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return url_of(str(value))


class JobName(click.ParamType[str]):
    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not JOB_NAME.fullmatch(str(value)):
            self.fail(f"{value!r} is not a job name: letters, digits, '.', '_' and '-', at most 100", param, ctx)
        return str(value)


def add_options(*options: Callable[[Any], Any]) -> Callable[[CommandT], CommandT]:
    """Makes one decorator of several options, in the order of the help."""

    def decorate(command: CommandT) -> CommandT:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def store_option(command: CommandT) -> CommandT:
    text = "The store with the tiered segments: a URL or a path.  [env: PENSTOCK_STORE]"
    return click.option("--store", required=True, type=StoreUrl(), envvar="PENSTOCK_STORE", help=text)(command)


def output_option(command: CommandT) -> CommandT:
    text = "Where tables are written: file://, s3:// or a path."
    return click.option("--output", required=True, type=StoreUrl(), help=text)(command)


def job_option(command: CommandT) -> CommandT:
    text = "Name of the job; its plans and commits are stored under it."
    return click.option("--job", "job_name", type=JobName(), default="default", show_default=True, help=text)(command)


def json_option(command: CommandT) -> CommandT:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(command)


def tables_option(text: str) -> Callable[[CommandT], CommandT]:
    """Makes `--tables FILE`, with what the command does with it."""
    return click.option("--tables", "tables_file", metavar="FILE", type=click.Path(path_type=Path), help=text)


def cluster_option(command: CommandT) -> CommandT:
    return click.option("--cluster", help="The cluster's id, if the store has several.")(command)
