"""Idempotency keys of requests under way in this process: who comes second with a key joins the first, or is refused.

Pure. It closes the time between looking a key up and queueing its records, in which a body is encoded; from then on the
partitions know (engine/partition_keys.py). Other processes of the node are not seen: docs/producing.md tells what that
leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from engine.errors import KeyReused


@dataclass(slots=True)
class _Held:
    request_hash: bytes
    partitions: int
    holders: int = 0


class KeyHolds:
    """The keys in hand, by topic."""

    def __init__(self) -> None:
        self.reused = 0  # how often a key was refused, here and by what partitions remember
        self._held: dict[tuple[str, bytes], _Held] = {}

    def __repr__(self) -> str:
        return f"KeyHolds({len(self._held)})"

    @contextmanager
    def hold(self, topic_id: str, key_hash: bytes, request_hash: bytes, partitions: int) -> Iterator[int]:
        """Gives the number of partitions among which the first holder places its records. Raises KeyReused."""
        which = (topic_id, key_hash)
        held = self._held.setdefault(which, _Held(request_hash, partitions))
        if held.request_hash != request_hash:
            raise KeyReused("the Idempotency-Key belongs to another request, which is under way")
        held.holders += 1
        try:
            yield held.partitions
        finally:
            held.holders -= 1
            if held.holders == 0:
                del self._held[which]
