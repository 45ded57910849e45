"""`penstock acl` and `penstock token` at a node: rules and tokens of the cluster."""

from __future__ import annotations

import pytest

from tests.e2e.node_process import running_process
from tests.tokens import add_token


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    directory = tmp_path_factory.mktemp("acl")
    boss = add_token(directory / "tokens.toml", "boss", read=[""], write=[""], admin=[""])
    settings = {"tokens_file": directory / "tokens.toml", "superusers": "token:boss"}
    with running_process(directory, **settings) as process:
        yield process.url, boss


@pytest.fixture
def ask(run, node, monkeypatch):
    url, boss = node
    monkeypatch.setenv("PENSTOCK_URL", url)
    monkeypatch.setenv("PENSTOCK_TOKEN", boss)
    monkeypatch.delenv("PENSTOCK_TOKENS_FILE", raising=False)
    for rule in run("acl", "list", "--json").json()["rules"]:
        run("acl", "remove", rule["id"])
    for token in run("token", "list", "--json").json()["tokens"]:
        run("token", "revoke", token["id"])
    return run


def test_a_token_has_what_its_rules_allow(ask):
    ask("topic", "create", "orders.eu")
    made = ask("token", "create", "shop", "--write", "orders.", "--life", "1h")
    (token,) = made.out.splitlines()
    assert token not in made.err
    assert "orders.eu" not in ask("topic", "list", "--token", token).out
    assert ask("acl", "add", "token:shop", "--allow", "read", "--topic", "orders.eu", "--id", "r").code == 0
    assert "orders.eu" in ask("topic", "list", "--token", token).out
    listed = ask("acl", "list").out
    assert "token:shop may read topic orders.eu" in listed
    assert "token:shop may write topics that begin with orders." in listed
    refused = ask("topic", "create", "orders.us", "--token", token)
    assert refused.code == 4
    assert "no rule allows it" in refused.err
    assert ask("token", "revoke", "shop").code == 0
    assert "[unauthorized]" in ask("topic", "list", "--token", token).err


def test_check_says_whether_and_by_which_rule(ask):
    ask("token", "create", "shop")
    ask("acl", "add", "token:shop", "--allow", "read", "--all", "topic", "--id", "yes")
    ask("acl", "add", "*", "--deny", "read", "--topic", "secret.", "--prefix", "--id", "no")
    may = ask("acl", "check", "token:shop", "read", "topic", "orders")
    assert (may.code, may.out) == (0, "token:shop may read topic orders: rule yes.\n")
    may_not = ask("acl", "check", "token:shop", "read", "topic", "secret.x")
    assert (may_not.code, may_not.out) == (1, "token:shop may not read topic secret.x: rule no.\n")
    unknown = ask("acl", "check", "token:shop", "write", "topic", "orders", "--json")
    assert (unknown.code, unknown.json()["rule"]) == (1, None)


def test_a_rotated_token_has_the_rights_of_its_name(ask):
    first = ask("token", "create", "shop", "--read", "").out.strip()
    second = ask("token", "rotate", "shop", "--keep", "1h").out.strip()
    assert first != second
    for token in (first, second):
        assert ask("topic", "list", "--token", token).code == 0
    assert ask("token", "list").out.count("shop") == 2


def test_an_administrator_needs_force_to_lock_itself_out(ask):
    admin = ask("token", "create", "admin").out.strip()
    ask("acl", "add", "token:admin", "--allow", "access", "--cluster", "--id", "admins")
    refused = ask("acl", "remove", "admins", "--token", admin)
    assert refused.code != 0
    assert "[access_locks_out]" in refused.err
    assert ask("acl", "remove", "admins", "--force", "--token", admin).code == 0
    assert "[forbidden]" in ask("acl", "list", "--token", admin).err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("*", "--topic", "t"), "give --allow or --deny"),
        (("*", "--allow", "read", "--deny", "write", "--topic", "t"), "give --allow or --deny"),
        (("*", "--allow", "read"), "name one resource"),
        (("*", "--allow", "read", "--topic", "t", "--group", "g"), "name one resource"),
        (("*", "--allow", "read", "--all", "topic", "--prefix"), "--prefix needs the name"),
        (("token:none", "--allow", "read", "--topic", "t"), "there is no token 'none'"),
        (("shop", "--allow", "read", "--topic", "t"), "is not a principal"),
        (("*", "--allow", "read", "--topic", "*"), "is not a name"),
        (("*", "--allow", "raed", "--topic", "t"), "'raed' is not one of 'describe', 'read'"),
    ],
)
def test_a_rule_that_says_too_little_or_too_much_is_refused_in_one_line(ask, words, says):
    refused = ask("acl", "add", *words)
    assert refused.code != 0
    assert says in refused.err
    assert ask("acl", "list", "--json").json()["rules"] == []


def test_a_token_is_in_a_file_or_at_a_node(ask, node, tmp_path, monkeypatch):
    path = tmp_path / "tokens.toml"
    assert ask("token", "create", "shop", "--tokens-file", path).code == 0
    assert path.exists()
    both = ask("token", "list", "--tokens-file", path, "--url", node[0])
    assert (both.code, both.out) == (2, "")
    monkeypatch.setenv("PENSTOCK_TOKENS_FILE", str(path))
    assert "shop" in ask("token", "list").out
    assert "shop" not in ask("token", "list", "--url", node[0]).out
    assert ask("token", "create", "short", "--life", "1h").code == 2
