"""The result of a measurement beside its target, and the JSON and Markdown forms."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """One figure beside its target. `is_met` is None where there is no target; `more` has details."""

    what: str
    target: str
    figure: str
    is_met: bool | None
    more: str = ""


def as_json(results: Sequence[Result], facts: Sequence[str]) -> str:
    rows = [dataclasses.asdict(result) for result in results]
    return json.dumps({"facts": list(facts), "results": rows}, indent=2) + "\n"


def as_markdown(results: Sequence[Result], facts: Sequence[str]) -> str:
    lines = [*(f"- {fact}" for fact in facts), "", "| what | target | measured | |", "|---|---|---|---|"]
    lines += [f"| {row.what} | {row.target} | {mark(row)}{row.figure} | {row.more} |" for row in results]
    return "\n".join(lines) + "\n"


def mark(result: Result) -> str:
    return "**missed** " if result.is_met is False else ""
