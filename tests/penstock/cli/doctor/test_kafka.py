"""The doctor asks a listener of Kafka's protocol from outside, and names what is wrong with an address."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock.cli.doctor.kafka import check_kafka
from penstock.cli.doctor.machine_checks import FAIL, OK, Finding
from penstock.cli.node import Node
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.node_process import running_process
from tests.penstock.cli.conftest import Run
from tests.tokens import add_token


def check(address: str, token: str | None = None, url: str = "http://127.0.0.1:1") -> list[Finding]:
    return list(check_kafka(address, Node(url, token)))


def test_each_advertised_address_is_asked(tmp_path: Path, run: Run) -> None:
    address, taken = free_address(), socket.socket()
    with taken, running_process(tmp_path / "good", kafka_listen=address, shards=2) as good:
        assert [(one.name, one.level) for one in check(address)] == [("kafka", OK), ("node 1", OK)]
        ran = run("doctor", "--kafka", address, "--data-dir", tmp_path / "data")
        assert f"{address} answers" in ran.out
        other, http = free_address(), f"127.0.0.1:{good.port}"
        with running_process(tmp_path / "wrong", kafka_listen=other, kafka_advertised=address):
            kafka, node = check(other)
            assert (kafka.level, node.level) == (OK, OK), "both have this address"
        nowhere = free_address()
        with running_process(tmp_path / "nowhere", kafka_listen=other, kafka_advertised=nowhere):
            kafka, node = check(other)
            assert (kafka.level, node.level) == (OK, FAIL)
            assert f"{nowhere}, which it advertises: cannot be reached" in node.found
            assert "--kafka-advertised of node 1" in node.remedy
        with running_process(tmp_path / "http", kafka_listen=other, kafka_advertised=http):
            assert "at ApiVersions" in check(other)[1].found
        [finding] = check(http)
        assert (finding.level, "at ApiVersions" in finding.found) == (FAIL, True)
        [finding] = check(nowhere)
        assert "cannot be reached" in finding.found
        [finding] = check(address, url="https://127.0.0.1:1")
        assert "no TLS" in finding.found
    assert run("doctor", "--kafka", "nonsense").code == 2


@pytest.mark.parametrize("has_token", [True, False])
def test_a_node_with_tokens_is_asked_with_one(tmp_path: Path, has_token: bool) -> None:
    token = add_token(tmp_path / "tokens.toml", "shop", read=["t"])
    address = free_address()
    with running_process(tmp_path, kafka_listen=address, tokens_file=tmp_path / "tokens.toml"):
        levels = [one.level for one in check(address, token if has_token else None)]
        assert levels == ([OK, OK] if has_token else [FAIL])
        [finding] = check(address, f"penstock_{'x' * 43}")
        assert "token is refused" in finding.found or "closes" in finding.found


@pytest.mark.parametrize("address", ["a..b:9092", f"{'x' * 80}:9092", "a\0b:9092", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_a_finding(address: str) -> None:
    [finding] = check(address)
    assert (finding.level, "cannot be reached" in finding.found) == (FAIL, True)
