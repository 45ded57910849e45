"""Makes one page of HTML of a job's figures, with its plots and styles inside: nothing is loaded, nothing runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from html import escape

from spark_ingest.inspection.figures import PARTS, Figures, TopicFigures, grouped, size_classes
from spark_ingest.inspection.svg import TICKS, Series, bars, lines, shares
from spark_ingest.report import format_bytes

_BARS_MAX = 96
_TOPICS_MAX = 30
_COLUMNS_MAX = 40
_DURATIONS = ((86_400 * 365.25, "years"), (86_400, "d"), (3600, "h"), (60, "min"))
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1c2733;background:#f4f6f8;margin:0}
main{max-width:940px;margin:0 auto;padding:28px 20px}
h1{font-size:25px;margin:0 0 2px} h2{font-size:18px;margin:0 0 2px} h3{font-size:14px;margin:14px 0 0}
.sub{color:#5c6b7a;margin:0 0 10px}
section{background:#fff;border:1px solid #dfe5ea;border-radius:8px;padding:16px 20px;margin:16px 0}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(112px,1fr));gap:12px;margin:16px 0}
.facts div{background:#fff;border:1px solid #dfe5ea;border-radius:8px;padding:10px 14px}
.facts b{display:block;font-size:21px;font-variant-numeric:tabular-nums} .facts span{color:#5c6b7a;font-size:13px}
.bad b{color:#b3261e} svg{width:100%;height:auto;display:block} svg text{font-size:12px;fill:#5c6b7a}
.grid{stroke:#e6ebef;stroke-width:1} .legend{margin:4px 0 0;font-size:13px;color:#3d4a57}
.legend span{margin-right:16px;white-space:nowrap}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:5px}
table{border-collapse:collapse;width:100%;font-size:14px} th{text-align:left;color:#5c6b7a;font-weight:500}
td,th{padding:4px 10px 4px 0;border-bottom:1px solid #eef1f4}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.none{color:#5c6b7a}
"""


def report_page(figures: Figures) -> str:
    """Returns the page. Text of topics, columns and errors is escaped."""
    sections = "".join(
        f"<section><h2>{title}</h2><p class='sub'>{text}</p>{body}</section>"
        for title, text, body in _sections(figures)
    )
    commits = f"commits {figures.first} to {figures.last}" if figures.commits > 1 else f"commit {figures.last}"
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>Job {escape(figures.job)}</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>Job {escape(figures.job)}</h1>"
        f"<p class='sub'>{escape(figures.output)}, {commits}, the last at {_time(figures.committed_ms)}</p>"
        f"{_facts(figures)}{sections}</main></body></html>\n"
    )


def _facts(figures: Figures) -> str:
    total: Counter[str] = Counter()
    for topic_figures in figures.topics.values():
        total.update(topic_figures.counts)
    files = [size for topic in figures.topics.values() for size in topic.files]
    misfits = sum(topic.misfits.total() for topic in figures.topics.values())
    held = sum(bool(topic.held) for topic in figures.topics.values())
    facts = [
        ("rows", f"{total['rows']:,}", False),
        ("files", f"{len(files):,}", False),
        ("in files", format_bytes(sum(files)), False),
        ("dead letters", f"{total['dead letters']:,}", total["dead letters"] > 0),
        ("misfits", f"{misfits:,}", misfits > 0),
        ("lost", f"{total['lost']:,}", total["lost"] > 0),
    ]
    if figures.lag is not None:
        facts.append(("not ingested yet", f"{total['not ingested yet']:,}", False))
    if figures.complete:
        missing = sum(counts.missing for counts in figures.complete.values())
        facts.append(("missing of accepted", f"{missing:,}", missing > 0))
    if held:
        facts.append(("blocked topics", f"{held:,}", True))
    cells = (
        f"<div class='{'bad' if bad else ''}'><b>{value}</b><span>{name}</span></div>" for name, value, bad in facts
    )
    return f"<div class='facts'>{''.join(cells)}</div>"


