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
    return json.dumps({"facts": list(facts), "results": [dataclasses.asdict(one) for one in results]}, indent=2) + "\n"


def as_markdown(results: Sequence[Result], facts: Sequence[str]) -> str:
    lines = [*(f"- {fact}" for fact in facts), "", "| what | target | measured | |", "|---|---|---|---|"]
    lines += [f"| {one.what} | {one.target} | {mark(one)}{one.figure} | {one.more} |" for one in results]
    return "\n".join(lines) + "\n"


def mark(one: Result) -> str:
    return "**missed** " if one.is_met is False else ""
