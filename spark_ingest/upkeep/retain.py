"""Retires old days of tables: removes the data files of days that are older than a number of days.

    1 Choose the cut of each topic: the day `keep_days` before the newest commit, and the newest commit's number.
    2 Store the cuts, create-if-absent. From this moment the files that they cover are no longer expected.
    3 Remove the files that commits or rewrites name and a cut covers; then the states before.

After a kill: before 2 nothing has changed; after 2 the next one removes the rest. Age is by the output store's time of
the newest commit, so no clock of a driver removes anything. A file that no commit names stays and is named.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import IngestRefused
from spark_ingest.layout import DAY, HOUR, PATTERNS, Layout
from spark_ingest.output import names
from spark_ingest.output.owners import layouts_of
from spark_ingest.output.retained import Cut, Retained, load_retained
from spark_ingest.output.rewrites import Rewrites
from spark_ingest.output.stores import put_once
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History


@dataclass(slots=True)
class Retired:
    """The result: removed files and bytes, the cuts, and files that no commit names."""

    files: int = 0
    size_bytes: int = 0
    cuts: dict[str, Cut] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


def retain(output: ObjectStore, job: str, topics: re.Pattern[str], keep_days: int, *, is_dry: bool = False) -> Retired:
    """Remove the files of days before the cuts, also those that an earlier call left.

    Raises IngestRefused if tables of a catalog name the files, UnreadablePlan.
    """
    assert keep_days > 0
    history = History(output, job)
    head = history.head()
    if history.is_published():
        hint = "delete old rows with an engine that uses the catalog"
        raise IngestRefused(f"Iceberg tables have the files of job {job}", hint=hint)
    if head is None:
        return Retired()
    info = output.head(names.commit_key(job, head.number))
    newest_ms = info.modified_ms if info else 0
    day = (datetime.fromtimestamp(newest_ms / 1000, UTC) - timedelta(days=keep_days)).date().isoformat()
    state = load_retained(output, job)
    chosen_topics, layouts = [topic for topic in head.positions if topics.fullmatch(topic)], layouts_of(output)
    cuts = state.cuts | {
        topic: _later(state.cuts.get(topic), _cut(layouts(topic), day, head)) for topic in chosen_topics
    }
    following = Retained(job, state.number + 1, cuts)
    if cuts != state.cuts:
        key = names.retained_key(job, following.number)
        state = following if is_dry else put_once(output, key, following)
    return _remove(output, history, state, is_dry=is_dry)


def _cut(layout: Layout, day: str, head: Commit) -> Cut:
    is_usual = layout.pattern in (PATTERNS[HOUR], PATTERNS[DAY])
    return Cut(day, head.number) if is_usual else Cut(day, head.number, layout)


def _later(earlier: Cut | None, cut: Cut) -> Cut:
    """Returns the new cut; the known one if it is of a later day, since its files are gone."""
    return earlier if earlier and earlier.day > cut.day else cut


def _remove(output: ObjectStore, history: History, state: Retained, *, is_dry: bool) -> Retired:
    retired = Retired(cuts=state.cuts)
    effect = Rewrites(output, history.job).effect()
    named = {file.key for commit in history.commits() for result in commit.results for file in result.every_file}
    named |= effect.files.keys()
    for topic in sorted(state.cuts):
        for prefix in (names.table_prefix(topic), names.dead_letters_prefix(topic)):
            for info in [info for info in output.list(prefix) if state.covers(info.key)]:
                is_known = info.key in named or effect.is_leftover(info.key) or names.is_marker(info.key)
                if not is_known:
                    retired.left.append(info.key)
                    continue
                retired.files += 1
                retired.size_bytes += info.size_bytes
                if not is_dry:
                    output.delete(info.key)
    for info in list(output.list(names.retained_prefix(history.job))):
        if not is_dry and (names.number_of(info.key) or state.number) < state.number:
            output.delete(info.key)
    return retired
