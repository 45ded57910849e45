"""The pages about encrypted values: the examples run, the worked example is right, and Node.js reads what we write."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from penstock import Encryption, EncryptionFailed
from penstock.encryption.envelope import Envelope, additional_data
from penstock.sync import Client
from tests.docs.console import PAGES, blocks, environment_of, printed_by, run_sessions
from tests.e2e.node_process import running_process
from tests.penstock.encryption.rings import ring

PAGE = "encrypt.md"
FORMAT = "reference/encryption-format.md"


@pytest.fixture(scope="module")
def example() -> dict[str, str]:
    """Return the rows of the worked example."""
    section = (PAGES / FORMAT).read_text().partition("## Worked example")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| ([^|`]+|`encryption-key`) \| `(.+)` \|$", section, re.MULTILINE))


def test_the_worked_example_is_what_the_client_writes(example: dict[str, str], tmp_path: Path) -> None:
    drawn = [bytes.fromhex(example["data key"]), bytes.fromhex(example["nonce"])]
    key_id, key = example["key id"], example["record key"].encode()
    keys = ring(tmp_path / "keys.toml", key_id, {key_id: bytes.fromhex(example["key of the ring"])})
    encryption = Encryption(keys, random_bytes=lambda size: drawn.pop(0))
    sealed = encryption.seal(example["topic"], key, example["value"].encode())
    headers = dict(sealed.headers)
    assert headers == {
        "encryption-version": "1",
        "encryption-key-id": key_id,
        "encryption-key": example["`encryption-key`"],
        "encryption-topic": example["topic"],
    }
    envelope = Envelope("1", key_id, headers["encryption-key"], example["topic"])
    assert additional_data(envelope, key).hex() == example["additional data"]
    assert sealed.value.hex() == example["stored value"]


def read_by_node(headers: dict[str, str], key: bytes | None, value: bytes, keys: dict[str, str]) -> bytes:
    """Return what the program of the page prints."""
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed (Debian: nodejs)")
    [program] = blocks(FORMAT, "javascript")
    record: dict[str, Any] = {"headers": headers, "value": b64encode(value).decode(), "keyRing": keys}
    record["key"] = None if key is None else b64encode(key).decode()
    ended = subprocess.run(["node", "-e", program], input=json.dumps(record).encode(), capture_output=True, timeout=60)
    if ended.returncode != 0:
        raise ValueError(ended.stderr.decode())
    return ended.stdout


def test_node_reads_the_example_and_what_the_client_writes(example: dict[str, str], tmp_path: Path) -> None:
    key_id, keys = example["key id"], {example["key id"]: example["key of the ring"]}
    wrapped = example["`encryption-key`"]
    headers = {
        "encryption-version": "1",
        "encryption-key-id": key_id,
        "encryption-key": wrapped,
        "encryption-topic": "orders",
    }
    stored = bytes.fromhex(example["stored value"])
    assert read_by_node(headers, example["record key"].encode(), stored, keys) == example["value"].encode()
    with pytest.raises(ValueError, match="authenticate"):
        read_by_node(headers, b"customer-8", stored, keys)
    path_keys = {key_id: bytes.fromhex(example["key of the ring"])}
    sealed = Encryption(ring(tmp_path / "keys.toml", key_id, path_keys)).seal("grün", None, b"\x00\xff")
    assert read_by_node(dict(sealed.headers), None, sealed.value, keys) == b"\x00\xff"


@pytest.mark.e2e
def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    with running_process(tmp_path / "node") as node:
        environment = environment_of(PAGE, node.url)
        ring_session, _ = blocks(PAGE, "console")
        subprocess.run(["bash", "-ec", ring_session.removeprefix("$ ")], cwd=tmp_path, check=True, timeout=60)
        printed = printed_by(blocks(PAGE, "python")[0], tmp_path, environment)
        assert printed[0] == "b'p-1' {'name': 'Grace'}"
        assert "key_id='2026-11'" in printed[1]
        with Client(node.url) as client, client.producer() as producer:  # as a group makes a dead letter
            client.create_topic("patients.dead")
            letter = next(iter(client.consume("patients", follow=False)))
            producer.send("patients.dead", letter.value, key=letter.key, headers=letter.headers)
        assert printed_by(blocks(PAGE, "python")[1], tmp_path, environment) == ["patients {'name': 'Grace'}"]
        run_sessions(PAGE, tmp_path, environment)


def test_the_key_ring_of_kms_wraps_and_refuses_a_wrong_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    names: dict[str, Any] = {}
    exec(blocks(PAGE, "python")[2], names)
    with mock_aws():
        kms = boto3.client("kms", region_name="eu-central-1")
        first = kms.create_key()["KeyMetadata"]["Arn"]
        encryption = Encryption(names["KmsKeyRing"](first, set(), kms))
        sealed = encryption.seal("t", b"k", b"value")
        headers = {name: value.encode() for name, value in sealed.headers}
        assert headers["encryption-key-id"] == first.encode()
        assert encryption.open(headers.items(), b"k", sealed.value, "") == b"value"
        damaged = bytearray(b64decode(headers["encryption-key"]))
        damaged[-1] ^= 1
        for changed, code in (
            ({"encryption-key": b64encode(damaged)}, "key_wrong"),
            ({"encryption-key-id": b"arn:other"}, "key_unknown"),
        ):
            with pytest.raises(EncryptionFailed) as raised:
                encryption.open({**headers, **changed}.items(), b"k", sealed.value, "")
            assert raised.value.code == code
