"""Profiles a server under load: py-spy's samples of its Python threads, and the CPU of all its threads.

The only file that knows py-spy. Sampling slows the server, so the figures of a profiled round are invalid.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from loadtests.bench.cases import Cell
from loadtests.host import folded, proc
from loadtests.host.servers import Server

HOW_TO_GET = "--profile needs py-spy: `.venv/bin/pip install py-spy` gives it"
SAMPLES_PER_S = 100
ATTACH_S = 1.0
END_S = 60.0  # it resolves the symbols of native code at the end
OURS = ("node/", "gateway/", "engine/", "replication/")
LINES = 20
SMALLEST_SHARE = 0.01  # of threads in the list


class Profiler:
    """Wraps each measured round of Penstock; keeps the folded stacks and prints a summary."""

    def __init__(self, directory: Path, console: Console) -> None:
        self._directory = directory
        self._console = console
        directory.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def round_hook(self, cell: Cell, server: Server, requests: int) -> Iterator[None]:
        if cell.peer == "bare":
            yield
            return
        stacks = self._directory / f"{cell.key}.folded"
        with _sampling(server.pid, stacks):
            before = proc.thread_cpu_s(server.pid)
            yield
            after = proc.thread_cpu_s(server.pid)
        threads = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
        self._print(cell.key, requests, stacks, threads)

    def _print(self, title: str, requests: int, file: Path, threads: dict[str, float]) -> None:
        every, cpu_s = folded.parse(file.read_text()), sum(threads.values())
        stacks = folded.working(every)
        gil_waits = folded.waiting_for_gil(every) / max(1, sum(stacks.values()))
        shares = sorted(((seconds / cpu_s, name) for name, seconds in threads.items()), reverse=True)
        by_thread = ", ".join(f"{name} {share:.0%}" for share, name in shares if share >= SMALLEST_SHARE)
        self._console.print(f"\n{title}: {requests} requests, {sum(stacks.values())} samples", style="bold cyan")
        self._console.print(
            f"{cpu_s / requests * 1e6:,.0f} µs of CPU a request, by thread name: {by_thread}", markup=False
        )
        self._console.print(f"for 100 samples at work, {gil_waits * 100:.0f} of a thread that waited for the GIL")
        self._console.print(_table("by package", folded.by_package(stacks)[:12]))
        self._console.print(_table("in the function and in C code that it calls", folded.self_time(stacks)))
        self._console.print(_table("in our function and in all that it calls", folded.within(stacks, OURS)))
        self._console.print(f"stacks for a flame graph: {file}", markup=False)


def py_spy() -> str | None:
    """Returns the command, from this Python's directory or from the path."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


@contextlib.contextmanager
def _sampling(pid: int, folded_file: Path) -> Iterator[None]:
    command = [py_spy() or "py-spy", "record", "-p", str(pid), "-d", "3600", "-r", str(SAMPLES_PER_S), "--native"]
    command += ["--format", "raw", "-o", str(folded_file)]
    sampler = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(ATTACH_S)
        yield
    finally:
        sampler.send_signal(signal.SIGINT)  # on SIGINT it writes its samples
        try:
            sampler.wait(END_S)
        except subprocess.TimeoutExpired:
            sampler.kill()
            sampler.wait()


def _table(title: str, shares: list[folded.Share]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right")
    table.add_column(no_wrap=True)
    for share in shares[:LINES]:
        table.add_row(f"{share.share:.1%}", share.function)
    return table
