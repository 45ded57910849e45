"""A report of one run: the comparison as one table, every cell with its spread, the ratios beside their targets."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loadtests.bench.figures import Row, ratio_of
from loadtests.bench.targets import Verdict, verdicts_of
from loadtests.bench.works import BARE, BESIDE_PEERS, KAFKA, TITLES, WORKS, Work, key_of
from loadtests.host.machine import Machine

NONE = "–"
PAGE_BEGIN, PAGE_END = "<!-- begin: written by make bench-peers -->", "<!-- end -->"
UNIT_NOTE = "Server CPU in microseconds a record: all threads and child processes of the server. Medians of the rounds."
OPEN_NOTE = "1,000 records/s: an open loop; p50 and p99 in ms from the scheduled time to the consumer."


@dataclass(frozen=True, slots=True)
class Report:
    """All results of a run."""

    plan: str
    started: str
    machine: Machine
    facts: tuple[str, ...]
    rows: tuple[Row, ...]
    checked: int
    problems: tuple[str, ...]
    took_s: float

    @property
    def is_correct(self) -> bool:
        return not self.problems

    @property
    def verdicts(self) -> list[Verdict]:
        return verdicts_of(self.rows)


def to_markdown(report: Report) -> str:
    return "\n".join(_lines(report, tables(report))) + "\n"


def into_page(page: str, report: Report) -> str:
    """Returns the page with the comparison between its two marks. Raises ValueError for a page without them."""
    before, begin, rest = page.partition(PAGE_BEGIN)
    _, end, after = rest.partition(PAGE_END)
    if not end:
        raise ValueError(f"the page needs the lines {PAGE_BEGIN} and {PAGE_END}")
    comparison = "\n".join(_lines(report, tables(report)[:1]))
    return f"{before}{begin}\n\n{comparison}\n\n{end}{after}"


def to_json(report: Report) -> str:
    return json.dumps(dataclasses.asdict(report), indent=2) + "\n"


def verdict_line(report: Report) -> str:
    """Returns one line on the checks of the logs."""
    if report.is_correct:
        return f"Checked after {report.checked} sessions: each log has exactly the acknowledged records."
    return f"{len(report.problems)} of {report.checked} checks FAILED."


def columns(report: Report) -> list[str]:
    """Returns the servers: those of the page, or those that were measured if others are among them."""
    measured = {row.cell.server for row in report.rows}
    chosen = BESIDE_PEERS if measured <= set(BESIDE_PEERS) else measured
    return [server for server in TITLES if server in chosen]


def summary(report: Report) -> list[list[str]]:
    """Returns the comparison: a line for each work, a column for each of `columns`."""
    lines, servers = [], columns(report)
    for work in WORKS:
        of_work = [row for row in report.rows if row.cell.work == work]
        if of_work:
            lines.append(
                [work.title, *(_cell(work, [row for row in of_work if row.cell.server == c]) for c in servers)]
            )
    return lines


def details(report: Report) -> list[list[str]]:
    """Returns a line for each cell, with its spread and its ratio to Kafka, or to the bare function without Kafka."""
    by_key = {row.cell.key: row for row in report.rows}
    lines = []
    for row in report.rows:
        work = row.cell.work.key
        keys = key_of(work, KAFKA), key_of(work, BARE, row.cell.form), key_of(work, BARE)
        other = next((by_key[key] for key in keys if key in by_key), None)
        ratio = ratio_of(row.rounds, other.rounds, "cpu") if other and row is not other else None
        least, most = row.cpu_us_spread
        lines.append(
            [
                row.cell.work.title,
                " ".join(part for part in (TITLES[row.cell.server], row.cell.form) if part),
                number(row.cpu_us) + ("" if row.is_warm else "‡"),
                f"{number(least)} to {number(most)}",
                NONE if ratio is None else f"{number(ratio.median)}",
                rate(row.records_per_s) + ("†" if row.is_generator_bound else ""),
                f"{milliseconds(row.p50_ms)} / {milliseconds(row.p99_ms)}",
            ]
        )
    return lines


DETAIL_COLUMNS = (
    "work",
    "server",
    "CPU µs a record",
    "least to most",
    "times Kafka's, bare's",
    "records/s",
    "p50 / p99 ms",
)


def ratios(report: Report) -> list[list[str]]:
    """Returns a line for each target with what was measured."""
    return [
        [
            _title_of(verdict.target.cell),
            verdict.target.figure if verdict.target.figure != "cpu" else "CPU",
            _title_of(verdict.target.against),
            f"{number(verdict.ratio.median)} ({number(verdict.ratio.least)} to {number(verdict.ratio.most)})",
            number(verdict.target.at_most),
            verdict.word,
        ]
        for verdict in report.verdicts
    ]


RATIO_COLUMNS = ("cell", "figure", "times that of", "measured (least to most)", "target", "")


def notes(report: Report) -> list[str]:
    busiest = max((row.others_share for row in report.rows), default=0.0)
    lines = [UNIT_NOTE, OPEN_NOTE]
    if any(row.is_generator_bound for row in report.rows):
        lines.append("† the generator used its whole core: the server may be faster.")
    compiling = max((row.compiler_share for row in report.rows), default=0.0)
    if not all(row.is_warm for row in report.rows):
        lines.append(
            f"‡ the JVM was not warm: its compiler took up to {compiling:.0%} of the CPU. No target is judged by it."
        )
    lines.append(f"Other programs used up to {busiest:.0%} of the machine in a round.")
    if report.machine.flush_caveat:
        lines.append(f"Mind: {report.machine.flush_caveat}.")
    return lines


def head(report: Report) -> list[str]:
    machine = report.machine
    return [
        f"{machine.cores} cores, {machine.cpu}, {machine.memory_bytes / 2**30:.1f} GiB, kernel {machine.kernel}",
        f"Python {machine.python}, data on {machine.file_system}; servers and generators share the machine",
        f"append and fdatasync of 4 KiB: {machine.flush_p50_ms:.2f} ms (p50)",
        f"plan {report.plan}, {report.started}, {report.took_s:.0f} s",
        *report.facts,
    ]


def number(value: float) -> str:
    """Returns three digits or so."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def rate(per_s: float) -> str:
    return f"{per_s / 1e6:.2f} M" if per_s >= 1e5 else f"{per_s:,.0f}"


