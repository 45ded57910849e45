"""Options that several ingest commands share, and what their values may be. Imports nothing heavy."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

import click

from spark_ingest.output.names import JOB_NAME

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class Pattern(click.ParamType[re.Pattern[str]]):
    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> re.Pattern[str]:
        try:
            return re.compile(value)
        except re.error as error:
            self.fail(f"{value!r} is no regular expression: {error}", param, ctx)


class StoreUrl(click.ParamType[str]):
    """A store's URL; a path stands for `file://` and itself."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        return text if "://" in text else "file://" + quote(os.path.abspath(text))


class JobName(click.ParamType[str]):
    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not JOB_NAME.fullmatch(str(value)):
            self.fail(f"{value!r} is no job name: letters, digits, '.', '_' and '-', at most 100", param, ctx)
        return str(value)


def store_option(command: CommandT) -> CommandT:
    told = "Where segments are tiered to: a URL or a path.  [env: PENSTOCK_STORE]"
    return click.option("--store", required=True, type=StoreUrl(), envvar="PENSTOCK_STORE", help=told)(command)


def output_option(command: CommandT) -> CommandT:
    told = "Where the tables are: file:// or s3:// or a path."
    return click.option("--output", required=True, type=StoreUrl(), help=told)(command)


def job_option(command: CommandT) -> CommandT:
    told = "Name of the job, whose plans and commits are kept under it."
    return click.option("--job", "job_name", type=JobName(), default="default", show_default=True, help=told)(command)


def json_option(command: CommandT) -> CommandT:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(command)
