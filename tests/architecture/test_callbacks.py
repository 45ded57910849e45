"""A class returns what happens, or reports it to what its constructor was given. No callback is assigned from outside.

The assignments that are left are listed; the list only gets shorter.
"""

from __future__ import annotations

import ast

from tests.architecture.sources import ROOT

LAYERS = ("engine", "replication", "gateway", "node")
CALLBACKS = ("when_", "tiered_end", "leading_epoch")
LEFT = {
    "engine/directory/log_directory_manager.py": {"when_failed"},
    "engine/shard/shard.py": {"when_place_unknown"},
    "engine/tiering/tier.py": {"when_sealed", "tiered_end"},
    "node/cluster/shard_cluster.py": {"leading_epoch"},
    "node/node.py": {"when_opened", "when_closed", "when_moved_away"},
    "node/processes/shard_process.py": {"when_all_ready", "when_failed", "when_sealed", "tiered_end"},
    "node/processes/supervisor.py": {"when_failed"},
    "replication/replica/replica.py": {"when_positions_move", "when_waited_for", "when_offline"},
}


def assigned_callbacks(source: str) -> set[str]:
    """Return the attributes of other objects that look like callbacks and are assigned to."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
            continue
        is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
        if not is_own and node.attr.startswith(CALLBACKS):
            found.add(node.attr)
    return found


def test_callbacks_are_given_to_constructors() -> None:
    found = {}
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            if names := assigned_callbacks(path.read_text()):
                found[str(path.relative_to(ROOT))] = names
    found["engine/partition/committer.py"] -= {"when_written"}  # of the group that it has just made
    assert {path: names for path, names in found.items() if names} == LEFT


def test_an_assignment_from_outside_is_found() -> None:
    assert assigned_callbacks("sealer.when_damaged = self.note\nself.when_own = 1\nself.of.when_other = 1") == {
        "when_damaged",
        "when_other",
    }
