"""Idempotency keys of requests in flight in this process: a second request with a key joins the first, or is rejected.

Pure. It covers the time between looking a key up and queueing its records, in which a body is encoded; from then on the
partitions know the key (engine/producers/partition_keys.py). Other processes of the node are not covered:
docs/produce.md states the remaining gap.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.errors import KeyReused

_Held = tuple[bytes, int, int]  # the hash of the request, the partition count, and how many hold the key


class KeysInFlight:
    """The keys in flight, by topic."""

    def __init__(self) -> None:
        self.reused = 0  # rejections of keys, here and by the partitions
        self._held: dict[tuple[str, bytes], _Held] = {}

    def __repr__(self) -> str:
        return f"KeysInFlight({len(self._held)})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each gauge."""
        yield (
            "penstock_idempotency_keys_reused_total",
            "Requests rejected because their Idempotency-Key belongs to another request",
            self.reused,
        )

    def hold(self, topic_id: str, key_hash: bytes, request_hash: bytes, partitions: int) -> int:
        """Holds a key until `release`. Returns the partition count at the first hold.

        Raises KeyReused, and holds nothing then.
        """
        which, fresh = (topic_id, key_hash), (request_hash, partitions, 1)
        held = self._held.setdefault(which, fresh)
        if held is fresh:
            return partitions
        of_key, at_first, holders = held
        if of_key != request_hash:
            raise KeyReused("the Idempotency-Key belongs to another request, which is under way")
        self._held[which] = (of_key, at_first, holders + 1)
        return at_first

    def release(self, topic_id: str, key_hash: bytes) -> None:
        which = (topic_id, key_hash)
        request_hash, partitions, holders = self._held.pop(which)
        if holders > 1:
            self._held[which] = (request_hash, partitions, holders - 1)
