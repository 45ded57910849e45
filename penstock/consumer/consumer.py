"""The consumer: returns the records of a topic's partitions, one by one or in lists.

Decodes the answers of penstock/consumer/fetcher.py and keeps the positions. The server stores no state for a consumer.
To resume, save positions() with your results and pass them as `start` next time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from penstock.closing import AsyncClosing
from penstock.consumer.deserializers import Deserializers
from penstock.consumer.fetcher import Fetched, Fetcher
from penstock.consumer.start import StartPosition
from penstock.errors import ClientClosed, ClientError
from penstock.records import Record, decode_records, with_deserializers

Decode = Callable[[str, Fetched], list[Record]]
Opener = Callable[[], Awaitable[tuple[Fetcher, list[StartPosition]]]]


class Consumer(AsyncClosing):
    """Returns records; made by Client.consume(). `async for record` iterates; poll() returns lists, which is faster."""

    def __init__(self, topic: str, opener: Opener, decode: Decode) -> None:
        self._topic = topic
        self._opener = opener
        self._decode = decode
        self._fetcher: Fetcher | None = None
        self._positions: dict[int, int] = {}
        self._records: list[Record] = []  # the list that is being iterated over
        self._index = 0
        self._after_list: tuple[int, int] | None = None  # partition, and its position after the list
        self._topic_id: str | None = None
        self._is_at_end = self._is_closed = False

    def __repr__(self) -> str:
        return f"<Consumer {self._topic} {self._positions}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Record:
        record = self.next_nowait() or await self.next()
        if record is None:
            raise StopAsyncIteration
        return record

    def next_nowait(self) -> Record | None:
        """Returns the next record that is already fetched, or None."""
        if self._index >= len(self._records):
            return None
        record = self._records[self._index]
        self._index += 1
        self._positions[record.partition] = record.next_offset
        return record

    async def next(self) -> Record | None:
        """Returns the next record; None at the end, which only a consumer without `follow` reaches."""
        while self._index >= len(self._records) and not self._is_at_end:
            await self._next_list(None)
        return self.next_nowait()

    async def start(self) -> None:
        """Fixes the start offset of each partition. The first read calls it too. Raises ClientClosed."""
        self._check_open()
        if self._fetcher is None:
            fetcher, starts = await self._opener()
            try:
                self._check_open()  # close() may have run meanwhile
            except ClientClosed:
                await fetcher.close()
                raise
            self._fetcher = fetcher
            self._positions = {start.partition: start.offset for start in starts}
            self._topic_id = fetcher.topic_id

    async def poll(self, timeout_ms: int | None = None) -> list[Record]:
        """Returns records of one partition, in order; [] if none arrived in time or, without following, at the end."""
        if self._index >= len(self._records):
            await self._next_list(timeout_ms)
        records = self._records[self._index :] if self._index else self._records
        self._index = len(self._records)
        self._finish_list()
        return records

    def positions(self) -> dict[int, int]:
        """Returns the next offset of each partition after the records handed out so far, processed or not."""
        return dict(self._positions)

    @property
    def topic_id(self) -> str | None:
        """The id of the topic that positions() are of: give both to consume(). None before the first read.

        A topic that is deleted and created again has another id.
        """
        return self._topic_id

    @property
    def is_at_end(self) -> bool:
        """True if every record that existed at the start was handed out; never true while following."""
        return self._is_at_end

    async def close(self) -> None:
        """Stops fetching. Records that were fetched but not handed out are dropped; positions() does not count them."""
        self._is_closed = True
        self._records, self._index, self._after_list = [], 0, None
        if self._fetcher is not None:
            await self._fetcher.close()

    async def abort(self) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the consumer is closed")

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
        if fetched.topic_id != self._topic_id:  # it was deleted and created again
            self._topic_id, self._positions = fetched.topic_id, {}
        try:
            self._records = self._decode(self._topic, fetched)
        except ClientError:
            await self._fetcher.close()  # continuing would silently skip these records
            raise
        self._after_list = (fetched.partition, fetched.next_offset)

    def _finish_list(self) -> None:
        """Advances the position past the last record of a finished list, over offsets that hold no records."""
        if self._after_list is not None:
            partition, next_offset = self._after_list
            self._positions[partition] = next_offset
            self._after_list = None


def decoding(decode: Decode, made: Deserializers) -> Decode:
    """Returns a decoding whose records have these deserializers."""
    return lambda topic, fetched: with_deserializers(decode(topic, fetched), made)


def decode_json(topic: str, fetched: Fetched) -> list[Record]:
    """Decodes the records of a JSON answer. Raises ClientError if it is not one."""
    try:
        return decode_records(fetched.body)
    except ValueError as error:
        raise ClientError(f"the answer to a fetch of {topic} is not what a node sends: {error}") from error


def decode_verified(topic: str, fetched: Fetched) -> list[Record]:
    from penstock.consumer.stored_batches import decode_stored  # loads the record codec, which few consumers need

    return decode_stored(fetched.body, topic, fetched.partition, fetched.offset)
