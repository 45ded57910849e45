"""The table of results: from recorded verdicts to docs/internals/reliability.md and to printed lines."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from tests.chaos.faults import FAULTS
from tests.chaos.judge import Verdict
from tests.chaos.machines.hosts import ROOT
from tests.checking.group_checkers import Figures

PACKAGES = ("engine", "gateway", "node", "openapi", "penstock", "penstock_codec", "replication", "spark_ingest")
RECORDED = ROOT / "docs" / "internals" / "reliability.json"
PAGE = ROOT / "docs" / "internals" / "reliability.md"
BEGIN, END = "<!-- begin: written by make chaos -->", "<!-- end -->"
HEADS = (
    "fault",
    "runs",
    "injections",
    "acknowledged",
    "lost",
    "duplicates",
    "other findings",
    "unavailable p50",
    "max",
    "errors to the client library's users",
    "old reads",
    "oldest",
)


def line(verdict: Verdict) -> str:
    pauses = f"unavailable {spread(verdict.pauses_s)}" if verdict.pauses_s else "no injections"
    return (
        f"{verdict.fault:20} seed {verdict.seed:4}  {verdict.acknowledged:6} acknowledged, {verdict.lost} lost, "
        f"{verdict.duplicates} duplicates, {verdict.others} other findings, {pauses}, "
        f"{verdict.client_errors} client errors; acks=1: {verdict.acknowledged_acks_1}, {verdict.lost_acks_1} lost; "
        f"{verdict.streamed} events streamed; {verdict.old_reads} of {verdict.reads} reads old, by "
        f"{verdict.oldest_read_s:.1f} s at most" + (f"; {verdict.groups}" if verdict.groups else "")
    )


def spread(pauses_s: Sequence[float]) -> str:
    return f"p50 {median(pauses_s):.1f} s, max {max(pauses_s):.1f} s"


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return (
        f"{os.cpu_count()} cores, {memory} GiB, Linux {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}"
    )


def commit(source: Path) -> str:
    """Return the commit of the nodes' code; a + follows it if their files differ from it."""
    git = ["git", "-C", str(source)]
    document = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run([*git, "status", "--porcelain", "--", *PACKAGES], capture_output=True, check=False)
    return f"{document.stdout.strip() or 'unknown'}{'+' if changed.stdout else ''}"


def table(verdicts: Iterable[Verdict]) -> str:
    """Return a table with a row for each fault, in the order of the faults."""
    by_fault: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_fault.setdefault(verdict.fault, []).append(verdict)
    rows = [HEADS, tuple("---" if n == 0 else "---:" for n in range(len(HEADS)))]
    rows += [_row(FAULTS[name].what, by_fault[name]) for name in FAULTS if name in by_fault]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(what: str, runs: list[Verdict]) -> tuple[str, ...]:
    pauses = [pause for run in runs for pause in run.pauses_s] or [0.0]
    return (
        what,
        str(len(runs)),
        str(sum(len(run.pauses_s) for run in runs)),
        f"{sum(run.acknowledged for run in runs):,}",
        str(sum(run.lost for run in runs)),
        str(sum(run.duplicates for run in runs)),
        str(sum(run.others for run in runs)),
        f"{median(pauses):.1f} s",
        f"{max(pauses):.1f} s",
        str(sum(run.client_errors for run in runs)),
        *_reads(runs),
    )


def _reads(runs: list[Verdict]) -> tuple[str, str]:
    """Return the count of reads; old records have none."""
    if not any(run.reads for run in runs):
        return ("", "")
    return (
        f"{sum(run.old_reads for run in runs):,} of {sum(run.reads for run in runs):,}",
        f"{max(run.oldest_read_s for run in runs):.1f} s",
    )


def load_recorded(path: Path = RECORDED) -> dict[str, Any]:
    return orjson.loads(path.read_bytes()) if path.exists() else {"machine": "", "verdicts": []}


def record(verdict: Verdict, path: Path = RECORDED) -> None:
    """Record the run, in place of an earlier one of the same fault and seed, with or without groups.

    Keeps every field except the codes.
    """
    recorded, key = load_recorded(path), _key(verdict.as_json())
    others = [verdict_row for verdict_row in recorded["verdicts"] if _key(verdict_row) != key]
    document = {"machine": machine(), "verdicts": [*others, verdict.as_json() | {"codes": {}}]}
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")


def _key(verdict_row: dict[str, Any]) -> tuple[str, int, bool]:
    return verdict_row["fault"], verdict_row["seed"], verdict_row.get("groups") is not None


def generated(recorded: dict[str, Any]) -> str:
    verdicts = [_verdict(verdict) for verdict in recorded["verdicts"]]
    if not verdicts:
        return f"{BEGIN}\nNo runs are recorded.\n{END}"
    seconds = sorted({round(verdict.seconds) for verdict in verdicts})
    commits = list(dict.fromkeys(verdict.commit for verdict in verdicts))
    facts = f"Runs of {' and '.join(map(str, seconds))} s on {recorded['machine']}; commits {', '.join(commits)}."
    return f"{BEGIN}\n{facts}\n\n{table(verdicts)}\n{END}"


def _verdict(recorded: dict[str, Any]) -> Verdict:
    groups = recorded.get("groups")
    return Verdict(**{**recorded, "groups": Figures(**groups) if groups else None})


def with_generated(page: str, recorded: dict[str, Any]) -> str:
    before, _, rest = page.partition(BEGIN)
    assert rest, f"{BEGIN} is missing"
    return before + generated(recorded) + rest.partition(END)[2]


def write_page() -> None:
    PAGE.write_text(with_generated(PAGE.read_text(), load_recorded()))
