"""Draws folded stacks of py-spy as a flame graph: `make flame-graph TITLE=... STACKS=FILE PICTURE=FILE`.

Pure but for `main`. Width is time on the processor, callers are below, and colours name packages. Threads that wait for
work are left out, and so are the frames around the event loop. It is a picture without scripts: the text of a bar shows
on hover.
"""

from __future__ import annotations

import sys
from collections import Counter
from xml.sax.saxutils import escape, quoteattr

from loadtests.host.folded import Stack, parse, working

WIDTH, ROW, MARGIN, HEAD = 1200, 17, 10, 46
CHARACTER = 6.6  # of the text in a bar, in pixels
LEAST = 0.002  # narrower bars are not drawn
_WAITING = ("_worker (concurrent/futures/thread.py)", "WriterThread._run (engine/partition/writer.py)")
_AROUND = "Runner.run (asyncio/runners.py)"
_COLOURS = {
    "gateway/wire": "#f2b56b",
    "gateway/server": "#f3cf73",
    "gateway/produce": "#e8876a",
    "gateway/fetch": "#d58fbd",
    "gateway": "#eda28c",
    "engine": "#8fb8de",
    "replication": "#a9c7a0",
}
_OTHER = "#d3d3d3"


class Bar:
    """A function, below it its caller, and above it what it calls."""

    def __init__(self) -> None:
        self.count = 0
        self.callees: dict[str, Bar] = {}

    @property
    def depth(self) -> int:
        return 1 + max((callee.depth for callee in self.callees.values()), default=0)


def at_work(stacks: Counter[Stack]) -> Counter[Stack]:
    """Returns the stacks of threads at work, from the event loop on."""
    counts: Counter[Stack] = Counter()
    for stack, count in working(stacks).items():
        if stack[-1] in _WAITING:
            continue
        counts[stack[stack.index(_AROUND) :] if _AROUND in stack else stack] += count
    return counts


def svg(stacks: Counter[Stack], title: str) -> str:
    """Returns the picture."""
    root = Bar()
    for stack, count in stacks.items():
        bar = root
        bar.count += count
        for frame in stack:
            bar = bar.callees.setdefault(frame, Bar())
            bar.count += count
    least = LEAST * root.count
    _cut(root, least)
    height = HEAD + root.depth * ROW + MARGIN
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" '
            f'font-size="11"><rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
        ),
        f'<text x="{MARGIN}" y="22" font-size="15">{escape(title)}</text>',
        *_legend(),
        *_bars(root, f"all: {root.count} samples", MARGIN, height - MARGIN - ROW, (WIDTH - 2 * MARGIN) / root.count),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _cut(bar: Bar, least: float) -> None:
    bar.callees = {name: callee for name, callee in sorted(bar.callees.items()) if callee.count >= least}
    for callee in bar.callees.values():
        _cut(callee, least)


def _legend() -> list[str]:
    parts, x = [], MARGIN
    for name, colour in [*_COLOURS.items(), ("libraries, Python, the loop", _OTHER)]:
        parts.append(f'<rect x="{x}" y="29" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="38">{name}</text>')
        x += round(28 + len(name) * CHARACTER)
    return parts


def _bars(bar: Bar, name: str, x: float, y: float, scale: float, total: int = 0) -> list[str]:
    total, width = total or bar.count, bar.count * scale
    tip = escape(f"{name}: {bar.count / total:.1%}")
    room = int((width - 6) / CHARACTER)
    short = name.partition(" (")[0]
    label = "" if room < 3 else name if len(name) <= room else short if len(short) <= room else short[: room - 1] + "…"
    parts = [
        f'<g><title>{tip}</title><rect x="{x:.1f}" y="{y}" width="{max(0.5, width - 0.5):.1f}" height="{ROW - 1}" '
        f"fill={quoteattr(_colour(name))}/>"
        + (f'<text x="{x + 3:.1f}" y="{y + 12}">{escape(label)}</text>' if label else "")
        + "</g>"
    ]
    for callee_name, callee in bar.callees.items():
        parts += _bars(callee, callee_name, x, y - ROW, scale, total)
        x += callee.count * scale
    return parts


def _colour(name: str) -> str:
    file = name.rpartition(" (")[2]
    return next((colour for package, colour in _COLOURS.items() if file.startswith(f"{package}/")), _OTHER)


def main() -> None:
    """Draws what standard input has."""
    sys.stdout.write(svg(at_work(parse(sys.stdin.read())), sys.argv[1]))


if __name__ == "__main__":
    main()
