"""Compacts tables: small files of one directory become large ones, as rewrites (rewrite.py).

Chooses files only. A directory is an hour of a table, or a day of its dead letters, so a row never leaves the directory
in which readers by listing look for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from engine.tiering.store.store import ObjectStore
from spark_ingest.layout import DAY, DEFAULT, Layout
from spark_ingest.output import names
from spark_ingest.output.directories import end_ms_of
from spark_ingest.output.owners import Layouts, layouts_of
from spark_ingest.output.rewrites import COMPACT, Group, RewritePlan, Rewrites
from spark_ingest.output.stored_file import StoredFile
from spark_ingest.protocol.history import History
from spark_ingest.upkeep.rewrite import (
    REWRITE_BYTES,
    Done,
    Live,
    carry_out,
    check_published,
    is_fit,
    live_files,
    remove_replaced,
    unfit_tables,
)
from spark_ingest.upkeep.rewrite_rows import is_older

FILE_BYTES = 128 << 20
DEAD_LETTERS = Layout(period=DAY)
_DISTINCT_FILES = 4  # times FILE_BYTES: one file is made of a directory


@dataclass(frozen=True, slots=True)
class Compaction:
    """Which files become one. A file of half of `file_bytes` or more stays, and so does one beside fewer others.

    With `small_max`, only these directories, and each only if it has more small files than its number; `commits` are
    then the commits whose files they have.
    """

    topics: re.Pattern[str]
    file_bytes: int = FILE_BYTES
    files_min: int = 2
    older_ms: int | None = None  # between the end of the hour and the newest commit; None: at any time
    distinct: str = ""
    rewrite_bytes: int = REWRITE_BYTES
    small_max: Mapping[str, int] | None = None
    commits: Collection[int] | None = None  # None: all
    widens: bool = False  # also files of older columns, each by itself


def compact(
    output: ObjectStore,
    job: str,
    compaction: Compaction,
    grace_ms: int,
    *,
    new_id: Callable[[], str],
    publish: Callable[[], None] | None = None,
    is_dry: bool = False,
) -> Done:
    """Rewrites small files, and removes replaced ones. `publish` gives the new files to tables of a catalog.

    Raises IngestRefused if such tables have the files and `publish` is missing, and the errors of the store.
    """
    history, done = History(output, job), Done()
    head = history.head()
    if head is None:
        return done
    if not is_dry:
        check_published(history, publish)
    info = output.head(names.commit_key(job, head.number))
    until_ms = None if compaction.older_ms is None else (info.modified_ms if info else 0) - compaction.older_ms
    members = {topic: schema.members for topic, schema in head.schemas.items()}
    layouts = layouts_of(output)

    checked: set[str] = set()  # files without older columns

    def older_files(files: Sequence[StoredFile]) -> Iterator[Group]:
        for file in files:
            topic = names.topic_of(file.key)
            if file.key in checked or topic not in members or not file.key.startswith(names.table_prefix(topic)):
                continue
            if is_older(output, file, members[topic]):
                yield Group(topic, (file,))
            else:
                checked.add(file.key)

    def choose(live: Live, failed: Collection[str]) -> RewritePlan | None:
        fit = [file for file in live.files if file.key not in failed and is_fit(file.key)]
        files = [file for file in fit if compaction.topics.fullmatch(names.topic_of(file.key))]
        groups = tuple(_take_bytes(groups_of(files, live, compaction, until_ms, layouts), compaction.rewrite_bytes))
        if not groups and compaction.widens:
            groups = tuple(_take_bytes(older_files(files), compaction.rewrite_bytes))
        if not groups:
            return None
        used = {group.topic: members[group.topic] for group in groups if group.topic in members}
        return RewritePlan(job, live.number, new_id(), COMPACT, used, groups, compaction.distinct, lifts=True)

    rewrites = None
    if is_dry:
        plan = choose(live_files(output, history, Rewrites(output, job).effect()), set())
        done.replaced = sum(len(group.inputs) for group in plan.groups) if plan else 0
        done.replaced_bytes = sum(group.size_bytes for group in plan.groups) if plan else 0
        done.files = len(plan.groups) if plan else 0
    else:
        rewrites = carry_out(output, job, choose, done, publish or (lambda: None), compaction.commits)
        if publish:
            publish()  # also what an earlier call committed
    if compaction.commits is None:
        done.unfit = unfit_tables(live_files(output, history, history.effect()), compaction.topics)
    if compaction.distinct:
        done.left |= _too_large(live_files(output, history, Rewrites(output, job).effect()), compaction)
    remove_replaced(output, job, grace_ms, done, is_dry=is_dry, rewrites=rewrites)
    return done


def groups_of(
    files: list[StoredFile],
    live: Live,
    compaction: Compaction,
    until_ms: int | None,
    layouts: Layouts = lambda _: DEFAULT,
) -> Iterator[Group]:
    """Yields the groups of each directory, in the order of their keys. `until_ms` leaves out directories that end later
    or have no period.
    """
    by_directory = groupby(
        sorted(files, key=lambda file: (file.directory, file.first, file.key)), lambda file: file.directory
    )
    for directory, in_directory in by_directory:
        topic, here = names.topic_of(directory), tuple(in_directory)
        is_table = directory.startswith(names.table_prefix(topic))
        if until_ms is not None:
            end_ms = end_ms_of(layouts(topic) if is_table else DEAD_LETTERS, directory)
            if end_ms is None or end_ms > until_ms:
                continue
        if compaction.distinct and is_table:
            if not is_too_large(here, compaction) and (len(here) > 1 or _is_new(here[0], live, compaction)):
                yield Group(topic, here)
            continue
        small = [file for file in here if file.size_bytes * 2 < compaction.file_bytes]
        if compaction.small_max is not None and len(small) <= compaction.small_max.get(directory, len(small)):
            continue
        for group in _fill(small, compaction.file_bytes):
            if len(group) >= compaction.files_min:
                yield Group(topic, group)


def is_too_large(here: Sequence[StoredFile], compaction: Compaction) -> bool:
    """True if a directory cannot be deduplicated, because one file is made of it."""
    return sum(file.size_bytes for file in here) > _DISTINCT_FILES * compaction.file_bytes


def _is_new(file: StoredFile, live: Live, compaction: Compaction) -> bool:
    return live.effect.distinct.get(file.key) != compaction.distinct


def _too_large(live: Live, compaction: Compaction) -> dict[str, str]:
    tables = [file for file in live.files if file.directory.startswith(names.table_prefix(names.topic_of(file.key)))]
    mine = sorted((table for table in tables if compaction.topics.fullmatch(names.topic_of(table.key))), key=_directory)
    directories = {directory: list(files) for directory, files in groupby(mine, _directory)}
    text = "too large to remove duplicates; raise --file-bytes"
    return {directory: text for directory, files in directories.items() if is_too_large(files, compaction)}


def _directory(file: StoredFile) -> str:
    return file.directory


def _fill(files: list[StoredFile], file_bytes: int) -> Iterator[tuple[StoredFile, ...]]:
    """Cuts files into groups of about `file_bytes`."""
    group: list[StoredFile] = []
    size_bytes = 0
    for file in files:
        group.append(file)
        size_bytes += file.size_bytes
        if size_bytes >= file_bytes:
            yield tuple(group)
            group, size_bytes = [], 0
    if group:
        yield tuple(group)


def _take_bytes(groups: Iterator[Group], rewrite_bytes: int) -> Iterator[Group]:
    taken = 0
    for group in groups:
        if taken and taken + group.size_bytes > rewrite_bytes:
            return
        taken += group.size_bytes
        yield group
