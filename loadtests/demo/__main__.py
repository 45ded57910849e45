"""`make demo`: what is asked of it, what it says, how it ends."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import click

from loadtests.demo.failure import DemoFailed
from loadtests.demo.java import demand_java
from loadtests.demo.outcome import Outcome, checks
from loadtests.demo.progress import shown_progress
from loadtests.demo.screen import print_screen
from loadtests.demo.story import play
from penstock import ClientError

OUTPUT = Path("demo-output")
EXIT_WRONG, EXIT_INTERRUPTED = 1, 130


@click.command()
@click.option("--flights", "flights_max", type=click.IntRange(min=1), help="Only the first so many flights.")
def main(flights_max: int | None) -> None:
    """Play the whole job on real data: produce, long-poll, tier, ingest with Spark.

    Leaves the tables, a plot and the text of its screen in demo-output/ of the current directory. Ends with 0 only if
    every count is right.
    """
    try:
        demand_java()
        outcome = asyncio.run(_play(flights_max))
    except (DemoFailed, ClientError) as failure:
        click.echo(f"demo: {failure}", err=True)
        sys.exit(EXIT_WRONG)
    except (asyncio.CancelledError, KeyboardInterrupt):
        click.echo("demo: interrupted; the node has ended and nothing is left behind", err=True)
        sys.exit(EXIT_INTERRUPTED)
    print_screen(outcome)
    sys.exit(0 if all(check.is_good for check in checks(outcome).values()) else EXIT_WRONG)


async def _play(flights_max: int | None) -> Outcome:
    """SIGTERM and a closed terminal end it as Ctrl-C does: by cancelling, so that everything is cleaned up."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with shown_progress() as progress:
        return await play(OUTPUT.absolute(), flights_max, progress)


if __name__ == "__main__":
    main()
