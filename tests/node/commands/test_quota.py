"""`penstock quota` at a node: sets, lists and removes the quotas of the cluster."""

from __future__ import annotations

import pytest

from tests.e2e.node_process import running_process


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with running_process(tmp_path_factory.mktemp("quota")) as process:
        yield process.url


@pytest.fixture
def ask(run, node, monkeypatch):
    monkeypatch.setenv("PENSTOCK_URL", node)
    for quota in run("quota", "list", "--json").json()["quotas"]:
        run("quota", "remove", quota["owner"], quota["name"])
    return run


def test_a_quota_is_set_listed_replaced_and_removed(ask):
    made = ask("quota", "set", "principal", "*", "--requests", "100", "--bytes-in", "10MB", "--burst-s", "2")
    assert made.out == "Set quota principal:*: 100 requests/s, 9.54 MiB/s in, with 2 s at once.\n"
    assert ask("quota", "set", "client", "oidc:corp:ann+batch", "--requests", "0.5", "--note", "slow").code == 0
    listed = ask("quota", "list").out
    assert "client:oidc:corp:ann+batch  0.5 requests/s" in listed
    assert ask("quota", "set", "principal", "*", "--long-polls", "5", "--per", "node").code == 0
    (client, principal) = ask("quota", "list", "--json").json()["quotas"]
    assert (principal["requests"], principal["long_polls"], principal["per"]) == (None, 5, "node")
    assert client["note"] == "slow"
    assert ask("quota", "remove", "principal", "*").out == "Removed quota principal:*.\n"
    assert "[unknown_access]" in ask("quota", "remove", "principal", "*").err


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "x", "1e999"])
def test_a_limit_is_a_number_above_0(ask, limit):
    refused = ask("quota", "set", "principal", "*", f"--requests={limit}")
    assert refused.code == 2
    assert "is not a number" in refused.err


def test_the_node_says_what_is_wrong_with_a_quota(ask):
    assert "limits nothing: give one of requests" in ask("quota", "set", "tenant", "acme").err
    assert "there is no token 'x'" in ask("quota", "set", "principal", "token:x", "--requests", "1").err


@pytest.mark.parametrize("name", ["a b", "a*"])
def test_a_beginning_that_no_topic_can_have_is_refused(ask, name):
    refused = ask("quota", "set", "topic", name, "--requests", "1")
    assert "[invalid_quota]" in refused.err
    assert f"name is {name!r}" in refused.err
