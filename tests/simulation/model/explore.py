"""Explores the model: every state within bounds, breadth first, or long random walks if there are too many states.

A path that breaks an invariant is returned as the names of its steps. Breadth first finds a shortest one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random

from tests.simulation.model.invariants import broken
from tests.simulation.model.protocol import Bounds, Rules, State, initial, steps


@dataclass(frozen=True)
class Finding:
    """`invariant` is None if no invariant is broken."""

    states: int
    is_complete: bool
    invariant: str | None = None
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = f"{self.invariant} broken" if self.invariant else "all invariants hold"
        return "\n  ".join([f"{what}, {self.states} states{' in all' if self.is_complete else ''}", *self.path])


def state_after(names: tuple[str, ...], rules: Rules, bounds: Bounds) -> State:
    """Return the state after these steps: the start of an exploration that would take long to get there."""
    state = initial(rules)
    for name in names:
        choices = dict(_steps(state, rules, bounds))
        following = choices.get(name)
        assert isinstance(following, State), f"{name!r} cannot happen here: {sorted(choices)}"
        state = following
    return state


def explore(rules: Rules, bounds: Bounds, states_max: int, story: tuple[str, ...] = ()) -> Finding:
    """Explore breadth first from the end of these steps, up to a number of states."""
    first = state_after(story, rules, bounds)
    came_from: dict[State, tuple[State, str] | None] = {first: None}
    to_do = deque([first])
    while to_do:
        state = to_do.popleft()
        for name, following in _steps(state, rules, bounds):
            if isinstance(following, str):
                return Finding(len(came_from), False, following, (*_path(came_from, state), name))
            if following in came_from:
                continue
            came_from[following] = (state, name)
            problem = broken(following, rules)
            if problem is not None:
                return Finding(len(came_from), False, problem, _path(came_from, following))
            if len(came_from) >= states_max:
                return Finding(len(came_from), False)
            to_do.append(following)
    return Finding(len(came_from), True)


def walk(rules: Rules, bounds: Bounds, walks: int, length: int, seed: int) -> Finding:
    """Random walks, each from the start until no step is left or the step limit is reached."""
    random = Random(seed)
    visited = 0
    for _ in range(walks):
        state, names = initial(rules), []
        for _ in range(length):
            choices = _steps(state, rules, bounds)
            if not choices:
                break
            name, following = random.choice(choices)
            names.append(name)
            visited += 1
            problem = following if isinstance(following, str) else broken(following, rules)
            if problem is not None:
                return Finding(visited, False, problem, tuple(names))
            assert not isinstance(following, str)
            state = following
    return Finding(visited, False)


def _steps(state: State, rules: Rules, bounds: Bounds) -> list[tuple[str, State | str]]:
    """Yield the next states; a failed assertion of a core counts as a broken invariant."""
    steps_found: list[tuple[str, State | str]] = []
    try:
        for name, following in steps(state, rules, bounds):
            steps_found.append((name, following))
    except (AssertionError, IndexError) as error:
        steps_found.append((f"then an assertion fails: {error}", "TypeOk"))
    return steps_found


def _path(came_from: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names: list[str] = []
    while (step := came_from[state]) is not None:
        state, name = step
        names.append(name)
    return tuple(reversed(names))
