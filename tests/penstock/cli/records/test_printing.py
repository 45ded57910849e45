"""Records of a share group that were not accepted are given back, whatever ends the command."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cli.records.printing import ConsumeArguments, _print_queue
from penstock.closing import AsyncClosing
from penstock.consumer.group_member import GroupTerms
from penstock.consumer.work_queue import WorkRecord
from penstock.options import ClientOptions

FIRST, SECOND = WorkRecord(offset=0), WorkRecord(offset=1)


class InterruptedQueue(AsyncClosing):
    """Accepts the first records. Ctrl-C comes before the second are accepted."""

    def __init__(self) -> None:
        self.left = [[FIRST], [SECOND]]
        self.accepted: list[WorkRecord] = []
        self.given_back: list[WorkRecord] = []

    async def take(self, max_records: int) -> list[WorkRecord]:
        return self.left.pop(0)

    async def accept(self, records: list[WorkRecord]) -> list[WorkRecord]:
        if not self.left:
            raise asyncio.CancelledError
        self.accepted += records
        return []

    async def give_back(self, records: list[WorkRecord]) -> None:
        self.given_back += records

    async def close(self) -> None: ...


async def test_an_interrupt_gives_back_what_was_not_accepted(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    queue = InterruptedQueue()
    client = cast(Any, SimpleNamespace(work_queue=lambda terms, options: queue))
    wanted = ConsumeArguments("t", "earliest", (), is_following=True, records_max=None, form="values")
    with pytest.raises(asyncio.CancelledError):
        await _print_queue(client, wanted, GroupTerms("g", ("t",), "m"), ClientOptions())
    assert (queue.accepted, queue.given_back) == ([FIRST], [SECOND])
    assert capfdbinary.readouterr().out == b"null\nnull\n"
