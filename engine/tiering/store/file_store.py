"""An object store in a directory: `file://`, the embedded default, and the reference twin of S3 in the tests.

Keys are paths below the root, and never lead out of it (engine/tiering/store/file_tree.py).

A create is atomic and durable: the bytes go to a temporary file in `<root>/.penstock-tmp/`, which no listing shows; it
is fsynced, hard-linked to its final name (which fails if that exists, for any concurrent writer), and the directory is
fsynced. So an object is whole or absent at every instant, after a power loss too.

That directory has the identity of the store, made by its first write. A process remembers it, and a node over its
starts: where it is missing or another one, the file system is not mounted. Then nothing is written or removed, and no
object counts as absent.

Differs from S3 in one thing that our names never need: a key cannot be both an object and the beginning of another's.
This file and file_tree.py are a door of their own to the operating system; engine/runtime/disk.py is the log's.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import mmap
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from urllib.parse import quote

from crc32c import crc32c

from engine.errors import NO_SPACE, Invalid
from engine.tiering.store.file_tree import ABSENT, FileTree, Path, is_name
from engine.tiering.store.store import (
    NoSuchObject,
    NotMounted,
    ObjectExists,
    ObjectInfo,
    StoreUnavailable,
    StoreUnusable,
    UnfinishedUpload,
    check_guarantees,
)

log = logging.getLogger("penstock.tiering")

TEMPORARY = ".penstock-tmp"
IDENTITY = "identity"  # within TEMPORARY
_IDENTITY_BYTES_MAX = 256
_ABANDONED_AFTER_NS = 24 * 3600 * 10**9  # far longer than any upload takes
_ID_DIGITS_MIN = 32
_COPY_BYTES = 1 << 20
_PLACE_ATTEMPTS = 5  # a concurrent delete may remove an empty directory meanwhile
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # NONBLOCK: a FIFO put there must not block us
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Fill = Callable[[int], int | None]  # writes an object's bytes to an open file


class FileStore:
    """Objects as files. Safe for threads, and for processes that share the directory."""

    def __init__(self, root: str, *, new_id: Callable[[], str], identity: str = "") -> None:
        self._tree = FileTree(root)
        self._new_id = new_id
        self._identity = identity  # empty until it is read

    def __repr__(self) -> str:
        return f"<FileStore {self._tree.root}>"

    @property
    def url(self) -> str:
        return f"file://{quote(self._tree.root)}"

    @property
    def checks_uploads(self) -> bool:
        return False  # a file system has no checksum

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        self._store(key, lambda handle: _write_all(handle, data), if_absent)

    def put_file(
        self, key: str, path: str, *, size_bytes: int, start: int = 0, crc32: int | None = None, if_absent: bool = False
    ) -> int | None:
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self._store(key, lambda handle: _copy(source, handle, start, size_bytes, crc32), if_absent)
        finally:
            os.close(source)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Reads a file, or a range of it. Raises NoSuchObject."""
        assert end is None or (start or 0) < end, "the range is empty"
        with _map_errors("read", key), self._open_object(_parts_of(key)) as handle:
            if handle is None:
                self._check_mounted()
                raise NoSuchObject(f"no object {key} in {self.url}")
            size_bytes = os.fstat(handle).st_size
            return _read_range(handle, start or 0, size_bytes if end is None else min(end, size_bytes))

    def head(self, key: str) -> ObjectInfo | None:
        with _map_errors("head", key), self._open_object(_parts_of(key)) as handle:
            if handle is not None:
                return _info(key, os.fstat(handle))
            self._check_mounted()
            return None

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        with _map_errors("list", prefix):
            self._check_mounted()
            yield from self._walk(prefix[: prefix.rfind("/") + 1], prefix, start_after)
            self._check_mounted()  # an early end is not the end

    def list_prefixes(self, prefix: str) -> Sequence[str]:
        directory = prefix[: prefix.rfind("/") + 1]
        with _map_errors("list", prefix):
            self._check_mounted()
            entries = self._entries(directory, "", lambda key: key.endswith("/") and key.startswith(prefix))
            prefixes = [key for key, _ in entries if next(self._walk(key, key, ""), None)]
            self._check_mounted()
            return prefixes

    def delete(self, key: str) -> None:
        parts = _parts_of(key)
        with _map_errors("delete", key):
            self._check_mounted()
            with self._tree.open_directory(parts[:-1]) as parent:
                if parent is None:
                    return
                with suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(parts[-1], dir_fd=parent)
            self._tree.prune(parts[:-1])

    def unfinished(self, prefix: str) -> Sequence[UnfinishedUpload]:
        """Returns nothing: a put is whole or absent here."""
        return ()

    def abort(self, upload: UnfinishedUpload) -> None:
        """No-op: there is no unfinished upload."""

    def probe(self) -> str:
        """Remove abandoned temporary files and check atomic creates (`check_guarantees`). Raises StoreUnusable."""
        try:
            with _map_errors("open", self._tree.root):
                self._check_mounted()
                self._drop_abandoned()
            check_guarantees(self, self._new_id())
        except NotMounted:
            raise
        except StoreUnavailable as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in NO_SPACE:
                log.warning("the store is full: uploads continue once it has space", extra={"store": self.url})
                return self._identity  # every put fails until then, and each calls link(), which the promises rest on
            raise StoreUnusable(error.detail, hint="the directory must be writable and allow hard links") from error
        return self._identity

    # Writing

    def _store(self, key: str, fill: Fill, if_absent: bool) -> int | None:
        parts = _parts_of(key)
        with _map_errors("write", key), self._temporary() as temporary:
            name = self._new_id()
            try:
                filled = _create(temporary, name, fill)
                self._place(temporary, name, parts, if_absent)
                return filled
            except FileExistsError as error:
                raise ObjectExists(f"{key} exists in {self.url}") from error
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=temporary)

    @contextmanager
    def _temporary(self) -> Iterator[int]:
        """Opens the directory of temporary files; the first write of a store makes it, with an identity."""
        self._check_mounted()
        with self._tree.create_and_open((TEMPORARY,)) as temporary:
            if not self._identity:
                name = self._new_id()
                try:
                    _create(temporary, name, lambda handle: _write_all(handle, f"{name}\n".encode()))
                    with suppress(FileExistsError):  # another process was quicker
                        os.link(name, IDENTITY, src_dir_fd=temporary, dst_dir_fd=temporary, follow_symlinks=False)
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=temporary)
                os.fsync(temporary)
                self._check_mounted()
            yield temporary

    def _check_mounted(self) -> None:
        """Raises StoreUnavailable if the directory is not the store that this process or its node has used."""
        identity = self._read_identity()
        if self._identity and identity != self._identity:
            fault = "has another identity than" if identity else "is not"
            text = f"{self._tree.root} {fault} the store that was used before"
            raise NotMounted(text, hint="mount its file system")
        self._identity = identity

    def _read_identity(self) -> str:
        try:
            handle = os.open(f"{self._tree.root}/{TEMPORARY}/{IDENTITY}", _READ)
        except OSError as error:
            if error.errno in ABSENT:
                return ""
            raise
        try:
            identity = os.read(handle, _IDENTITY_BYTES_MAX).decode("ascii", "replace").strip()
        finally:
            os.close(handle)
        if not identity.isprintable() or not identity or " " in identity:
            file = f"{self._tree.root}/{TEMPORARY}/{IDENTITY}"
            raise NotMounted(f"{file} has no identity", hint="remove this file if the directory is the store")
        return identity

    def _place(self, temporary: int, name: str, parts: Path, if_absent: bool) -> None:
        for attempt in range(_PLACE_ATTEMPTS):
            try:
                with self._tree.create_and_open(parts[:-1]) as parent:
                    if if_absent:
                        os.link(name, parts[-1], src_dir_fd=temporary, dst_dir_fd=parent, follow_symlinks=False)
                    else:
                        os.replace(name, parts[-1], src_dir_fd=temporary, dst_dir_fd=parent)
                    os.fsync(parent)
            except FileNotFoundError:
                if attempt + 1 == _PLACE_ATTEMPTS:
                    raise
            else:
                return

    def _drop_abandoned(self) -> None:
        """Removes temporary files of dead processes, aged by the file system's own clock."""
        with self._temporary() as temporary:
            fresh = self._new_id()
            _create(temporary, fresh, lambda _: None)
            now_ns = os.stat(fresh, dir_fd=temporary).st_mtime_ns
            for name in filter(_is_temporary, os.listdir(temporary)):
                with suppress(FileNotFoundError, IsADirectoryError):
                    written_ns = os.stat(name, dir_fd=temporary, follow_symlinks=False).st_mtime_ns
                    if name != fresh and now_ns - written_ns > _ABANDONED_AFTER_NS:
                        os.unlink(name, dir_fd=temporary)
            os.unlink(fresh, dir_fd=temporary)

    # Reading

    @contextmanager
    def _open_object(self, parts: Path) -> Iterator[int | None]:
        """A handle on an object; None for anything but a plain file."""
        with self._tree.open_directory(parts[:-1]) as parent:
            handle = None if parent is None else _open_file(parts[-1], parent)
            try:
                is_file = handle is not None and stat.S_ISREG(os.fstat(handle).st_mode)
                yield handle if is_file else None
            finally:
                if handle is not None:
                    os.close(handle)

    def _walk(self, directory: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        for key, info in self._entries(directory, start_after, lambda key: _may_hold(key, prefix, start_after)):
            if info is None:
                yield from self._walk(key, prefix, start_after)
            else:
                yield info

    def _entries(
        self, directory: str, start_after: str, is_wanted: Callable[[str], bool]
    ) -> Sequence[tuple[str, ObjectInfo | None]]:
        """Returns keys, those of directories with "/" and without information."""
        path = _parts_of(directory[:-1]) if directory else ()
        skipped = "" if directory else TEMPORARY + "/"
        first = start_after[len(directory) :].partition("/")[0] if start_after.startswith(directory) else ""
        entries = self._tree.entries(path, lambda name: name != skipped and is_wanted(directory + name), first)
        return [
            (directory + name, None if status is None else _info(directory + name, status)) for name, status in entries
        ]


def _is_temporary(name: str) -> bool:
    """True if a temporary file of ours can have this name; `new_id` gives hexadecimal digits."""
    return len(name) >= _ID_DIGITS_MIN and set(name) <= set("0123456789abcdef")


def _parts_of(key: str) -> Path:
    parts = tuple(key.split("/"))
    if not all(map(is_name, parts)) or parts[0] == TEMPORARY:
        raise Invalid(f"{key!r} cannot be an object's key in a directory")
    return parts


def _may_hold(key: str, prefix: str, start_after: str) -> bool:
    """True if a key begins with `prefix` and is greater than `start_after`, or a directory can hold such keys."""
    if not key.endswith("/"):
        return key.startswith(prefix) and key.encode() > start_after.encode()
    if not (key.startswith(prefix) or prefix.startswith(key)):
        return False
    return key.encode() > start_after.encode() or start_after.startswith(key)


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000)


