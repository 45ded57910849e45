"""`--upkeep-every`: between runs of a job, now and then, compacts hours that have ended and cleans the history."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from engine.errors import EngineError
from engine.tiering.store.store import ObjectStore
from spark_ingest.upkeep.clean import clean
from spark_ingest.upkeep.compact import Compaction, compact

OLDER_MS = 3_600_000  # after the end of the hour: most of its records have come
GRACE_MS = 24 * 3_600_000  # with tables of a catalog, whose readers may have an older snapshot


class Upkeep:
    """Decides after each run whether upkeep is due; the first time after the first run."""

    def __init__(
        self,
        output: ObjectStore,
        job: str,
        every_s: float,
        clock: Callable[[], float],
        *,
        new_id: Callable[[], str],
        publish: Callable[[], None] | None = None,
    ) -> None:
        self._output = output
        self._job = job
        self._every_s = every_s
        self._clock = clock
        self._new_id = new_id
        self._publish = publish
        self._last: float | None = None

    def __call__(self) -> tuple[dict[str, Any] | None, EngineError | None]:
        """Returns what it did, None if it is not due; and the error with which it ended. The next time it goes on."""
        now = self._clock()
        if self._last is not None and now - self._last < self._every_s:
            return None, None
        self._last = now
        compaction = Compaction(re.compile(".*"), older_ms=OLDER_MS)
        grace_ms = GRACE_MS if self._publish else 0
        try:
            done = compact(self._output, self._job, compaction, grace_ms, new_id=self._new_id, publish=self._publish)
            cleaned = clean(self._output, self._job)
        except EngineError as error:
            return None, error
        return {
            "rewrites": done.rewrites,
            "files_replaced": done.replaced,
            "files": done.files,
            "files_removed": done.removed,
            "left": done.left,
            "archives": cleaned.archives,
        }, None