def _sections(figures: Figures) -> Iterator[tuple[str, str, str]]:
    yield "Freshness", "The age of records when a commit ingested them, by their own timestamp.", _freshness(figures)
    yield "Completeness", "The offsets of each topic, by what became of them.", _completeness(figures)
    if figures.complete:
        text = "Records that nodes accepted, and how many of them are ingested, to come, or missing."
        yield "Accepted and ingested", text, _accepted(figures)
    minutes, events = grouped(figures.events, _BARS_MAX)
    labels = [_label(at, minutes) for at, _ in events]
    plot = bars([count for _, count in events], labels, _count) if events else _none("No commit has counts by time.")
    yield "Rows over time", f"Rows by the time of the event, in periods of {_duration(minutes * 60)}.", plot
    yield "Rows of commits", "The rows that each commit added.", _commits(figures)
    yield "File sizes", "The number of data files in the tables now, by size.", _sizes(figures)
    yield "Skew", "Offsets by partition; the ratio is that of the largest partition to the mean.", _skew(figures)
    yield (
        "Misfits and dead letters",
        "Values of another type than their column, and records without a row.",
        _bad(figures),
    )
    yield "Topics", "The counts of each topic in the commits of this page.", _topics(figures)


def _freshness(figures: Figures) -> str:
    if not figures.ages:
        return _none("No commit has counts by time.")
    series = [
        Series("half of the records are younger", [(age.committed_ms, age.median_s) for age in figures.ages]),
        Series("oldest record", [(age.committed_ms, age.oldest_s) for age in figures.ages]),
    ]
    times = [age.committed_ms for age in figures.ages]
    span_ms = max(times) - min(times)
    text_of = _time if span_ms >= TICKS * 60_000 else _second if span_ms >= TICKS * 1000 else _millisecond
    return lines(series, lambda at: text_of(int(at)), _duration, [unit for unit, _ in _DURATIONS])


def _completeness(figures: Figures) -> str:
    rows = [(topic, [topic_figures.counts[name] for name in PARTS]) for topic, topic_figures in _largest(figures)]
    return (shares(rows, PARTS) if rows else _none("No topic.")) + _more(figures)


def _accepted(figures: Figures) -> str:
    ordered = sorted(figures.complete.items(), key=lambda item: (-item[1].missing, -item[1].accepted, item[0]))
    rows = [
        (
            (escape(topic),),
            [f"{count:,}" for count in (counts.accepted, counts.ingested, counts.pending, counts.missing)],
        )
        for topic, counts in ordered[:_TOPICS_MAX]
    ]
    more = _none(f"and {len(ordered) - _TOPICS_MAX:,} further topics") if len(ordered) > _TOPICS_MAX else ""
    periods = [
        ((escape(topic), "" if at is None else _time(at)), (f"{accepted:,}", f"{ingested:,}"))
        for topic, counts in ordered
        for at, accepted, ingested in counts.periods
    ][:_COLUMNS_MAX]
    table = _table(("topic",), ("accepted", "ingested", "to come", "missing"), rows) + more
    return table + (_table(("topic", "ten minutes from"), ("accepted", "ingested"), periods) if periods else "")


def _commits(figures: Figures) -> str:
    last_commits = figures.rows_of_commits[-_BARS_MAX:]
    if not last_commits:
        return _none("No commit has rows.")
    return bars([rows for _, _, rows in last_commits], [str(number) for number, _, _ in last_commits], _count, 2)


def _sizes(figures: Figures) -> str:
    classes = size_classes(size for topic in figures.topics.values() for size in topic.files)
    if not classes:
        return _none("The tables have no files of these commits.")
    return bars([count for _, count in classes], [f"≤ {_binary(bound)}" for bound, _ in classes], _count, 4)


