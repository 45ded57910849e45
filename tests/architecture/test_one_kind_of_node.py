"""At most five lines above replication/ ask whether the node is standalone: a standalone node is a cluster of one.

docs/decisions/0089 has the figures. `has_elections` of the view is the one way to ask; the other patterns are forms of
the same question that were there before. Lines that read the setting at the start are not counted: they choose what to
compose.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

LINES_MAX = 5
ABOVE = ("gateway", "node")
ASKS = re.compile(
    r"has_elections|is_standalone|(?:view|operate|finder|cluster) is (?:not )?None|isinstance\([^)]*Standalone"
)
INSTEAD = "ask the view (replication/cluster/view.py), the replicas or the router what the code needs to know"


def asking_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if ASKS.search(line)]


def test_few_lines_ask_which_kind_the_node_is() -> None:
    sources = [path for package in ABOVE for path in sorted(Path(ROOT, package).rglob("*.py"))]
    found = [f"{path.relative_to(ROOT)}: {line}" for path in sources for line in asking_lines(path.read_text())]
    assert 0 < len(found) <= LINES_MAX, "\n".join([INSTEAD, *found])


@pytest.mark.parametrize(
    "line",
    [
        "if context.peers.cluster.has_elections:",
        "if self._peers.view is None:",
        "if context.operate is not None:",
        "if not topics.is_standalone:",
        "return leader if isinstance(leader, StandaloneReplica) else None",
    ],
)
def test_each_form_of_the_question_is_found(line: str) -> None:
    assert asking_lines(f"{line}\n    pass") == [line]
    assert not asking_lines("endpoint = self.cluster.leader_of(topic_id, partition)")
