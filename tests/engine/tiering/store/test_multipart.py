"""Uploads in parts against real servers: continued after a failed part, exact after lost answers and conflicts."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from crc32c import crc32c

from engine.runtime.disk import RealDisk
from engine.tiering.shipping import upload
from engine.tiering.shipping.plan import Upload
from engine.tiering.shipping.upload import upload_segment
from engine.tiering.store import multipart, s3
from engine.tiering.store.store import ObjectExists, StoreUnavailable
from tests.engine.tiering.conftest import s3_store
from tests.engine.tiering.making import PREFIX, segment_bytes, write_segment

pytestmark = pytest.mark.slow
SIZE = (2 * (5 << 20)) + 1000  # three parts; S3 takes none below 5 MiB but the last


class Client:
    """A client that counts the calls of each operation, and fails or loses the answers of chosen ones."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls: list[str] = []
        self.faults: dict[tuple[str, int], tuple[bool, Exception]] = {}  # by operation and its call: is it executed?

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.calls.append(name)
            is_done, error = self.faults.pop((name, self.calls.count(name)), (True, None))
            answer = getattr(self.inner, name)(**arguments) if is_done else None
            if error is not None:
                raise error
            return answer

        return self.inner.get_paginator if name == "get_paginator" else call


LOST = EndpointConnectionError(endpoint_url="planted")


def answered(status: int, code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "planted")  # type: ignore[typeddict-item]


@pytest.fixture(params=["ministack", "moto"])
def open_again(request, monkeypatch) -> Callable[[], tuple[Any, Client]]:
    """Open one prefix as after a start of the process, without memory of uploads."""
    monkeypatch.setattr(multipart, "PART_BYTES", 5 << 20)
    monkeypatch.setattr(s3, "MULTIPART_BYTES_MIN", 5 << 20)
    first: Any = s3_store(request.getfixturevalue(f"{request.param}_endpoint"))

    def opened() -> tuple[Any, Client]:
        again = s3.S3Store(
            "bucket", first._prefix, new_id=os.urandom(8).hex, endpoint=first._endpoint, sleep=lambda _: None
        )
        client = Client(first._client)
        vars(again)["_opened"] = client
        return again, client

    return opened


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "segment"
    path.write_bytes(b"head" + os.urandom(SIZE))
    return path


def test_an_upload_continues_after_a_failed_part_and_a_restart(open_again, source):
    store, client = open_again()
    client.faults["upload_part", 3] = False, LOST  # the first call is the probe of checksums
    with pytest.raises(StoreUnavailable):
        store.put_file("k", str(source), start=4, size_bytes=SIZE, if_absent=True)
    assert store.head("k") is None
    store, client = open_again()
    assert [one.key for one in store.unfinished("k")] == ["k"]
    store.put_file("k", str(source), start=4, size_bytes=SIZE, if_absent=True)
    assert client.calls.count("create_multipart_upload") == 0
    assert client.calls.count("upload_part") == 1 + 2, "a probe, and the two parts that were missing"
    content = source.read_bytes()[4:]
    assert store.get("k") == content
    assert store.head("k").crc32c in (None, crc32c(content))
    assert not store.unfinished("")


def test_lost_answers_and_conflicts_of_a_completion_leave_the_object_whole(open_again, source):
    store, client = open_again()
    client.faults["complete_multipart_upload", 1] = True, answered(404, "NoSuchUpload")  # of a repeated request
    with pytest.raises(ObjectExists):
        store.put_file("lost", str(source), size_bytes=SIZE, if_absent=True)
    assert store.get("lost") == source.read_bytes()[:SIZE]
    client.faults["complete_multipart_upload", 2] = False, answered(409, "ConditionalRequestConflict")
    store.put_file("conflict", str(source), size_bytes=SIZE, if_absent=True)
    assert store.get("conflict") == source.read_bytes()[:SIZE]
    assert not store.unfinished("")


def test_an_unfinished_upload_is_aborted(open_again, source):
    store, client = open_again()
    client.faults["upload_part", 2] = False, LOST
    with pytest.raises(StoreUnavailable):
        store.put_file("k", str(source), size_bytes=SIZE)
    (unfinished,) = store.unfinished("")
    store.abort(unfinished)
    store.abort(unfinished)
    assert not store.unfinished("")


def test_the_upload_of_a_segment_continues_under_its_key(open_again, tmp_path, monkeypatch):
    monkeypatch.setattr(s3, "MULTIPART_BYTES_MIN", 500)
    monkeypatch.setattr(upload, "MULTIPART_BYTES_MIN", 500)
    segment = Upload(write_segment(tmp_path, segment_bytes(0)), 0)
    ids = iter("abc")
    store, client = open_again()
    client.faults["complete_multipart_upload", 1] = False, LOST
    with pytest.raises(StoreUnavailable):
        upload_segment(store, RealDisk(), PREFIX, segment, 1, ids.__next__)
    store, client = open_again()
    entry = upload_segment(store, RealDisk(), PREFIX, segment, 1, ids.__next__)
    assert entry.key == f"{PREFIX}{0:020d}-1-a.log"
    assert client.calls.count("upload_part") == 1, "the probe"
    assert crc32c(store.get(entry.key)) == entry.crc32c
    assert upload_segment(store, RealDisk(), PREFIX, segment, 1, ids.__next__).key.endswith("-c.log")
