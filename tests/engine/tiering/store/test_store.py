"""Opening stores by URL, and errors that only a directory can have."""

import errno
import fcntl
import os
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from engine.errors import Invalid
from engine.testing.memory_store import MemoryStore
from engine.tiering.store import file_store as file_store_module
from engine.tiering.store.file_store import IDENTITY, TEMPORARY, FileStore
from engine.tiering.store.store import (
    PROBE_PREFIX,
    NoSuchObject,
    NotMounted,
    ObjectStore,
    StoreUnavailable,
    StoreUnusable,
    open_store,
)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/a/path",
        "ftp://x",
        "file://relative/path",
        "file:///a?b=c",
        "s3://",
        "s3:///prefix",
        "s3://b?acl=x",
        "s3://u:p@b",
        "s3://b?sse=none",
        "s3://b?sse=AES256&kms_key=k",
        "s3://b?bucket_key=true",
        "s3://b?sse=aws:kms&bucket_key=false",
    ],
)
def test_an_url_that_is_no_store_is_refused_with_a_hint(url):
    with pytest.raises(StoreUnusable) as raised:
        open_store(url)
    assert raised.value.hint
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("s3://", "names no bucket"),
        ("s3://b?regoin=x", "unknown options: regoin"),
        ("s3://me:secret@b?x=1", "has credentials in its URL"),
    ],
)
def test_a_refused_s3_url_is_refused_with_what_is_wrong_in_it(url, fault):
    with pytest.raises(StoreUnusable, match=fault) as raised:
        open_store(url)
    assert "secret" not in str(raised.value)


def test_an_url_may_have_escaped_characters(tmp_path):
    store = open_store(f"file://{tmp_path}/with%20space%23")
    store.put("k", b"v")
    assert (tmp_path / "with space#" / "k").read_bytes() == b"v"
    assert open_store(store.url).get("k") == b"v"


def test_an_s3_url_keeps_its_parts_and_no_more():
    url = "s3://bucket/a/b?endpoint=http://127.0.0.1:9000&region=eu-west-1"
    assert open_store(url).url == url
    assert open_store("s3://bucket/").url == "s3://bucket"
    encrypted = "s3://bucket?sse=aws:kms&kms_key=arn:aws:kms:eu-west-1:111122223333:key/1a2b&bucket_key=true"
    assert open_store(encrypted).url == encrypted


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "..", "a/../b", ".", "a\0b", f"{TEMPORARY}/x", "x" * 256])
def test_a_key_that_leads_elsewhere_is_refused(file_store, key):
    for use in (file_store.get, file_store.head, file_store.delete, lambda one: file_store.put(one, b"")):
        with pytest.raises(Invalid):
            use(key)


