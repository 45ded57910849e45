"""Forty-five simulated clusters, in chunks that pytest's workers share; together they cover every fault and answer.

Every chunk writes its counters to a shared directory. The last chunk adds them up, and fails if a fault or an answer
never occurred. Pytest's report ends with the time that they took. More seeds: `make seeds-long`.
"""

from __future__ import annotations

import fcntl
import gc
import os
import time
from collections import Counter
from pathlib import Path

import orjson
import pytest

from tests.simulation.report import MANY_SEEDS, never_happened, swept_by_hand
from tests.simulation.run import run

SEEDS = int(os.environ.get("PENSTOCK_TEST_SIM_SEEDS", "45"))
CHUNK = 15
CHUNKS = [range(first, min(first + CHUNK, SEEDS)) for first in range(0, SEEDS, CHUNK)]
SEEDS_BETWEEN_COLLECTIONS = 20


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Path:
    """Return a directory that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "seeds"
    directory.mkdir(exist_ok=True)
    return directory


def chunk_name(seeds: range) -> str:
    return f"{seeds[0]}-{seeds[-1]}"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seeds",
    [pytest.param(chunk, id=chunk_name(chunk), marks=pytest.mark.xdist_group(chunk_name(chunk))) for chunk in CHUNKS],
)
def test_no_seed_finds_anything_and_everything_happens(seeds, shared, record_property):
    counts: Counter[str] = Counter()
    began_s, cpu_s = time.monotonic(), time.process_time()
    with swept_by_hand():
        for done, seed in enumerate(seeds, 1):
            outcome = run(seed)
            assert not outcome.problems, outcome.report()
            counts += outcome.counts
            if done % SEEDS_BETWEEN_COLLECTIONS == 0:
                gc.collect()
    took = {"wall_s": time.monotonic() - began_s, "cpu_s": time.process_time() - cpu_s}
    chunks = with_own(shared, chunk_name(seeds), {"seeds": len(seeds), "counts": counts, **took})
    if len(chunks) == len(CHUNKS):
        record_property("summary line", rates(chunks))
        assert missing(chunks) == []


def with_own(shared: Path, name: str, own_results: dict[str, object]) -> list[dict]:
    """Add this chunk's counters and return those of all chunks so far; exactly one chunk sees all."""
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (shared / f"{name}.json").write_bytes(orjson.dumps(own_results))
        return [orjson.loads(path.read_bytes()) for path in sorted(shared.glob("*.json"))]


def missing(chunks: list[dict]) -> list[str]:
    counts: Counter[str] = Counter()
    for chunk in chunks:
        counts.update(chunk["counts"])
    return never_happened(counts, sum(chunk["seeds"] for chunk in chunks))


def rates(chunks: list[dict]) -> str:
    seeds, cpu_s = sum(chunk["seeds"] for chunk in chunks), sum(chunk["cpu_s"] for chunk in chunks)
    wall_s = sum(chunk["wall_s"] for chunk in chunks)
    return (
        f"simulation: {seeds} seeds, {seeds / cpu_s * 60:.0f} per minute of a core, "
        f"{seeds / wall_s * 60:.0f} per minute of a worker, {wall_s:.0f} s of workers in all"
    )


def test_a_counter_that_is_zero_in_every_chunk_is_found(tmp_path):
    """Counters as the chunks of one run leave them; the last chunk has counted nothing."""
    all_but_one = dict.fromkeys([*never_happened(Counter(), MANY_SEEDS)], 1)
    del all_but_one["elections"]
    first = {"seeds": MANY_SEEDS, "counts": all_but_one, "cpu_s": 60.0, "wall_s": 90.0}
    assert missing(with_own(tmp_path, "0-999", first)) == ["elections"]
    chunks = with_own(tmp_path, "1000-1099", {**first, "seeds": 100, "counts": {"elections": 1}})
    assert missing(chunks) == []
    assert rates(chunks).startswith("simulation: 1100 seeds, 550 per minute of a core")
