"""The consumer of a topic without an event loop: the asynchronous one, whose calls run in the client's thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Self

from penstock.closing import Closing
from penstock.consumer.consumer import Consumer as AsyncConsumer
from penstock.consumer.event_stream import EventStream as AsyncEventStream
from penstock.errors import ClientClosed
from penstock.records import Record


class EventStream(Closing):
    """Returns the records of an event stream."""

    def __init__(self, stream: AsyncEventStream, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._stream = stream
        self._run = run

    def __repr__(self) -> str:
        return f"<sync {self._stream!r}>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        return self._run(self._stream.next())  # type: ignore[no-any-return]

    @property
    def position(self) -> str:
        return self._stream.position

    def close(self) -> None:
        with contextlib.suppress(ClientClosed):  # closing the client has closed it
            self._run(self._stream.close())


class Consumer(Closing):
    """Returns records. Wakes the loop's thread once per list of records, not for each record."""

    def __init__(self, consumer: AsyncConsumer, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._consumer = consumer
        self._run = run

    def __repr__(self) -> str:
        return f"<sync {self._consumer!r}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        record = self._consumer.next_nowait() or self._run(self._consumer.next())
        if record is None:
            raise StopIteration
        return record

    def start(self) -> None:
        self._run(self._consumer.start())

    def poll(self, timeout_ms: int | None = None) -> list[Record]:
        return self._run(self._consumer.poll(timeout_ms))  # type: ignore[no-any-return]

    def positions(self) -> dict[int, int]:
        return self._consumer.positions()

    @property
    def topic_id(self) -> str | None:
        return self._consumer.topic_id

    @property
    def is_at_end(self) -> bool:
        return self._consumer.is_at_end

    def close(self) -> None:
        with contextlib.suppress(ClientClosed):  # closing the client has closed it
            self._run(self._consumer.close())
