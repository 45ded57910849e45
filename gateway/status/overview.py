"""`GET /v1/overview`: the findings of all processes of the cluster, worst first, and totals. A caller sees its own."""

from __future__ import annotations

from math import isnan

from engine.format.paths import INTERNAL_TOPICS
from gateway.access.access import limits_of
from gateway.groups.model.settings import PUSH_PREFIX
from gateway.http.documents import answer_document
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.rights import Caller, Operation, Resource
from gateway.status.calls import Gathered, ProcessStatus, gather, status_of
from gateway.status.context import StatusContext
from gateway.status.findings import Finding, worst_first
from gateway.status.history import merge
from gateway.status.series import MEANINGS, NODE

FINDINGS_MAX = 1000
TOTALS = (
    "records_in_per_s", "bytes_in_per_s", "bytes_out_per_s", "requests_per_s", "errors_per_s", "refusals_per_s",
    "ack_p99_s", "connections", "log_bytes", "free_bytes", "tier_lag_s", "group_lag_records", "group_lag_s",
)  # fmt: skip


async def describe_overview(request: Request, context: StatusContext) -> Response:
    """GET /v1/overview"""
    read_query(request, NoQuery)
    caller, admin, peers = request.caller, context.admin, context.admin.peers
    gathered = await gather(peers, "status", None, await status_of(context.observer), ProcessStatus)
    findings = [finding for finding in findings_of(gathered) if is_shown(caller, finding)]
    space = request.space
    names = [
        topic.record
        for topic in admin.topics.all()
        if topic.record.name not in INTERNAL_TOPICS
        and (space is None or topic.record.name.startswith(space.prefix))
        and caller.allows(Operation.READ, topic.record.name)
    ]
    document: dict[str, object] = {
        "level": findings[0].level if findings else "ok",
        "findings": [_shown(finding) for finding in findings[:FINDINGS_MAX]],
        "more_findings": max(0, len(findings) - FINDINGS_MAX),
        "topics": len(names),
        "partitions": sum(record.partitions for record in names),
        "version": context.version,
    }
    document |= limits_of(caller, Operation.READ)
    if sees_cluster(caller):
        view = peers.cluster
        document |= {
            "cluster_id": admin.cluster_id,
            "node_id": peers.node_id,
            "nodes": max(1, len(view.nodes)),
            "nodes_missing": gathered.missing,
            "totals": _totals(gathered.all),
            "disks": [
                {"node_id": status.node_id, "path": disk.path, "free_bytes": disk.free_bytes,
                 "size_bytes": disk.size_bytes, "offline": disk.fault}
                for status in gathered.all for disk in status.directories
            ],
        }  # fmt: skip
    return await answer_document(request, document, is_polled=True)


def findings_of(gathered: Gathered[ProcessStatus]) -> list[Finding]:
    """Returns the findings of all processes, and those about the cluster as this node sees it."""
    here = [finding for status in gathered.all for finding in status.findings]
    of_cluster = [finding for status in (gathered.own, *gathered.of_node) for finding in status.of_cluster]
    return worst_first(here + of_cluster)


def sees_cluster(caller: Caller) -> bool:
    """Returns whether a caller may see what is about nodes. Inside of a tenant none may."""
    return caller.space is None and caller.allows(Operation.DESCRIBE, "", Resource.CLUSTER)


def sees_group(caller: Caller, group: str) -> bool:
    """Returns whether a caller may see a group: that of a push subscription, if it may see the subscription."""
    if group.startswith(PUSH_PREFIX):
        return caller.allows(Operation.DESCRIBE, group.removeprefix(PUSH_PREFIX), Resource.SUBSCRIPTION)
    return caller.allows(Operation.DESCRIBE, group, Resource.GROUP)


def is_shown(caller: Caller, finding: Finding) -> bool:
    """Returns whether a caller has the right to what a finding is about."""
    if finding.group:
        return sees_group(caller, finding.group)
    if finding.topic:
        is_internal = finding.topic in INTERNAL_TOPICS  # an operator's concern, which no caller may read
        return sees_cluster(caller) if is_internal else caller.allows(Operation.READ, finding.topic)
    return sees_cluster(caller)


def _shown(finding: Finding) -> dict[str, object]:
    group = finding.group
    return {
        "code": finding.code,
        "level": finding.level,
        "subject": finding.subject,
        "found": finding.found,
        "remedy": finding.remedy,
        "runbook": finding.runbook,
        "topic": finding.topic or None,
        "group": None if not group or group.startswith(PUSH_PREFIX) else group,
        "subscription": group.removeprefix(PUSH_PREFIX) if group.startswith(PUSH_PREFIX) else None,
        "age_s": finding.age_ms // 10_000 * 10,
    }


def _totals(statuses: list[ProcessStatus]) -> dict[str, float | None]:
    """Returns the numbers of the last sample over all processes; None: no process has one yet."""
    totals: dict[str, float | None] = {}
    for name in TOTALS:
        values = [[status.values[name]] for status in statuses if name in status.values]
        merged = merge(values, MEANINGS[NODE][name].merge) if values else []
        totals[name] = None if not merged or isnan(merged[0]) else merged[0]
    return totals
