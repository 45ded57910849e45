"""The demo leaves nothing behind after any end, and reports a missing requirement in one line."""

import asyncio
import contextlib
import os
from pathlib import Path

import psutil
import pytest

from loadtests.demo import DemoFailed
from loadtests.demo.java import require_java
from loadtests.demo.processes import Command, run_to_end, running
from loadtests.demo.workspace import workspace


def shell(script: str, directory: Path) -> Command:
    return Command("script", ["/bin/sh", "-c", script], directory)


def is_alive(pid: int, place: Path) -> bool:
    """True if the process lives in our directory: a busy machine soon reuses a process number."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == place
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


async def test_a_command_that_fails_is_reported_with_the_end_of_its_log(tmp_path):
    with pytest.raises(DemoFailed, match=r"script ended with 3\n  no such thing"):
        await run_to_end(shell("echo no such thing >&2; exit 3", tmp_path))


async def test_what_a_command_prints_is_given_back(tmp_path):
    assert await run_to_end(shell("echo 42; echo remark >&2", tmp_path)) == b"42\n"


async def test_temporary_files_of_a_command_go_where_it_runs(tmp_path):
    place = tmp_path / "a b"
    place.mkdir()
    printed = await run_to_end(shell('echo "$TMPDIR"; pwd; echo "$JAVA_TOOL_OPTIONS"', place))
    assert printed.decode().splitlines()[:2] == [str(place), str(place)]
    assert f"-Djava.io.tmpdir='{place}'" in printed.decode()


async def test_a_cancelled_command_is_gone_with_all_it_started(tmp_path):
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! $$ > '{pids}.new'; mv '{pids}.new' '{pids}'; wait"
    task = asyncio.create_task(run_to_end(shell(script, tmp_path)))
    async with asyncio.timeout(60):
        while not pids.exists():
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):  # the init process reaps a killed orphan a moment later
        while any(is_alive(int(pid), tmp_path) for pid in pids.read_text().split()):
            await asyncio.sleep(0.01)


async def test_a_running_command_is_in_a_session_of_its_own_and_ends_with_the_block(tmp_path):
    async with running(shell("sleep 600", tmp_path)) as process:
        assert os.getsid(process.pid) == process.pid
    assert process.returncode == -15


def test_only_what_a_whole_run_made_stays(tmp_path):
    output = tmp_path / "demo-output"
    with workspace(output) as way:
        (way / "data").mkdir()
        (output / "screen.txt").write_text("screen")
    assert [path.name for path in output.iterdir()] == ["screen.txt"]


def test_a_run_that_fails_leaves_nothing(tmp_path):
    output = tmp_path / "demo-output"
    with contextlib.suppress(KeyboardInterrupt), workspace(output) as way:
        (output / "lake").mkdir()
        (way / "data").mkdir()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_what_earlier_runs_left_goes_and_what_others_put_there_stays(tmp_path):
    for name in ("lake", ".way-killed", "mine"):
        (tmp_path / name).mkdir()
    with workspace(tmp_path) as way:
        assert {path.name for path in tmp_path.iterdir()} == {"mine", way.name}
    with pytest.raises(DemoFailed), workspace(tmp_path):
        raise DemoFailed("for a reason")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_two_demos_do_not_share_an_output(tmp_path):
    with workspace(tmp_path) as way:
        with pytest.raises(DemoFailed, match="another demo"), workspace(tmp_path):
            pass
        assert way.exists()


def a_java(directory: Path, version: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return java


def test_java_17_and_later_will_do(tmp_path, monkeypatch):
    for version in ("17.0.15", "21", "25.0.1"):
        monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / version, version).parent.parent))
        require_java()


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.2"])
def test_an_old_java_is_reported_in_one_line(tmp_path, monkeypatch, version):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{a_java(tmp_path, version).parent}:{os.environ['PATH']}")
    with pytest.raises(DemoFailed, match=r"^Spark needs Java 17 or newer and .*java is (8|11): install[^\n]*$"):
        require_java()


def test_a_missing_java_is_reported_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(DemoFailed, match=r"^Spark needs Java and JAVA_HOME is [^\n]*$"):
        require_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DemoFailed, match=r"^Spark needs Java and there is none: install[^\n]*$"):
        require_java()
