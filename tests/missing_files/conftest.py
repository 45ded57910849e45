"""Fixtures that these suites share."""

from __future__ import annotations

import pytest

from tests.engine.conftest import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()
