"""One run: its own topic, load, repeated injections of a fault, then quiet, and the verdict."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

import orjson

from engine.format.paths import GROUPS_TOPIC
from tests.chaos.clients.final import Unreadable, judge_what_is_left
from tests.chaos.clients.load import Load
from tests.chaos.clients.node_client import now
from tests.chaos.clients.streams import Streams
from tests.chaos.faults import HOUR_MS, Fault, Scene
from tests.chaos.groups.load import GroupLoad
from tests.chaos.judge import Verdict
from tests.chaos.machines.cluster import PARTITIONS, Cluster, NotHealthy, copy_logs
from tests.checking.history import History
from tests.checking.recreation_checkers import check_recreations
from tests.checking.recreation_history import Recreations

WARM_S = 3.0
CALM_S = (2.0, 4.0)  # between two injections
AFTER_S = 3.0  # the load continues after the last fault


async def run(
    cluster: Cluster, fault: Fault, seed: int, seconds: float, commit: str, evidence: Path, *, has_groups: bool = True
) -> Verdict:
    """Do one run. `evidence`: directory for history and logs if there are findings."""
    topic = f"{fault.name}-{seed}"
    verdict = Verdict(fault.name, seed, seconds, commit)
    load = Load(topic, PARTITIONS, cluster.urls)
    streams = Streams(topic, PARTITIONS, cluster.urls, load.history, load.codes)
    groups = GroupLoad(cluster, topic, load.codes) if has_groups else None
    scene = Scene(cluster, topic, random.Random(f"{fault.name} {seed}"), groups.groups if groups else ())
    cluster.injections.clear()
    await cluster.create(topic)
    try:
        await cluster.wait_until_healthy(topic)
        if groups is not None:
            await groups.begin()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(streams.running())
            if groups is not None:
                await stack.enter_async_context(groups.running())
            async with load.running():
                await asyncio.sleep(WARM_S)
                await _inject(scene, fault, now() + seconds, groups)
                await cluster.mend()
                await cluster.wait_until_healthy(topic)
                await asyncio.sleep(AFTER_S)
            rows = await cluster.wait_until_healthy(topic, is_quiet=True)
            ends = {row["partition"]: row["high_watermark"] for row in rows}
            await streams.catch_up(ends)
            if groups is not None:
                verdict.findings += await groups.drain(ends)
        if groups is not None:
            findings, verdict.groups = groups.judge(ends)
            verdict.findings += findings
        began = [at for at, _ in cluster.injections]
        await judge_what_is_left(verdict, cluster, topic, load.history, began, streams.streamed)
        if fault.has_clocks and load.skew_seen_ms < HOUR_MS:
            verdict.findings.append(f"C14 no clock was wrong: records were stamped at most {load.skew_seen_ms} ms off")
    except* (NotHealthy, Unreadable, AssertionError) as group:  # groups come from the load's task groups
        verdict.findings += [f"C14 {type(error).__name__}: {error}" for error in errors_in(group)]
    verdict.findings += scene.findings
    verdict.findings += [text for recreation in scene.recreations for text in check_recreations(recreation)]
    verdict.client_errors = load.errors.total()
    verdict.codes = dict((load.codes + load.errors).most_common())
    if verdict.findings:
        copy_logs(cluster, evidence)
        keep(evidence, load.history, verdict, cluster.injections, groups)
        keep_recreations(evidence, scene.recreations)
    return verdict


def errors_in(group: BaseException) -> list[BaseException]:
    """Return the errors of a group and of the groups within it."""
    if isinstance(group, BaseExceptionGroup):
        return [error for exception in group.exceptions for error in errors_in(exception)]
    return [group]


async def _inject(scene: Scene, fault: Fault, until: float, groups: GroupLoad | None) -> None:
    """Inject at least once; wait for the end of the last injection."""
    while True:
        began = now()
        await fault.inject(scene)
        await scene.cluster.wait_until_healthy(scene.topic)
        if groups is not None:
            await scene.cluster.wait_until_healthy(GROUPS_TOPIC)
            if not fault.keeps_locks:
                groups.note_fault(began, now())
        if now() >= until:
            return
        await scene.hold(*CALM_S)


def keep(
    target: Path,
    history: History,
    verdict: Verdict,
    injections: Sequence[tuple[float, str]],
    groups: GroupLoad | None = None,
) -> None:
    events = [(write.invoked_at, "produced", asdict(write)) for write in history.produced]
    events += [(poll.at, "polled", asdict(poll)) for poll in history.polled]
    events += [(latest.asked_at, "latest", asdict(latest)) for latest in history.latest]
    events += [(refusal.asked_at, "refused", asdict(refusal)) for refusal in history.refused]
    events += [(at, "injected", {"what": what}) for at, what in injections]
    events += [] if groups is None else groups.history.events() + groups.share.events()
    events.sort(key=lambda event: event[0])
    (target / "history.jsonl").write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
    (target / "findings.txt").write_text("\n".join(verdict.findings) + "\n")


def keep_recreations(target: Path, recreations: Sequence[Recreations]) -> None:
    for recreation in recreations:
        (target / f"{recreation.topic}.json").write_bytes(orjson.dumps(asdict(recreation), default=tuple))
