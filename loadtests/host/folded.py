"""Parses folded stacks of py-spy and ranks functions by their samples. Pure.

A line has the frames of one stack, outermost first, separated by semicolons, then a blank and the number of samples. A
frame is `name (file:line)`; native code has files other than .py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

_FRAME = re.compile(r"(?P<name>.*) \((?P<file>[^():]+)(?::\d+)?\)$")
# A sampler of native stacks counts a waiting thread as busy. Threads wait in these C functions.
_WAITS = re.compile(
    r"(epoll_p?wait|pthread_cond_(timed)?wait|PyThread_acquire_lock_timed|sem_(timed)?wait|syscall|fdatasync)\b"
)
_GIL_WAIT = re.compile(r"pthread_cond_timedwait\b")
_INNERMOST = 4  # frames of a wait below its name: the C library's own, without symbols

Stack = tuple[str, ...]


class Share(NamedTuple):
    """A function and its share of all samples."""

    function: str
    share: float


def parse(text: str) -> Counter[Stack]:
    """Returns stacks and their counts, without line numbers."""
    stacks: Counter[Stack] = Counter()
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        if frames:
            stacks[tuple(_without_line(frame) for frame in frames.split(";"))] += int(count)
    return stacks


def working(stacks: Counter[Stack]) -> Counter[Stack]:
    """Returns the stacks without those of waiting threads: for work, for the GIL, for the disk."""
    return Counter({stack: count for stack, count in stacks.items() if not _ends_in(stack, _WAITS)})


def waiting_for_gil(stacks: Counter[Stack]) -> int:
    """Returns the number of samples of threads that waited for the GIL with work to do."""
    return sum(count for stack, count in stacks.items() if _ends_in(stack, _GIL_WAIT) and "uv__io_poll" not in stack)


def self_time(stacks: Counter[Stack]) -> list[Share]:
    """Ranks the innermost Python functions: their own time and that of the C code they called."""
    return _rank(stacks, lambda stack: [_innermost_python(stack)])


def by_package(stacks: Counter[Stack]) -> list[Share]:
    """Ranks the packages of the innermost Python functions."""
    return _rank(stacks, lambda stack: [_package(_innermost_python(stack))])


def within(stacks: Counter[Stack], prefixes: tuple[str, ...]) -> list[Share]:
    """Ranks functions in files with a prefix, by the time in the function and its callees."""
    return _rank(stacks, lambda stack: {frame for frame in stack if _file(frame).startswith(prefixes)})


def _rank(stacks: Counter[Stack], functions_of: Callable[[Stack], Iterable[str]]) -> list[Share]:
    total = sum(stacks.values())
    seen: Counter[str] = Counter()
    for stack, count in stacks.items():
        for function in functions_of(stack):
            seen[function] += count
    return [Share(function, count / total) for function, count in seen.most_common()]


def _innermost_python(stack: Stack) -> str:
    """Returns the innermost Python frame; a thread without one is named by its library."""
    python = next((frame for frame in reversed(stack) if _file(frame).endswith(".py")), None)
    return python or f"native ({_file(stack[0]) or stack[0]})"


def _package(frame: str) -> str:
    return _file(frame).split("/")[0].removesuffix(".py")


def _ends_in(stack: Stack, names: re.Pattern[str]) -> bool:
    return any(names.match(frame) for frame in stack[-_INNERMOST:])


def _without_line(frame: str) -> str:
    match = _FRAME.match(frame)
    return frame if match is None else f"{match['name']} ({match['file']})"


def _file(frame: str) -> str:
    match = _FRAME.match(frame)
    return "" if match is None else match["file"]
