"""Planted bugs of topics that are created again, which runs must find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from tests.checking.mutants import Mutant, patched
from tests.simulation.recreated.run import recreated_options, run_recreated
from tests.simulation.run import findings_of
from tests.simulation.world.node import DATA_DIR, Life
from tests.simulation.world.store import number_of

_host = Life._host


def _host_on_what_is_left(self: Life, name: str) -> None:
    """Give a new partition the directory that a deleted one of this number has left."""
    topics = f"{DATA_DIR}/topics"
    for other in self.node.disk.listdir(topics):
        if other != name and other not in self.partitions and number_of(other) == number_of(name):
            self.node.disk.rename(f"{topics}/{other}", f"{topics}/{name}")
            break
    _host(self, name)


@contextmanager
def _reuse_directories() -> Iterator[None]:
    keeping = patch.object(Life, "_remove", lambda self, path: None)
    with keeping, patch.object(Life, "_host", _host_on_what_is_left):
        yield


IN_RUNS = findings_of(run_recreated, recreated_options)
MUTANTS = {
    "a new topic gets the directory of the old one": Mutant(_reuse_directories, IN_RUNS),
    "a position in the old topic counts in the new one": Mutant(
        patched(Life, "is_other_topic", lambda self, topic_id, known_id: False), IN_RUNS, "N5"
    ),
}
