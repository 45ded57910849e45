"""The workers that need no compiler share a topic. `make workers` runs all of them, and disturbs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers.__main__ import summary
from tests.workers.languages import why_not
from tests.workers.run import run


@pytest.mark.e2e
def test_workers_in_bash_python_and_node_share_a_topic(tmp_path: Path):
    languages = [one for one in ("bash", "python", "node") if why_not(one) is None]
    found, running, count = run(tmp_path, languages, 0, seed=1)
    assert summary(count, running.lives, running.disturbances, found).endswith("repeated without a reason")
