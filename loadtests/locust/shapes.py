"""The shapes of a load: how many users there are at each time. `--shape NAME` chooses one, `-u` and `-t` scale it.

A locustfile of its own: `locust -f hot_paths.py,shapes.py --shape spike -u 100 -t 60s`. Without this file locust keeps
`-u` users for `-t`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from locust import LoadTestShape, events

RAMP_STEPS = 10
SPIKE_FROM, SPIKE_UNTIL, SPIKE_BASE = 0.4, 0.6, 0.1  # shares of the time, and of the users
SOAK_SPAWN_S = 10.0  # in which all users of a soak start
HERDS = 4
HERD_PAUSE = 0.1  # of each herd's time


class Stage(NamedTuple):
    """`users` until this second of the run, reached at `spawn_rate` a second."""

    until_s: float
    users: int
    spawn_rate: float


def ramp(users: int, seconds: float) -> list[Stage]:
    """Adds a tenth of the users at a time, to find where latency breaks."""
    steps = range(1, RAMP_STEPS + 1)
    return [Stage(seconds * step / RAMP_STEPS, max(1, users * step // RAMP_STEPS), users) for step in steps]


def spike(users: int, seconds: float) -> list[Stage]:
    """Runs a tenth of the users, all at once for a fifth of the time, and a tenth again."""
    base = max(1, round(users * SPIKE_BASE))
    return [
        Stage(seconds * SPIKE_FROM, base, users),
        Stage(seconds * SPIKE_UNTIL, users, users),
        Stage(seconds, base, users),
    ]


def soak(users: int, seconds: float) -> list[Stage]:
    """Runs all users from the beginning to the end."""
    return [Stage(seconds, users, max(1.0, users / min(SOAK_SPAWN_S, seconds / 10)))]


def herd(users: int, seconds: float) -> list[Stage]:
    """Takes all users away and brings them back at once, four times: each user opens a new connection."""
    each = seconds / HERDS
    stages = []
    for number in range(HERDS):
        end = each * (number + 1)
        stages += [Stage(end - each * HERD_PAUSE, users, users), Stage(end, 0, users)]
    return stages


SHAPES: dict[str, Callable[[int, float], list[Stage]]] = {"ramp": ramp, "spike": spike, "soak": soak, "herd": herd}


def stage_at(stages: list[Stage], elapsed_s: float) -> Stage | None:
    """Returns the stage of this second; None after the last one."""
    return next((stage for stage in stages if elapsed_s < stage.until_s), None)


def _add_options(parser: Any) -> None:
    parser.add_argument("--shape", choices=sorted(SHAPES), default="soak", help="How the number of users changes")
    parser.add_argument("--shape-users", type=int, default=20, help="The most users of the shape")
    parser.add_argument("--shape-s", type=float, default=30.0, help="Seconds of the shape")


events.init_command_line_parser.add_listener(_add_options)


class ChosenShape(LoadTestShape):  # type: ignore[misc]
    """Follows the stages of the chosen shape."""

    def tick(self) -> tuple[int, float] | None:
        options = self.runner.environment.parsed_options
        stages = SHAPES[options.shape](options.shape_users, options.shape_s)
        stage = stage_at(stages, self.get_run_time())
        return None if stage is None else (stage.users, stage.spawn_rate)
