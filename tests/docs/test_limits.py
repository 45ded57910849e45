"""docs/reference/limits.md against the code: its settings, defaults, problems and tests exist."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from engine.settings import TOPIC_RULES
from gateway.http.problems import KINDS
from gateway.settings import NODE_RULES
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "limits.md").read_text()
RULES = {**TOPIC_RULES, **NODE_RULES}


class Row(NamedTuple):
    what: str
    setting: str
    default: str
    past_it: str
    test: str


ROWS = [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in PAGE.splitlines() if "tests/" in line]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_a_row_names_a_setting_its_default_a_problem_and_a_test(row: Row) -> None:
    if not row.setting.startswith("none: "):
        assert RULES[row.setting.strip("`")].default == int(row.default)
    for status, code in re.findall(r"(\d{3}) `(\w+)`", row.past_it):
        assert KINDS[code].status == int(status)
    path, _, name = row.test.strip("`").partition("::")
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), row.test


def test_every_bound_of_a_node_is_in_the_table() -> None:
    """A setting that ends in _max is one; those named here limit the node's own work, not clients."""
    own = {"tier_cache_bytes_max", "segment_bytes_max", "timestamp_ahead_ms_max", "replica_lag_time_max_ms"}
    own |= {"process_heartbeat_timeout_ms", "replica_cache_bytes_max"}
    documented = {row.setting.strip("`") for row in ROWS}
    assert {name for name in RULES if name.endswith("_max")} - own - documented == set()
