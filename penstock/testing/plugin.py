"""pytest fixtures: `pytest_plugins = ["penstock.testing.plugin"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing import running_node


@pytest.fixture(scope="session")
def penstock_url() -> Iterator[str]:
    """Run a node that all tests of the session share, and return its URL. Each test must use its own topic names."""
    with running_node() as url:
        yield url
