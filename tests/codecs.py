"""Runs the tests of a module with the compiled codec and with its plain Python twin.

A module asks for it by `pytestmark = pytest.mark.usefixtures("each_codec")` and `from tests.codecs import each_codec`.
PENSTOCK_TEST_CODEC names another build of the module, such as the one of `make codec-asan`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType
from typing import Any

import pytest

import penstock_codec


def _loaded(path: str) -> ModuleType:
    """Return the module of a file."""
    loader = ExtensionFileLoader("penstock_codec._native", path)
    found = spec_from_loader("penstock_codec._native", loader)
    assert found is not None
    module = module_from_spec(found)
    loader.exec_module(module)
    return module


if other_build := os.environ.get("PENSTOCK_TEST_CODEC"):
    penstock_codec.native = _loaded(other_build)  # type: ignore[assignment]
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
