"""A group of its own for each test."""

from __future__ import annotations

import pytest

from tests.scenarios.groups.group_client import GroupClient


@pytest.fixture
def group(gateway, new_name):
    return GroupClient(gateway, new_name())