@pytest.mark.parametrize("size_bytes", [0, 1, 4096, 1 << 20, (1 << 20) + 5, 3 << 20])
@pytest.mark.parametrize("refused", ["nothing", "the flag", "the write"])
def test_a_file_of_any_size_is_copied_with_and_without_direct_writes(
    tmp_path, monkeypatch, size_bytes, refused
) -> None:
    real_fcntl, real_write = fcntl.fcntl, os.write

    def without_flag(handle: int, command: int, flags: int = 0) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real_fcntl(handle, command, flags)

    def without_direct_write(handle: int, data: bytes) -> int:
        if real_fcntl(handle, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real_write(handle, data)

    source = tmp_path / "source"
    source.write_bytes(os.urandom(size_bytes + 3))
    store = open_store(f"file://{tmp_path}/store")
    with monkeypatch.context() as patched:
        if refused == "the flag":
            patched.setattr(fcntl, "fcntl", without_flag)
        if refused == "the write":
            patched.setattr(os, "write", without_direct_write)
        written = store.put_file("k", str(source), start=3, size_bytes=size_bytes)
    assert store.get("k") == source.read_bytes()[3:]
    assert written == crc32c(source.read_bytes()[3:])


def test_too_few_file_handles_are_a_failure_that_passes(tmp_path, monkeypatch):
    """For any open of any operation: it is never taken for a missing object, and no handle is leaked."""
    source = tmp_path / "source"
    source.write_bytes(b"data")
    real_open, left = os.open, [0]

    def short_of_handles(*args: Any, **kwargs: Any) -> int:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real_open(*args, **kwargs)

    operations: dict[str, Callable[[ObjectStore], object]] = {
        "put": lambda store: store.put("new/k", b"v", if_absent=True),
        "put_file": lambda store: store.put_file("new/f", str(source), size_bytes=4, if_absent=True),
        "get": lambda store: store.get("a/k"),
        "head": lambda store: store.head("a/k"),
        "list": lambda store: [one.key for one in store.list("a/")],
        "list_prefixes": lambda store: store.list_prefixes(""),
        "delete": lambda store: store.delete("a/b/k"),
    }
    for name, operation in operations.items():
        failures = 0
        while True:
            store = open_store(f"file://{tmp_path}/{name}-{failures}")
            for key in ("a/k", "a/b/k"):
                store.put(key, b"v")
            expected = operation(open_store(store.url)) if name not in ("put", "put_file", "delete") else None
            expected = crc32c(source.read_bytes()) if name == "put_file" else expected
            handles = len(os.listdir("/proc/self/fd"))
            left[0] = failures + 1
            with monkeypatch.context() as patched:
                patched.setattr(os, "open", short_of_handles)
                try:
                    assert operation(store) == expected
                    break
                except StoreUnavailable as error:
                    is_retried = error.retryable
                except OSError as error:  # an error of the file to store, not of the store
                    is_retried = (name, error.errno) == ("put_file", errno.EMFILE)
            assert is_retried, (name, failures)
            assert len(os.listdir("/proc/self/fd")) == handles, (name, failures)
            operation(store)
            failures += 1
        assert failures > 1, name


def test_links_inside_the_root_are_neither_followed_nor_listed(file_store, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    file_store.put("k", b"v")
    root = tmp_path / "store"
    (root / "directory").symlink_to(tmp_path / "outside")
    (root / "file").symlink_to(tmp_path / "outside" / "secret")
    os.mkfifo(root / "pipe")
    for key in ("directory/secret", "file", "pipe"):
        with pytest.raises(NoSuchObject):
            file_store.get(key)
        assert file_store.head(key) is None
    assert [one.key for one in file_store.list("")] == ["k"]
    with pytest.raises(StoreUnavailable):
        file_store.put("directory/new", b"")
    assert [*(tmp_path / "outside").iterdir()] == [tmp_path / "outside" / "secret"]


def test_temporary_files_are_not_objects_and_abandoned_ones_go(tmp_path, new_id):
    temporary = tmp_path / TEMPORARY
    temporary.mkdir()
    young, foreign = "a" * 32, "notes of another program"
    for name, age_seconds in {"b" * 32: 25 * 3600, young: 3600, foreign: 25 * 3600}.items():
        (temporary / name).write_bytes(b"")
        moment = (temporary / name).stat().st_mtime - age_seconds
        os.utime(temporary / name, (moment, moment))
    store = FileStore(str(tmp_path), new_id=new_id)
    assert [*store.list("")] == []
    store.probe()
    assert {one.name for one in temporary.iterdir()} == {young, foreign, IDENTITY}


def test_a_failed_put_leaves_neither_object_nor_temporary_file(file_store, tmp_path, monkeypatch):
    def refuse(handle: int) -> None:
        raise OSError(28, "No space left on device")

    file_store.put("k", b"v")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(StoreUnavailable, match="No space left"):
            file_store.put("another", b"v")
    assert [one.key for one in file_store.list("")] == ["k"]
    assert [one.name for one in (tmp_path / "store" / TEMPORARY).iterdir()] == [IDENTITY]


def test_deleting_the_last_object_removes_its_directories(file_store, tmp_path):
    file_store.put("a/b/c/d", b"")
    file_store.put("a/x", b"")
    file_store.delete("a/b/c/d")
    assert sorted(one.name for one in (tmp_path / "store" / "a").iterdir()) == ["x"]
    file_store.put("a/b/c/d", b"again", if_absent=True)
    assert file_store.get("a/b/c/d") == b"again"


def test_a_root_that_cannot_be_created_is_reported_by_probe(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for url in (f"file://{tmp_path}/file", f"file://{tmp_path}/file/below"):
        with pytest.raises(StoreUnusable, match="must be writable"):
            open_store(url).probe()


def test_a_list_from_a_key_on_looks_at_the_objects_behind_it_only(file_store, monkeypatch):
    """A commit lists from its own manifest on, in a directory that may hold 10,000 earlier ones."""
    for number in range(50):
        file_store.put(f"c/t/{number:03}", b"x")
    looked_at: list[str] = []
    info = file_store_module._info
    monkeypatch.setattr(file_store_module, "_info", lambda key, found: looked_at.append(key) or info(key, found))
    assert [one.key for one in file_store.list("c/t/", "c/t/048")] == ["c/t/049"]
    assert looked_at == ["c/t/049"]


def test_a_probe_removes_what_probes_of_killed_processes_left():
    store = MemoryStore()
    store.put(f"{PROBE_PREFIX}dead", b"x")
    store.now_ms += 2 * 3600 * 1000
    store.put(f"{PROBE_PREFIX}under-way", b"x")
    store.probe()
    assert [one.key for one in store.list("")] == [f"{PROBE_PREFIX}under-way"]


USES: dict[str, Callable[[ObjectStore], object]] = {
    "put": lambda store: store.put("a/c", b"2"),
    "get": lambda store: store.get("a/b"),
    "head": lambda store: store.head("a/b"),
    "list": lambda store: list(store.list("a/")),
    "list_prefixes": lambda store: store.list_prefixes(""),
    "delete": lambda store: store.delete("a/b"),
}


@pytest.mark.parametrize("started", ["before", "remembers", "reads only"])
@pytest.mark.parametrize("below", ["nothing", "another store"])
def test_of_a_store_that_is_not_mounted_nothing_is_absent_and_nothing_is_written(tmp_path, started, below):
    """Also if a process without a memory has started on the bare mount point, and made a store of its own there."""
    mounted, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    store = open_store(mounted.as_uri())
    identity = store.probe()
    store.put("a/b", b"1")
    if started == "remembers":
        store = open_store(mounted.as_uri(), identity=identity)
    if started == "reads only":
        store = open_store(mounted.as_uri())
        assert store.head("a/x") is None
    mounted.rename(elsewhere)
    mounted.mkdir()
    if below == "another store":
        assert open_store(mounted.as_uri()).probe() not in ("", identity)
    files = sorted(mounted.rglob("*"))
    for use in (*USES.values(), lambda store: store.probe()):
        with pytest.raises(NotMounted) as raised:
            use(store)
        assert raised.value.hint == "mount its file system"
    assert sorted(mounted.rglob("*")) == files
    mounted.rename(tmp_path / "bare")
    elsewhere.rename(mounted)
    store.put("a/c", b"2")
    assert [info.key for info in store.list("a/")] == ["a/b", "a/c"]


def test_a_store_that_goes_away_during_a_list_ends_it_with_an_error(tmp_path):
    mounted = tmp_path / "store"
    store = open_store(mounted.as_uri())
    for key in ("a/1", "b/1"):
        store.put(key, b"1")
    listed = store.list("")
    assert next(listed).key == "a/1"
    mounted.rename(tmp_path / "elsewhere")
    mounted.mkdir()
    with pytest.raises(NotMounted):
        list(listed)


@pytest.mark.parametrize("text", [b"", b"two words\n", b"\x01\n"])
def test_an_identity_that_is_none_is_refused_with_its_file(tmp_path, text):
    store = open_store((tmp_path / "store").as_uri())
    store.put("a/b", b"1")
    file = tmp_path / "store" / TEMPORARY / IDENTITY
    file.write_bytes(text)
    with pytest.raises(NotMounted, match=f"{file} has no identity"):
        open_store((tmp_path / "store").as_uri()).put("a/c", b"2")
    file.unlink()
    open_store((tmp_path / "store").as_uri()).put("a/c", b"2")


def test_a_store_that_gets_no_identity_keeps_no_temporary_file(tmp_path, monkeypatch):
    store = open_store((tmp_path / "store").as_uri())

    def fail(*_args, **_options):
        raise OSError(errno.ENOSPC, "planted")

    monkeypatch.setattr(os, "link", fail)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            store.put("a/b", b"1")
    assert list((tmp_path / "store" / TEMPORARY).iterdir()) == []
