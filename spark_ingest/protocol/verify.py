"""Checks the output of a job against its commits: no offset missing or twice, no unknown file.

Reads the commits and lists each table; verify_deep.py also reads every file. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from engine.tiering.store.store import ObjectStore
from spark_ingest.output import names
from spark_ingest.output.retained import Retained, load_retained
from spark_ingest.output.rewrites import Effect, RewriteCommit, Rewrites
from spark_ingest.output.stored_file import StoredFile
from spark_ingest.plan import BACKFILL, MOVE, REPEATED, REPLAY, Lost, Plan, plan_without
from spark_ingest.protocol.commit import Commit, not_recovered
from spark_ingest.protocol.history import History
from spark_ingest.protocol.lost import lost_of
from spark_ingest.protocol.results import TaskResult
from spark_ingest.source.range_sets import common, without
from spark_ingest.source.slices import Range


@dataclass(slots=True)
class Findings:
    """Counts and problems. `leftovers` are files of an uncommitted plan, or of topics that a commit blocked.

    `held` are the errors of topics that the newest commit holds back. `lost` are the ranges that commits recorded as
    lost, without recovered ones; they are not problems of the output. `repeated` are those that a move let come twice.
    `unseen` were gone when the job first read their partitions. `retired`
    counts files that `retain` has removed, `replaced` those that rewrites replaced; `rewrites` and `rewritten` count
    rewrites and their files. `dropped` has the rows that rewrites dropped, by table.
    """

    commits: int = 0
    files: int = 0
    rows: int = 0
    dead_letters: int = 0
    leftovers: int = 0
    retired: int = 0
    rewrites: int = 0
    rewritten: int = 0
    replaced: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)
    repeated: list[Lost] = field(default_factory=list)
    unseen: list[Lost] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def verify(output: ObjectStore, job: str) -> tuple[Findings, list[Commit]]:
    """Returns the findings and all commits."""
    history, findings = History(output, job), Findings()
    commits = list(history.commits())
    findings.commits = len(commits)
    if [commit.number for commit in commits] != list(range(1, len(commits) + 1)):
        findings.problems.append(f"commits are missing: there are {[commit.number for commit in commits]}")
    findings.held = commits[-1].held_details if commits else {}
    _check_ranges(commits, findings)
    archived_end = history.archived_end()
    findings.lost = not_recovered(commits)
    for commit in commits:
        if commit.step == MOVE:
            findings.repeated += lost_of(commit.repeated, commit.positions, REPEATED)
        findings.unseen += commit.unseen_ranges
        wrong = [] if commit.number <= archived_end else against_plan(commit, history.plan(commit.number))
        findings.problems += [f"commit {commit.number}: {problem}" for problem in wrong]
        for result in commit.results:
            findings.problems += [
                f"commit {commit.number} task {result.task}: {problem}" for problem in _of_result(result)
            ]
            findings.files += len(result.files) + len(result.dead_letters)
            findings.rows += result.rows
            findings.dead_letters += result.bad
    effect, rewrites = Rewrites(output, job).load()
    _check_rewrites(commits, effect, rewrites, findings)
    if commits and commits[-1].replay > effect.replay:
        text = f"the replay of commit {commits[-1].replay} is not complete: rows of its ranges are there twice"
        findings.problems.append(f"{text}; penstock ingest replay --resume completes it")
    _check_listing(output, commits, effect, load_retained(output, job), findings)
    return findings, commits


def _check_ranges(commits: Iterable[Commit], findings: Findings) -> None:
    """Checks that each partition's ranges are contiguous and end where the commit says, for each topic id."""
    reached: dict[tuple[str, str, int], int] = {}
    done: list[Commit] = []
    for commit in commits:
        for topic, ranges in [*commit.skipped.items(), *commit.passed.items()]:
            for lost in ranges:
                reached[topic, commit.positions[topic].topic_id, lost.partition] = lost.end
        for topic, ranges in commit.reopened.items():
            for back in ranges:
                reached[topic, commit.positions[topic].topic_id, back.partition] = back.start
        if commit.step in (BACKFILL, REPLAY):
            _check_step(commit, done, findings)
        for result in commit.results if commit.step not in (BACKFILL, REPLAY) else ():
            for span in result.ranges:
                key = (result.topic, commit.positions[result.topic].topic_id, span.partition)
                if reached.setdefault(key, span.start) != span.start:
                    what = "are missing" if reached[key] < span.start else "come twice"
                    between = f"{min(reached[key], span.start)} to {max(reached[key], span.start) - 1}"
                    findings.problems.append(
                        f"commit {commit.number}: {result.topic} partition {span.partition} offsets {between} {what}"
                    )
                reached[key] = span.end
        done.append(commit)
        for topic, position in commit.positions.items():
            for partition, end in position.ends.items():
                if reached.setdefault((topic, position.topic_id, partition), end) != end:
                    findings.problems.append(
                        f"commit {commit.number}: {topic} partition {partition} has position {end}, "
                        f"its files end at {reached[topic, position.topic_id, partition]}"
                    )


