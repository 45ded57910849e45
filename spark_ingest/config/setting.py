"""Declares a setting of a job file: its name, type, default, bounds and reason. Checks one value."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

TEXT, WHOLE, NUMBER, SWITCH, TEXTS, TABLE, TABLES = (
    "text",
    "whole number",
    "number",
    "true or false",
    "list of texts",
    "table",
    "list of tables",
)
_TYPES: dict[str, type | tuple[type, ...]] = {
    TEXT: str,
    WHOLE: int,
    NUMBER: (int, float),
    SWITCH: bool,
    TEXTS: list,
    TABLE: dict,
    TABLES: list,
}


# By the name of a setting: another one, and its values with which the setting has an effect.
Needs = Mapping[str, tuple[str, Collection[str]]]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `check` returns why a value of the right type is wrong, and what to write; None if it is right."""

    name: str
    kind: str
    default: Any
    why: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    is_required: bool = False
    may_be_empty: bool = False
    check: Callable[[Any], str | None] | None = None

    def problem(self, value: object) -> str | None:
        """Returns why a value is wrong, and what to write; None if it is right."""
        is_type = isinstance(value, _TYPES[self.kind]) and (self.kind == SWITCH or not isinstance(value, bool))
        if self.kind in (TEXTS, TABLES) and is_type:
            assert isinstance(value, list)
            is_type = all(isinstance(item, str if self.kind == TEXTS else dict) for item in value)
        if not is_type:
            return f"is {_shown(value)}; write {self.bounds.replace('`', '')}"
        if self.choices and value not in self.choices:
            return f"is {_shown(value)}; write one of: {', '.join(self.choices)}"
        if self.kind == TEXT and not value:
            if self.may_be_empty:
                return None
            return "is empty; write a text, or remove the line"
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = self.minimum, self.maximum
            if (low is not None and value < low) or (high is not None and value > high):
                return f"is {_shown(value)}; write {self.bounds}"
        return self.check(value) if self.check else None

    @property
    def bounds(self) -> str:
        """Returns the allowed values as text."""
        if self.choices:
            return ", ".join(f"`{choice}`" for choice in self.choices)
        if self.minimum is not None or self.maximum is not None:
            low = "" if self.minimum is None else f"from {self.minimum:,} "
            high = "" if self.maximum is None else f"to {self.maximum:,}"
            return f"a {self.kind} {low}{high}".strip()
        return _article(self.kind)


def without_effect(
    given_settings: Mapping[str, Any], settings: Mapping[str, Any], needs: Needs
) -> list[tuple[str, str]]:
    """Returns the settings of a section that the value of another one leaves without an effect."""
    wrong = [
        (name, needs[name][0])
        for name in given_settings
        if name in needs and settings[needs[name][0]] not in needs[name][1]
    ]
    return [(name, f"has no effect on {other} {settings[other]}; remove it") for name, other in wrong]


def is_expression(value: str) -> str | None:
    """Returns why a text is not a regular expression; None if it is one."""
    try:
        re.compile(value)
    except re.error as error:
        return f"is not a regular expression: {error}; correct it"
    return None


def _article(kind: str) -> str:
    return kind if kind == SWITCH else f"a {kind}"


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
