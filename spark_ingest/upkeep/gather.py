"""Gathers small files after a run: an hour of a table with more of them than its topic allows becomes one file.

Looks only at the directories in which the run has made files, by a listing of each. If one has too many, it reads the
commits that the names of its files have, and rewrites them (rewrite.py). A kill leaves small files: the next run that
adds to the hour gathers them, and so does `compact`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from engine.tiering.store.store import ObjectStore
from spark_ingest.choices import Choices
from spark_ingest.output import names
from spark_ingest.protocol.commit import Commit
from spark_ingest.upkeep.compact import FILE_BYTES, Compaction, compact
from spark_ingest.upkeep.policy import GRACE_MS
from spark_ingest.upkeep.rewrite import Done, is_fit


def gather(
    output: ObjectStore,
    job: str,
    commits: Iterable[Commit],
    choices: Choices,
    *,
    new_id: Callable[[], str],
    publish: Callable[[], None] | None = None,
) -> dict[str, int]:
    """Rewrites the directories of commits that have too many small files; returns the document.

    Raises the errors of `compact`.
    """
    done, crowded, numbers = Done(), dict[str, int](), set[int]()
    for directory in sorted(
        {file.directory for commit in commits for result in commit.results for file in result.files}
    ):
        most = choices(names.topic_of(directory)).small_files_max
        small = [] if most is None else _small_files(output, directory)
        if most is not None and len(small) > most:
            crowded[directory] = most
            numbers.update(small)
    if crowded:
        compaction = Compaction(re.compile(".*"), small_max=crowded, commits=numbers)
        done = compact(output, job, compaction, GRACE_MS if publish else 0, new_id=new_id, publish=publish)
    return {"files_replaced": done.replaced, "files": done.files}


def _small_files(output: ObjectStore, directory: str) -> list[int]:
    """Returns the number of the plan in the name of each small file of a directory."""
    return [
        number
        for info in output.list(directory)
        if info.size_bytes * 2 < FILE_BYTES
        and (number := names.plan_number_of(info.key)) is not None
        and info.key.rpartition("/")[0] + "/" == directory
        and is_fit(info.key)
    ]
