"""The dependencies of requests about subscriptions in the process that accepted them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.groups.context import GroupContext
from gateway.subscriptions.sender import Sender


@dataclass(frozen=True, slots=True)
class PushContext:
    """`sender` is None where the operator has not allowed push. `random_bytes` makes secrets."""

    groups: GroupContext
    sender: Sender | None
    random_bytes: Callable[[int], bytes]
