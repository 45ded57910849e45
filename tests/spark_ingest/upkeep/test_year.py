"""A year of hourly runs: with upkeep once a day, files, objects and the operations of a run stay bounded.

In miniature: two days. PENSTOCK_TEST_INGEST_HOURS=8760 is the year, which takes minutes.
"""

from __future__ import annotations

import os
from itertools import count

from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import StoreUnavailable
from spark_ingest.upkeep.policy import Upkeep
from tests.spark_ingest.jobs import assert_sound, listed_files, run_job
from tests.spark_ingest.killing_store import DyingStore
from tests.spark_ingest.tiered import START_MS, TieredLog, row

HOUR_MS = 3_600_000
HOURS = int(os.environ.get("PENSTOCK_TEST_INGEST_HOURS", "48"))
UPKEEP_HOURS = 24 if HOURS > 100 else 6


def test_a_year_of_hourly_runs_stays_bounded() -> None:
    source, output = MemoryStore(), MemoryStore(START_MS)
    log, nonces = TieredLog(source), count(1)
    upkeep = Upkeep(
        output, "default", UPKEEP_HOURS * 3600, lambda: output.now_ms / 1000, new_id=lambda: f"nonce-{next(nonces)}"
    )
    operations, history = [], []
    for hour in range(HOURS):
        now = START_MS + hour * HOUR_MS
        late = [row(b"{}", timestamp=now - back * HOUR_MS) for back in (1, 30) if hour % 5 == 0 and hour >= back]
        log.add(0, [row(b'{"id":1}', timestamp=now), *late])
        output.now_ms = now + HOUR_MS
        counting = DyingStore(output, 0, is_after=False)
        run_job(source, counting)
        operations.append(counting.operations)
        done, error = upkeep()
        assert error is None
        if done is not None:
            history.append(sum(key.startswith("_ingest/default/") for key in output.objects))
    files = listed_files(output)
    assert len(files) <= HOURS + 2 * 48, "one of each hour, and those of the last two days"
    assert assert_sound(output).commits == HOURS
    assert max(operations) <= operations[0] + 6
    assert max(history) <= 2 * (500 + 24 * 7 + 24) + 120, "plans and commits before the next archive, and rewrites"
    print(f"{HOURS} runs: {len(files)} files, {max(history)} objects of the job, {max(operations)} operations a run")


def test_upkeep_that_fails_is_reported_and_goes_on_the_next_time() -> None:
    source, output = MemoryStore(), MemoryStore(START_MS)
    log = TieredLog(source)
    for at in range(3):
        log.add(0, [row(b'{"id":1}', at)])
        run_job(source, output)
    output.now_ms += 3 * HOUR_MS
    log.add(0, [row(b'{"id":1}', at)])
    run_job(source, output)
    now = 0.0
    failing = DyingStore(output, 20, StoreUnavailable("503"), is_after=False)
    upkeep = Upkeep(failing, "default", 60, lambda: now, new_id=lambda: "nonce")
    done, error = upkeep()
    assert (done, str(error)) == (None, "503")
    assert upkeep() == (None, None)
    now = 60.0
    done, error = upkeep()
    assert (error, len(listed_files(output))) == (None, 1)
    assert done
