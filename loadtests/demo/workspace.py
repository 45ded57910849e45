"""The output directory of the demo, and in it a temporary directory for a run.

A run removes the files of an earlier run. One demo at a time may use the directory.
Invariant: the temporary directory is removed at the end; after a failure the output is removed too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from loadtests.demo import DemoFailed

PLOT, SCREEN = "flights.png", "screen.txt"
LAKE = "lake"  # the output of the ingest job, tables below it
MADE = (PLOT, SCREEN, LAKE)  # everything that a run leaves in the output
_WAY = ".way-"


@contextlib.contextmanager
def workspace(output: Path) -> Iterator[Path]:
    """Creates the temporary directory of a run. Raises DemoFailed if another demo uses the output."""
    output.mkdir(parents=True, exist_ok=True)
    with _lock(output):
        _clear(output)
        way = Path(tempfile.mkdtemp(prefix=_WAY, dir=output))
        try:
            yield way
        except BaseException:
            _clear(output)
            with contextlib.suppress(OSError):  # it has other files
                output.rmdir()
            raise
        shutil.rmtree(way)


@contextlib.contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Locks the directory. The kernel releases the lock when the process ends."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise DemoFailed(f"another demo is writing to {directory}: wait for it") from error
    finally:
        os.close(descriptor)


def _clear(output: Path) -> None:
    """Removes the files of this or an earlier run; other files stay."""
    for path in [*(output / name for name in MADE), *output.glob(f"{_WAY}*")]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
