"""`penstock sign-url` and `penstock url-key` at a node."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from tests.e2e.node_process import running_process
from tests.tokens import add_token


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sign")
    boss = add_token(directory / "tokens.toml", "boss", admin=[""], write=[""])
    with running_process(directory, tokens_file=directory / "tokens.toml", superusers="token:boss") as process:
        yield process.url, boss


@pytest.fixture
def ask(run, node, monkeypatch):
    url, boss = node
    monkeypatch.setenv("PENSTOCK_URL", url)
    monkeypatch.setenv("PENSTOCK_TOKEN", boss)
    return run


def test_a_url_is_signed_with_the_newest_key_and_read_without_a_token(ask, node):
    url, _ = node
    assert "no URL can be signed" in ask("url-key", "list").err
    refused = ask("sign-url", "/v1/topics/t/records?from=latest")
    assert "there is no key that signs URLs: penstock url-key add makes one" in refused.err
    assert ask("url-key", "add").out.startswith("Added key ")
    first = ask("url-key", "list", "--json").json()["keys"][0]["id"]
    ask("topic", "create", "t")
    made = ask("sign-url", "/v1/topics/t/partitions/0/records?from=earliest", "--life", "1m")
    assert made.out.startswith(f"{url}/v1/topics/t/partitions/0/records?from=earliest&sig_key={first}")
    assert "Acts for token:boss until " in made.err
    with urllib.request.urlopen(made.out.strip()) as answer:
        assert answer.status == 200
    ask("url-key", "add")
    assert f"sig_key={first}" not in ask("sign-url", "/v1/topics/t/table").out
    assert ask("url-key", "remove", first).out == f"Removed key {first}.\n"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(made.out.strip())


def test_a_produce_is_signed_with_its_limit(ask, node):
    ask("topic", "create", "t")
    if not ask("url-key", "list", "--json").json()["keys"]:
        ask("url-key", "add")
    signed = ask("sign-url", "/v1/topics/t/records", "--method", "POST", "--max-bytes", "1KiB", "--json").json()
    assert signed["max_bytes"] == 1024
    with urllib.request.urlopen(node[0] + signed["url"], b"x") as answer:
        assert answer.status == 200
    plain = ask("sign-url", "/v1/topics/t/records", "--method", "POST", "--max-bytes", "100", "--json").json()
    assert plain["max_bytes"] == 100


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["/v1/topics/t/records", "--life", "soon"], "--life is 'soon'"),
        (["/v1/topics/t/records", "--max-bytes", "5m"], "--max-bytes is '5m'"),
        (["/v1/topics", "--life", "15m"], "cannot be signed"),
    ],
)
def test_what_cannot_be_signed_is_refused(ask, options, says):
    refused = ask("sign-url", *options)
    assert refused.code != 0
    assert says in refused.err
