"""A node that may not start prints one line with the reason, exits with a code, and changes nothing."""

from __future__ import annotations

import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.format import paths
from engine.runtime.disk import RealDisk
from replication.coordination.embedded import EmbeddedStore
from replication.coordination.interface import Create
from tests.e2e.node_process import refused_start, running_process

pytestmark = pytest.mark.e2e

REFUSED, USAGE = 1, 2


def assert_refused(*flags, says, code=REFUSED, **settings):
    """Assert that stderr is one line that contains these words."""
    exit_code, out, err = refused_start(*flags, **settings)
    assert (exit_code, out) == (code, ""), err
    assert err.count("\n") == 1, err
    (line,) = err.splitlines()
    assert line.startswith("penstock: ")
    for words in says:
        assert words in line, line


def snapshot(directory):
    """Return the files of a directory with their bytes."""
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_a_port_that_is_taken(tmp_path):
    with socket.socket() as other_listener:
        other_listener.bind(("127.0.0.1", 0))
        other_listener.listen()
        port = other_listener.getsockname()[1]
        assert_refused(port=port, data_dir=tmp_path / "data", says=[f"127.0.0.1:{port}", "in use", "--port"])
    assert not (tmp_path / "data").exists()


def test_what_another_node_has(tmp_path):
    """The processes of one node share the listening port; a process of another node must not join them."""
    data = tmp_path / "data"
    with running_process(tmp_path, cluster_id="blue") as node:
        assert_refused(port=node.port, data_dir=tmp_path / "second", says=["in use"])
        for shards in (0, 1):
            assert_refused(
                port=0,
                shards=shards,
                data_dir=data,
                shutdown_timeout_ms=0,
                says=[str(data), "in use", "--data-dir"],
            )
        assert node.stop() == 0
    assert not (data / "running").exists()
    for shards in (0, 1):
        assert_refused(port=0, shards=shards, data_dir=data, store="file:///proc/penstock", says=["/proc/penstock"])
        assert not (data / "running").exists(), "it does not count as a run that was killed"
    before = snapshot(data)
    assert_refused(port=0, data_dir=data, cluster_id="green", says=["cluster blue", "not green", "--cluster-id"])
    assert_refused(port=0, data_dir=data, node_id=2, says=["node 1", "not 2", "--node-id 1"])
    assert snapshot(data) == before
    meta = json.loads((data / "meta").read_text())
    (data / "meta").write_text(json.dumps({**meta, "format": 99}))
    assert_refused(port=0, data_dir=data, says=["format 99", "newer version"])
    (data / "meta").write_text("{")
    assert_refused(port=0, data_dir=data, says=["meta is damaged"])


def test_a_data_directory_that_holds_something_else(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    assert_refused(port=0, data_dir=tmp_path, says=["thesis.txt", "--data-dir"])
    assert snapshot(tmp_path) == {str(tmp_path / "thesis.txt"): b"mine"}


def test_a_data_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    assert_refused(port=0, data_dir=tmp_path / "file" / "data", says=["cannot be used", "file/data"])


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--colour", "red"], ["--colour"]),
        (["--port", "many"], ["--port", "many"]),
    ],
)
def test_a_flag_that_is_wrong(flags, says):
    assert_refused(*flags, says=[*says, "--help"], code=USAGE)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--port", "65536"], ["port is 65536", "65535"]),
        (["--tls-cert", "/nowhere.pem", "--tls-key", "/nowhere.key"], ["cannot read /nowhere.pem"]),
        (["--host", "0.0.0.0"], ["0.0.0.0", "--insecure"]),
        (["--host", "no.such.host.invalid", "--insecure"], ["no.such.host.invalid"]),
        (["--store", "ftp://somewhere/x"], ["ftp"]),
        (["--store", "file:///proc/penstock"], ["/proc/penstock"]),
        pytest.param(
            ["--store", "s3://bucket/prefix?endpoint=http://127.0.0.1:9"],
            ["127.0.0.1:9", "endpoint"],
            marks=pytest.mark.long,  # boto3 tries for seven seconds
        ),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else None,
)
def test_a_setting_that_cannot_be(tmp_path, monkeypatch, flags, says):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    given = {} if "--port" in flags else {"port": 0}
    assert_refused(*flags, data_dir=tmp_path / "data", **given, says=says)


@pytest.mark.parametrize("shards", [0, 1])
def test_a_file_that_is_no_certificate(tmp_path, shards):
    (tmp_path / "cert.pem").write_text("not a certificate")
    (tmp_path / "key.pem").write_text("not a key")
    tls = {"tls_cert": tmp_path / "cert.pem", "tls_key": tmp_path / "key.pem"}
    assert_refused(
        port=0, shards=shards, data_dir=tmp_path / "data", **tls, says=["cert.pem", "cannot be used for TLS"]
    )
    assert not (tmp_path / "data").exists()


def test_a_settings_file_that_is_wrong(tmp_path):
    file = tmp_path / "config.toml"
    file.write_bytes(b"\xff\xfe")
    assert_refused("--config", str(file), data_dir=tmp_path / "data", says=["config.toml"])


def test_an_environment_that_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_PORT", "many")
    assert_refused(data_dir=tmp_path / "data", says=["the environment", "port is 'many'"])


@pytest.mark.parametrize("how", [{}, {"shards": 1, "coordination": "embedded"}], ids=["one process", "a cluster"])
async def test_rules_of_a_newer_version(tmp_path, how):
    """They are never read as no rules."""
    with running_process(tmp_path, **how) as node:
        assert node.stop() == 0
    with ThreadPoolExecutor(1) as executor:
        store = await EmbeddedStore.open(RealDisk(), str(tmp_path / "data" / paths.COORDINATION), executor)
        await store.session().commit(Create("/access/head", b'{"generation": 1, "blocks": {}, "format": 2}'))
        await store.close()
    exit_code, _, err = refused_start(port=0, data_dir=tmp_path / "data", **how)
    assert exit_code == REFUSED
    assert "penstock: the coordination store's /access/head is of format 2" in err


def test_a_refused_start_can_be_mended_and_tried_again(tmp_path):
    """Also a start that has created the data directory."""
    refused_start(port=0, data_dir=tmp_path / "data", store="file:///proc/penstock")
    with running_process(tmp_path) as node:
        assert node.stop() == 0
    assert os.listdir(tmp_path / "data")


def test_an_advertised_address_of_kafkas_protocol_needs_its_listener(tmp_path):
    says = ["kafka_advertised", "--kafka-listen"]
    assert_refused(port=0, data_dir=tmp_path / "data", kafka_advertised="kafka.example:9092", says=says)
