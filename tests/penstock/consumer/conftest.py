"""A real node for the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.node_process import running_process


@pytest.fixture(scope="module")
def node_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_process(tmp_path_factory.mktemp("consumer-node")) as node:
        yield node.url
