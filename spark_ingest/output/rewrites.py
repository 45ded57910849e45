"""Rewrites: steps that replace data files of a job by others with the same rows, and stores them. No Arrow.

Rewrite N has a plan and a commit, each created once, as those of a run have (protocol/history.py). They are a chain of
their own: a rewrite never waits for a run and never changes a position.

    1 The plan names the files that each group replaces, and so determines the file that it makes.
    2 The commit names the files that were made. From its creation the replaced files are not files of the table.

`Rewrites.load` returns the effect of all rewrites. A folded object has the effect of old ones, whose plans and commits
are removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.errors import HistoryDamaged
from spark_ingest.output import names
from spark_ingest.output.stored_file import StoredFile
from spark_ingest.output.stores import load, put_if_absent, put_once
from spark_ingest.plan import FORMAT, decode, encode
from spark_ingest.source.slices import Range
from spark_ingest.types.json_types import Members

COMPACT, ERASE, REPLAY = "compact", "erase", "replay"
_LOADS_MAX = 5  # each but the first because a concurrent step folded what this one was reading


class Group(msgspec.Struct, frozen=True):
    """Files of one directory that become one file, or none if no row is left."""

    topic: str
    inputs: tuple[StoredFile, ...]

    @property
    def directory(self) -> str:
        return self.inputs[0].directory

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.inputs)


class RewritePlan(msgspec.Struct, frozen=True):
    """Rewrite `number` of a job. `members` are the columns of the tables when it was planned.

    `distinct` is a column: a file keeps one row for each of its values. `key_sha256` is the digest of the key whose
    rows are dropped: a plan never has the key itself. `replay` is a commit that ingested `ranges` again: their rows
    that earlier commits wrote are dropped. Without groups, the rewrite records that the replay is complete.
    With `lifts`, values of `_extra` move to the columns of `members`.
    """

    job: str
    number: int
    nonce: str
    kind: str
    members: dict[str, Members]
    groups: tuple[Group, ...]
    distinct: str = ""
    key_sha256: str = ""
    replay: int = 0
    ranges: dict[str, list[Range]] = {}
    lifts: bool = False
    format: int = FORMAT


class Rewritten(msgspec.Struct, frozen=True):
    """The result of a group: `dropped` rows of the replaced files are not in the new one.

    `lifted` counts values that moved from `_extra` to a column which their file had.
    """

    group: int
    topic: str
    replaced: tuple[StoredFile, ...]
    file: StoredFile | None
    dropped: int
    lifted: dict[str, int] = {}


class RewriteCommit(msgspec.Struct, frozen=True):
    """Rewrite `number`. Groups of the plan that failed are absent; their files stay. `replay` is a complete one."""

    job: str
    number: int
    plan_nonce: str
    kind: str
    results: tuple[Rewritten, ...]
    distinct: str = ""
    replay: int = 0
    format: int = FORMAT


class Effect(msgspec.Struct, frozen=True):
    """The effect of rewrites 1 to `number`.

    `replaced` has the rewrite of each file that is no longer one; `files` the files of rewrites that are. `dropped`
    counts rows by table directory. `latest` has the last rewrite of each topic, `reached` the newest commit whose
    files one replaced. `distinct` has the column by which a file was deduplicated. `replay` is the last one that is
    complete. `lifted` counts values by topic and column.
    """

    job: str
    number: int = 0
    replaced: dict[str, int] = {}
    files: dict[str, StoredFile] = {}
    dropped: dict[str, int] = {}
    latest: dict[str, int] = {}
    reached: dict[str, int] = {}
    distinct: dict[str, str] = {}
    replay: int = 0
    lifted: dict[str, dict[str, int]] = {}
    format: int = FORMAT

    def is_leftover(self, key: str) -> bool:
        """True if a rewrite replaced the file, or made it and did not commit it."""
        made_by = names.rewrite_of(key)
        return key in self.replaced or (made_by is not None and made_by <= self.number and key not in self.files)

    def files_of(self, topic: str) -> list[StoredFile]:
        """Returns the files of a topic's table that rewrites made."""
        prefix = names.table_prefix(topic)
        return [file for key, file in self.files.items() if key.startswith(prefix)]

    def dropped_of(self, topic: str) -> int:
        return self.dropped.get(names.table_prefix(topic), 0)