def _skew(figures: Figures) -> str:
    parts = []
    for topic, topic_figures in _largest(figures)[:8]:
        sizes = sorted(topic_figures.partitions.items())
        if len(sizes) > 1:
            mean = topic_figures.partitions.total() / len(sizes)
            title = f"{escape(topic)}: {max(topic_figures.partitions.values()) / mean:.2f} over {len(sizes)} partitions"
            if len(sizes) > _BARS_MAX:
                sizes = sorted(topic_figures.partitions.most_common(_BARS_MAX))
                title += f", the {_BARS_MAX} largest are shown"
            plot = bars([count for _, count in sizes], [str(number) for number, _ in sizes], _count, 0)
            parts.append(f"<h3>{title}</h3>{plot}")
    return "".join(parts) or _none("No topic has records in more than one partition.")


def _bad(figures: Figures) -> str:
    rows = [
        (escape(topic), escape(name), kind, count)
        for topic, topic_figures in figures.topics.items()
        for kind, counts in (("misfit", topic_figures.misfits), ("dead letter", topic_figures.reasons))
        for name, count in counts.items()
    ]
    rows.sort(key=lambda row: -row[3])
    if not rows:
        return _none("There are none.")
    shown = rows[:_COLUMNS_MAX]
    return _table(("topic", "column or reason", "kind"), ("count",), [(row[:3], (f"{row[3]:,}",)) for row in shown])


def _topics(figures: Figures) -> str:
    rows = []
    for topic, topic_figures in _largest(figures):
        name = escape(topic) + (
            f"<br><span class='none'>blocked: {escape(topic_figures.held)}</span>" if topic_figures.held else ""
        )
        counts = [f"{topic_figures.counts[part]:,}" for part in ("rows", "dead letters", "lost")]
        mean = format_bytes(sum(topic_figures.files) // len(topic_figures.files)) if topic_figures.files else ""
        rows.append(((name,), (*counts, f"{len(topic_figures.files):,}", mean, f"{topic_figures.task_seconds:,.1f} s")))
    heads = ("rows", "dead letters", "lost", "files", "mean file", "in tasks")
    return _table(("topic",), heads, rows) + _more(figures)


def _largest(figures: Figures) -> list[tuple[str, TopicFigures]]:
    ordered = sorted(figures.topics.items(), key=lambda item: (-item[1].counts.total(), item[0]))
    return ordered[:_TOPICS_MAX]


def _more(figures: Figures) -> str:
    rest = len(figures.topics) - _TOPICS_MAX
    return _none(f"and {rest:,} smaller topics") if rest > 0 else ""


def _table(texts: Sequence[str], numbers: Sequence[str], rows: Sequence[tuple[Sequence[str], Sequence[str]]]) -> str:
    head = "".join(f"<th>{text}</th>" for text in texts) + "".join(f"<th class='n'>{text}</th>" for text in numbers)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{cell}</td>" for cell in row)
        + "".join(f"<td class='n'>{count}</td>" for count in counts)
        + "</tr>"
        for row, counts in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _none(text: str) -> str:
    return f"<p class='none'>{escape(text)}</p>"


def _count(value: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.3g}"


def _duration(seconds: float) -> str:
    for unit, name in _DURATIONS:
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"


def _binary(size_bytes: int) -> str:
    for power, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size_bytes >= 1 << power:
            return f"{size_bytes >> power} {name}"
    return f"{size_bytes} B"


def _moment(at_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)


def _time(at_ms: int) -> str:
    return f"{_moment(at_ms):%Y-%m-%d %H:%M}"


def _second(at_ms: int) -> str:
    return f"{_moment(at_ms):%H:%M:%S}"


def _millisecond(at_ms: int) -> str:
    return f"{_moment(at_ms):%H:%M:%S.%f}"[:-3]


def _label(at_ms: int, minutes: int) -> str:
    return f"{_moment(at_ms):%Y-%m-%d}" if minutes >= 1440 else f"{_moment(at_ms):%m-%d %H:%M}"