def milliseconds(value: float | None) -> str:
    return NONE if value is None else number(value)


def _cell(work: Work, rows: Sequence[Row]) -> str:
    if not rows:
        return NONE
    if work.kind == "delivery":
        (row,) = rows
        return f"{number(row.cpu_us)}; {milliseconds(row.p50_ms)} / {milliseconds(row.p99_ms)} ms"
    return ", ".join(" ".join(part for part in (row.cell.form, number(row.cpu_us)) if part) for row in rows)


def _title_of(key: str) -> str:
    """Returns a key as words: the work and the server with its form."""
    work, server, *form = key.split("/", 2)
    title = next(item.title for item in WORKS if item.key == work)
    return f"{title}: {' '.join((TITLES[server], *form))}"


Table = tuple[str, Sequence[str], list[list[str]]]


def tables(report: Report) -> list[Table]:
    """Returns the three tables: title, columns, lines."""
    return [
        ("Server CPU, µs a record", ("work", *(TITLES[name] for name in columns(report))), summary(report)),
        ("Ratios and targets", RATIO_COLUMNS, ratios(report)),
        ("Every cell", DETAIL_COLUMNS, details(report)),
    ]


def _lines(report: Report, shown: Sequence[Table]) -> Iterator[str]:
    yield from (f"- {fact}" for fact in head(report))
    for title, columns, lines in shown:
        yield from ("", f"### {title}", "")
        yield from _table(columns, lines)
    yield ""
    yield from (f"- {line}" for line in (*notes(report), verdict_line(report), *report.problems))


def _table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield "|---|" + "---:|" * (len(columns) - 1)
    yield from (f"| {' | '.join(line)} |" for line in lines)
