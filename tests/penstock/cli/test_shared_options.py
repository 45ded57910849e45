"""The options of every command that talks to a node: before and after the subcommand, contexts, and --cacert."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from penstock import ClientError
from penstock.cli.contexts import Context, Contexts, read_contexts, write_contexts
from penstock.sync import Client
from tests.e2e.lifecycle.test_reloading import make_certificate
from tests.e2e.node_process import running_process
from tests.penstock.cli.conftest import Run


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private XDG config directory."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "penstock" / "contexts.toml"


def test_options_stand_before_or_after_the_subcommand(run: Run, node_url: str) -> None:
    after = run("topic", "list", "--url", node_url, "--json")
    assert after.code == 0
    for arguments in (
        ("--url", node_url, "--json", "topic", "list"),
        ("--url", node_url, "topic", "list", "--json"),
        ("topic", "--url", node_url, "--json", "list"),
        ("--url", "http://127.0.0.1:1", "topic", "--url", node_url, "list", "--json"),
        ("--url", "http://127.0.0.1:1", "topic", "list", "--url", node_url, "--json"),
    ):
        assert run(*arguments) == after


def test_an_option_before_a_command_that_does_not_take_it_is_refused(run: Run, node_url: str) -> None:
    assert run("--url", node_url, "serve").code == 2
    assert "--json is not an option of segment" in run("--json", "segment", "list").err


def test_usual_names_of_commands_work_and_help_shows_one_of_them(on_node: Run) -> None:
    assert on_node("topic", "new", "aliased").code == 0
    assert on_node("topic", "ls") == on_node("topic", "list")
    assert on_node("topic", "show", "aliased") == on_node("topic", "describe", "aliased")
    assert on_node("topic", "rm", "aliased", "--yes").out == "Deleted topic aliased.\n"
    assert on_node("cluster", "ls").code == 0
    assert "\n  ls" not in on_node("topic", "--help").out
    assert "see penstock topic describe --help" in on_node("topic", "show").err


def test_contexts_name_nodes(run: Run, node_url: str, home: Path) -> None:
    assert run("context", "ls").err.startswith("There are no contexts.")
    assert run("context", "add", "here", "--url", node_url).out == "Added context here, which is the current one.\n"
    assert run("context", "add", "there", "--url", "http://127.0.0.1:1", "--token", "secret").code == 0
    assert stat.S_IMODE(home.stat().st_mode) == 0o600
    assert run("topic", "ls").code == 0
    assert run("topic", "ls", "--context", "there").code == 3
    assert run("context", "use", "there").code == 0
    assert run("topic", "ls").code == 3
    assert run("--context", "here", "topic", "ls").code == 0
    listed = run("context", "list")
    assert "secret" not in listed.out
    assert [line.split()[:3] for line in listed.out.splitlines()[1:]] == [
        ["here", node_url, "no"],
        ["*", "there", "http://127.0.0.1:1"],
    ]
    assert run("context", "delete", "there").code == 0
    assert run("topic", "ls", "--context", "there").err == "penstock: no context 'there'; there are: here\n"
    assert run("context", "add", "here", "--url", node_url).code == 1
    assert run("context", "add", "a b", "--url", node_url).code == 2
    assert run("topic", "ls", "--context", "here", "--url", node_url).code == 2


def test_the_environment_comes_before_the_current_context(
    run: Run, node_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("context", "add", "there", "--url", "http://127.0.0.1:1").code == 0
    assert run("topic", "ls").code == 3
    monkeypatch.setenv("PENSTOCK_URL", node_url)
    assert run("topic", "ls").code == 0
    assert run("topic", "ls", "--context", "there").code == 3


def test_a_token_goes_to_the_address_of_its_context_only(run: Run, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    token = run("token", "create", "all", "--admin", "", "--tokens-file", tokens).out.strip()
    with running_process(tmp_path, tokens_file=tokens) as node:
        assert run("context", "add", "here", "--url", node.url, "--token", token).code == 0
        assert run("topic", "ls").code == 0
        refused = run("topic", "ls", "--url", node.url)
        assert (refused.code, "[unauthorized]" in refused.err) == (4, True)


def test_a_file_of_contexts_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "contexts.toml"
    contexts = Contexts("a", {"a": Context("http://a:1", 'q"u\\o\x7f\n', "/ca.pem"), "b-2": Context("http://b:1")})
    write_contexts(path, contexts)
    assert read_contexts(path) == contexts


@pytest.mark.parametrize(
    "text", ["[contexts.a]\n", "contexts = 1\n", "[contexts.a]\nurl = 1\n", "no toml", "[contexts.a]\nx = 1\n"]
)
def test_a_file_that_is_none_is_one_line(run: Run, home: Path, text: str) -> None:
    home.parent.mkdir(parents=True)
    home.write_text(text)
    ran = run("topic", "ls")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert str(home) in ran.err


def test_a_node_whose_certificate_no_public_authority_signed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = make_certificate(tmp_path, "node")
    with running_process(tmp_path, tls_cert=certificate, tls_key=key) as node:
        refused = run("topic", "ls", "--url", node.url)
        assert refused.code == 3
        assert "its certificate is not trusted: self-signed certificate; cacert names the CA" in refused.err
        assert run("topic", "new", "t", "--url", node.url, "--cacert", certificate).code == 0
        lines = tmp_path / "lines"
        lines.write_text("1\n")
        assert run("--cacert", certificate, "--url", node.url, "produce", "t", lines).code == 0
        monkeypatch.setenv("PENSTOCK_CACERT", str(certificate))
        assert run("consume", "t", "--format", "values", "--url", node.url).out == "1\n"
        with Client(node.url, cacert=str(certificate)) as client:
            assert len(client.list_topics()["topics"]) == 1
        with Client(node.url) as client, pytest.raises(ClientError, match="its certificate is not trusted"):
            client.list_topics()
    for path in (tmp_path / "none", lines):
        assert run("topic", "ls", "--cacert", path).code == 2
