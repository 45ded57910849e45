"""Cells that fail are all named, and the others are tried; a test without cells is refused."""

import inspect

import pytest

from tests.cells import each_cell


def test_every_cell_is_tried_and_each_that_fails_is_named() -> None:
    tried = []

    @each_cell(("number", "word"), [(1, "a"), (2, "b"), (3, "c")])
    def check(word: str, number: int, fixture: str) -> None:
        tried.append((number, word, fixture))
        assert number == 2

    assert [*inspect.signature(check).parameters] == ["fixture"]
    with pytest.raises(ExceptionGroup, match="2 of 3 cells") as failed:
        check(fixture="f")
    assert tried == [(1, "a", "f"), (2, "b", "f"), (3, "c", "f")]
    assert [one.__notes__ for one in failed.value.exceptions] == [["the cell: (1, 'a')"], ["the cell: (3, 'c')"]]


def test_what_would_try_nothing_is_refused() -> None:
    async def waits(number: int) -> None: ...

    with pytest.raises(AssertionError, match="without a cell"):
        each_cell("number", [])
    with pytest.raises(AssertionError, match="awaited"):
        each_cell("number", [1])(waits)
    with pytest.raises(AssertionError, match="does not take"):
        each_cell("other", [1])(lambda number: None)
