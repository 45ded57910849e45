"""Carries out rewrites: steps that replace files of tables by others (output/rewrites.py has their values).

    1 If the next plan is stored, resume it. Otherwise choose files, and store the plan, create-if-absent.
    2 Make the file of each group, create-if-absent; the plan fixes its name.
    3 Store the commit, create-if-absent. From this moment the replaced files are not files of the table.
    4 Remove the replaced files, `grace_ms` after the commit by the store's clock.

After a kill: before 2 nothing has changed; between 2 and 3 the next call makes the same files; after 3 it does step 4.
Two concurrent drivers use the same plan and make the same files; one of their commits is stored.

A group that cannot be rewritten stays as it is and is named. Readers: docs/decisions/0037.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import accumulate

from engine.errors import EngineError
from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import IngestRefused
from spark_ingest.layout import PARQUET, layout_of_key
from spark_ingest.output import names
from spark_ingest.output.retained import load_retained
from spark_ingest.output.rewrites import Effect, Group, RewriteCommit, RewritePlan, Rewrites, Rewritten
from spark_ingest.output.stored_file import StoredFile
from spark_ingest.protocol.history import History
from spark_ingest.upkeep.rewrite_rows import rewrite_group

REWRITE_BYTES = 1 << 30  # of one commit: listers see both old and new files for as long as this takes
FOLD_AFTER = 50  # rewrites; each load reads the commits of those that are not folded


@dataclass(slots=True)
class Done:
    """The result: rewrites, replaced and new files, dropped rows, removed files, and the reasons for files left."""

    rewrites: list[int] = field(default_factory=list)
    replaced: int = 0
    replaced_bytes: int = 0
    files: int = 0
    size_bytes: int = 0
    rows: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    removed: int = 0
    waiting: int = 0
    left: dict[str, str] = field(default_factory=dict)
    unfit: dict[str, str] = field(default_factory=dict)  # tables whose files cannot be rewritten, by their format

    def add(self, commit: RewriteCommit) -> None:
        self.rewrites.append(commit.number)
        for result in commit.results:
            self.replaced += len(result.replaced)
            self.replaced_bytes += sum(file.size_bytes for file in result.replaced)
            self.files += result.file is not None
            self.size_bytes += result.file.size_bytes if result.file else 0
            self.rows += result.file.rows if result.file else 0
            if result.dropped:
                self.dropped[result.topic] = self.dropped.get(result.topic, 0) + result.dropped


@dataclass(frozen=True, slots=True)
class Live:
    """The files of the job, without replaced and retired ones. A plan is chosen from them."""

    number: int  # of the next rewrite
    files: tuple[StoredFile, ...]
    effect: Effect


Choose = Callable[[Live, Collection[str]], RewritePlan | None]  # without the files that the second one names


def live_files(output: ObjectStore, history: History, effect: Effect, numbers: Collection[int] | None = None) -> Live:
    """Returns the files of all commits and rewrites that are part of tables now; or of the commits of these numbers."""
    retained = load_retained(output, history.job)
    if numbers is None:
        commits = list(history.commits())
    else:
        commits = [
            named_commit for number in sorted(numbers) if (named_commit := history.any_commit(number)) is not None
        ]
    named = [file for commit in commits for result in commit.results for file in result.every_file]
    files = [file for file in (*named, *effect.files.values()) if file.key not in effect.replaced]
    return Live(effect.number + 1, tuple(file for file in files if not retained.covers(file.key)), effect)


def unfit_tables(live: Live, topics: re.Pattern[str]) -> dict[str, str]:
    """Returns the tables with files that no rewrite can read, each with the format of its files."""
    formats = {names.topic_of(file.key): layout_of_key(file.key).format for file in live.files if not is_fit(file.key)}
    return {names.table_prefix(topic): form for topic, form in formats.items() if topics.fullmatch(topic)}


def is_fit(key: str) -> bool:
    """Returns whether a rewrite can read the file."""
    return layout_of_key(key).format == PARQUET


def check_published(history: History, publish: Callable[[], None] | None) -> None:
    """Raises IngestRefused if tables of a catalog have the files of the job, and nothing gives them the new ones."""
    if publish is None and history.is_published():
        raise IngestRefused(f"Iceberg tables have the files of job {history.job}", hint="name them with --tables")


def search_files(files: Iterable[StoredFile], has_rows: Callable[[StoredFile], object]) -> tuple[Group, ...]:
    """Returns a group for each file with rows to drop, up to REWRITE_BYTES. `has_rows` is asked for every file."""
    groups = [Group(names.topic_of(file.key), (file,)) for file in files if has_rows(file)]
    sizes = accumulate((group.size_bytes for group in groups), initial=0)
    return tuple(group for group, before in zip(groups, sizes, strict=False) if before < REWRITE_BYTES)


def carry_out(
    output: ObjectStore,
    job: str,
    choose: Choose,
    done: Done,
    on_commit: Callable[[], None],
    numbers: Collection[int] | None = None,
) -> Rewrites:
    """Rewrites until there is nothing to choose. Calls `on_commit` after each commit, before anything is removed.

    With `numbers`, the files of these commits are chosen from. Returns the rewrites as they were read.
    """
    history, rewrites = History(output, job), Rewrites(output, job)
    failed: set[str] = set()
    while True:
        effect = rewrites.effect()
        plan = rewrites.plan(effect.number + 1)
        if plan is None:
            choice = choose(live_files(output, history, effect, numbers), failed)
            if choice is None:
                return rewrites
            plan = rewrites.put_plan(choice)
            if rewrites.folded().number >= plan.number:
                continue  # this driver was suspended, and the plan is that of a rewrite which is long done
        results, errors = _results(output, plan)
        if (now := rewrites.effect()).number >= plan.number:
            done.rewrites += [number for number in range(plan.number, now.number + 1) if number not in done.rewrites]
            continue  # by another driver, which may have removed what this one was reading
        for at, error in errors.items():
            failed |= {file.key for file in plan.groups[at].inputs}
            done.left[plan.groups[at].directory] = str(error)
        complete = 0 if plan.groups else plan.replay
        commit = RewriteCommit(job, plan.number, plan.nonce, plan.kind, results, plan.distinct, complete)
        done.add(rewrites.put_commit(commit))
        on_commit()


def _results(output: ObjectStore, plan: RewritePlan) -> tuple[tuple[Rewritten, ...], dict[int, EngineError]]:
    """Returns the results of groups, and the errors of others. Raises an error that a retry may cure."""
    results: list[Rewritten] = []
    errors: dict[int, EngineError] = {}
    for at in range(len(plan.groups)):
        try:
            results.append(rewrite_group(output, plan, at))
        except EngineError as error:
            if error.retryable:
                raise
            errors[at] = error
    return tuple(results), errors


def remove_replaced(
    output: ObjectStore, job: str, grace_ms: int, done: Done, *, is_dry: bool = False, rewrites: Rewrites | None = None
) -> None:
    """Removes replaced files whose time has come, and files of rewrites that no commit has; then folds."""
    rewrites = rewrites or Rewrites(output, job)
    effect, commits = rewrites.load()
    stored_ms = rewrites.stored_ms()
    now_ms = max([*stored_ms.values(), _newest_commit_ms(output, job)])
    due = {number for number, at in stored_ms.items() if at + grace_ms <= now_ms}
    topics = sorted(effect.latest)
    for prefix in [make(topic) for topic in topics for make in (names.table_prefix, names.dead_letters_prefix)]:
        for info in [info for info in output.list(prefix) if effect.is_leftover(info.key)]:
            number = effect.replaced.get(info.key, 0)
            if number in stored_ms and number not in due:
                done.waiting += 1
                continue
            done.removed += 1
            if not is_dry:
                output.delete(info.key)
    if is_dry:
        return
    if len(commits) >= FOLD_AFTER and not done.waiting:
        rewrites.fold(effect)
    else:
        rewrites.remove_folded(effect.number - len(commits))  # what a killed fold left


def _newest_commit_ms(output: ObjectStore, job: str) -> int:
    """Returns the store's time of the newest commit, so that no clock of a driver removes anything."""
    return max((info.modified_ms for info in output.list(names.commits_prefix(job))), default=0)
