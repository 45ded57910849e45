"""The reason why a value has no row. `reason` is a stable code of dead letters, the text a sentence."""

from __future__ import annotations


class Undecodable(Exception):
    """The bytes of a value are not what the recipe says. The record becomes a dead letter."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
