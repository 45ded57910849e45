"""The leader's side of an incremental fetch session (KIP-227) with one shard of a follower: idle partitions are free.

The follower sends each partition once and then only those whose position has changed; the leader answers only
partitions with changes. Knows no log and no leader core: the fetch server asks those about the partitions in `ready`.
Invariants: `ready` is a subset of `partitions`; a partition that was answered with batches or an error leaves
`partitions` until the next fetch of it, so no batch is sent twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from replication.cores.fetch import FollowerFetch, Send


class FetchSession:
    """Partitions that one follower shard waits for. Keys are `topic id/number`."""

    def __init__(self, session: str, first_epoch: int = 0) -> None:
        self.session = session
        self.epoch = first_epoch - 1  # the fetch session epoch of the last fetch
        self.partitions: dict[str, FollowerFetch] = {}
        self.ready: dict[str, None] = {}  # in the order of their changes
        self.unacknowledged: set[str] = set()  # fetched before this node became leader: no leader core has counted them
        self._sent: dict[str, tuple[int, int]] = {}  # the last log start, and end of what all have compacted

    def __repr__(self) -> str:
        return f"FetchSession({self.session}, {self.epoch}, partitions={len(self.partitions)}, ready={len(self.ready)})"

    def follows(self, session: str, epoch: int) -> bool:
        """True if a fetch is the next one of this session: none was lost, and this one is not a retry."""
        return session == self.session and epoch == self.epoch + 1

    def on_fetch(self, epoch: int, fetches: Iterable[tuple[str, FollowerFetch]], forgotten: Iterable[str]) -> None:
        """Takes the changed partitions of a fetch. All of them become ready, since the log may be ahead of them."""
        self.epoch = epoch
        for key in forgotten:
            self._drop(key)
            self._sent.pop(key, None)
        for key, fetch in fetches:
            self.partitions[key] = fetch
            self.ready[key] = None

    def acknowledge(self, key: str, *, is_acknowledged: bool) -> None:
        """Records whether a leader core has counted the fetch of this partition."""
        if is_acknowledged:
            self.unacknowledged.discard(key)
        else:
            self.unacknowledged.add(key)

    def on_change(self, key: str) -> bool:
        """Marks a partition ready whose log or positions have changed. Returns whether the follower waits for it."""
        if key not in self.partitions:
            return False
        self.ready[key] = None
        return True

    def has_changes(self, key: str, answer: Send) -> bool:
        """True if a position differs from what the follower has."""
        if answer.high_watermark > self.partitions[key].high_watermark:
            return True
        log_start, compacted = self._sent.get(key, (0, 0))
        return answer.log_start > log_start or answer.compacted_by_all > compacted

    def mark_unchanged(self, key: str) -> None:
        """Removes a partition from `ready`; the follower goes on waiting for it."""
        self.ready.pop(key, None)

    def record_positions(self, key: str, answer: Send) -> None:
        """Records that an answer has the positions without batches. The partition stays asked.

        It stays ready too: more may have been appended while other partitions of the same answer were read.
        """
        self.partitions[key] = replace(self.partitions[key], high_watermark=answer.high_watermark)
        self._sent[key] = answer.log_start, answer.compacted_by_all

    def on_answer(self, key: str, answer: object) -> None:
        """Drops a partition that was answered with batches or an error; the follower fetches it again."""
        if isinstance(answer, Send):
            self._sent[key] = answer.log_start, answer.compacted_by_all
        self._drop(key)

    def _drop(self, key: str) -> None:
        self.partitions.pop(key, None)
        self.ready.pop(key, None)
        self.unacknowledged.discard(key)
