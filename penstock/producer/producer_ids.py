"""The producer id for the records of a producer. Requested at first use, and shared by its partitions."""

from __future__ import annotations

import asyncio

from penstock.errors import IdempotenceUnavailable, ProblemError
from penstock.transport import api
from penstock.transport.attempts import Attempts

_UNKNOWN_HERE = frozenset({404, 405, 501})  # answers of nodes that have no producer ids


class ProducerIds:
    def __init__(self, attempts: Attempts, give_up_ms: int) -> None:
        self._attempts = attempts
        self._give_up_ms = give_up_ms
        self._in_flight: asyncio.Task[int] | None = None
        self._current: int | None = None

    def __repr__(self) -> str:
        return f"<ProducerIds {self._current}>"

    async def get(self, stale: int | None) -> int:
        """Returns an id other than `stale`; concurrent callers share one request.

        Raises IdempotenceUnavailable if the node has no producer ids, or the ClientError of the request.
        """
        if self._current is None or self._current == stale:
            if self._in_flight is None:
                self._in_flight = asyncio.get_running_loop().create_task(self._fetch())
                self._in_flight.add_done_callback(self._finish)
            return await asyncio.shield(self._in_flight)
        return self._current

    def _finish(self, task: asyncio.Task[int]) -> None:
        self._in_flight = None
        if not task.cancelled():
            task.exception()  # retrieved here, because all callers may have been cancelled meanwhile

    async def _fetch(self) -> int:
        try:
            answer = await self._attempts.send_with_retries(api.create_producer(), self._give_up_ms)
        except ProblemError as problem:
            if problem.status in _UNKNOWN_HERE:
                raise IdempotenceUnavailable(
                    f"the node has no producer ids ({problem}): it is an older release. With "
                    'idempotence="if_offered" or "off" records have no sequence, and a retry may store them twice'
                ) from problem
            raise
        self._current = int(answer.json()["producer_id"])
        return self._current
