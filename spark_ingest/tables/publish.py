"""Adds committed files to tables of a catalog: commit by commit, each in one snapshot.

    1 A table says which commit it has last (`Tables.state`).
    2 Files that rewrites replaced are exchanged, in one snapshot.
    3 Each later commit with files for it is added, oldest first.
The commits are the truth: a table may be behind them, never ahead. Nothing is stored beside the table itself, so a
kill between any two steps leaves only commits that the next call adds. Files that `ingest retain` retired before the
first publication are not added: they are gone.

A topic that fails is left out, with its error; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from engine.errors import EngineError
from spark_ingest.errors import IngestRefused, NotPublished
from spark_ingest.layout import NONE, PARQUET, Layout
from spark_ingest.output import names
from spark_ingest.output.owners import Layouts, layouts_of
from spark_ingest.output.retained import load_retained
from spark_ingest.output.rewrites import Effect
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History
from spark_ingest.tables.values import RewriteFiles, RunFiles, Tables, TableState

_LOOKS_MAX = 4  # each but the first after another driver's commit
DELTA, GLUE = "Delta", "Glue"  # kinds of tables
MARK_AFTER = 24  # commits without files for a table; each call reads the commits since its mark


@dataclass(slots=True)
class Publication:
    """The table of one topic, the commits that this call added or found missing, and its error."""

    topic: str
    table: str
    state: TableState | None = None
    after: int = 0  # the last commit that the table has
    commits: list[int] = field(default_factory=list)
    rewrites: list[int] = field(default_factory=list)
    rows: int = 0
    error: EngineError | None = None


def publish(history: History, tables: Tables) -> list[Publication]:
    """Adds every committed file that a table does not have; returns one publication for each topic of the job."""
    head = history.head()
    by_topic, layouts = publications(history, tables, head), layouts_of(history.output)
    for publication in by_topic.values():
        with _noting_error(publication):
            check_layouts([layouts(publication.topic)], tables.kind)
    if head and any(not publication.error for publication in by_topic.values()):
        _exchange(history, tables, history.effect(), by_topic, layouts)
    for at, (publication, run) in enumerate(unpublished(history, by_topic, head)):
        if at == 0 and tables.lists_files:
            history.mark_published()
        with _noting_error(publication):
            if tables.add(replace(run, layout=layouts(publication.topic))):
                publication.commits.append(run.commit)
                publication.rows += run.rows
            publication.after = run.commit
    for publication in by_topic.values():
        if publication.error:
            continue
        with _noting_error(publication):
            if publication.commits or publication.rewrites:
                publication.state = tables.state(publication.topic)
            if head and publication.state and head.number - publication.after >= MARK_AFTER:
                tables.mark(publication.topic, head.number)
    return list(by_topic.values())


@contextmanager
def _noting_error(table: Publication) -> Iterator[None]:
    """Adds an error to its table, whose first one counts; the others go on."""
    try:
        yield
    except EngineError as error:
        table.error = table.error or error


def _exchange(
    history: History, tables: Tables, effect: Effect, by_topic: Mapping[str, Publication], layouts: Layouts
) -> None:
    """Gives tables the files of rewrites that they do not have."""
    for publication in by_topic.values():
        for _ in range(_LOOKS_MAX):
            since = publication.state.rewrite if publication.state else 0
            if publication.error or effect.latest.get(publication.topic, 0) <= since:
                break
            with _noting_error(publication):
                change = rewrite_files(history, effect, publication.topic, publication.after, since)
                if publication.state is None and not change.added:
                    break  # no row is left for a first file
                if tables.lists_files:
                    history.mark_published()
                if tables.rewrite(replace(change, layout=layouts(publication.topic))):
                    publication.rewrites.append(change.rewrite)
                publication.state = tables.state(publication.topic)
                publication.after = publication.state.commit if publication.state else publication.after
        else:
            publication.error = NotPublished(f"{publication.table} changes all the time")


def rewrite_files(history: History, effect: Effect, topic: str, after: int, since: int) -> RewriteFiles:
    """Returns what a table with commit `after` and rewrite `since` needs for the newest rewrite of its topic."""
    commit, covers = max(after, effect.reached[topic]), load_retained(history.output, history.job).covers
    runs = [history.any_commit(number) for number in range(after + 1, commit + 1)]
    added = [key for commit in runs if commit and (run := files_of(commit, topic)) for key in run.keys]
    added = [key for key in added if key not in effect.replaced]
    added += [file.key for file in effect.files_of(topic) if (names.rewrite_of(file.key) or 0) > since]
    added = [key for key in added if not covers(key)]
    prefix = names.table_prefix(topic)
    replaced = [
        key
        for key, by in effect.replaced.items()
        if by > since and key.startswith(prefix) and _has(key, after=after, since=since)
    ]
    return RewriteFiles(topic, after, since, commit, effect.latest[topic], tuple(added), tuple(replaced))


def _has(key: str, *, after: int, since: int) -> bool:
    """True if a table with commit `after` and rewrite `since` has had the file."""
    made_by = names.rewrite_of(key)
    return made_by <= since if made_by is not None else (names.plan_number_of(key) or 0) <= after


def pending(history: History, tables: Tables) -> list[Publication]:
    """Returns what `publish` would add, and adds nothing."""
    head = history.head()
    by_topic = publications(history, tables, head)
    for publication, run in unpublished(history, by_topic, head):
        publication.commits.append(run.commit)
        publication.rows += run.rows
    return list(by_topic.values())


def publications(history: History, tables: Tables, head: Commit | None) -> dict[str, Publication]:
    """Returns the state of each topic's table, or the error of reading it."""
    by_topic = {topic: Publication(topic, tables.name(topic)) for topic in sorted(head.schemas if head else ())}
    for topic, publication in by_topic.items():
        assert head is not None
        with _noting_error(publication):
            publication.state = tables.state(topic)
            publication.after = publication.state.commit if publication.state else _before_first(history, topic, head)
    return by_topic


