"""`--every` and `--follow`: runs of a job one after another in one process, until SIGTERM or Ctrl-C.

A signal ends a run under way as a kill would, but with one line: its plan stays, and the next run resumes it. A signal
ends the wait between two runs at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click
import msgspec

from engine.errors import EngineError
from engine.tiering.store.store import StoreUnusable
from spark_ingest.config.run_options import Repetition
from spark_ingest.errors import IngestRefused

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """A signal arrived while a run was under way. Not an Exception, so that no handler of errors takes it."""


class Stop:
    """Whether SIGTERM or SIGINT has arrived. For the main thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._is_under_way = False

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Waits, no longer than until a signal arrives."""
        self._event.wait(max(0.0, seconds))

    @contextmanager
    def listen(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Makes the first signal raise Stopped, and only the first, so that the run ends in order."""
        self._is_under_way = True
        try:
            yield
        finally:
            self._is_under_way = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._event.set()
        if self._is_under_way:
            self._is_under_way = False
            raise Stopped


def is_empty(document: dict[str, Any], error: EngineError | None) -> bool:
    """True if a run had no new records, no failure and no upkeep."""
    return error is None and not document.get("commits") and not document.get("upkeep")


def repeat(
    run_once: Callable[[], tuple[dict[str, Any], EngineError | None]],
    repetition: Repetition,
    stop: Stop,
    clock: Callable[[], float],
    now_ms: Callable[[], int],
) -> None:
    """Starts a run at each interval, or when the one before ends, if that is later; prints a line for each.

    A failed run is tried again at its next time. Raises the error of the first run if its options are wrong.
    """
    is_first = True
    with stop.listen():
        while not stop.is_set():
            started, started_ms = clock(), now_ms()
            document: dict[str, Any] = {}
            error = None
            try:
                with stop.under_way():
                    document, error = run_once()
            except Stopped:
                break
            except EngineError as failure:
                if is_first and isinstance(failure, IngestRefused | StoreUnusable):
                    raise
                error = failure
            is_ended = stop.is_set() and not document  # a signal to the whole group ends the workers first
            if not is_ended and not (repetition.is_quiet and is_empty(document, error)):
                line = {"started_ms": started_ms, **document, "error": None if error is None else str(error)}
                click.echo(msgspec.json.encode(line).decode())
            is_first = False
            stop.wait(started + repetition.every_s - clock())
    click.echo("stopped; the next run resumes a plan that is not committed", err=True)
