"""The dependencies of requests about subscriptions in the process that accepted them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.access.owners import Owners
from gateway.groups.context import GroupContext

if TYPE_CHECKING:  # it imports aiohttp, which few nodes need
    from gateway.subscriptions.sender import Sender


@dataclass(frozen=True, slots=True)
class PushContext:
    """`sender` is None where the operator has not allowed push. `owners` names the owner of what a request makes.

    `random_bytes` makes secrets.
    """

    groups: GroupContext
    sender: Sender | None
    owners: Owners
    random_bytes: Callable[[int], bytes]
