"""`make demo`: options, signals and exit codes."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import click

from loadtests.demo import DemoFailed
from loadtests.demo.java import require_java
from loadtests.demo.outcome import Outcome, checks
from loadtests.demo.pipeline import play
from loadtests.demo.progress import show_progress
from loadtests.demo.screen import print_screen
from penstock import ClientError

OUTPUT = Path("demo-output")
EXIT_WRONG, EXIT_INTERRUPTED = 1, 130


@click.command()
@click.option("--flights", "flights_max", type=click.IntRange(min=1), help="Number of flights to use.  [default: all]")
def main(flights_max: int | None) -> None:
    """Run the whole pipeline on real data: produce, long-poll, tier, ingest with Spark.

    Writes the tables, a plot and the text of its screen to demo-output/ of the current directory. Exits with 0 only if
    every count is right.
    """
    try:
        require_java()
        outcome = asyncio.run(_play(flights_max))
    except (DemoFailed, ClientError) as failure:
        click.echo(f"demo: {failure}", err=True)
        sys.exit(EXIT_WRONG)
    except (asyncio.CancelledError, KeyboardInterrupt):
        click.echo("demo: interrupted; the node is stopped and all files are removed", err=True)
        sys.exit(EXIT_INTERRUPTED)
    print_screen(outcome)
    sys.exit(0 if all(check.is_good for check in checks(outcome).values()) else EXIT_WRONG)


async def _play(flights_max: int | None) -> Outcome:
    """Cancels the demo on SIGTERM and SIGHUP as on Ctrl-C, so that everything is cleaned up."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with show_progress() as progress:
        return await play(OUTPUT.absolute(), flights_max, progress)


if __name__ == "__main__":
    main()
