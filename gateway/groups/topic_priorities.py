"""Reads partitions in the order of their topics' priority: lower ones are read only if all higher ones are empty.

A group without priorities has one level, and costs nothing more. Results are in the order of the given entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from engine.partition.high_watermark import PositionWaiters
from gateway.fetch.context import FetchContext
from gateway.fetch.multi_fetch import MultiFetch
from gateway.fetch.reader import Available, Limits, PartitionRead
from gateway.fetch.rendered_cache import Part


class TopicPriorities:
    """The entries of one reader by priority. `_all` waits for all levels; the first one with a record is read."""

    def __init__(
        self,
        context: FetchContext,
        entries: Sequence[PartitionRead],
        filters: tuple[str, ...],
        priorities: Sequence[str],
        partition_bytes_max: int | None,
    ) -> None:
        self._entries = list(entries)
        self._all = MultiFetch(context, entries, filters, partition_bytes_max)
        ranks = {name: rank for rank, name in enumerate(priorities)}
        levels: dict[int, list[int]] = {}
        for index, entry in enumerate(entries):
            levels.setdefault(ranks.get(entry.topic, len(ranks)), []).append(index)
        self._levels = [
            (indexes, MultiFetch(context, [entries[index] for index in indexes], filters, partition_bytes_max))
            for _, indexes in sorted(levels.items())
            if len(levels) > 1
        ]

    async def check_available(self) -> Available:
        return await self._all.check_available()

    def quiet_waits(self) -> list[tuple[PositionWaiters, int]] | None:
        return self._all.quiet_waits()

    def read_now(self, limits: Limits) -> list[Part] | None:
        """Returns None: a level may have nothing, and then another one is read."""
        return None if self._levels else self._all.read_now(limits)

    @property
    def is_quiet(self) -> bool:
        return self._all.is_quiet

    @property
    def entries(self) -> Sequence[PartitionRead]:
        return self._entries

    async def wait(
        self, min_bytes: int, wait_s: float, until: asyncio.Future[Any] | None = None, looked: Available | None = None
    ) -> None:
        await self._all.wait(min_bytes, wait_s, until, looked)

    async def read_with_retries(self, limits: Limits) -> list[Part]:
        """Returns what is readable of the first level that has something."""
        for number, (indexes, many) in enumerate(self._levels, 1):
            available = await many.check_available()
            if available.size_bytes or available.has_problem or number == len(self._levels):
                read = dict(zip(indexes, await many.read_with_retries(limits), strict=True))
                if number == len(self._levels) or self._is_answer(read):
                    return self._parts(read)
        return await self._all.read_with_retries(limits)

    def advance_over(self, parts: Sequence[Part]) -> bool:
        """Advances over records that did not pass the filters, as MultiFetch does."""
        has_advanced = self._all.advance_over(parts)
        if has_advanced:
            self._entries = list(self._all.entries)
            for indexes, many in self._levels:
                many.advance_over([parts[index] for index in indexes])
        return has_advanced

    def _is_answer(self, read: dict[int, Part]) -> bool:
        """Returns whether there are records, a problem, or offsets that no record of has passed the filters."""
        return any(
            part.problem is not None or part.next_offset != self._entries[index].offset for index, part in read.items()
        )

    def _parts(self, read: dict[int, Part]) -> list[Part]:
        return [read.get(index) or Part(entry.offset, 0, [], None, b"") for index, entry in enumerate(self._entries)]
