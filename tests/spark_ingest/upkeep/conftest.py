"""Tests of what a rewrite changes let it copy row groups of any size."""

from __future__ import annotations

import pytest

from spark_ingest.upkeep import rewritten_file

_WITH_COPIES = ("test_lift", "test_deduplicate", "test_gather", "test_erase")


@pytest.fixture(autouse=True)
def _copies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.module.__name__.rpartition(".")[2] in _WITH_COPIES:
        monkeypatch.setattr(rewritten_file, "COPIED_BYTES", 0)
