"""Stores the plans and commits of one job in the output store: created once and never changed.

`penstock ingest clean` replaces old ones by archives (clean.py); an archive's commits are read from it.

Exactly one driver creates plan N, and exactly one creates commit N. A second driver uses the stored plan. A plan
determines all files, so both drivers write the same files and no row is written twice.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import HistoryDamaged
from spark_ingest.output import names
from spark_ingest.output.rewrites import Effect, Rewrites
from spark_ingest.output.stores import load, put_if_absent, put_once
from spark_ingest.plan import Ended, Plan, decode, encode
from spark_ingest.protocol.archive import Archive
from spark_ingest.protocol.commit import Commit, ended_by
from spark_ingest.source.discovery import resolve_cluster


def cluster_of_job(source: ObjectStore, output: ObjectStore, job: str, given: str | None = None) -> str:
    """Returns the cluster that a job reads, or will read. Raises IngestRefused if `source` does not have it."""
    head = History(output, job).head()
    return resolve_cluster(source, given, head.cluster if head else None)


class History:
    """The plans and commits of one job."""

    def __init__(self, output: ObjectStore, job: str) -> None:
        self.output = output
        self.job = job
        self._known_archives: list[tuple[int, int]] = []
        self._archives: dict[tuple[int, int], Archive] = {}

    def head(self) -> Commit | None:
        """Returns the newest commit; None before the first."""
        numbers = self._numbers(names.commits_prefix(self.job))
        head = self.commit(max(numbers)) if numbers else None
        if head is not None and not head.knows_ended:  # of a release that did not write it
            head = msgspec.structs.replace(head, ended=self._ended_before(head))
        if head is None or head.first_nonce:
            return head
        first = self.any_commit(1)  # of a release that did not write it
        return msgspec.structs.replace(head, first_nonce=first.plan_nonce if first else "")

    def _ended_before(self, head: Commit) -> Ended:
        """Returns the ids of topics that earlier commits have a position of, and the newest one does not."""
        ended = ended_by(self.commits())
        for topic, position in head.positions.items():
            ended.get(topic, {}).pop(position.topic_id, None)
        return {topic: ids for topic, ids in ended.items() if ids}

    def commits(self) -> Iterator[Commit]:
        """Yields every commit, oldest first; those of archives have less, see archive.py. Raises HistoryDamaged."""
        end = 0
        for bounds in self.archives():
            yield from self.archive(bounds).commits
            end = bounds[1]
        for number in sorted(self._numbers(names.commits_prefix(self.job))):
            if number > end:
                commit = self.commit(number)
                if commit is None:
                    raise HistoryDamaged(f"commit {number} was removed while it was read", hint="run again")
                yield commit

    def archives(self) -> list[tuple[int, int]]:
        """Returns the first and last commits of the archives, in order."""
        bounds = filter(None, (names.bounds_of(info.key) for info in self.output.list(names.archives_prefix(self.job))))
        return sorted(bounds)

    def archived_end(self) -> int:
        """Returns the number of the last archived commit, or 0."""
        return max((last for _, last in self.archives()), default=0)

    def archive(self, bounds: tuple[int, int]) -> Archive:
        """Returns an archive. Raises UnreadablePlan."""
        if bounds not in self._archives:
            key = names.archive_key(self.job, *bounds)
            self._archives[bounds] = decode(self.output.get(key), key, Archive)
        return self._archives[bounds]

    def put_archive(self, archive: Archive) -> None:
        """Stores an archive, unless it exists: the same commits give the same one."""
        put_if_absent(self.output, names.archive_key(self.job, archive.first, archive.last), encode(archive))

    def is_behind(self, number: int) -> bool:
        """True if newer commits than `number` exist and this one does not: it was cleaned away."""
        newer = self.output.list(names.commits_prefix(self.job), names.commit_key(self.job, number))
        return any(names.number_of(info.key) for info in newer) and self.commit(number) is None

    def commits_with_losses(self, head: Commit) -> list[Commit]:
        """Returns the commits up to `head` that recorded lost or recovered records, oldest first.

        Bisects, because their counts never fall. Omits a commit that recorded only ranges of unknown length.
        """
        return self._with_losses(0, 0, head)

    def _with_losses(self, after: int, counted_before: int, last: Commit) -> list[Commit]:
        if last.lost_records + last.recovered_records == counted_before:
            return []
        if last.number == after + 1:
            return [last]
        middle = self.any_commit((after + last.number) // 2)
        if middle is None:
            return []  # a gap, which `verify` reports
        earlier = self._with_losses(after, counted_before, middle)
        return earlier + self._with_losses(middle.number, middle.lost_records + middle.recovered_records, last)

    def any_commit(self, number: int) -> Commit | None:
        """Returns a commit, also an archived one."""
        if (commit := self._find_archived(number) or self.commit(number)) is not None:
            return commit
        self._known_archives = self.archives()
        return self._find_archived(number)

    def _find_archived(self, number: int) -> Commit | None:
        within = [bounds for bounds in self._known_archives if bounds[0] <= number <= bounds[1]]
        return self.archive(within[0]).commit(number) if within else None

    def commit(self, number: int) -> Commit | None:
        return load(self.output, names.commit_key(self.job, number), Commit)

    def plan(self, number: int) -> Plan | None:
        return load(self.output, names.plan_key(self.job, number), Plan)

    def pending(self, head: Commit | None) -> Plan | None:
        """Returns the stored plan after the newest commit; None without one."""
        return self.plan(head.number + 1 if head else 1)

    def put_plan(self, plan: Plan) -> Plan:
        """Stores a plan; returns the stored one, which another driver may have created first."""
        return put_once(self.output, names.plan_key(self.job, plan.number), plan)

    def put_commit(self, commit: Commit) -> Commit:
        """Stores a commit; returns the stored one, which another driver may have created first."""
        return put_once(self.output, names.commit_key(self.job, commit.number), commit)

    def effect(self) -> Effect:
        """Returns the effect of rewrites on the files that commits name. Raises UnreadablePlan, HistoryDamaged."""
        return Rewrites(self.output, self.job).effect()

    def mark_published(self) -> None:
        """Records that tables of a catalog name files of this job, so that nothing removes them."""
        put_if_absent(self.output, names.published_key(self.job), b"{}")

    def is_published(self) -> bool:
        return self.output.head(names.published_key(self.job)) is not None

    def _numbers(self, prefix: str) -> list[int]:
        numbers = [names.number_of(info.key) for info in self.output.list(prefix)]
        return [number for number in numbers if number is not None]
