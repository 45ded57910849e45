"""Links between nodes, clients and the store, each direction separately: they delay, lose, repeat, reorder and cut.

There are two kinds of traffic. `send` is an independent request or answer: it may arrive twice, late, out of order, or
never. `Pipe` is one connection to the store: it is in order, and one lost message breaks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation.world.world import World


@dataclass
class Weather:
    """Fault rates of the network; changed by faults."""

    delay_s: float = 0.002
    jitter_s: float = 0.004
    loss: float = 0.0
    repeat: float = 0.0
    slow: float = 0.0  # the share of messages that are very late
    slow_s: float = 0.8


class Network:
    """All links. Cuts are one-way; a two-way cut is two."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.weather = Weather()
        self._cuts: dict[tuple[str, str], int] = {}
        self.late_s: dict[tuple[str, str], float] = {}  # of pipes: extra delay of each message

    def cut(self, source: str, target: str) -> None:
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def mend(self, source: str, target: str) -> None:
        left = self._cuts.get((source, target), 0) - 1
        if left > 0:
            self._cuts[source, target] = left
        else:
            self._cuts.pop((source, target), None)

    def heal(self) -> None:
        self._cuts.clear()
        self.late_s.clear()
        self.weather = Weather()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def send(self, source: str, target: str, deliver: Callable[..., None], *args: Any, may_repeat: bool = True) -> None:
        random, weather, world = self._world.random, self.weather, self._world
        if (source, target) in self._cuts:
            world.counts["messages cut"] += 1
            return
        if weather.loss and random.random() < weather.loss:
            world.counts["messages lost"] += 1
            return
        world.after(self._delay(), self._deliver, source, target, deliver, args)
        if may_repeat and weather.repeat and random.random() < weather.repeat:
            world.counts["messages repeated"] += 1
            world.after(self._delay() * 3, self._deliver, source, target, deliver, args)

    def _deliver(self, source: str, target: str, deliver: Callable[..., None], args: tuple[Any, ...]) -> None:
        if (source, target) not in self._cuts:
            deliver(*args)

    def _delay(self) -> float:
        random, weather = self._world.random, self.weather
        delay = weather.delay_s + weather.jitter_s * random.random()
        if weather.slow and random.random() < weather.slow:
            delay += weather.slow_s * random.random()
            self._world.counts["messages late"] += 1
        return delay

    def delay_in_order(self, source: str, target: str) -> float:
        return self._delay() + self.late_s.get((source, target), 0.0)


class Pipe:
    """One direction of one connection: in order, and dead after the first loss."""

    def __init__(self, world: World, network: Network, source: str, target: str) -> None:
        self._world, self._network = world, network
        self._source, self._target = source, target
        self._last_at = 0.0
        self.is_broken = False

    def send(self, deliver: Callable[..., None], *args: Any) -> None:
        if self.is_broken:
            return
        if self._network.is_cut(self._source, self._target):
            self.is_broken = True
            return
        self._last_at = max(self._last_at, self._world.now + self._network.delay_in_order(self._source, self._target))
        self._world.after(self._last_at - self._world.now, self._deliver, deliver, args)

    def _deliver(self, deliver: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self._network.is_cut(self._source, self._target):
            self.is_broken = True
        if not self.is_broken:
            deliver(*args)
