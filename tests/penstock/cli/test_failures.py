"""Every failure is one line on standard error, with the exit code that docs/reference/cli.md promises."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.cli.failures import ExitCode
from penstock.errors import ClientError
from tests.docs.console import PAGES
from tests.e2e.node_process import ROOT
from tests.penstock.cli.conftest import Run
from tests.waiting import wait_until

UNREACHABLE = "http://127.0.0.1:1"
WAIT_S = 60  # for a command that ends within a second on an idle machine


def one_line(text: str) -> str:
    assert text.startswith("penstock: ")
    assert text.count("\n") == 1
    assert text.endswith("\n")
    return text


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["topic", "nonsense"],
        ["topic", "create"],
        ["topic", "create", "t", "--partitions", "0"],
        ["topic", "create", "t", "--config", "novalue"],
        ["topic", "alter", "t"],
        ["topic", "delete", "t"],
        ["topic", "list", "--url", "ftp://x"],
        ["topic", "list", "--url", "http://x?y"],
        ["topic", "list", "--token", "a b"],
        ["produce", "t", "--token", "secret\r"],
        ["produce", "t", "--key", "a", "--key-field", "b"],
        ["produce", "t", "--format", "records", "--key", "a"],
        ["produce", "t", "--format", "lines", "--key-pointer", "/a"],
        ["produce", "t", "--acks", "2"],
        ["produce", "t", "--header", "novalue"],
        ["produce", "t", "--header", "a=b", "--format", "records"],
        ["topic", "delete-records", "t"],
        ["consume", "t", "--json", "--format", "raw"],
        ["segment", "dump", "/no/such/file"],
        ["tenant", "limits", "acme", "--topics", "9" * 20],
        ["tenant", "limits", "acme", "--stored-bytes", "9" * 5000],
    ],
)
def test_a_wrong_command_ends_with_2_and_says_where_help_is(run: Run, arguments: list[str]) -> None:
    ran = run(*arguments)
    assert ran.code == ExitCode.USAGE
    line = ran.err if "--json" in arguments else one_line(ran.err)
    assert re.search(r"; see penstock( [\w-]+)* --help", line)
    assert ran.out == ""


@pytest.mark.parametrize(
    "arguments",
    [["topic", "list"], ["tier", "status"], ["cluster", "status"], ["consume", "t"], ["produce", "t", os.devnull]],
)
def test_no_node_ends_with_3_at_once(run: Run, arguments: list[str]) -> None:
    began = time.monotonic()
    ran = run(*arguments, "--url", UNREACHABLE)
    assert time.monotonic() - began < 20, "no retries"
    assert ran.code == ExitCode.UNREACHABLE
    assert one_line(ran.err) == f"penstock: cannot reach {UNREACHABLE}: connection refused\n"


@pytest.mark.parametrize("command", ["topic describe", "topic roll", "tier status", "consume", "produce"])
def test_a_refusal_ends_with_4_and_prints_the_code(on_node: Run, lines_file: Path, command: str) -> None:
    files = [lines_file] if command == "produce" else []
    ran = on_node(*command.split(), "nowhere", *files)
    assert ran.code == ExitCode.REFUSED
    assert "[unknown_topic]" in one_line(ran.err)


def test_advice_names_commands_and_flags(on_node: Run, tmp_path: Path) -> None:
    """A node gives its advice in terms of HTTP."""
    file = tmp_path / "lines"
    file.write_text('{"a":1}\n')
    assert on_node("topic", "create", "advised").code == ExitCode.OK
    for arguments, advice in (
        (("consume", "nowhere"), "(create it with penstock topic create nowhere)"),
        (("topic", "create", "advised", "--partitions", 3), "alter it with penstock topic alter"),
        (("produce", "advised", file, "--key-field", "b"), "record 0 has nothing at --key-pointer /b"),
    ):
        ran = on_node(*arguments)
        assert ran.code == ExitCode.REFUSED
        assert advice in one_line(ran.err)
        assert not {"PUT", "PATCH", "key_pointer"} & set(ran.err.split())


def test_a_file_that_cannot_be_read_ends_with_1(on_node: Run, tmp_path: Path) -> None:
    ran = on_node("produce", "t", tmp_path / "none")
    assert ran.code == ExitCode.FAILED
    assert one_line(ran.err) == f"penstock: {tmp_path / 'none'}: no such file or directory\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "create", "t", "--partitions", "9" * 20],
        ["quota", "set", "tenant", "acme", "--connections", "9" * 20],
        ["tenant", "limits", "acme", "--stored-bytes", f"{'9' * 19}GiB"],
    ],
)
def test_a_number_of_more_than_64_bits_ends_with_1(run: Run, arguments: list[str]) -> None:
    ran = run(*arguments, "--url", UNREACHABLE)
    assert ran.code == ExitCode.FAILED
    assert "64-bit" in one_line(ran.err)


def test_without_a_command_help_is_shown_and_the_code_is_2(run: Run) -> None:
    for arguments in ([], ["topic"]):
        ran = run(*arguments)
        assert ran.code == ExitCode.USAGE
        assert ran.err.startswith("Usage: penstock")


def test_help_and_version_end_with_0(run: Run) -> None:
    assert run("--help").code == run("-h").code == run("topic", "create", "--help").code == 0
    assert re.fullmatch(r"penstock \d+\.\d+\.\d+\n", run("--version").out)


def test_a_mistake_of_ours_keeps_its_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("penstock.admin.single_request.SingleRequestClient.send", broken)
    with pytest.raises(ZeroDivisionError):
        run("topic", "list")


def test_a_client_error_of_another_kind_ends_with_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ClientError("odd")

    monkeypatch.setattr("penstock.admin.single_request.SingleRequestClient.send", broken)
    assert run("topic", "list") == (ExitCode.FAILED, "", "penstock: odd\n")


def test_the_page_lists_every_exit_code() -> None:
    codes = re.findall(r"^\| (\d+) \|", (PAGES / "reference" / "cli.md").read_text(), re.MULTILINE)
    assert [int(code) for code in codes] == [code.value for code in ExitCode]


def penstock(*arguments: str, url: str, **how: object) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PENSTOCK_URL": url}
    command = [sys.executable, "-m", "penstock.cli.main", *arguments]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    return subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)  # type: ignore[call-overload, no-any-return]


def test_a_reader_that_goes_away_is_no_error(on_node: Run, node_url: str, lines_file: Path) -> None:
    on_node("topic", "create", "piped")
    for _ in range(20):  # more than a pipe holds
        assert on_node("produce", "piped", lines_file).code == 0
    process = penstock("consume", "piped", url=node_url)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(WAIT_S) == ExitCode.BROKEN_PIPE
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_output_that_is_closed_or_full_ends_with_one_line(node_url: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m penstock.cli.main topic list --url {node_url}"
    for redirection, text in (
        (">&-", "standard output is closed; redirect it to a file or to /dev/null"),
        (">/dev/full", "cannot write to standard output: no space left on device"),
    ):
        ran = subprocess.run(["sh", "-c", f"{command} {redirection}"], cwd=ROOT, capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (ExitCode.FAILED, f"penstock: {text}\n")


def test_with_json_an_error_is_an_object(on_node: Run) -> None:
    ran = on_node("topic", "describe", "nowhere", "--json")
    document = json.loads(one_line("penstock: " + ran.err).removeprefix("penstock: "))
    assert (ran.code, document["exit_code"], document["problem"]["code"]) == (4, 4, "unknown_topic")
    document = json.loads(on_node("topic", "create", "--json").err)
    assert (document["exit_code"], "problem" in document) == (ExitCode.USAGE, False)


def test_unbuffered_output_is_whole(
    on_node: Run, node_url: str, lines_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    on_node("topic", "create", "unbuffered")
    for _ in range(20):
        on_node("produce", "unbuffered", lines_file)
    out, _ = penstock("consume", "unbuffered", "--format", "values", url=node_url).communicate(timeout=60)
    assert out == lines_file.read_bytes() * 20


def test_an_interrupt_ends_quietly_with_130(on_node: Run, node_url: str, lines_file: Path) -> None:
    on_node("topic", "create", "watched")
    on_node("produce", "watched", lines_file)
    process = penstock("consume", "watched", "--follow", url=node_url)
    assert process.stdout is not None
    for _ in range(1000):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out, err) == (ExitCode.INTERRUPTED, b"", b"")


def test_an_interrupted_produce_says_how_far_it_came(on_node: Run, node_url: str) -> None:
    on_node("topic", "create", "fed")
    process = penstock("produce", "fed", url=node_url, stdin=subprocess.PIPE)
    assert process.stdin is not None
    for given, stored in ((b"1\n2\n", "1\n2\n"), (b"3\n", "1\n2\n3\n")):  # a body begins after the answer to the last
        process.stdin.write(given)
        process.stdin.flush()
        wait_until(lambda stored=stored: on_node("consume", "fed", "--format", "values").out == stored)
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_S) == ExitCode.INTERRUPTED  # while its input is still open
    _, err = process.communicate(timeout=WAIT_S)
    assert err in (b"interrupted; 2 records were sent before\n", b"interrupted; 3 records were sent before\n")
