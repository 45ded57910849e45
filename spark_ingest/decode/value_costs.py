"""Bounds the memory that JSON values take while they are decoded, and as columns, from counts of their bytes. Pure.

A value of a few bytes may have many columns: `{}` in an array of structs of 200 members takes 1.6 kB in Arrow, and as
much as an object of Python. So a record of 1 MB could take a gigabyte. The counts are upper bounds, because a brace or
a comma may be part of a text; they depend on the bytes and the schema only, so every attempt of a task has the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from spark_ingest.types.json_types import Members, Type, columns, fixed_bytes

RECORD_BYTES_MAX = 128 << 20  # of a record while it is decoded: members beyond it go to `_extra`
RECORD_NAMES_MAX = 500_000  # of a record at any depth: with more the whole value goes to `_extra`
RUN_BYTES = 64 << 20  # of records that are decoded together
_COPIES = 2  # of a value of a column: in the objects that a block is decoded to, and in Arrow
_LIST_BYTES = 96
_SCALAR_BYTES = 64  # a short text or a number, and the reference to it
_STRUCT_BYTES = 48
_NAME_BYTES = 220  # a name and its raw value in a dictionary


class ValueCosts:
    """The costs of the values of one table."""

    def __init__(self, members: Members) -> None:
        self.row_bytes = _COPIES * fixed_bytes(members)
        elements = [element for _, kind in members for element in _elements(kind)]
        self._has_arrays = bool(elements)
        structs = [element[1] for element in elements if element[0] == "struct"]
        self._element_bytes = max((fixed_bytes(struct) for struct in structs), default=0)
        widest = max((8 * _widest(struct) for struct in structs), default=0)
        self._decoded_bytes = self._element_bytes + widest + (_STRUCT_BYTES if structs else 0)
        most = max(_SCALAR_BYTES, self._decoded_bytes) if self._has_arrays else 1  # of two bytes of text, at least
        self._unchecked_bytes = min(RECORD_NAMES_MAX, RECORD_BYTES_MAX // most)

    def columns(self, texts: bytes, rows: int) -> int:
        """Returns a bound of the columns of values, given as one text, in bytes."""
        if not self._has_arrays:
            return self.row_bytes * rows
        objects = max(0, texts.count(b"{") - rows) + _nulls(texts)
        return self.row_bytes * rows + objects * _COPIES * self._element_bytes + 8 * texts.count(b",")

    def decoded(self, text: bytes) -> int:
        """Returns a bound of what a value takes as objects and columns together, in bytes."""
        if not self._has_arrays:
            return len(text)
        objects = text.count(b"{") + _nulls(text)
        scalars, lists = text.count(b","), text.count(b"[")
        return len(text) + objects * self._decoded_bytes + scalars * _SCALAR_BYTES + lists * _LIST_BYTES

    @property
    def counts_texts(self) -> bool:
        """False if `columns` does not depend on the texts."""
        return self._has_arrays

    def may_be_large(self, size_bytes: int) -> bool:
        """False if no value of this size is large."""
        return size_bytes > self._unchecked_bytes

    def is_large(self, text: bytes | None) -> bool:
        """True if a value must be decoded member by member."""
        if text is None or not self.may_be_large(len(text)):
            return False
        return has_many_names(text) or self.decoded(text) > RECORD_BYTES_MAX

    def runs(self, texts: Sequence[bytes | None], *, isolates: bool) -> Iterator[tuple[int, int]]:
        """Yields the start and the end of runs of values that are decoded together.

        With `isolates`, a large value is a run of its own.
        """
        start = taken = 0
        for at, text in enumerate(texts):
            cost = 0 if text is None else self.decoded(text)
            if isolates and self.is_large(text):
                cost = RUN_BYTES + 1
            if at > start and taken + cost > RUN_BYTES:
                yield start, at
                start, taken = at, 0
            taken += cost
        yield start, len(texts)


def has_many_names(text: bytes) -> bool:
    """True if the names of a value may take more memory than a record has."""
    return len(text) > RECORD_NAMES_MAX and text.count(b":") > RECORD_NAMES_MAX


def is_inferable(text: bytes) -> bool:
    """True if the type of a value can be inferred in the memory of a record."""
    if len(text) * _NAME_BYTES <= RECORD_BYTES_MAX:
        return True
    scalars, lists, names = text.count(b","), text.count(b"["), text.count(b":")
    return scalars * _SCALAR_BYTES + lists * _LIST_BYTES + names * _NAME_BYTES <= RECORD_BYTES_MAX


def _nulls(text: bytes) -> int:
    """Returns a bound of the nulls that are elements of arrays: those that are members follow a colon."""
    return max(0, text.count(b"null") - text.count(b":null") - text.count(b": null"))


def _widest(members: Members) -> int:
    """Returns the number of members of the struct with the most, at all depths."""
    inner = [kind[1] for _, kind in members if kind[0] == "struct"]
    return max(len(members), *map(_widest, inner)) if inner else len(members)


def _elements(kind: Type) -> Iterable[Type]:
    """Yields the types of the elements of all arrays within a type."""
    if isinstance(kind, str):
        return
    if kind[0] == "array":
        yield kind[1]
        yield from _elements(kind[1])
        return
    for _, column in columns(kind[1]):
        yield from _elements(column)
