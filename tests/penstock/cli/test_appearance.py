"""The appearance of output: tables that fit 80 columns on a terminal, a progress bar on terminals only, quick
starts.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from penstock.cli.output import format_bytes, format_count, format_duration, format_time, format_value
from tests.e2e.node_process import ROOT
from tests.penstock.cli.conftest import Run

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(*arguments: str, url: str, columns: int = 80) -> str:
    """Return what the command writes to a terminal of this width, including escapes."""
    leader, follower = pty.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**os.environ, "PENSTOCK_URL": url, "TERM": "xterm-256color"}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", *arguments],
        cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower,
    )  # fmt: skip
    os.close(follower)
    written = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # Linux reports the last writer's end this way
            break
        if not piece:
            break
        written += piece
    os.close(leader)
    assert process.wait(60) == 0
    return written.decode()


@pytest.fixture(scope="session")
def busy(node_url: str) -> str:
    """A topic with a long name and large numbers."""
    from penstock.sync import Client

    name = "orders.eu-central-1.production.checkout-v2"
    with Client(node_url) as client:
        client.create_topic(name, partitions=3)
        client.post_records(name, b'{"n":1}\n' * 150_000, partition=1)
        client.roll_topic(name)
    return name


@pytest.mark.parametrize(
    "command", ["topic list", "topic describe", "tier status", "tier status one", "cluster status"]
)
def test_tables_fit_80_columns(busy: str, node_url: str, command: str) -> None:
    arguments = command.replace("describe", f"describe {busy}").replace("one", busy).split()
    shown_lines = ESCAPES.sub("", on_terminal(*arguments, url=node_url)).replace("\r", "").splitlines()
    assert max(map(len, shown_lines)) <= 80
    assert not any("…" in line for line in shown_lines)


def test_a_narrow_terminal_cuts_no_number(busy: str, node_url: str) -> None:
    shown = ESCAPES.sub("", on_terminal("topic", "describe", busy, url=node_url, columns=30))
    assert "150,000" in shown  # the high watermark, which was cut to a few digits
    assert "604,800,000" in shown
    assert "…" not in shown


def test_no_color_turns_colours_off(node_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in on_terminal("cluster", "status", url=node_url)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[2m" not in on_terminal("cluster", "status", url=node_url)


def test_times_are_local_on_a_terminal_and_utc_in_a_pipe(
    on_node: Run, node_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.sync import Client

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    with Client(node_url) as client:
        client.create_topic("timed")
        with client.producer() as producer:
            producer.send("timed", 1, timestamp=1_000)
    assert on_terminal("consume", "timed", "--output", "{time}", url=node_url).strip() == "1970-01-01 09:00:01.000"
    assert on_node("consume", "timed", "--output", "{time}").out.strip() == "1970-01-01 00:00:01.000"


def test_a_pipe_gets_whole_words_and_no_colours(on_node: Run, busy: str) -> None:
    assert busy in on_node("topic", "list").out
    assert "\x1b" not in on_node("topic", "describe", busy).out


def test_progress_is_shown_on_a_terminal_only(on_node: Run, node_url: str, tmp_path: Path) -> None:
    on_node("topic", "create", "progressing")
    path = tmp_path / "some"
    path.write_bytes(b'{"n":1}\n' * 100_000)
    written = on_terminal("produce", "progressing", str(path), url=node_url)
    assert re.search(r"records, [\d.]+ KiB of 781 KiB", ESCAPES.sub("", written))
    assert on_node("produce", "progressing", path).err == ""


@pytest.mark.parametrize("command", ["topic list", "cluster status", "tier status"])
def test_short_commands_start_without_heavy_libraries(node_url: str, command: str) -> None:
    """Wall time depends on the machine. The set of imports does not, and imports take most of the time."""
    script = (
        "import sys; from penstock.cli.main import main; "
        f"main({command.split()!r}); print(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PENSTOCK_URL": node_url},
        capture_output=True,
        check=True,
    )
    assert not {"aiohttp", "asyncio", "msgspec", "uvloop", "engine", "gateway"} & set(ended.stderr.decode().split())


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1023, "1.00 KiB"), (1536, "1.50 KiB"), (10 * 1024**2, "10.0 MiB"),
     (999 * 1024**2, "999 MiB"), (1023 * 1024**2, "1.00 GiB"), (5 * 1024**4, "5.00 TiB")],
)  # fmt: skip
def test_sizes_have_three_digits(size: int, text: str) -> None:
    assert format_bytes(size) == text


def test_times_durations_and_counts() -> None:
    assert format_time(1_357_016_400_007) == "2013-01-01 05:00:00.007"
    assert format_time(10**18) == str(10**18)
    durations = {604_800_000: "7 days", 90_000: "90 seconds", 450: "450 ms", 0: "0 ms", 1_500: "1.5 seconds"}
    durations |= {4_512_345: "1 hour 15 minutes", 86_400_001: "1 day", 61_001: "1 minute 1 second"}
    assert {duration: format_duration(duration) for duration in durations} == durations
    assert (format_count(1, "record"), format_count(2_000, "record"), format_count(2, "batch", "batches")) == (
        "1 record",
        "2,000 records",
        "2 batches",
    )
    assert (format_value(None), format_value(True), format_value(1234), format_value("x")) == ("-", "yes", "1,234", "x")
