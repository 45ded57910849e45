"""What one shard of a follower waits for, kept by the leader's shard between fetches: idle partitions cost nothing.

The idea of KIP-227: the follower names every partition once and later only those whose position has changed; the leader
answers only those with news. Knows no log and no core: the server asks those about the partitions that are `ready`.
Invariants: `ready` is within `asked`; a partition that was answered with batches, or with anything but a watermark,
leaves `asked` until the follower asks for it again, so that nothing is sent twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from replication.cores.fetch import FollowerFetch, Send


class FetchSession:
    """See the head of the file."""

    def __init__(self, session: str, first_round: int = 0) -> None:
        self.session = session
        self.round = first_round - 1
        self.asked: dict[str, FollowerFetch] = {}
        self.ready: dict[str, None] = {}  # in the order in which the news came
        self.unheard: set[str] = set()  # asked before this node began to lead: not acknowledged yet
        self._log_starts: dict[str, int] = {}  # that the follower was told

    def __repr__(self) -> str:
        return f"FetchSession({self.session}, round={self.round}, {len(self.asked)} asked, {len(self.ready)} ready)"

    def follows(self, session: str, round_: int) -> bool:
        """Whether a fetch is the next one of this session: none before it was lost, none comes twice."""
        return session == self.session and round_ == self.round + 1

    def on_fetch(self, round_: int, fetches: Iterable[tuple[str, FollowerFetch]], forgotten: Iterable[str]) -> None:
        """What has changed for the follower. All of it is looked at: there may be news already."""
        self.round = round_
        for key in forgotten:
            self._drop(key)
            self._log_starts.pop(key, None)
        for key, fetch in fetches:
            self.asked[key] = fetch
            self.ready[key] = None

    def heard(self, key: str, *, is_heard: bool) -> None:
        """Whether there was a leader to take note of a fetch."""
        if is_heard:
            self.unheard.discard(key)
        else:
            self.unheard.add(key)

    def on_news(self, key: str) -> bool:
        """Something moved at the leader; whether the follower waits for it."""
        if key not in self.asked:
            return False
        self.ready[key] = None
        return True

    def has_changes(self, key: str, answer: Send) -> bool:
        """Whether there is something to tell apart from batches."""
        is_watermark_new = answer.high_watermark > self.asked[key].high_watermark
        return is_watermark_new or answer.log_start > self._log_starts.get(key, 0)

    def has_nothing(self, key: str) -> None:
        self.ready.pop(key, None)

    def told(self, key: str, answer: Send) -> None:
        """The follower is told of the watermark and the log's start alone, and goes on waiting.

        It is looked at once more: there may have been news while other partitions were read for the same answer.
        """
        self.asked[key] = replace(self.asked[key], high_watermark=answer.high_watermark)
        self._log_starts[key] = answer.log_start

    def answered(self, key: str, answer: object) -> None:
        """The follower has something to do now; it will ask again."""
        if isinstance(answer, Send):
            self._log_starts[key] = answer.log_start
        self._drop(key)

    def _drop(self, key: str) -> None:
        self.asked.pop(key, None)
        self.ready.pop(key, None)
        self.unheard.discard(key)
