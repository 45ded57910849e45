"""JSON values for property tests: few names, so that records have common and conflicting members."""

from __future__ import annotations

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "A", "id", "dt", "_offset", "with space", "dotted.name", "naïve", ""])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)  # a double column rounds larger ones, as any JSON reader does
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)
