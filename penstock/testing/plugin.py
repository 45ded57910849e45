"""pytest fixtures: `pytest_plugins = ["penstock.testing.plugin"]`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from penstock.sync import Client
from penstock.testing import running_node


@pytest.fixture(scope="session")
def penstock_url() -> Iterator[str]:
    """Runs a node that all tests of the session share, and returns its URL. Each test must use its own topic names."""
    with running_node() as url:
        yield url


@pytest.fixture(scope="session")
def penstock_client(penstock_url: str) -> Iterator[Client]:
    """Returns a client of the shared node."""
    with Client(penstock_url) as client:
        yield client


@pytest.fixture
def penstock_prefix() -> str:
    """Returns a prefix for the names of topics and groups of one test, such as `test-1f6c8e02.`."""
    return f"test-{secrets.token_hex(4)}."
