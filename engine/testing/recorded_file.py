"""A file's bytes that remember what a power loss may take from them.

Not a Disk, nor the entry under which the file is found (engine/testing/recorded_tree.py).
engine/testing/crash_states.py chooses among the possible states.

Possible is all that POSIX allows, which is more than any one file system does. Bytes and size are certain as of the
last sync. Every 4 KiB page changed since then may be on the disk as it was at the sync or after any one change to it,
each page independently; bytes that the file did not have at the sync count as zeros. The size may be that of the sync,
any size since, or a page boundary that a growing write went through. So a tail can be short, zero-filled, stale or
torn.

Invariants: `visible` is what a running process sees; after a sync `durable` equals it.
"""

from __future__ import annotations

PAGE_BYTES = 4096


class RecordedFile:
    """One file's bytes: as seen, as certain, and the page versions and sizes in between."""

    def __init__(self, content: bytes = b"", modified_ms: int = 0) -> None:
        self.visible = bytearray(content)
        self.durable = bytearray(content)
        self.modified_ms = modified_ms
        self.last_changed_pages = range(0)
        self._versions: dict[int, list[bytes]] = {}
        self._sizes: list[int] = []

    def __repr__(self) -> str:
        return f"RecordedFile({len(self.visible)} bytes, {len(self._versions)} unsynced pages)"

    def write(self, data: bytes, position: int) -> None:
        before = len(self.visible)
        end = position + len(data)
        if position > before:
            self.visible += bytes(position - before)
        self.visible[position:end] = data
        if end > before:
            self._sizes += range(_page_start(before) + PAGE_BYTES, end, PAGE_BYTES)
            self._sizes.append(end)
        self._record_pages(position, end)

    def truncate(self, size_bytes: int) -> None:
        before = len(self.visible)
        del self.visible[size_bytes:]
        self.visible += bytes(size_bytes - len(self.visible))
        self._sizes.append(size_bytes)
        self._record_pages(min(size_bytes, before), before)

    def sync(self) -> None:
        """Makes these bytes and this size durable, as fdatasync does. Its directory entry may still be lost."""
        size_bytes = len(self.visible)
        if len(self.durable) > size_bytes:
            del self.durable[size_bytes:]
        self.durable += bytes(size_bytes - len(self.durable))
        for page in self._versions:
            self.durable[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = self._visible_page(page)
        self._versions.clear()
        self._sizes.clear()
        assert self.durable == self.visible

    @property
    def has_unsynced(self) -> bool:
        return bool(self._versions or self._sizes)

    def possible_sizes(self) -> list[int]:
        """Returns every size that a power loss may leave: the certain one first, the visible one last."""
        others = dict.fromkeys(size for size in self._sizes if size != len(self.visible))
        return list(dict.fromkeys([len(self.durable), *others, len(self.visible)]))

    def possible_pages(self, size_bytes: int) -> dict[int, list[bytes]]:
        """Returns the possible contents of each unsynced page below a size: the certain first, the visible last."""
        return {
            page: list(dict.fromkeys([self._durable_page(page), *map(_padded, versions)]))
            for page, versions in self._versions.items()
            if page * PAGE_BYTES < size_bytes
        }

    def content(self, size_bytes: int, pages: dict[int, bytes]) -> bytes:
        """Returns the file at one of its possible sizes, with these pages in place of the certain ones."""
        content = self.durable[:size_bytes]
        content += bytes(size_bytes - len(content))
        for page, data in pages.items():
            start = page * PAGE_BYTES
            content[start : start + PAGE_BYTES] = data[: size_bytes - start]
        assert len(content) == size_bytes
        return bytes(content)

    def _record_pages(self, start: int, end: int) -> None:
        self.last_changed_pages = range(start // PAGE_BYTES, -(-end // PAGE_BYTES))
        for page in self.last_changed_pages:
            self._versions.setdefault(page, []).append(self._visible_page(page))

    def _visible_page(self, page: int) -> bytes:
        return bytes(self.visible[page * PAGE_BYTES : (page + 1) * PAGE_BYTES])

    def _durable_page(self, page: int) -> bytes:
        return _padded(bytes(self.durable[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]))


def _page_start(position: int) -> int:
    return position - position % PAGE_BYTES


def _padded(page: bytes) -> bytes:
    return page + bytes(PAGE_BYTES - len(page))
