"""A process under a shifted clock sees shifted wall time and times of files, and steps while it runs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.skew.shifted_clock import ShiftedClock

DAY_MS = 86_400_000
TOLERANCE_MS = 600_000

PRINTED = """
import os, subprocess, sys, time
from engine.runtime.clock import SystemClock
from engine.runtime.disk import RealDisk
clock, disk, path = SystemClock(), RealDisk(), sys.argv[1]
print(clock.now_ms(), int(time.time() * 1000), disk.stat(path).modified_ms, flush=True)
sys.stdin.readline()
while clock.now_ms() > int(sys.argv[2]):
    pass
print(clock.now_ms(), disk.stat(path).modified_ms, flush=True)
disk.set_modified(path, clock.now_ms())
print(disk.stat(path).modified_ms - clock.now_ms(), flush=True)
subprocess.run([sys.executable, "-c", "import time; print(time.time_ns() // 1_000_000)"], check=True)
"""


def test_a_process_and_its_children_live_by_the_shifted_clock(tmp_path: Path) -> None:
    clock = ShiftedClock(tmp_path / "clock", DAY_MS)
    file = tmp_path / "file"
    file.write_text("written while the clock is a day ahead")
    now_ms = time.time_ns() // 1_000_000
    command = [sys.executable, "-c", PRINTED, str(file), str(now_ms)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clock.environment(), text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        times = [int(one) for one in process.stdout.readline().split()]
        assert all(abs(one - now_ms - DAY_MS) < TOLERANCE_MS for one in times), times
        clock.step(-DAY_MS)
        process.stdin.write("\n")
        process.stdin.flush()
        after_ms, file_ms = map(int, process.stdout.readline().split())
        assert abs(after_ms - now_ms + DAY_MS) < TOLERANCE_MS
        assert abs(file_ms - now_ms - DAY_MS) < TOLERANCE_MS, "the file is as old as the clock said that it was"
        assert abs(int(process.stdout.readline())) < TOLERANCE_MS
        child_ms = int(process.stdout.readline())
        assert abs(child_ms - now_ms + DAY_MS) < TOLERANCE_MS
    assert process.returncode == 0
