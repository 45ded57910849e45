"""`ingest print`: bounds by position, time and number; decoders of the job; values that cannot be decoded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.format.batch import encode
from engine.tiering.store.store import open_store
from tests.spark_ingest.jobs import invoke
from tests.spark_ingest.tiered import START_MS, TieredLog, json_rows, row, undecodable_batch


@pytest.fixture
def store(tmp_path: Path) -> str:
    opened = open_store((tmp_path / "store").as_uri())
    log = TieredLog(opened)
    log.add(0, json_rows(20))
    log.add(0, [row(b"bad", 20, key=b"\xff", headers=[("h", b"1")]), row(None, 21), row(b'{"a":\n1}', 22)])
    log.add(1, json_rows(5))
    TieredLog(opened, topic="csv").add(0, [row(b"7,x")])
    TieredLog(opened, topic="odd").add_batches(0, [undecodable_batch(), encode(json_rows(2))], [START_MS], 9)
    return opened.url


def printed(store: str, *more: str) -> list[dict[str, Any]]:
    done = invoke("print", "--store", store, *more)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_bounds_choose_records(store: str) -> None:
    def offsets(*more: str) -> list[tuple[int, int]]:
        return [(one["partition"], one["offset"]) for one in printed(store, "--topics", "flights", *more)]

    assert len(offsets()) == 28
    assert offsets("--from", "4", "--to", "7") == [(0, 4), (0, 5), (0, 6), (1, 4)]
    assert offsets("--partition", "1", "--limit", "2") == [(1, 0), (1, 1)]
    times = ("--from-time", str(START_MS + 3000), "--to-time", str(START_MS + 5000))
    assert offsets(*times) == [(0, 3), (0, 4), (1, 3), (1, 4)]


def test_lines_have_all_of_a_record(store: str) -> None:
    first, *_, bad, empty, last = printed(store, "--topics", "flights", "--partition", "0")
    assert first == {
        "topic": "flights",
        "partition": 0,
        "offset": 0,
        "timestamp": START_MS,
        "key": "k0",
        "headers": [],
        "value": {"id": 0, "name": "n0"},
    }
    assert (bad["value"], bad["problem"], bad["key_base64"]) == ("bad", "invalid_json", "/w==")
    assert bad["headers"] == [["h", "1"]]
    assert (empty["value"], last["value"]) == (None, {"a": 1})
    odd = printed(store, "--topics", "odd")
    assert [odd[0][name] for name in ("offset", "last_offset", "problem")] == [0, 6, "undecodable_batch"]
    assert [one["offset"] for one in odd[1:]] == [7, 8]


def test_the_decoders_of_the_job_file_apply(store: str, tmp_path: Path) -> None:
    config = tmp_path / "job.toml"
    config.write_text(
        '[job]\nstore = "s"\noutput = "o"\ntopics = ".*"\n[topics.csv]\npayload = "csv"\nnames = ["id", "name"]\n'
    )
    [line] = printed(store, "--topics", "csv", "--config", str(config))
    assert line["value"] == {"id": "7", "name": "x"}
    assert printed(store, "--topics", "csv", "--payload", "raw")[0]["value"] == "7,x"
    done = invoke("print", "--store", store, "--topics", "none")
    assert "no topic" in done.output
