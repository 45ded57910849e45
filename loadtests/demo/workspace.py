"""Where the demo may write: the output directory, and in it a directory for everything that is only on the way.

The output is the demo's own: what an earlier run left there is removed. One demo at a time may use it.
Invariant: however the block ends, the directory for the way is gone; unless it ends well, so is the rest.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from loadtests.demo.failure import DemoFailed

PLOT, SCREEN = "flights.png", "screen.txt"
LAKE = "lake"  # the output of the ingest job, tables below it
MADE = (PLOT, SCREEN, LAKE)  # all that a run leaves in the output
_WAY = ".way-"


@contextlib.contextmanager
def workspace(output: Path) -> Iterator[Path]:
    """The directory for the way. Raises DemoFailed when another demo uses the output."""
    output.mkdir(parents=True, exist_ok=True)
    with _locked(output):
        _clear(output)
        way = Path(tempfile.mkdtemp(prefix=_WAY, dir=output))
        try:
            yield way
        except BaseException:
            _clear(output)
            with contextlib.suppress(OSError):  # somebody else's file is in it
                output.rmdir()
            raise
        shutil.rmtree(way)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """The kernel lets go of the lock with the process, so nothing is left to be removed."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise DemoFailed(f"another demo is writing to {directory}: wait for it") from error
    finally:
        os.close(descriptor)


def _clear(output: Path) -> None:
    """Remove what this run or an earlier one, perhaps killed, has made; nothing else."""
    for path in [*(output / name for name in MADE), *output.glob(f"{_WAY}*")]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
