"""Runs the tests of a module with the compiled codec and with its plain Python twin.

A module asks for it by `pytestmark = pytest.mark.usefixtures("each_codec")` and `from tests.codecs import each_codec`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import penstock_codec

COMPILED = penstock_codec.native

needs_compiled = pytest.mark.skipif(COMPILED is None, reason=f"no compiled codec: {penstock_codec.why_not}")


@contextmanager
def plain_codec() -> Iterator[None]:
    """Leave the compiled codec aside."""
    before = penstock_codec.native
    penstock_codec.native = None
    try:
        yield
    finally:
        penstock_codec.native = before


def plainly(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return what `work` returns without the compiled codec."""
    with plain_codec():
        return work(*arguments, **options)


@pytest.fixture(scope="module", params=["compiled", "python"])
def each_codec(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "python":
        with plain_codec():
            yield
    elif COMPILED is None:
        pytest.skip(f"no compiled codec: {penstock_codec.why_not}")
    else:
        yield
