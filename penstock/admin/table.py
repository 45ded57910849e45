"""A compacted topic as a table: the last record of a key, or of every key."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Generic, TypeVar
from urllib.parse import quote

from penstock.transport.api import topic_path
from penstock.transport.exchange import Json, Request

ResultT = TypeVar("ResultT")


class Table(Generic[ResultT]):
    """Reads a compacted topic by key."""

    def __init__(self, topic: str, call: Callable[[Request], ResultT]) -> None:
        self._topic = topic
        self._call = call

    def __repr__(self) -> str:
        return f"<Table {self._topic}>"

    def get(
        self, key: str | bytes, *, at_least: int | None = None, wait_ms: int = 0, partition: int | None = None
    ) -> ResultT:
        """Returns the last record of a key. Raises ProblemError `unknown_key` if the table does not have it.

        With `at_least`, an offset that a produce answer has, the read waits for this record for at most `wait_ms`.
        `partition` is for records that were sent to a partition by its number.
        """
        return self._call(_read_key(self._topic, key, at_least, wait_ms, partition))

    def page(self, positions: str | None = None) -> ResultT:
        """Returns a page of rows, from the `positions` of the last page on.

        Once a page is `complete`, its positions are for a later read of what has changed since.
        """
        query: dict[str, str | int] = {} if positions is None else {"positions": positions}
        return self._call(Request("GET", f"{topic_path(self._topic)}/table", query))


class AsyncTable(Table[Awaitable[Json]]):
    """The table of the async client."""

    async def items(self) -> AsyncIterator[Json]:
        """Yields the rows, each as `get` returns it. If a key comes twice, or deleted, its last row counts."""
        document: Json = {"complete": False}
        while not document["complete"]:
            document = await self.page(document.get("positions"))
            for row in document["rows"]:
                yield row


class SyncTable(Table[Json]):
    """The table of clients that return results."""

    def items(self) -> Iterator[Json]:
        """Yields the rows, as the async client does."""
        document: Json = {"complete": False}
        while not document["complete"]:
            document = self.page(document.get("positions"))
            yield from document["rows"]


def _read_key(topic: str, key: str | bytes, at_least: int | None, wait_ms: int, partition: int | None) -> Request:
    raw = key.encode() if isinstance(key, str) else key
    query: dict[str, str | int] = {"wait_ms": wait_ms} if wait_ms else {}
    given = {"at_least": at_least, "partition": partition}
    query |= {name: value for name, value in given.items() if value is not None}
    if raw in (b".", b".."):  # an HTTP client would resolve such a path
        query["key"], raw = "base64url", urlsafe_b64encode(raw).rstrip(b"=")
    return Request("GET", f"{topic_path(topic)}/table/{quote(raw, safe='')}", query)