def effect_after(before: Effect, commit: RewriteCommit) -> Effect:
    """Returns the effect including the next rewrite. Raises HistoryDamaged if it replaces a file twice."""
    replaced, files, dropped = dict(before.replaced), dict(before.files), dict(before.dropped)
    latest, reached, distinct = dict(before.latest), dict(before.reached), dict(before.distinct)
    lifted = dict(before.lifted)
    for result in commit.results:
        for key in result.replaced:
            if key.key in replaced:
                raise HistoryDamaged(f"rewrites {replaced[key.key]} and {commit.number} both replace {key.key}")
            replaced[key.key] = commit.number
            files.pop(key.key, None)
            distinct.pop(key.key, None)
            reached[result.topic] = max(reached.get(result.topic, 0), names.plan_number_of(key.key) or 0)
        if result.file is not None:
            files[result.file.key] = result.file
            if commit.distinct:
                distinct[result.file.key] = commit.distinct
        table = names.table_prefix_of(result.replaced[0].key)
        dropped[table] = dropped.get(table, 0) + result.dropped
        latest[result.topic] = commit.number
        if result.lifted:
            lifted[result.topic] = dict(Counter(lifted.get(result.topic, {})) + Counter(result.lifted))
    replay = max(before.replay, commit.replay)
    return Effect(before.job, commit.number, replaced, files, dropped, latest, reached, distinct, replay, lifted)


class Rewrites:
    """The rewrites of one job. Keeps the commits that it has read: a stored one never changes."""

    def __init__(self, output: ObjectStore, job: str) -> None:
        self._output = output
        self.job = job
        self._read: dict[str, RewriteCommit] = {}

    def load(self) -> tuple[Effect, list[RewriteCommit]]:
        """Returns the effect of all rewrites, and the commits that are not folded.

        Raises HistoryDamaged, UnreadablePlan.
        """
        for _ in range(_LOADS_MAX):
            with suppress(NoSuchObject):
                return self._load()
        raise HistoryDamaged(f"a rewrite of job {self.job} is missing", hint="run again; else restore it")

    def _load(self) -> tuple[Effect, list[RewriteCommit]]:
        """Raises NoSuchObject if a concurrent fold removed what this was about to read."""
        effect = self.folded()
        commits = []
        after = names.rewrite_commit_key(self.job, effect.number)
        for info in list(self._output.list(names.rewrite_commits_prefix(self.job), after)):
            if names.number_of(info.key) is None:
                continue  # of another program
            if info.key not in self._read:
                self._read[info.key] = decode(self._output.get(info.key), info.key, RewriteCommit)
            commit = self._read[info.key]
            if commit.number != effect.number + 1:
                raise NoSuchObject(names.rewrite_commit_key(self.job, effect.number + 1))
            effect = effect_after(effect, commit)
            commits.append(commit)
        return effect, commits

    def effect(self) -> Effect:
        return self.load()[0]

    def folded(self) -> Effect:
        """Returns the effect of the folded rewrites. Raises NoSuchObject, UnreadablePlan."""
        states = [(names.number_of(info.key) or 0, info.key) for info in self._output.list(self._folded_prefix)]
        number, key = max(states, default=(0, ""))
        return decode(self._output.get(key), key, Effect) if number else Effect(self.job)

    def plan(self, number: int) -> RewritePlan | None:
        return load(self._output, names.rewrite_plan_key(self.job, number), RewritePlan)

    def put_plan(self, plan: RewritePlan) -> RewritePlan:
        """Stores a plan; returns the stored one, which another driver may have created first."""
        return put_once(self._output, names.rewrite_plan_key(self.job, plan.number), plan)

    def put_commit(self, commit: RewriteCommit) -> RewriteCommit:
        """Stores a commit; returns the stored one, which another driver may have created first."""
        return put_once(self._output, names.rewrite_commit_key(self.job, commit.number), commit)

    def stored_ms(self) -> Mapping[int, int]:
        """Returns when each commit that is not folded was stored, by the store's clock."""
        listed = self._output.list(names.rewrite_commits_prefix(self.job))
        return {number: info.modified_ms for info in listed if (number := names.number_of(info.key)) is not None}

    def fold(self, effect: Effect) -> None:
        """Stores the effect of rewrites up to `effect.number`, and removes their plans and commits."""
        put_if_absent(self._output, names.folded_rewrites_key(self.job, effect.number), encode(effect))
        self.remove_folded(effect.number)

    def remove_folded(self, number: int) -> None:
        """Removes plans and commits up to `number`, which a folded object has, and earlier folded objects."""
        for prefix in (names.rewrite_plans_prefix(self.job), names.rewrite_commits_prefix(self.job)):
            self._remove(prefix, number + 1)
        self._remove(self._folded_prefix, number)

    def _remove(self, prefix: str, before: int) -> None:
        for info in list(self._output.list(prefix)):
            number = names.number_of(info.key)
            if number is not None and number < before:
                self._output.delete(info.key)

    @property
    def _folded_prefix(self) -> str:
        return names.folded_rewrites_prefix(self.job)
