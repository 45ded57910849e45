"""A page of a list: the items whose names begin with a prefix, in order, behind the last item of the page before.

Every list by names takes this query and answers `total` and `next`. A page begins behind a name and not at a number, so
items that come and go between two pages make no other item appear twice or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import isfinite, nan
from typing import Annotated, TypeVar

from msgspec import Struct

from gateway.http.problems import Problem
from gateway.http.query import Number, Text
from gateway.http.rights import Names

LIMIT_MAX = 1000
NAME_CHARS_MAX = 400  # more than the longest name, that of a quota, with a number before it

T = TypeVar("T")


class PageQuery(Struct, frozen=True):
    """`after` is what `next` of the page before has: a name, behind a number and a colon where numbers sort."""

    prefix: Annotated[str, Text(NAME_CHARS_MAX)] = ""
    limit: Annotated[int | None, Number(1, LIMIT_MAX)] = None
    after: Annotated[str, Text(NAME_CHARS_MAX)] = ""


def select(query: PageQuery, items: Iterable[T], name_of: Callable[[T], str], space: Names | None = None) -> list[T]:
    """Returns the items with the prefix. `space`: their names are stored with that of the caller's tenant before it."""
    prefix = query.prefix if space is None else space.prefix + query.prefix
    return [item for item in items if name_of(item).startswith(prefix)]


def cut(
    query: PageQuery,
    items: Sequence[T],
    name_of: Callable[[T], str],
    space: Names | None = None,
    *,
    number_of: Callable[[T], float] | None = None,
    limit: int | None = None,
) -> tuple[list[T], dict[str, object]]:
    """Returns the page, and its members of the answer. `number_of` sorts, the greatest first; `limit` is the default.

    Raises Problem invalid_query.
    """

    def position_of(item: T) -> tuple[float, str]:
        return 0.0 if number_of is None else -number_of(item), name_of(item)

    rest = sorted(items, key=position_of)
    if query.after:
        number = nan
        value, name = ("0", query.after) if number_of is None else query.after.partition(":")[::2]
        with suppress(ValueError):
            number = float(value)
        if not isfinite(number):
            text = f"after is {query.after!r}; give what `next` has"
            raise Problem("invalid_query", text, parameter="after")
        last = -number, name if space is None else space.prefix + name
        rest = [item for item in rest if position_of(item) > last]
    page = rest[: query.limit or limit or len(rest)]
    following = None
    if len(page) < len(rest):
        number, name = position_of(page[-1])
        following = name if number_of is None else f"{-number!r}:{name}"
    return page, {"total": len(items), "next": following}


def page_of(
    query: PageQuery, items: Iterable[T], name_of: Callable[[T], str], space: Names | None = None
) -> tuple[list[T], dict[str, object]]:
    """Returns the page of the items with the prefix, and its members of the answer."""
    return cut(query, select(query, items, name_of, space), name_of, space)
