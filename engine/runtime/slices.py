"""Iterates over many items on the event loop in slices, so that other tasks run in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

SLICE = 100  # of items of up to some tens of microseconds each: a few milliseconds


async def in_slices(things: Iterable[T]) -> AsyncIterator[T]:
    """Yields each item. The iterable must not change meanwhile."""
    for count, thing in enumerate(things, 1):
        yield thing
        if count % SLICE == 0:
            await asyncio.sleep(0)
