"""Parses folded stacks of py-spy. Pure.

A line has the frames of one stack, outermost first, separated by semicolons, then a blank and the number of samples. A
frame is `name (file:line)`; native code has files other than .py.
"""

from __future__ import annotations

import re
from collections import Counter

_FRAME = re.compile(r"(?P<name>.*) \((?P<file>[^():]+)(?::\d+)?\)$")
# A sampler of native stacks counts a waiting thread as busy. Threads wait in these C functions.
_WAITS = re.compile(
    r"(epoll_p?wait|pthread_cond_(timed)?wait|PyThread_acquire_lock_timed|sem_(timed)?wait|syscall|fdatasync)\b"
)
_INNERMOST = 4  # frames of a wait below its name: the C library's own, without symbols

Stack = tuple[str, ...]


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


def _ends_in(stack: Stack, names: re.Pattern[str]) -> bool:
    return any(names.match(frame) for frame in stack[-_INNERMOST:])


def _without_line(frame: str) -> str:
    match = _FRAME.match(frame)
    return frame if match is None else f"{match['name']} ({match['file']})"
