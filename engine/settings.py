"""Declares settings.

A setting is a number, word or flag with a unit in its name, a default, bounds and the reason for them; components
(disks, stores, clocks) are never settings. docs/reference/settings.md is generated from these declarations and tested.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from engine.errors import InvalidConfig

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


class Rule(NamedTuple):
    """The allowed values of one setting, and the reason. `choices` bounds a word, minimum and maximum a number."""

    name: str
    default: Any
    minimum: int | None
    maximum: int | None
    choices: tuple[str, ...]
    optional: bool
    why: str

    def check(self, value: object) -> object:
        """Returns the value if it is allowed. Raises InvalidConfig with the allowed values otherwise."""
        if value is None and self.optional:
            return None
        if isinstance(self.default, bool):
            return self._expect(isinstance(value, bool), value, "true or false")
        if isinstance(self.default, tuple):
            is_list = isinstance(value, list | tuple) and all(isinstance(item, str) and item for item in value)
            self._expect(is_list, value, "a list of texts, none of them empty")
            return tuple(value)  # type: ignore[arg-type]
        if self.choices:
            return self._expect(value in self.choices, value, " or ".join(self.choices))
        if isinstance(self.default, str) or self.minimum is None:
            if (
                self.maximum is not None
                and isinstance(value, str)
                and len(value.encode(errors="replace")) > self.maximum
            ):
                raise InvalidConfig(f"{self.name} has more than {self.maximum} bytes", setting=self.name)
            return self._expect(isinstance(value, str), value, "a text")
        if isinstance(self.default, float):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            bounds = f"a number from {self.minimum} to {self.maximum}"
            return float(self._expect(is_number and self.minimum <= value <= self.maximum, value, bounds))  # type: ignore[operator,arg-type]
        is_number = isinstance(value, int) and not isinstance(value, bool)
        bounds = f"a whole number from {self.minimum} to {self.maximum}" + (" or null" if self.optional else "")
        assert self.maximum is not None
        return self._expect(is_number and self.minimum <= value <= self.maximum, value, bounds)  # type: ignore[operator]

    def _expect(self, ok: bool, value: object, expected: str) -> object:
        if not ok:
            raise InvalidConfig(f"{self.name} is {value!r}", hint=f"give {expected}", setting=self.name)
        return value


def setting(
    default: Any,
    *,
    why: str,
    minimum: int | None = None,
    maximum: int | None = None,
    choices: tuple[str, ...] = (),
    optional: bool = False,
) -> Any:
    """Declare a dataclass field with bounds and a reason."""
    rule = {"minimum": minimum, "maximum": maximum, "choices": choices, "optional": optional, "why": why}
    return dataclasses.field(default=default, metadata=rule)


def rules(settings: type) -> Iterator[Rule]:
    """Yields the rule of each setting, in the order of declaration."""
    for field in dataclasses.fields(settings):
        if field.metadata:
            yield Rule(field.name, field.default, **field.metadata)


def checked(settings: type, given: Mapping[str, object]) -> dict[str, object]:
    """Returns the given values, each checked against its rule. Raises InvalidConfig, also for an unknown name."""
    rules_by_name = {rule.name: rule for rule in rules(settings)}
    unknown = sorted(given.keys() - rules_by_name.keys())
    if unknown:
        raise InvalidConfig(
            f"no setting is called {unknown[0]}", hint="see /docs or docs/reference/settings.md", setting=unknown[0]
        )
    return {name: rules_by_name[name].check(value) for name, value in given.items()}
