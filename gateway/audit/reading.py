"""Reads the audit files of a node back from a position, the newest line first. Knows no event's meaning but its kind.

The files grow meanwhile, and the oldest may be removed: a position is a file's number and the end of a line in it, and
stays right. A line that is not a whole event is counted and left out: a crash has cut it off, or it is foreign.
Invariant: one call reads at most SCAN_BYTES_MAX.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import NamedTuple

import msgspec
from msgspec import Struct

from engine.errors import StorageFailed
from engine.format.paths import audit_file, audit_number
from engine.runtime.disk import Disk, FileKind
from gateway.audit.events import LINE_BYTES_MAX
from gateway.links.link import Handler, handler

TYPE = "penstock.audit.v1."
BLOCK_BYTES = 4 * LINE_BYTES_MAX
SCAN_BYTES_MAX = 4 * 1024 * 1024  # some 6,000 events; 20 ms of a thread


class AuditFilters(NamedTuple):
    """The conditions of an event that is shown. None and empty: any."""

    principal: str | None = None
    resource: str | None = None
    kinds: tuple[str, ...] = ()


class _Resource(Struct, frozen=True):
    kind: str | None = None


class _Data(Struct, frozen=True):
    principal: str | None = None
    resource: _Resource | None = None


class AuditEvent(Struct, frozen=True):
    """The members of an event that filters look at."""

    type: str
    time: str
    data: _Data
    subject: str | None = None


_EVENT = msgspec.json.Decoder(AuditEvent)


class AuditPage(Struct, frozen=True, array_like=True):
    """Events as their lines have them, the newest first.

    `next` is the position to go on at; None: there is nothing before. `odd` counts lines that hold no event.
    """

    is_recorded: bool
    events: list[str]
    next: tuple[int, int] | None = None
    odd: int = 0


def read_back(
    disk: Disk, directory: str, before: tuple[int, int] | None, limit: int, filters: AuditFilters
) -> AuditPage:
    """Returns the last events before a position; None: the newest. Raises OSError. Blocks."""
    events: list[str] = []
    odd = scanned = 0
    for number in sorted(filter(None, map(audit_number, disk.listdir(directory))), reverse=True):
        path = os.path.join(directory, audit_file(number))
        if (before is not None and number > before[0]) or disk.kind(path) is not FileKind.FILE:
            continue
        handle = disk.open(path)
        try:
            end = disk.size(handle)
            if before is not None and number == before[0]:
                end = min(end, before[1])
            for start, line in _lines_before(disk, handle, end):
                event = event_of(line) if line else None
                odd += bool(line) and event is None
                if event is not None and fits(event, filters):
                    events.append(line.decode())
                if len(events) >= limit or scanned + end - start >= SCAN_BYTES_MAX:
                    return AuditPage(True, events, (number, start), odd)
            scanned += end
        finally:
            disk.close(handle)
    return AuditPage(True, events, None, odd)


def _lines_before(disk: Disk, handle: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yields where each line before `end` begins, and the line, the last one first.

    Empty: the zeros of a spare file, or a part of what is longer than any line.
    """
    tail = b""  # of a line that begins in the block before
    while end > 0:
        begin = max(0, end - BLOCK_BYTES)
        block = disk.pread(handle, end - begin, begin) + tail
        stop = len(block)
        while stop and ((start := block.rfind(b"\n", 0, stop - 1) + 1) or begin == 0):
            yield begin + start, block[start:stop].strip(b"\0\r\n")
            stop = start
        tail, end = block[:stop], begin
        if len(tail) > LINE_BYTES_MAX:
            yield begin, b""
            tail = b""


class AuditAsked(Struct, frozen=True, array_like=True):
    """A page of the trail of the node that is asked."""

    before: tuple[int, int] | None
    limit: int
    filters: AuditFilters


class AuditReader:
    """The trail of this node, which any of its processes can read. `directory` is None if it is switched off."""

    def __init__(self, disk: Disk, executor: Executor, directory: str | None) -> None:
        self._disk, self._executor, self._directory = disk, executor, directory

    def __repr__(self) -> str:
        return f"AuditReader({self._directory})"

    async def read(self, asked: AuditAsked) -> AuditPage:
        """Returns a page, read in a thread. Raises StorageFailed."""
        if self._directory is None:
            return AuditPage(False, [])
        arguments = self._disk, self._directory, asked.before, asked.limit, asked.filters
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, read_back, *arguments)
        except OSError as error:
            raise StorageFailed(f"the audit trail cannot be read: {error.strerror}") from None


def audit_handlers(reader: AuditReader) -> dict[str, Handler]:
    """Returns the handlers of calls from other nodes."""

    async def audit_page(asked: AuditAsked, _: bytes) -> tuple[AuditPage, bytes]:
        return await reader.read(asked), b""

    return {"audit_page": handler(AuditAsked, audit_page)}


def event_of(text: bytes) -> AuditEvent | None:
    """Returns the event of a line; None: it is none of ours."""
    try:
        event = _EVENT.decode(text)
        text.decode()  # also of members that are skipped
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # the last for a foreign line of brackets
        return None
    return event if event.type.startswith(TYPE) else None


def fits(event: AuditEvent, filters: AuditFilters) -> bool:
    """Returns whether an event has what the filters ask for. A resource is `kind` or `kind/name`."""
    kind = None if event.data.resource is None else event.data.resource.kind
    return (
        (filters.principal is None or event.data.principal == filters.principal)
        and (filters.resource is None or filters.resource in (kind, event.subject))
        and (not filters.kinds or event.type.removeprefix(TYPE) in filters.kinds)
    )