def unpublished(
    history: History, by_topic: Mapping[str, Publication], head: Commit | None
) -> Iterator[tuple[Publication, RunFiles]]:
    """Yields the runs that tables do not have, oldest first, without topics that have failed meanwhile."""
    if head is None:
        return
    first = (
        min((publication.after for publication in by_topic.values() if not publication.error), default=head.number) + 1
    )
    covers = load_retained(history.output, history.job).covers if first <= head.number else _nothing
    for number in range(first, head.number + 1):
        commit = head if number == head.number else history.any_commit(number)
        for publication in by_topic.values():
            if publication.error or publication.after >= number:
                continue
            if commit is None:
                publication.error = _gone(history.job, number, publication.table)
            elif run := files_of(commit, publication.topic, covers):
                yield publication, run


def check_layouts(layouts: Iterable[Layout], kind: str) -> None:
    """Raises IngestRefused for files that tables of a catalog cannot have."""
    for layout in layouts:
        if kind in (DELTA, GLUE) and layout.period != NONE and not layout.partition_columns:
            text = f"{kind} tables take their partitions from directories, and a topic has {layout.fixed}"
            raise IngestRefused(text, hint="write name=value in partition_path, or leave it out")
        if kind != GLUE and (layout.format != PARQUET or layout.fields):
            text = f"{kind} tables take Parquet files in directories of periods, and a topic has {layout.fixed}"
            raise IngestRefused(text, hint="use two jobs: one with such tables, one without")


def _nothing(_: str) -> bool:
    return False


def files_of(commit: Commit, topic: str, is_retired: Callable[[str], bool] = _nothing) -> RunFiles | None:
    """Returns the data files of a topic in a commit, without retired ones; None without any."""
    topic_files = (file for result in commit.results if result.topic == topic for file in result.files)
    files = [file for file in topic_files if not is_retired(file.key)]
    if not files:
        return None
    return RunFiles(topic, commit.number, tuple(file.key for file in files), sum(file.rows for file in files))


def _before_first(history: History, topic: str, head: Commit) -> int:
    """Returns the last commit before a topic's first one. Bisects: commits keep the schemas of all topics.

    Returns 0 if commits are archived: archives begin with the first one, and do not have the schemas.
    Raises IngestRefused if that commit is gone, since the topic may then have earlier files.
    """
    if history.archived_end():
        return 0
    before, first = 0, head.number
    before_is_known = True
    while first - before > 1:
        middle = (before + first) // 2
        commit = history.commit(middle)
        if commit is not None and topic in commit.schemas:
            first = middle
        else:
            before, before_is_known = middle, commit is not None
    if not before_is_known:
        raise _gone(history.job, before, f"of {topic}")
    return before


def _gone(job: str, number: int, table: str) -> IngestRefused:
    hint = "a table is made from all commits of its topic; use a job with another --output"
    return IngestRefused(f"commit {number} of job {job} is gone: the table {table} cannot be completed", hint=hint)
