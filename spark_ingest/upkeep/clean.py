"""Cleans the history of a job: replaces old plans and commits by archives, so that runs and listings stay fast.

    1 Read the oldest ARCHIVE_COMMITS commits that are not archived, with their plans. Each must match its plan.
    2 Store their archive, create-if-absent. From this moment readers take these commits from it.
    3 Remove the plans and commits that an archive has.

After a kill: before 2 nothing has changed; after 2 the next clean removes the rest. Two concurrent ones make the same
archive. An object that is not understood, or is not the one that was archived, stays and is named.

A driver that was suspended since before an archived commit could create its plan again; runner.py checks for that. A
commit also stays for `keep_ms` after it was stored, by the store's clock: against the time of the newest commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import HistoryDamaged
from spark_ingest.output import names
from spark_ingest.plan import UnreadablePlan
from spark_ingest.protocol.archive import Archive, archive_of
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History
from spark_ingest.protocol.verify import against_plan

KEEP_COMMITS = 100
KEEP_MS = 7 * 24 * 3_600_000  # far more than any pause of a driver
ARCHIVE_COMMITS = 500  # a year of hourly runs makes 18 archives


@dataclass(slots=True)
class Cleaned:
    """The result of a clean: archives as (first, last), removed objects, and why others were left."""

    archives: list[tuple[int, int]] = field(default_factory=list)
    removed: int = 0
    left: dict[str, str] = field(default_factory=dict)


def clean(
    output: ObjectStore,
    job: str,
    *,
    keep_commits: int = KEEP_COMMITS,
    keep_ms: int = KEEP_MS,
    archive_commits: int = ARCHIVE_COMMITS,
    is_dry: bool = False,
) -> Cleaned:
    """Store the archives that are due, and remove what is archived. Raises HistoryDamaged, UnreadablePlan."""
    assert keep_commits > 0
    history, cleaned = History(output, job), Cleaned()
    archives: dict[tuple[int, int], Archive | None] = dict.fromkeys(history.archives())
    end = history.archived_end()
    old_end = _old_end(output, job, keep_commits, keep_ms)
    for first in range(end + 1, old_end - archive_commits + 2, archive_commits):
        archive = archive_of([_commit(history, number) for number in range(first, first + archive_commits)])
        if not is_dry:
            history.put_archive(archive)
        archives[archive.first, archive.last] = archive
        cleaned.archives.append((archive.first, archive.last))
    _remove(output, history, archives, cleaned, is_dry=is_dry)
    return cleaned


def _old_end(output: ObjectStore, job: str, keep_commits: int, keep_ms: int) -> int:
    """Returns the number of the last commit that is old enough, with all before it."""
    modified: dict[int, int] = {}
    for info in output.list(names.commits_prefix(job)):
        number = names.number_of(info.key)
        if number is not None:
            modified[number] = info.modified_ms
    if not modified:
        return 0
    newest = max(modified)
    young = [number for number, at in modified.items() if at > modified[newest] - keep_ms]
    return min(newest - keep_commits, min(young, default=newest + 1) - 1)


def _commit(history: History, number: int) -> Commit:
    """Returns a commit that matches its plan. Raises HistoryDamaged, UnreadablePlan."""
    commit = history.commit(number)
    problems = ["it is missing"] if commit is None else against_plan(commit, history.plan(number))
    if problems or commit is None:
        hint = "nothing was removed; penstock ingest verify reports all problems"
        raise HistoryDamaged(f"commit {number} of job {history.job}: {problems[0]}", hint=hint)
    return commit


def _remove(
    output: ObjectStore,
    history: History,
    archives: dict[tuple[int, int], Archive | None],
    cleaned: Cleaned,
    *,
    is_dry: bool,
) -> None:
    """Removes the plans, then the commits, that the archives have."""
    end = max((last for _, last in archives), default=0)
    for prefix in (names.plans_prefix(history.job), names.commits_prefix(history.job)):
        for info in list(output.list(prefix)):
            number = names.number_of(info.key)
            if number is not None and number > end:
                continue
            why = "not a plan or commit" if number is None else _why_left(history, archives, prefix, number)
            if why:
                cleaned.left[info.key] = why
                continue
            cleaned.removed += 1
            if not is_dry:
                output.delete(info.key)


def _why_left(
    history: History, archives: dict[tuple[int, int], Archive | None], prefix: str, number: int
) -> str | None:
    """Returns why an object with an archived number stays; None if the archive has it."""
    within = [bounds for bounds in archives if bounds[0] <= number <= bounds[1]]
    if not within:
        return "no archive has it"
    try:
        archive = archives[within[0]] or history.archive(within[0])
        is_plan = prefix == names.plans_prefix(history.job)
        stored = history.plan(number) if is_plan else history.commit(number)
    except UnreadablePlan as error:
        return error.detail
    if stored is None:
        return None  # another clean has removed it
    nonce = stored.plan_nonce if isinstance(stored, Commit) else stored.nonce
    return None if nonce == archive.commit(number).plan_nonce else "not the one that was archived"
