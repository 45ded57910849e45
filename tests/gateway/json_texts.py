"""Strategies: JSON documents together with one of the many texts that represent them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

# UTF-8 has no surrogates; handwritten tests cover numbers beyond a double.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6
)
SPACES = st.text(" \t\r\n", max_size=3)
SPACES_IN_LINE = st.text(" \t", max_size=3)


@st.composite
def written(draw: st.DrawFn, value: Any, spaces: st.SearchStrategy[str] = SPACES) -> str:
    """Return a text of a value, with white space anywhere and characters escaped or not."""

    def space() -> str:
        return draw(spaces)

    if isinstance(value, dict):
        pairs = [
            f"{space()}{draw(written(name, spaces))}{space()}:{space()}{draw(written(one, spaces))}{space()}"
            for name, one in value.items()
        ]
        return "{" + (",".join(pairs) or space()) + "}"
    if isinstance(value, list):
        return "[" + (",".join(f"{space()}{draw(written(one, spaces))}{space()}" for one in value) or space()) + "]"
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


def json_texts(values: st.SearchStrategy[Any] = VALUES, spaces: st.SearchStrategy[str] = SPACES) -> Any:
    return values.flatmap(lambda value: written(value, spaces))
