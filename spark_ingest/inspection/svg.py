"""Plots as SVG text, without scripts and without other files: bars, lines over time, and shares of a whole. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 860, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 12, 12, 26
COLORS = ("#2f6fb0", "#e0863a", "#58a65c", "#b04a5a", "#7d68ad", "#8c8c8c")
TICKS = 4


class Series(NamedTuple):
    """A line: pairs of x and y."""

    name: str
    points: Sequence[tuple[float, float]]


def bars(values: Sequence[float], labels: Sequence[str], text_of: Callable[[float], str], color: int = 0) -> str:
    """Returns a bar for each value. Shows as many of the labels below as fit."""
    top = _nice_top(max([4, *values]))
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(values))
    width = min(46.0, max(1.0, step * 0.82))
    shown = max(1, -(-len(labels) * _label_width(labels) // (WIDTH - _LEFT - _RIGHT)))
    parts = _grid(top, text_of)
    for at, value in enumerate(values):
        x = _LEFT + step * at + (step - width) / 2
        y = _y(value, top)
        hint = f"<title>{escape(labels[at])}: {escape(text_of(value))}</title>"
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{HEIGHT - _BOTTOM - y:.1f}" '
            f'fill="{COLORS[color]}">{hint}</rect>'
        )
        if at % shown == 0:
            parts.append(_text(x + width / 2, HEIGHT - _BOTTOM + 17, labels[at], "middle"))
    return _svg(parts)


def lines(
    series: Sequence[Series],
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
    units: Sequence[float] = (1,),
) -> str:
    """Returns a line with dots for each series. The y axis ends at a round number of the largest unit that fits."""
    points = [point for line in series for point in line.points]
    highest = max((y for _, y in points), default=0)
    unit = next((unit for unit in units if unit <= highest), 1)
    top = _nice_top(highest / unit) * unit
    first, last = min((x for x, _ in points), default=0), max((x for x, _ in points), default=1)
    span = (last - first) or 1
    room = WIDTH - _LEFT - _RIGHT - 24
    parts = _grid(top, y_text)
    for at in range(TICKS + 1) if last > first else (0,):
        x = first + span * at / TICKS
        anchor = "end" if at == TICKS else "start" if at == 0 else "middle"
        parts.append(_text(_LEFT + 12 + room * at / TICKS, HEIGHT - _BOTTOM + 17, x_text(x), anchor))
    for number, line in enumerate(series):
        places = [(_LEFT + 12 + room * (x - first) / span, _y(y, top)) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        color = COLORS[number]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        radius = 3 if len(places) <= 100 else 1.2
        for (x, y), (at_x, at_y) in zip(places, line.points, strict=True):
            hint = f"<title>{escape(line.name)}, {escape(x_text(at_x))}: {escape(y_text(at_y))}</title>"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{color}">{hint}</circle>')
    return _svg(parts) + legend([line.name for line in series])


def shares(rows: Sequence[tuple[str, Sequence[float]]], names: Sequence[str]) -> str:
    """Returns a bar of full width for each row, divided by its parts."""
    height = 30 * len(rows) + 6
    left = min(260, max((len(name) for name, _ in rows), default=0) * 7 + 14)
    room = WIDTH - left - _RIGHT
    parts = []
    for at, (name, values) in enumerate(rows):
        y, x, total = 30 * at + 4, float(left), sum(values) or 1
        parts.append(_text(left - 8, y + 16, name if len(name) <= 36 else name[:35] + "…", "end"))
        for number, value in enumerate(values):
            if value <= 0:
                continue
            width = max(1.5, room * value / total)
            hint = f"<title>{escape(name)}, {escape(names[number])}: {value:,.0f} ({value / total:.2%})</title>"
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{min(width, WIDTH - _RIGHT - x):.1f}" height="22" '
                f'fill="{COLORS[number]}">{hint}</rect>'
            )
            x = min(x + width, WIDTH - _RIGHT - 1.5)
    return _svg(parts, height) + legend(names)


def legend(names: Sequence[str]) -> str:
    items = (f'<span><i style="background:{COLORS[at]}"></i>{escape(name)}</span>' for at, name in enumerate(names))
    return f'<p class="legend">{"".join(items)}</p>'


def _label_width(labels: Sequence[str]) -> int:
    return max((len(label) for label in labels), default=1) * 7 + 10


def _nice_top(value: float) -> float:
    """Returns a round number of at least `value`."""
    if value <= 0:
        return 1
    unit = 1.0
    while unit * 10 <= value:
        unit *= 10
    while unit > value:
        unit /= 10
    return next(unit * factor for factor in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if unit * factor >= value)


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * value / top


def _grid(top: float, text_of: Callable[[float], str]) -> list[str]:
    parts = []
    for at in range(TICKS + 1):
        y = _y(top * at / TICKS, top)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}" class="grid"/>')
        parts.append(_text(_LEFT - 8, y + 4, text_of(top * at / TICKS), "end"))
    return parts


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(parts: Sequence[str], height: int = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'
