"""Drops the rows that a replay has ingested again, as rewrites (upkeep/rewrite.py): the second half of a replay.

Until it is complete, the tables have rows of the replayed ranges twice, and never too few; `verify` reports it. A
killed one is completed by `penstock ingest replay --resume`, or by the next replay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import IngestRefused
from spark_ingest.output import names
from spark_ingest.output.rewrites import REPLAY, RewritePlan
from spark_ingest.output.stored_file import StoredFile
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History
from spark_ingest.source.slices import Range
from spark_ingest.upkeep.rewrite import (
    Done,
    Live,
    carry_out,
    check_published,
    is_fit,
    live_files,
    remove_replaced,
    search_files,
)
from spark_ingest.upkeep.rewrite_rows import is_replayed

_PLACES = ("_ingest_commit", "_partition", "_offset")


def check_replayable(
    output: ObjectStore, job: str, topics: Collection[str], publish: Callable[[], None] | None
) -> None:
    """Raises IngestRefused if rows of a topic cannot be dropped: its files are not Parquet, or a catalog has them."""
    history = History(output, job)
    unfit = sorted({file.key for file in live_files(output, history, history.effect()).files if not is_fit(file.key)})
    topics_found = sorted({names.topic_of(key) for key in unfit} & set(topics))
    if topics_found:
        raise IngestRefused(f"files of {', '.join(topics_found)} are not Parquet", hint="their rows cannot be replaced")
    check_published(history, publish)


def drop_replayed(
    output: ObjectStore,
    job: str,
    *,
    new_id: Callable[[], str],
    grace_ms: int = 0,
    publish: Callable[[], None] | None = None,
) -> Done:
    """Completes the replays of a job, oldest first. Raises IngestRefused if a file cannot be rewritten."""
    history, done = History(output, job), Done()
    head = history.head()
    complete = history.effect().replay
    if head is None or head.replay <= complete:
        return done
    members = {topic: schema.members for topic, schema in head.schemas.items()}
    for commit in [commit for commit in history.commits() if commit.step == REPLAY and commit.number > complete]:
        _drop(output, job, commit, members, done, new_id, publish or (lambda: None))
    if publish:
        publish()
    remove_replaced(output, job, grace_ms, done)
    return done


def _drop(
    output: ObjectStore,
    job: str,
    commit: Commit,
    members: dict[str, list[list[object]]],
    done: Done,
    new_id: Callable[[], str],
    publish: Callable[[], None],
) -> None:
    searched: dict[str, bool] = {}

    def has_rows(file: StoredFile) -> bool:
        if file.key not in searched:
            ranges = commit.repeated.get(names.topic_of(file.key), [])
            searched[file.key] = _overlaps(file, ranges) and _has_rows(output, file, commit.number, ranges)
        return searched[file.key]

    def choose(live: Live, failed: Collection[str]) -> RewritePlan | None:
        if live.effect.replay >= commit.number:
            return None
        groups = search_files((file for file in live.files if file.key not in failed), has_rows)
        if failed:
            text = f"{len(failed)} files with replayed rows cannot be rewritten: {'; '.join(done.left.values())}"
            raise IngestRefused(text, hint="restore them, then run penstock ingest replay --resume")
        used = {group.topic: members[group.topic] for group in groups if group.topic in members}
        return RewritePlan(
            job, live.number, new_id(), REPLAY, used, groups, replay=commit.number, ranges=commit.repeated
        )

    carry_out(output, job, choose, done, publish)


def _overlaps(file: StoredFile, ranges: Collection[Range]) -> bool:
    first, last = tuple(file.first), tuple(file.last)
    if file.key.startswith("dead_letters/"):
        last = (last[0], 2**63)  # the last letter may be a batch
    return any((span.partition, span.start) <= last and first < (span.partition, span.end) for span in ranges)


def _has_rows(output: ObjectStore, file: StoredFile, replay: int, ranges: Collection[Range]) -> bool:
    opened = pq.ParquetFile(pa.BufferReader(output.get(file.key)))
    columns = [name for name in (*_PLACES, "_last_offset") if name in opened.schema_arrow.names]
    return bool(pc.any(is_replayed(opened.read(columns), replay, list(ranges))).as_py())
