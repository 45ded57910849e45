"""The dependencies of group requests in the process that accepted them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.runtime.clock import Clock
from gateway.connections.single_waiter import SingleWaiters
from gateway.fetch.context import FetchContext
from gateway.groups.hosting.coordinators import Coordinators
from gateway.groups.hosting.dead_letter_copies import CopyDeadLetter
from gateway.http.lifecycle import Lifecycle
from gateway.routing.partitions import Partitions, Topics
from gateway.routing.retry_budget import RetryBudgets
from gateway.routing.router import Router
from gateway.settings import NodeSettings


@dataclass(frozen=True, slots=True)
class GroupContext:
    """`coordinators` has the way to the coordinator of a group, `fetch` reads for its members.

    `copy_dead_letter` copies a dead letter, `single_waiters` are those of the callers of share groups that wait.
    """

    settings: NodeSettings
    topics: Topics
    partitions: Partitions
    router: Router
    budgets: RetryBudgets
    fetch: FetchContext
    coordinators: Coordinators
    lifecycle: Lifecycle
    clock: Clock
    new_id: Callable[[], str]
    copy_dead_letter: CopyDeadLetter
    single_waiters: SingleWaiters = field(default_factory=SingleWaiters)
