"""The S3 module's handling of lost answers, conflicts, cut bodies and servers that break their promises."""

from collections.abc import Iterator

import pytest

from engine.tiering.store import s3
from engine.tiering.store.s3 import S3Store
from engine.tiering.store.store import NoSuchObject, ObjectExists, StoreUnavailable, StoreUnusable, open_store
from tests.engine.tiering.fake_s3 import (
    CONFLICT,
    CUT,
    FORBIDDEN,
    LOST,
    NO_BUCKET,
    NO_CHECKSUMS,
    SKEWED,
    SLOW_DOWN,
    FakeS3,
    served,
)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)


@pytest.fixture
def fake() -> Iterator[FakeS3]:
    with served(FakeS3()) as one:
        yield one


@pytest.fixture
def door(fake, new_id) -> S3Store:
    return S3Store("bucket", endpoint=fake.url.partition("endpoint=")[2], new_id=new_id, sleep=lambda seconds: None)


def test_a_store_that_ignores_conditions_is_refused_by_probe(new_id):
    with served(FakeS3(ignores_conditions=True)) as fake:
        with pytest.raises(StoreUnusable, match=r"ignores If-None-Match.*use a store with conditional writes"):
            open_store(fake.url, new_id=new_id).probe()
        assert fake.objects == {}, "the probe cleans up"


def test_a_create_whose_answer_was_lost_is_a_success(fake, door):
    fake.faults = [LOST]
    door.put("k", b"mine", if_absent=True)
    assert fake.objects["k"][0] == b"mine"
    assert fake.requests == ["PUT", "PUT", "HEAD"]


def test_a_create_that_met_anothers_object_after_a_lost_answer_is_refused(fake, door):
    fake.objects["k"] = (b"mine", {"x-amz-meta-penstock-put": "another's"})
    fake.faults = [LOST]
    with pytest.raises(ObjectExists):
        door.put("k", b"mine", if_absent=True)


def test_a_store_without_metadata_leaves_a_lost_answer_to_the_caller(new_id):
    with served(FakeS3(loses_metadata=True)) as fake:
        fake.faults = [LOST]
        with pytest.raises(ObjectExists):
            open_store(fake.url, new_id=new_id).put("k", b"mine", if_absent=True)


def test_each_put_names_the_encryption_of_the_url(fake, new_id, tmp_path):
    name = "x-amz-server-side-encryption"
    open_store(f"{fake.url}&sse=AES256", new_id=new_id).put("k", b"")
    assert fake.encryption == {name: "AES256"}
    source = tmp_path / "file"
    source.write_bytes(b"0123")
    store = open_store(f"{fake.url}&sse=aws:kms&kms_key=alias/log&bucket_key=true", new_id=new_id)
    store.put_file("k", str(source), size_bytes=4)
    kms = {f"{name}-aws-kms-key-id": "alias/log", f"{name}-bucket-key-enabled": "true"}
    assert fake.encryption == {name: "aws:kms", **kms}
    open_store(fake.url, new_id=new_id).put("k", b"")
    assert fake.encryption == {}


def test_a_conflict_is_sent_again(fake, door, tmp_path):
    source = tmp_path / "file"
    source.write_bytes(b"0123456789")
    fake.faults = [CONFLICT, CONFLICT]
    door.put_file("k", str(source), start=2, size_bytes=5, if_absent=True)
    assert fake.objects["k"][0] == b"23456"


def test_a_conflict_that_stays_is_reported(fake, door):
    fake.faults = [CONFLICT] * s3._CONFLICT_ATTEMPTS_MAX
    with pytest.raises(StoreUnavailable, match="409"):
        door.put("k", b"", if_absent=True)
    assert "k" not in fake.objects


def test_a_busy_store_is_asked_again_from_the_beginning_of_the_file(fake, door, tmp_path):
    source = tmp_path / "file"
    source.write_bytes(bytes(300_000))
    fake.faults = [SLOW_DOWN, LOST]
    door.put_file("k", str(source), start=100, size_bytes=200_000)
    assert fake.objects["k"][0] == bytes(200_000)


def test_a_store_that_stays_busy_is_unavailable(fake, door):
    fake.faults = [SLOW_DOWN] * s3._ATTEMPTS_MAX
    with pytest.raises(StoreUnavailable, match="503 SlowDown"):
        door.get("k")


def test_a_body_that_was_cut_is_got_again(fake, door):
    fake.objects["k"] = (b"0123456789", {})
    fake.faults = [CUT, CUT]
    assert door.get("k", 2, 6) == b"2345"
    fake.faults = [CUT] * s3._BODY_ATTEMPTS_MAX
    with pytest.raises(StoreUnavailable):
        door.get("k")


def test_a_missing_bucket_and_missing_rights_are_not_a_missing_object(fake, door):
    fake.faults = [NO_BUCKET, FORBIDDEN, None]
    with pytest.raises(StoreUnusable, match="create the bucket first"):
        door.get("k")
    with pytest.raises(StoreUnusable, match="AWS_ACCESS_KEY_ID"):
        door.get("k")
    with pytest.raises(NoSuchObject):
        door.get("k")


def test_a_wrong_clock_and_refused_headers_are_named(fake, door):
    fake.faults = [SKEWED, *[NO_CHECKSUMS] * 8]
    with pytest.raises(StoreUnusable, match=r"RequestTimeTooSkewed .set the clock of this machine"):
        door.get("k")
    with pytest.raises(StoreUnusable, match=r"501 NotImplemented .the store must accept .* x-amz-checksum-crc32"):
        door.probe()


def test_an_absent_server_is_reported_by_probe(new_id):
    with pytest.raises(StoreUnusable, match="check the endpoint"):
        open_store("s3://bucket?endpoint=http://127.0.0.1:1", new_id=new_id).probe()


def test_an_absent_server_is_named_with_what_to_check(new_id):
    with pytest.raises(StoreUnavailable, match="cannot list the store: Could not connect") as found:
        list(open_store("s3://bucket?endpoint=http://127.0.0.1:1", new_id=new_id).list(""))
    assert found.value.hint == "check its endpoint and the network"


def test_a_local_file_that_is_too_short_is_reported_and_does_not_hang(door, tmp_path):
    source = tmp_path / "file"
    source.write_bytes(b"short")
    with pytest.raises((OSError, StoreUnavailable)):
        door.put_file("k", str(source), size_bytes=100)
