"""The page of the figures: the table is between two marks. Pure."""

from __future__ import annotations

from collections.abc import Sequence

BEGIN, END = "<!-- begin: written by make bench-ingest -->", "<!-- end -->"


def with_table(page: str, lines: Sequence[str]) -> str:
    """Returns the page with these lines between its marks. Raises ValueError for a page without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return "\n".join([before + begin, "", *lines, "", end + after])
