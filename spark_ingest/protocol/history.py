"""Stores the plans and commits of one job in the output store: created once, never changed, never removed.

Exactly one driver creates plan N, and exactly one creates commit N. A second driver uses the stored plan. A plan
determines all files, so both drivers write the same files and no row is written twice.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from engine.tiering.store.store import NoSuchObject, ObjectExists, ObjectStore
from spark_ingest.output import names
from spark_ingest.plan import Plan, decode_plan, encode
from spark_ingest.protocol.commit import Commit, decode_commit


class History:
    """The plans and commits of one job."""

    def __init__(self, output: ObjectStore, job: str) -> None:
        self._output = output
        self.job = job

    def head(self) -> Commit | None:
        """Returns the newest commit; None before the first."""
        numbers = self._numbers(names.commits_prefix(self.job))
        head = self.commit(max(numbers)) if numbers else None
        if head is None or head.first_nonce:
            return head
        first = self.commit(1)  # of a release that did not write it
        return msgspec.structs.replace(head, first_nonce=first.plan_nonce if first else "")

    def commits(self) -> Iterator[Commit]:
        """Yields every commit, oldest first."""
        for number in sorted(self._numbers(names.commits_prefix(self.job))):
            commit = self.commit(number)
            assert commit is not None
            yield commit

    def commits_with_losses(self, head: Commit) -> list[Commit]:
        """Returns the commits up to `head` that recorded lost records, oldest first.

        Bisects, because `lost_records` never falls. Omits a commit that recorded only ranges of unknown length.
        """
        return self._with_losses(0, 0, head)

    def _with_losses(self, after: int, lost_before: int, last: Commit) -> list[Commit]:
        if last.lost_records == lost_before:
            return []
        if last.number == after + 1:
            return [last]
        middle = self.commit((after + last.number) // 2)
        if middle is None:
            return []  # a gap, which `verify` reports
        earlier = self._with_losses(after, lost_before, middle)
        return earlier + self._with_losses(middle.number, middle.lost_records, last)

    def commit(self, number: int) -> Commit | None:
        key = names.commit_key(self.job, number)
        data = self._get(key)
        return None if data is None else decode_commit(data, key)

    def plan(self, number: int) -> Plan | None:
        key = names.plan_key(self.job, number)
        data = self._get(key)
        return None if data is None else decode_plan(data, key)

    def put_plan(self, plan: Plan) -> Plan:
        """Stores a plan; returns the stored one, which another driver may have created first."""
        key = names.plan_key(self.job, plan.number)
        try:
            self._output.put(key, encode(plan), if_absent=True)
        except ObjectExists:
            return decode_plan(self._output.get(key), key)
        return plan

    def put_commit(self, commit: Commit) -> Commit:
        """Stores a commit; returns the stored one, which another driver may have created first."""
        key = names.commit_key(self.job, commit.number)
        try:
            self._output.put(key, encode(commit), if_absent=True)
        except ObjectExists:
            return decode_commit(self._output.get(key), key)
        return commit

    def _numbers(self, prefix: str) -> list[int]:
        found = [names.number_of(one.key) for one in self._output.list(prefix)]
        return [number for number in found if number is not None]

    def _get(self, key: str) -> bytes | None:
        try:
            return self._output.get(key)
        except NoSuchObject:
            return None
