"""`GET /v1/cluster/jobs`: the ingestion jobs that are registered in the store: freshness, losses, misfits, small files.

A run registers its positions and the counts of its commits (engine/tiering/manifest/job_registration.py), so that a
node knows a job without reading its tables, which may be in a store that the node has no access to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from typing import Any

from engine.runtime.tasks import start_task
from engine.tiering.manifest.job_registration import Registration
from engine.tiering.shipping.job_holds import RegisteredJob
from engine.tiering.store.store import StoreUnavailable
from gateway.groups.group_lag import Lag, measure_lags
from gateway.http.documents import answer_document
from gateway.http.page import PageQuery, cut, select
from gateway.http.query import read_query
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.routing.partitions import Topics
from gateway.status.caller import without_credentials
from gateway.status.context import StatusContext

LIMIT = 50  # of a page without one
LAGS_MAX = 200  # partitions whose first record is read for one page, some 0.2 ms each
JOBS_S = 10.0  # for the store: twice what the most registrations take
LAGS_S = 5.0  # for their leaders to answer; the store may have the record


class JobReads:
    """Reads the registered jobs, once for all who ask: while the store hangs, reads of records need its threads."""

    def __init__(self, read: Callable[[], Coroutine[Any, Any, Sequence[RegisteredJob]]]) -> None:
        self._read = read
        self._reading: asyncio.Task[Sequence[RegisteredJob]] | None = None

    def __repr__(self) -> str:
        return f"JobReads(reading={self._reading is not None and not self._reading.done()})"

    async def read(self) -> Sequence[RegisteredJob]:
        """Raises StoreUnavailable, also after JOBS_S, and other errors of the store."""
        if self._reading is None or self._reading.done():
            self._reading = start_task(self._read())
        try:
            async with asyncio.timeout(JOBS_S):
                return await asyncio.shield(self._reading)
        except TimeoutError:
            raise StoreUnavailable(f"the store has not listed the jobs for {JOBS_S:.0f} s") from None


async def list_jobs(request: Request, context: StatusContext) -> Response:
    """GET /v1/cluster/jobs. Raises errors of the store."""
    query = read_query(request, PageQuery)
    jobs = select(query, await context.read_jobs(), _name)
    page, members = cut(query, jobs, _name, limit=LIMIT)
    lags = await _measure(context, page)
    document = {"jobs": [_row(job, lags, context.admin.topics) for job in page]} | members
    return await answer_document(request, document, is_polled=True)


def _name(job: RegisteredJob) -> str:
    return job.name


async def _measure(context: StatusContext, jobs: Sequence[RegisteredJob]) -> dict[tuple[str, int, int], Lag]:
    """Returns what is behind the positions of jobs, as far as their leaders answer in time."""
    asked = [place for job in jobs for place in _places(job.registration, context.admin.topics)][:LAGS_MAX]
    try:
        async with asyncio.timeout(LAGS_S):
            lags = await measure_lags(context.admin.router, asked)
    except TimeoutError:
        return {}
    return {place: lag for place, lag in zip(asked, lags, strict=True) if lag is not None}


def _places(registration: Registration | None, topics: Topics) -> list[tuple[str, int, int]]:
    """Returns topic, partition and position of what a job reads, without topics that were deleted or made again."""
    places = []
    for name, read in {} if registration is None else sorted(registration.topics.items()):
        topic = topics.get(name)
        if topic is not None and topic.record.topic_id == read.topic_id:
            places += [(name, number, read.ends.get(number, 0)) for number in range(topic.record.partitions)]
    return places


def _row(job: RegisteredJob, lags: dict[tuple[str, int, int], Lag], topics: Topics) -> dict[str, object]:
    registration = job.registration
    row: dict[str, object] = {"id": job.name, "renewed_ms": job.renewed_ms, "readable": registration is not None}
    if registration is None:
        return row
    places = _places(registration, topics)
    measured = [lags[place] for place in places if place in lags]
    is_whole = len(measured) == len(places)
    figures = registration.figures
    return row | {
        "job": registration.job,
        "output": without_credentials(registration.output),
        "topics": sorted(registration.topics),
        "lag_records": sum(lag.records for lag in measured) if is_whole else None,
        "lag_s": max((lag.age_ms for lag in measured), default=0) / 1000 if is_whole else None,
        "lost_records": figures.lost_records,
        "misfits": figures.misfits,
        "held": list(figures.held),
        "commits": [asdict(commit) for commit in figures.commits],
    }
