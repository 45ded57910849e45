"""Erases the rows of a key from the files of a job, as rewrites (rewrite.py).

Chooses files only: those whose `_key` has the digest of the key. A plan never has the key itself. Replaced files are
removed at once. Positions do not change: later runs ingest later records of the key.

It cannot erase everything. `Erased.remains` names the rest, each with its reason.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.output import names
from spark_ingest.output.rewrites import ERASE, RewritePlan
from spark_ingest.output.stored_file import StoredFile
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History
from spark_ingest.source.discovery import discover
from spark_ingest.upkeep.rewrite import (
    Done,
    Live,
    carry_out,
    check_published,
    is_fit,
    live_files,
    remove_replaced,
    search_files,
    unfit_tables,
)
from spark_ingest.upkeep.rewrite_rows import has_key

_SNAPSHOTS = "older snapshots of Iceberg tables keep the bounds of their files: expire them with your engine"
_UNDECODABLE = "dead letters of batches that could not be decoded have no key and were not searched"


@dataclass(slots=True)
class Erased:
    """The result: rewrites with dropped rows by topic, rows that a dry run found, and what remains, with the reason.

    `unsearched` has the tables whose files have another format than Parquet.
    """

    done: Done = field(default_factory=Done)
    found: dict[str, int] = field(default_factory=dict)
    remains: list[str] = field(default_factory=list)
    unsearched: list[str] = field(default_factory=list)


def erase(
    output: ObjectStore,
    job: str,
    key: bytes,
    topics: re.Pattern[str],
    *,
    new_id: Callable[[], str],
    source: ObjectStore | None = None,
    publish: Callable[[], None] | None = None,
    is_dry: bool = False,
) -> Erased:
    """Drops the rows of a key. `source` is the store of segments, to name what it keeps.

    Raises IngestRefused if tables of a catalog have the files and `publish` is missing, and the errors of the store.
    """
    history, erased = History(output, job), Erased()
    head = history.head()
    if head is None:
        return erased
    is_published = history.is_published()
    if not is_dry:
        check_published(history, publish)
    key_sha256 = hashlib.sha256(key).hexdigest()
    members = {topic: schema.members for topic, schema in head.schemas.items()}
    searched: dict[str, int] = {}  # the rows of the key in each file

    def count_rows(file: StoredFile) -> int:
        if file.key not in searched:
            searched[file.key] = _rows_with(output, file, key_sha256)
        return searched[file.key]

    def choose(live: Live, failed: Collection[str]) -> RewritePlan | None:
        files = [file for file in live.files if file.key not in failed and is_fit(file.key)]
        groups = search_files((file for file in files if topics.fullmatch(names.topic_of(file.key))), count_rows)
        if not groups:
            return None
        used = {group.topic: members[group.topic] for group in groups if group.topic in members}
        return RewritePlan(job, live.number, new_id(), ERASE, used, groups, key_sha256=key_sha256)

    if is_dry:
        choose(live_files(output, history, history.effect()), set())
    else:
        carry_out(output, job, choose, erased.done, publish or (lambda: None))
        if publish:
            publish()
        remove_replaced(output, job, 0, erased.done)
    for name, count in searched.items():
        if count:
            erased.found[names.topic_of(name)] = erased.found.get(names.topic_of(name), 0) + count
    erased.unsearched = sorted(unfit_tables(live_files(output, history, history.effect()), topics))
    erased.remains = _remains(output, history, head, topics, source, is_published=is_published)
    return erased


def _rows_with(output: ObjectStore, file: StoredFile, key_sha256: str) -> int:
    """Returns how many rows of a file have the key; one for a file that cannot be searched, so that it is named."""
    try:
        keys = pq.read_table(pa.BufferReader(output.get(file.key)), columns=["_key"])["_key"]
    except (NoSuchObject, pa.ArrowInvalid, OSError, KeyError):  # Arrow raises OSError for damaged pages
        return 1
    return int(pc.sum(has_key(keys, key_sha256)).as_py() or 0)


def _remains(
    output: ObjectStore,
    history: History,
    head: Commit,
    topics: re.Pattern[str],
    source: ObjectStore | None,
    *,
    is_published: bool,
) -> list[str]:
    """Returns what may still have records of the key, each with the reason."""
    topics_there = [topic for topic in sorted(head.positions) if topics.fullmatch(topic)]
    unfit = unfit_tables(live_files(output, history, history.effect()), topics)
    remains = [f"{prefix}: its files are {form}; only Parquet files are searched" for prefix, form in unfit.items()]
    plan = history.pending(head)
    if plan is not None and any(topic in topics_there for topic in plan.schemas):
        remains.append(
            f"plan {plan.number} is not committed and may have written files: erase again after the next run"
        )
    if any(topic in topics_there for topic in head.held):
        remains.append("topics that the last run blocked have dead letters: erase again after they are committed")
    if any("undecodable_batch" in result.reasons for commit in history.commits() for result in commit.results):
        remains.append(_UNDECODABLE)
    if is_published:
        remains.append(_SNAPSHOTS)
    if source is None:
        remains.append("the store of segments was not looked at: name it with --store")
        return remains
    for partition in discover(source, head.cluster, lambda topic: topic in topics_there):
        if partition.log_start < partition.tiered_end:
            title = f"{partition.topic} partition {partition.partition}"
            remains.append(
                f"{title}: the store has offsets {partition.log_start} to {partition.tiered_end - 1} "
                "until retention removes them; segments never change, so no record can be taken out of them"
            )
    return remains
