"""`penstock token`: the created token is accepted by the node, and is shown only once."""

import pytest

from tests.e2e.node_process import running_process


def test_a_token_that_was_made_opens_the_node_and_one_that_was_not_does_not(run, tmp_path, monkeypatch):
    path = tmp_path / "tokens.toml"
    monkeypatch.setenv("PENSTOCK_TOKENS_FILE", str(path))
    made = run("token", "create", "shop", "--admin", "orders.", "--write", "orders.", "--read", "orders.")
    assert made.code == 0
    (token,) = made.out.splitlines()
    assert token not in made.err
    assert token not in path.read_text()
    lines = tmp_path / "lines"
    lines.write_text('{"n":1}\n')
    with running_process(tmp_path, tokens_file=path) as node:
        monkeypatch.setenv("PENSTOCK_URL", node.url)
        refused = run("topic", "list")
        assert (refused.code, refused.out) == (4, "")
        assert "[unauthorized]" in refused.err
        assert run("topic", "list", "--token", token[:-1] + "!").code == 4
        monkeypatch.setenv("PENSTOCK_TOKEN", token)
        assert run("topic", "create", "orders.eu").code == 0
        assert run("produce", "orders.eu", lines).code == 0
        assert run("consume", "orders.eu", "--format", "values").out == '{"n":1}\n'
        assert "orders.eu" in run("topic", "list").out
        refused = run("topic", "create", "other")
        assert "lacks the right admin" in refused.err
        assert token not in refused.err
        assert node.stop() == 0
        assert token not in node.errors


def test_tokens_are_listed_with_their_rights_and_without_secrets(run, tmp_path):
    path = tmp_path / "tokens.toml"
    made = run(
        "token", "create", "shop", "--read", "a.", "--read", "b.", "--admin", "", "--tokens-file", path, "--json"
    )
    new = made.json()
    assert new == {
        "id": new["id"], "name": "shop", "token": new["token"], "read": ["a.", "b."], "write": [],
            "admin": [""], "group": [],
        "metrics": False,
    }  # fmt: skip
    listed = run("token", "list", "--tokens-file", path, "--json")
    assert listed.json() == {"tokens": [{name: value for name, value in new.items() if name != "token"}]}
    table = run("token", "list", "--tokens-file", path).out
    assert "a., b." in table
    assert "all topics" in table


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(("a b",), "name"), (("ok", "--read", "orders.*"), "'orders.*'"), (("taken",), "name taken")],
)
def test_a_token_that_cannot_be_is_refused_and_the_file_stays(run, tmp_path, arguments, says):
    path = tmp_path / "tokens.toml"
    assert run("token", "create", "taken", "--tokens-file", path).code == 0
    before = path.read_bytes()
    refused = run("token", "create", *arguments, "--tokens-file", path)
    assert (refused.code, refused.out) == (1, "")
    assert says in refused.err
    assert len(refused.err.splitlines()) == 1
    assert path.read_bytes() == before


def test_a_file_that_is_not_there_is_reported_in_one_line(run, tmp_path):
    ended = run("token", "list", "--tokens-file", tmp_path / "none")
    assert ended.code == 1
    assert "No such file" in ended.err
    assert run("token", "list").code == 2