def _check_step(commit: Commit, before: Iterable[Commit], findings: Findings) -> None:
    """Checks that a backfill ingested only what was not ingested, and a replay only what was."""
    ranges_by_topic: dict[tuple[str, str], list[Range]] = {}
    for earlier in before:
        for result in earlier.results:
            ranges_by_topic.setdefault((result.topic, earlier.positions[result.topic].topic_id), []).extend(
                result.ranges
            )
    for result in commit.results:
        ingested = ranges_by_topic.get((result.topic, commit.positions[result.topic].topic_id), [])
        ranges = [Range(*span) for span in result.ranges]
        wrong = without(ranges, ingested) if commit.step == REPLAY else common(ranges, ingested)
        what = "were not ingested before" if commit.step == REPLAY else "come twice"
        for wrong_span in wrong:
            title = (
                f"{result.topic} partition {wrong_span.partition} offsets {wrong_span.start} to {wrong_span.end - 1}"
            )
            findings.problems.append(f"commit {commit.number}: {title} {what}")


def against_plan(commit: Commit, plan: Plan | None) -> list[str]:
    """Returns why a commit does not match its plan."""
    if plan is None:
        return ["its plan is missing"]
    if plan.nonce != commit.plan_nonce:
        return ["it belongs to another plan"]
    planned = {task.task: tuple(task.ranges) for task in plan_without(plan, commit.held_here).tasks}
    done = {result.task: tuple(result.ranges) for result in commit.results}
    return [] if commit.is_abandoned or planned == done else ["its tasks differ from those of the plan"]


def _of_result(result: TaskResult) -> list[str]:
    offsets = sum(span.end - span.start for span in result.ranges)
    problems = []
    if result.rows + result.bad + result.absent != offsets:
        problems.append(
            f"{offsets} offsets gave {result.rows} rows, {result.bad} bad and {result.absent} absent records"
        )
    if sum(file.rows for file in result.files) != result.rows:
        problems.append(f"its files do not have the {result.rows} rows of the result")
    return problems


def _check_rewrites(commits: list[Commit], effect: Effect, rewrites: list[RewriteCommit], findings: Findings) -> None:
    """Checks that rewrites replace files that exist, each once, and that no row is missing or new."""
    findings.rewrites, findings.rewritten = effect.number, len(effect.files)
    findings.replaced = len(effect.replaced)
    findings.dropped = {table: count for table, count in sorted(effect.dropped.items()) if count}
    named = {file.key: file for commit in commits for result in commit.results for file in result.every_file}
    made: dict[str, StoredFile] = {}
    for rewrite in rewrites:
        for result in rewrite.results:
            title = f"rewrite {rewrite.number} group {result.group}"
            for file in result.replaced:
                if named.get(file.key, made.get(file.key, file)) != file or not _is_known(
                    file.key, named, rewrite.number
                ):
                    findings.problems.append(f"{title}: {file.key} is not as it was committed")
            rows = result.file.rows if result.file else 0
            before = sum(file.rows for file in result.replaced)
            if rows + result.dropped != before:
                findings.problems.append(f"{title}: {before} rows became {rows}, and {result.dropped} were dropped")
            if result.file:
                made[result.file.key] = result.file
    for key in effect.replaced:
        if not _is_known(key, named, effect.number):
            findings.problems.append(f"{key} was replaced and belongs to no commit")


def _is_known(key: str, named: Container[str], number: int) -> bool:
    """True for a file of a commit or of a rewrite up to `number`."""
    made_by = names.rewrite_of(key)
    return key in named if made_by is None else made_by <= number


def _check_listing(
    output: ObjectStore, commits: list[Commit], effect: Effect, retained: Retained, findings: Findings
) -> None:
    """Checks that every file of the tables exists with its size, and that there is no other file.

    A retired or replaced file may be there still: the next `retain` or `compact` removes it.
    """
    results = [result for commit in commits for result in commit.results]
    named = {file.key: file.size_bytes for result in results for file in result.every_file}
    if len(named) != findings.files:
        findings.problems.append("two commits name the same file")
    committed = {key: size for key, size in named.items() if key not in effect.replaced}
    committed |= {key: file.size_bytes for key, file in effect.files.items()}
    topics = {topic for commit in commits for topic in (*commit.positions, *commit.held)}
    held = {(commit.number, topic) for commit in commits for topic in commit.held_here}
    prefixes = [prefix(topic) for topic in sorted(topics) for prefix in (names.table_prefix, names.dead_letters_prefix)]
    sizes = {info.key: info.size_bytes for prefix in prefixes for info in output.list(prefix)}
    listed = {key: size for key, size in sizes.items() if not (names.is_marker(key) or names.is_of_delta(key))}
    retired = {key for key in committed if retained.covers(key)}
    findings.retired = len(retired)
    findings.leftovers += len(retired & listed.keys())
    for key, size_bytes in committed.items():
        if key in retired:
            continue
        if key not in listed:
            findings.problems.append(f"{key} is missing")
        elif listed[key] != size_bytes:
            findings.problems.append(f"{key} has {listed[key]} bytes, {size_bytes} were committed")
    head = commits[-1].number if commits else 0
    for key in sorted(listed.keys() - committed.keys()):
        number = names.plan_number_of(key)
        is_rewritten = effect.is_leftover(key) or names.rewrite_of(key) == effect.number + 1
        if is_rewritten or number == head + 1 or (number, names.topic_of(key)) in held:
            findings.leftovers += 1
        else:
            findings.problems.append(f"{key} belongs to no commit")
