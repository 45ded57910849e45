"""The group `penstock ingest`: its list of commands, and how each ends after a failure.

No command asks a node: all read the object store that segments are tiered to. A command imports the code for its work
when it is called, because importing PyArrow takes longer than the other commands run.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from engine.errors import EngineError
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import print_json, print_note
from spark_ingest.commands.audit import audit
from spark_ingest.commands.clean import clean, retain
from spark_ingest.commands.clock import now_ms
from spark_ingest.commands.compact import compact
from spark_ingest.commands.erase import erase
from spark_ingest.commands.finalize import finalize
from spark_ingest.commands.job_file import check
from spark_ingest.commands.jobs import jobs, unregister
from spark_ingest.commands.offsets import offsets
from spark_ingest.commands.print_records import print_records
from spark_ingest.commands.report import report
from spark_ingest.commands.reruns import backfill, replay
from spark_ingest.commands.schedule import schedule
from spark_ingest.commands.status import lag, status
from spark_ingest.commands.tables import ddl, publish
from spark_ingest.commands.verify import verify
from spark_ingest.options import job_option, json_option, output_option

# Commands whose modules are imported when they are called, with the first sentence of their help.
RUN_SUMMARY = "Write new records of the store into Parquet tables, exactly once."
_LATE = {
    "run": ("spark_ingest.commands.run", "run_command", RUN_SUMMARY),
    "plan": (
        "spark_ingest.commands.plan",
        "plan_command",
        "Show what the next run does: ranges, tasks, columns, losses.",
    ),
    "resume": ("spark_ingest.commands.plan", "resume_command", "Finish the plan of a run that was killed."),
}
_COMMANDS = (
    *(audit, backfill, check, clean, compact, ddl, erase, finalize, jobs, lag, offsets),
    *(print_records, publish, replay, report, retain, schedule, status, unregister, verify),
)
_SPARK_PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas", "py4j")  # not installed with the server alone


class IngestGroup(click.Group):
    """Imports some commands when they are called, and reports a failure in one line. Lists them without Spark."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_LATE, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _LATE:
            return super().get_command(ctx, cmd_name)
        try:
            return _late_command(cmd_name)
        except ModuleNotFoundError:
            if ctx.resilient_parsing:  # completion in a shell: no error
                return click.Command(cmd_name)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        others = [(name, command.get_short_help_str(100)) for name, command in sorted(self.commands.items())]
        with formatter.section("Commands"):
            formatter.write_dl([*((name, text) for name, (_, _, text) in _LATE.items()), *others])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises Failure."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in _SPARK_PACKAGES:
                raise
            text = f"{error.name} is not installed: pip install --find-links dist 'penstock-server[spark]'"
            text += ", or 'penstock-server[ingest]' for --engine local, or make setup in a clone"
            raise Failure(text, ExitCode.USAGE) from error
        except EngineError as error:
            from spark_ingest.commands.run import is_usage_error

            raise Failure(str(error), ExitCode.USAGE if is_usage_error(error) else ExitCode.FAILED) from error


@click.group(cls=IngestGroup)
def ingest() -> None:
    """Write topics into Parquet tables."""


@ingest.command()
@output_option
@job_option
@json_option
def abandon(output: str, job_name: str, as_json: bool) -> None:
    """Give up a plan that cannot be finished; its files are removed, its records come with the next run.

    Needed when a plan holds an option that turned out wrong, or a segment that is gone.
    """
    from spark_ingest.output.stores import open_output_store
    from spark_ingest.protocol.runner import abandon as abandon_plan

    done = abandon_plan(open_output_store(output, is_written=True), job_name, now_ms())
    number, removed = (done[0].number, len(done[1])) if done else (None, 0)
    if as_json:
        print_json({"job": job_name, "abandoned_plan": number, "files_removed": removed})
    else:
        print_note(
            "There is no plan to abandon." if done is None else f"Plan {number} is abandoned, {removed} files removed."
        )


for _command in _COMMANDS:
    ingest.add_command(_command)


def _late_command(name: str) -> click.Command:
    """Raises ModuleNotFoundError. Does not import PyArrow: a run without new records does not need it."""
    for library in ("pyarrow", "numpy"):
        if find_spec(library) is None:
            raise ModuleNotFoundError(name=library)
    module, attribute, _ = _LATE[name]
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command)
    return command
