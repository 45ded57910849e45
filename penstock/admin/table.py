"""A compacted topic as a table: the last record of a key."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Generic, TypeVar
from urllib.parse import quote

from penstock.transport.api import topic_path
from penstock.transport.exchange import Request

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
        """Return the last record of a key. Raises ProblemError `unknown_key` if the table does not have it.

        With `at_least`, an offset that a produce answer has, the read waits for this record for at most `wait_ms`.
        `partition` is for records that were sent to a partition by its number.
        """
        return self._call(_read_key(self._topic, key, at_least, wait_ms, partition))


def _read_key(topic: str, key: str | bytes, at_least: int | None, wait_ms: int, partition: int | None) -> Request:
    raw = key.encode() if isinstance(key, str) else key
    query: dict[str, str | int] = {"wait_ms": wait_ms} if wait_ms else {}
    given = {"at_least": at_least, "partition": partition}
    query |= {name: value for name, value in given.items() if value is not None}
    if raw in (b".", b".."):  # an HTTP client would resolve such a path
        query["key"], raw = "base64url", urlsafe_b64encode(raw).rstrip(b"=")
    return Request("GET", f"{topic_path(topic)}/table/{quote(raw, safe='')}", query)
