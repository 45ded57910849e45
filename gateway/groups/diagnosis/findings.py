"""Why a group lags or rebalances: findings from its activity and the lag of its partitions. Pure.

Each finding names one cause and what to do about it. Thresholds are where a healthy group seldom is.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.groups.diagnosis.activity import Activity
from gateway.groups.diagnosis.facts import Behind, Finding, facts_of
from gateway.groups.diagnosis.lag import causes_of_lag
from gateway.groups.diagnosis.queues import causes_of_waiting
from gateway.groups.diagnosis.rebalances import causes_of_rebalances, recent
from gateway.groups.model.settings import SHARE
from gateway.groups.model.values import Slot


def findings(activity: Activity, behind: Mapping[Slot, Behind]) -> list[Finding]:
    """Returns the causes why a group lags or rebalances, those that stop it first."""
    facts = facts_of(activity, behind)
    if facts.settings.kind == SHARE:
        return [*causes_of_waiting(facts), *recent(facts)]
    return [*causes_of_lag(facts), *causes_of_rebalances(facts)]
