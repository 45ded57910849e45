"""Encrypted values open with what they were bound to and with nothing else, and data keys are replaced in time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Encryption, EncryptionFailed, FileKeyRing
from penstock.encryption.encryption import Sealed
from penstock.producer.preparation import Preparation
from tests.penstock.encryption.rings import NEW, OLD, ring, ring_file


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> FileKeyRing:
    return ring(tmp_path_factory.mktemp("ring") / "keys.toml", "old", {"old": OLD, "new": NEW})


def stored_headers(sealed: Sealed) -> list[tuple[str, bytes | None]]:
    return [(name, value.encode()) for name, value in sealed.headers]


def failure(encryption: Encryption, headers: Any, key: bytes | None, value: bytes) -> str:
    with pytest.raises(EncryptionFailed) as raised:
        encryption.open(headers, key, value, "record 7")
    assert "record 7" in str(raised.value)
    assert not raised.value.retryable
    return raised.value.code


@given(topic=st.text(min_size=1), key=st.none() | st.binary(), value=st.binary())
def test_a_value_opens_with_the_same_key_ring(keys: FileKeyRing, topic: str, key: bytes | None, value: bytes) -> None:
    sealed = Encryption(keys).seal(topic, key, value)
    assert value not in sealed.value or len(value) < 4
    assert len(sealed.value) == 12 + len(value) + 16
    assert Encryption(keys).open(stored_headers(sealed), key, sealed.value, "") == value


def test_a_value_is_bound_to_its_topic_its_key_and_its_headers(keys: FileKeyRing) -> None:
    encryption = Encryption(keys)
    sealed = encryption.seal("orders", b"k", b"value")
    headers = dict(stored_headers(sealed))

    def changed(**changes: bytes) -> list[tuple[str, bytes | None]]:
        return list(
            {**headers, **{f"encryption-{name.replace('_', '-')}": value for name, value in changes.items()}}.items()
        )

    other_key = dict(encryption.seal("orders", b"k", b"value").headers)["encryption-key"]
    assert other_key.encode() == headers["encryption-key"]  # one data key for many values
    for at in (0, 12, len(sealed.value) - 1):  # nonce, ciphertext, tag
        value = bytearray(sealed.value)
        value[at] ^= 1
        assert failure(encryption, changed(), b"k", bytes(value)) == "value_damaged"
    assert failure(encryption, changed(), b"k", sealed.value[:20]) == "value_damaged"
    assert failure(encryption, changed(), b"K", sealed.value) == "value_damaged"
    assert failure(encryption, changed(), None, sealed.value) == "value_damaged"
    assert failure(encryption, changed(topic=b"payments"), b"k", sealed.value) == "value_damaged"
    assert failure(encryption, changed(key=b"no base64!"), b"k", sealed.value) == "value_damaged"
    assert failure(encryption, changed(key="ü".encode()), b"k", sealed.value) == "value_damaged"
    assert failure(encryption, changed(topic=b"\xff"), b"k", sealed.value) == "value_damaged"
    assert failure(encryption, changed(key_id=b"new"), b"k", sealed.value) == "key_wrong"
    assert failure(encryption, changed(key_id=b"lost"), b"k", sealed.value) == "key_unknown"
    assert failure(encryption, changed(version=b"2"), b"k", sealed.value) == "encryption_version"
    assert encryption.open(changed(), b"k", sealed.value, "") == b"value"


def test_a_value_of_another_first_topic_is_refused_before_its_key_is_asked_for(keys: FileKeyRing) -> None:
    sealed, reader = Encryption(keys).seal("orders", b"k", b"value"), Encryption(keys)
    headers = stored_headers(sealed)
    for accepted in (("payments",), ("order", "orders.eu"), ()):
        with pytest.raises(EncryptionFailed, match=r"first sent to topic 'orders'.*first_topics") as raised:
            reader.open(headers, b"k", sealed.value, "record 7", accepted)
        assert raised.value.code == "first_topic_refused"
    assert reader.statistics().keys_unwrapped == 0
    assert reader.open(headers, b"k", sealed.value, "", ("payments", "orders")) == b"value"
    assert reader.first_topic(headers, b"k", sealed.value, "") == "orders"
    assert reader.open([], b"k", None, "", ()) is None  # a tombstone is of no topic
    assert Encryption(keys, is_required=False).open([], b"k", b"clear", "", ()) == b"clear"


def test_a_first_topic_is_authenticated_before_it_is_shown(keys: FileKeyRing) -> None:
    encryption = Encryption(keys)
    sealed = encryption.seal("orders", b"k", b"value")
    forged = [(name, b"payments" if name == "encryption-topic" else value) for name, value in stored_headers(sealed)]
    for ask in (encryption.first_topic, encryption.open):
        with pytest.raises(EncryptionFailed) as raised:
            ask(forged, b"k", sealed.value, "record 7")
        assert raised.value.code == "value_damaged"


def test_a_key_and_no_key_are_not_the_same(keys: FileKeyRing) -> None:
    encryption = Encryption(keys)
    sealed = encryption.seal("orders", None, b"value")
    assert failure(encryption, stored_headers(sealed), b"", sealed.value) == "value_damaged"


def test_a_ring_with_the_same_names_and_other_keys_is_no_damaged_value(keys: FileKeyRing, tmp_path: Path) -> None:
    sealed = Encryption(keys).seal("orders", b"k", b"value")
    other = Encryption(ring(tmp_path / "keys.toml", "old", {"old": NEW}))
    assert failure(other, stored_headers(sealed), b"k", sealed.value) == "key_wrong"


def test_a_value_in_the_clear_is_refused_unless_it_may_come(keys: FileKeyRing) -> None:
    assert failure(Encryption(keys), [("a", b"b")], None, b"clear") == "not_encrypted"
    assert Encryption(keys, is_required=False).open([("a", b"b")], None, b"clear", "") == b"clear"
    assert Encryption(keys).open([], b"k", None, "") is None  # a tombstone


def test_the_data_key_is_replaced_after_records_and_after_time(keys: FileKeyRing) -> None:
    now = [0.0]
    encryption = Encryption(keys, key_records_max=3, now=lambda: now[0], random_bytes=random.Random(7).randbytes)

    def wrapped() -> str:
        return dict(encryption.seal("t", None, b"v").headers)["encryption-key"]

    first = [wrapped() for _ in range(3)]
    assert len(set(first)) == 1
    second = wrapped()
    assert second not in first
    now[0] = 12 * 3600 - 1
    assert wrapped() == second
    assert encryption.statistics().key_age_s == 12 * 3600 - 1
    now[0] += 1
    assert wrapped() not in {*first, second}
    assert (encryption.statistics().keys_made, encryption.statistics().key_age_s) == (3, 0)
    encryption.replace_key()
    assert encryption.statistics().key_age_s is None
    wrapped()
    assert encryption.statistics().keys_made == 4


def test_no_nonce_is_used_twice(keys: FileKeyRing) -> None:
    encryption = Encryption(keys)
    assert len({encryption.seal("t", None, b"v").value[:12] for _ in range(1000)}) == 1000


def test_a_data_key_is_unwrapped_once_and_few_are_kept(keys: FileKeyRing) -> None:
    writer, reader = Encryption(keys, key_records_max=2), Encryption(keys)
    sealed = [writer.seal("t", None, b"v") for _ in range(2050)]
    for one in [*sealed, sealed[-1]]:
        reader.open(stored_headers(one), None, one.value, "")
    assert reader.statistics().keys_unwrapped == 1025
    reader.open(stored_headers(sealed[0]), None, sealed[0].value, "")  # the least recently used one was dropped
    assert reader.statistics().keys_unwrapped == 1026


@pytest.mark.parametrize("bounds", [{"key_age_s_max": 0}, {"key_records_max": 0}, {"key_records_max": 2**32 + 1}])
def test_bounds_that_no_key_can_have_are_refused(keys: FileKeyRing, bounds: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="key_age_s_max must be positive"):
        Encryption(keys, **bounds)


def test_a_rotated_ring_wraps_with_the_new_key_and_opens_the_old(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    old = Encryption(ring(path)).seal("t", None, b"v")
    rotated = Encryption(ring(path, "new", {"old": OLD, "new": NEW}))
    assert dict(rotated.seal("t", None, b"v").headers)["encryption-key-id"] == "new"
    assert rotated.open(stored_headers(old), None, old.value, "") == b"v"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'keys' is missing"),
        ("[keys]\na = 'AAAA'", "key 'a' has 3 bytes, not 32"),
        ("[keys]\na = 'secret text'", "key 'a' is not base64"),
        ("keys = 1", "is not a table"),
        ("[keys]", "'current' is missing"),
        ("current = 'b'\n[keys]", "'b' is missing"),
        ("current", "Expected"),
    ],
)
def test_a_file_that_is_no_key_ring_is_refused_without_its_keys(tmp_path: Path, text: str, said: str) -> None:
    path = ring_file(tmp_path / "keys.toml", "a", {})
    path.write_text(text)
    with pytest.raises(ValueError, match=said) as raised:
        FileKeyRing(path)
    assert str(path) in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_file_that_every_user_can_read_is_refused(tmp_path: Path) -> None:
    path = ring_file(tmp_path / "keys.toml", "old", {"old": OLD})
    path.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        FileKeyRing(path)


def test_no_secret_is_in_a_representation(keys: FileKeyRing) -> None:
    encryption = Encryption(keys, random_bytes=lambda size: bytes([200]) * size)
    encryption.seal("t", None, b"v")
    for text in (repr(encryption), repr(keys)):
        assert "current=old" in text
        assert repr(OLD)[2:20] not in text
        assert repr(bytes([200]) * 8)[2:-1] not in text


def test_a_record_with_the_headers_of_an_encryption_is_not_encrypted_again(keys: FileKeyRing) -> None:
    prepare = Preparation(None, None, (), (), Encryption(keys)).prepare
    with pytest.raises(ValueError, match="decrypt it first"):
        prepare("t", b"v", None, {"encryption-key": "x"}, None, None)