def _open_file(name: str, parent: int) -> int | None:
    try:
        return os.open(name, _READ, dir_fd=parent)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise


def _create(directory: int, name: str, fill: Fill) -> int | None:
    handle = os.open(name, _CREATE, 0o640, dir_fd=directory)
    try:
        filled = fill(handle)
        os.fsync(handle)
        return filled
    finally:
        os.close(handle)


def _read_range(handle: int, first: int, last: int) -> bytes:
    parts: list[bytes] = []
    while first < last and (part := os.pread(handle, last - first, first)):
        parts.append(part)
        first += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write_all(handle: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(handle, view) :]
        except OSError as error:  # a direct write writes whole blocks only, which the end of a file is not
            if error.errno != errno.EINVAL or not _end_direct(handle):
                raise


def _copy(source: int, target: int, start: int, size_bytes: int, crc32: int | None) -> int:
    """Copies past the page cache: a new object is seldom read soon, and its pages cost more CPU than the write.

    Returns the CRC-32C of the written bytes.
    """
    end = start + size_bytes
    seen = checksum = 0
    _begin_direct(target)
    # A direct write needs whole pages. They are not closed here: the traceback of a failed write still refers to them,
    # and closing them then would hide its error.
    buffer = memoryview(mmap.mmap(-1, _COPY_BYTES))
    for position in range(start, end, _COPY_BYTES):
        part = buffer[: end - position]
        _read_source(source, part, position)
        if crc32 is not None:
            seen = zlib.crc32(part, seen)
        checksum = crc32c(part, checksum)
        _write_all(target, part)
    if crc32 is not None and seen != crc32:
        raise StoreUnavailable(f"the bytes to store have CRC-32 {seen:#010x}, not {crc32:#010x}")
    return checksum


def _begin_direct(handle: int) -> None:
    """Writes past the page cache from now on, if the file system can."""
    try:
        fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def _end_direct(handle: int) -> bool:
    """Writes through the page cache again. Returns False if it did so already."""
    flags = fcntl.fcntl(handle, fcntl.F_GETFL)
    fcntl.fcntl(handle, fcntl.F_SETFL, flags & ~os.O_DIRECT)
    return flags & os.O_DIRECT != 0


def _read_source(source: int, part: memoryview, position: int) -> None:
    done = 0
    try:
        while done < len(part) and (read := os.preadv(source, [part[done:]], position + done)):
            done += read
    except OSError as error:
        raise _SourceFailed(error.errno, error.strerror) from error
    if done != len(part):
        raise _SourceFailed(errno.EIO, f"the file ends before byte {position + len(part)}")


class _SourceFailed(OSError):
    """The local file, not the store, has failed."""


@contextmanager
def _map_errors(verb: str, key: str) -> Iterator[None]:
    """Maps the system's errors to the store's; the text names the operation."""
    what = f"cannot {verb} {key or 'the store'}"
    try:
        yield
    except _SourceFailed:
        raise
    except OSError as error:
        raise StoreUnavailable(f"{what}: {error.strerror or error}") from error
