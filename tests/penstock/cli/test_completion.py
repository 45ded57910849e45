"""Completion of commands, options, topic names and setting names, as the shells request it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.contexts import Context, Contexts, contexts_path, write_contexts
from tests.penstock.cli.conftest import Run

COMMANDS = ["consume", "produce", "topic describe", "topic rm", "tier status", "cluster reassign"]
SHELLS = ("bash", "zsh", "fish")


def completed(line: str, url: str, shell: str = "bash") -> list[str]:
    """Return the command's answer to this shell's script, with the cursor at the end of the line."""
    words = line.split(" ")
    variables = {"COMP_WORDS": line, "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1)}
    environment = {**os.environ, **variables, "_PENSTOCK_COMPLETE": f"{shell}_complete", "PENSTOCK_URL": url}
    command = [sys.executable, "-m", "penstock.cli.main"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.split()


@pytest.fixture(scope="module")
def topics(node_url: str) -> None:
    from penstock.sync import Client

    with Client(node_url) as client:
        for name in ("completed.a", "completed.b"):
            client.create_topic(name)


@pytest.mark.parametrize("command", COMMANDS)
def test_topics_are_completed_by_asking_the_node(topics: None, node_url: str, command: str) -> None:
    assert completed(f"penstock {command} compl", node_url) == ["plain,completed.a", "plain,completed.b"]


def test_the_node_is_the_one_that_the_line_names(topics: None, node_url: str) -> None:
    assert completed("penstock consume compl", "http://127.0.0.1:1") == [], "an absent node is not an error"
    assert completed(f"penstock --url {node_url} consume completed.b", "http://127.0.0.1:1") == ["plain,completed.b"]


def test_settings_are_completed_with_their_equals_sign(node_url: str) -> None:
    assert completed("penstock topic create t -c segm", node_url) == ["plain,segment_bytes=", "plain,segment_ms="]


def test_contexts_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    write_contexts(contexts_path(), Contexts("prod", {"prod": Context("http://a"), "preview": Context("http://b")}))
    for line in ("penstock --context pr", "penstock topic ls --context pr", "penstock context use pr"):
        assert completed(line, "") == ["plain,preview", "plain,prod"]


def test_commands_and_options_are_completed_for_each_shell(node_url: str) -> None:
    assert completed("penstock con", node_url) == ["plain,consume", "plain,context"]
    assert "plain,--tier-check-ms" in completed("penstock serve --tier", node_url)
    assert completed("penstock con", node_url, "zsh")[:2] == ["plain", "consume"]
    assert completed("penstock con", node_url, "fish")[0].startswith("plain,consume")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_printed_for_each_shell(run: Run, shell: str) -> None:
    ran = run("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    assert f"{shell}_complete" in ran.out


def test_bash_completes_with_the_script(run: Run, topics: None, node_url: str, tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(run("completion", "bash").out)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "penstock").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m penstock.cli.main "$@"\n')
    (tmp_path / "bin" / "penstock").chmod(0o755)
    variables = (
        "compopt() { :; }; "  # allowed within a completion only
        f". '{script}'; COMP_WORDS=(penstock consume compl); COMP_CWORD=2; _penstock_completion penstock; "
        'echo "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PENSTOCK_URL": node_url, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    ran = subprocess.run(["bash", "-c", variables], env=environment, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("completed.a completed.b\n", "")
