"""The plans and commits of one job in the output store: created once, never changed, never removed.

Of any number of drivers exactly one gets to write plan N, and one commit N. A driver that comes second takes what the
first one wrote; since plans pin everything, it then does the same work, and nothing is doubled.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.tiering.store.store import NoSuchObject, ObjectExists, ObjectStore
from spark_ingest.output import names
from spark_ingest.plan import Plan, decode_plan, encode
from spark_ingest.protocol.commit import Commit, decode_commit


class History:
    """What is known of a job."""

    def __init__(self, output: ObjectStore, job: str) -> None:
        self._output = output
        self.job = job

    def head(self) -> Commit | None:
        """The newest commit; None before the first."""
        numbers = self._numbers(names.commits_prefix(self.job))
        return self.commit(max(numbers)) if numbers else None

    def commits(self) -> Iterator[Commit]:
        """Every commit, oldest first."""
        for number in sorted(self._numbers(names.commits_prefix(self.job))):
            commit = self.commit(number)
            assert commit is not None
            yield commit

    def commit(self, number: int) -> Commit | None:
        key = names.commit_key(self.job, number)
        data = self._get(key)
        return None if data is None else decode_commit(data, key)

    def plan(self, number: int) -> Plan | None:
        key = names.plan_key(self.job, number)
        data = self._get(key)
        return None if data is None else decode_plan(data, key)

    def put_plan(self, plan: Plan) -> Plan:
        """The plan of this number from now on: this one, or that of a driver which was first."""
        key = names.plan_key(self.job, plan.number)
        try:
            self._output.put(key, encode(plan), if_absent=True)
        except ObjectExists:
            return decode_plan(self._output.get(key), key)
        return plan

    def put_commit(self, commit: Commit) -> Commit:
        """The commit of this number from now on: this one, or that of a driver which was first."""
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
