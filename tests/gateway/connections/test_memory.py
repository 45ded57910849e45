"""When the heaps of a process are trimmed, and that a node's processes start with the settings for it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from gateway.connections.memory import CHANGE_BYTES, CHECKS_BETWEEN, MIB, OPTIONS, MemoryWatch

NOTHING: Any = None


class Process:
    """A trim returns `free_bytes` of the resident memory."""

    def __init__(self, used_mib: int) -> None:
        self.used_bytes = used_mib * MIB
        self.free_bytes = 0
        self.watch = MemoryWatch(NOTHING, lambda: self.used_bytes + self.free_bytes, self.trim, lambda: self.free_bytes)

    def trim(self) -> None:
        self.free_bytes = 0

    def check(self, times: int = 1) -> int:
        for _ in range(times):
            self.watch.check()
        return self.watch.trims


def test_a_process_that_stays_as_it_is_is_left_alone() -> None:
    process = Process(70)
    assert process.check(100) == 0
    process.used_bytes += CHANGE_BYTES - 1
    assert process.check(100) == 0


def test_what_has_grown_is_trimmed_once() -> None:
    process = Process(70)
    process.check()
    process.used_bytes += 100 * MIB
    process.free_bytes = 50 * MIB
    assert process.check() == 1
    assert process.free_bytes == 0
    assert process.check(100) == 1, "what is left is in use"


def test_what_is_freed_behind_something_large_in_use_is_trimmed_when_that_goes() -> None:
    process = Process(70)
    process.used_bytes += 200 * MIB
    process.check()
    process.used_bytes -= 190 * MIB
    process.free_bytes = 75 * MIB
    process.check()
    assert process.free_bytes == 0


def test_what_was_in_use_while_the_process_grew_is_trimmed_once_it_is_free() -> None:
    """Its size did not change any more: 684 MiB stayed after a wave of aborted requests."""
    process = Process(70)
    process.check()
    process.used_bytes += 600 * MIB
    assert process.check(2 * CHECKS_BETWEEN) == 1
    process.used_bytes -= 600 * MIB
    process.free_bytes += 600 * MIB
    assert process.check() == 2
    assert process.free_bytes == 0
    assert process.check(100) == 2


def test_a_process_that_goes_up_and_down_is_trimmed_now_and_then() -> None:
    process = Process(70)
    for _ in range(10 * CHECKS_BETWEEN):
        process.used_bytes = (270 if process.used_bytes < 100 * MIB else 70) * MIB
        process.check()
    assert 5 <= process.watch.trims <= 10


@pytest.mark.parametrize("given", [{}, {"MALLOC_ARENA_MAX": "7"}])
def test_serving_settles_the_allocators_first_and_leaves_what_the_operator_has_set(given) -> None:
    names = [option.variable for option in OPTIONS]
    code = (
        "import sys, os, gateway.connections.memory as m\n"
        "real = m.configure_allocators\n"
        "def settle():\n    assert 'httptools' not in sys.modules\n    real()\n"
        "m.configure_allocators = settle\n"
        "import node.commands.serve, node.processes.server\nassert 'httptools' in sys.modules\n"
        f"print([os.environ[name] for name in {names}])"
    )
    found = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True)
    assert eval(found.stdout) == [given.get(option.variable, str(option.value)) for option in OPTIONS]
