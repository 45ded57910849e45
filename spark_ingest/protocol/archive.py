"""An archive: commits of a finished part of a job's history in one object, without what only the newest one needs.

Values and their JSON only; history.py stores it, clean.py makes it. verify.py reads its commits like the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from spark_ingest.plan import FORMAT, TOPIC_RANGES
from spark_ingest.protocol.commit import Commit


class Archive(msgspec.Struct, frozen=True):
    """Commits `first` to `last`. Each one matched its plan when it was archived."""

    job: str
    first: int
    last: int
    commits: tuple[Commit, ...]
    format: int = FORMAT

    def commit(self, number: int) -> Commit:
        return self.commits[number - self.first]


def archive_of(commits: Sequence[Commit]) -> Archive:
    """Returns the archive of adjacent commits. The same commits give the same archive."""
    assert [commit.number for commit in commits] == list(range(commits[0].number, commits[-1].number + 1))
    return Archive(commits[0].job, commits[0].number, commits[-1].number, tuple(map(_archived, commits)))


def _archived(commit: Commit) -> Commit:
    """Keeps files, ranges, losses, and the positions of the commit's own topics; the newest commit has the rest."""
    topics = {result.topic for result in commit.results}
    topics.update(topic for name in TOPIC_RANGES for topic in getattr(commit, name))
    held = {topic: commit.held[topic] for topic in commit.held_here}
    return msgspec.structs.replace(
        commit,
        positions={topic: position for topic, position in commit.positions.items() if topic in topics},
        schemas={},
        seen={},
        misfits={},
        unseen_records={},
        held=held,
    )
