"""The consumer: records of a topic's partitions, one by one or in lists.

Decodes what penstock/consumer/fetcher.py hands out and keeps the positions. The server keeps nothing for a reader, so
resuming is: save positions() with your results, and pass them as `start` next time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from penstock.consumer.fetcher import Fetched, Fetcher
from penstock.consumer.start import StartPosition
from penstock.errors import ClientError
from penstock.records import Record, decode_records

Decode = Callable[[str, Fetched], list[Record]]
Opener = Callable[[], Awaitable[tuple[Fetcher, list[StartPosition]]]]


class Consumer:
    """Made by Client.consume(). Iterate over it (`async for record`), or call poll() for lists, which is faster."""

    def __init__(self, topic: str, opener: Opener, decode: Decode) -> None:
        self._topic = topic
        self._opener = opener
        self._decode = decode
        self._fetcher: Fetcher | None = None
        self._positions: dict[int, int] = {}
        self._records: list[Record] = []  # the list that is being iterated over
        self._index = 0
        self._after_list: tuple[int, int] | None = None  # partition, and where to go on after the list
        self._is_at_end = False

    def __repr__(self) -> str:
        return f"<Consumer {self._topic} {self._positions}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Record:
        record = self.next_nowait() or await self.next()
        if record is None:
            raise StopAsyncIteration
        return record

    def next_nowait(self) -> Record | None:
        """The next record of those that are here already."""
        if self._index >= len(self._records):
            return None
        record = self._records[self._index]
        self._index += 1
        self._positions[record.partition] = record.next_offset
        return record

    async def next(self) -> Record | None:
        """The next record; None at the end, which without `follow` there is."""
        while self._index >= len(self._records) and not self._is_at_end:
            await self._next_list(None)
        return self.next_nowait()

    async def start(self) -> None:
        """Pin where each partition begins. Called by the first read, too."""
        if self._fetcher is None:
            self._fetcher, starts = await self._opener()
            self._positions = {start.partition: start.offset for start in starts}

    async def poll(self, timeout_ms: int | None = None) -> list[Record]:
        """Records of one partition, in order; [] when none came in time or, without following, at the end."""
        if self._index >= len(self._records):
            await self._next_list(timeout_ms)
        records = self._records[self._index :] if self._index else self._records
        self._index = len(self._records)
        self._finish_list()
        return records

    def positions(self) -> dict[int, int]:
        """Per partition, where to go on after the records handed out so far, whether or not you are done with them."""
        return dict(self._positions)

    @property
    def is_at_end(self) -> bool:
        """Whether every record there was at the start has been handed out; never true while following."""
        return self._is_at_end

    async def close(self) -> None:
        """Stop fetching. Records that were fetched but not handed out are dropped; positions() does not count them."""
        if self._fetcher is not None:
            await self._fetcher.close()

    async def _next_list(self, timeout_ms: int | None) -> None:
        self._finish_list()
        await self.start()
        assert self._fetcher is not None
        self._records, self._index = [], 0
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                fetched = await self._fetcher.next()
        except TimeoutError:
            return
        if fetched is None:
            self._is_at_end = True
            return
        try:
            self._records = self._decode(self._topic, fetched)
        except ClientError:
            await self._fetcher.close()  # to go on would be to leave these records out in silence
            raise
        self._after_list = (fetched.partition, fetched.next_offset)

    def _finish_list(self) -> None:
        """All of the list is handed out: go past what the log holds after its last record without giving it out."""
        if self._after_list is not None:
            partition, next_offset = self._after_list
            self._positions[partition] = next_offset
            self._after_list = None


def decode_json(topic: str, fetched: Fetched) -> list[Record]:
    try:
        return decode_records(fetched.body)
    except ValueError as error:
        raise ClientError(f"the answer to a fetch of {topic} is not what a node sends: {error}") from error


def decode_verified(topic: str, fetched: Fetched) -> list[Record]:
    from penstock.consumer.stored_batches import decode_stored  # loads the record codec, which few need

    return decode_stored(fetched.body, topic, fetched.partition, fetched.offset)
