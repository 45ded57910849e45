"""Fixtures that these suites share."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.engine.conftest import HandClock
from tests.missing_files.damaged_log import fill


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a stopped node with a log of several segments."""
    directory = tmp_path_factory.mktemp("filled")
    asyncio.run(fill(directory))
    return directory
