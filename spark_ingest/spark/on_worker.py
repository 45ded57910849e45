"""The task as Spark's Python workers start it: looks for the libraries first, then runs it.

Workers get this module in the zip of context.py even if nothing of ours is installed there, so it imports only the
standard library. Modules of C code cannot come in a zip.
"""

from __future__ import annotations

import platform
import sys
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

LIBRARIES = ("boto3", "cramjam", "crc32c", "msgspec", "numpy", "pyarrow")


class WorkerNote(NamedTuple):
    """Names what a worker lacks. Without `is_fatal` its tasks only take longer."""

    text: str
    is_fatal: bool


def run_here(spec: bytes, source_url: str, output_url: str, reports: Any) -> bytes:
    """Runs an encoded TaskSpec; returns an encoded Answer, or nothing if a library is missing.

    Adds to `reports` the Report of the task, and a WorkerNote.
    """
    note = note_on_worker()
    if note is not None:
        reports.add([note])
        if note.is_fatal:
            return b""
    import msgspec

    from spark_ingest.execution.outcomes import report_of
    from spark_ingest.execution.worker import work
    from spark_ingest.plan import TaskSpec, encode

    answer = work(spec, source_url, output_url)
    reports.add([report_of(msgspec.json.decode(spec, type=TaskSpec).task.topic, answer)])
    return encode(answer)


@lru_cache(maxsize=1)
def note_on_worker() -> WorkerNote | None:
    """Returns what this process lacks, None if nothing."""
    where = f"the Python of Spark's worker on {platform.node()} ({sys.executable})"
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        return WorkerNote(f"{where} lacks {', '.join(missing)}", is_fatal=True)
    import penstock_codec

    if penstock_codec.native is None:
        return WorkerNote(f"{where} has no compiled penstock-codec: {penstock_codec.why_not}", is_fatal=False)
    return None
