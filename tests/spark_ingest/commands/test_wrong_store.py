"""A store that is mistyped, not mounted or not whole: nothing is taken for deleted, and no row comes twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine.tiering.shipping.garbage_collection import remove_topic
from engine.tiering.store.store import ObjectStore, open_store
from spark_ingest.errors import RepeatedRecords
from spark_ingest.output.names import commit_key, plan_key
from spark_ingest.plan import Plan, decode, encode
from spark_ingest.protocol.runner import abandon
from spark_ingest.protocol.verify import verify
from tests.spark_ingest.commands.test_ingest import penstock
from tests.spark_ingest.jobs import NOW_MS, head_of, run_job, table_rows
from tests.spark_ingest.killing_store import Killed, KillingStore
from tests.spark_ingest.tiered import CLUSTER, TOPIC_ID, TieredLog, json_rows


class Place:
    """A store with 3 records, and a job that has ingested them."""

    def __init__(self, tmp_path: Path) -> None:
        self.store_path, self.output_path = tmp_path / "store", tmp_path / "lake"
        self.log = TieredLog(open_store(self.store_path.as_uri()))
        self.log.add(0, json_rows(3))
        self.output = open_store(self.output_path.as_uri())
        assert self.call("run") == (0, "")

    def call(self, command: str, *more: str, store: Path | None = None) -> tuple[int, str]:
        """Return the exit code and the error line."""
        places = ["--store", str(store or self.store_path), "--output", str(self.output_path)]
        of_run = ["--topics", ".*", "--engine", "local"] if command == "run" else []
        done = penstock("ingest", *command.split(), *places, *of_run, *more)
        return done.exit_code, "".join(line for line in done.stderr.splitlines() if done.exit_code)

    def ids(self) -> list[int]:
        findings, _ = verify(self.output, "default")
        assert findings.problems == []
        return [one["id"] for one in table_rows(self.output)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


COMMANDS = {
    "run": (),
    "run --on-lost skip": (),
    "run --allow-no-topics": (),
    "plan": ("--topics", ".*"),
    "resume": ("--engine", "local"),
    "status": (),
    "lag": (),
    "verify": (),
    "finalize": ("--topics", ".*"),
    "report": ("--to", "report.html"),
    "backfill": ("--topics", ".*", "--execute"),
    "replay": ("--topics", ".*", "--execute"),
    "offsets set": ("--to", "earliest", "--repeat", "--execute"),
    "offsets drop": ("--topics", ".*", "--execute"),
}


@pytest.mark.parametrize("kind", ["mistyped", "not mounted", "registrations of an earlier release"])
def test_a_store_without_the_cluster_of_the_job_is_refused_and_nothing_is_written(
    place: Place, tmp_path: Path, kind: str
) -> None:
    wrong = tmp_path / "sotre"
    if kind != "mistyped":
        wrong.mkdir()
    if kind == "registrations of an earlier release":
        (wrong / CLUSTER / "__jobs").mkdir(parents=True)
        (wrong / CLUSTER / "__jobs" / "default-00.json").write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    for command, more in COMMANDS.items():
        name, *options = command.split(" --")
        extra = [f"--{options[0]}".split()] if options else []
        code, line = place.call(name, *(part for some in extra for part in some), *more, store=wrong)
        assert code == 2, (command, line)
        assert f"sotre has no cluster '{CLUSTER}', which this job reads (check that --store is" in line, command
        assert sorted(tmp_path.rglob("*")) == before, command
    for command in ("jobs", "print_records".replace("_", "-")):
        done = penstock(
            "ingest", command, "--store", str(wrong), *(["--topic", "flights"] if "print" in command else [])
        )
        assert (done.exit_code, sorted(tmp_path.rglob("*"))) == (2, before), done.stderr
    place.log.add(0, json_rows(2, first=3))
    assert place.call("run")[0] == 0
    assert place.ids() == [0, 1, 2, 3, 4]


def test_an_empty_mount_in_a_schedule_that_skips_losses_repeats_nothing(place: Place, tmp_path: Path) -> None:
    kept = tmp_path / "unmounted"
    for first in (3, 5):
        shutil.move(place.store_path, kept)
        place.store_path.mkdir()
        assert place.call("run", "--on-lost", "skip")[0] == 2
        assert not any(place.store_path.iterdir())
        place.store_path.rmdir()
        shutil.move(kept, place.store_path)
        place.log.add(0, json_rows(2, first=first))
        assert place.call("run", "--on-lost", "skip")[0] == 0
    assert place.ids() == [*range(7)]


def test_a_mount_that_shows_only_other_topics_repeats_nothing(place: Place, tmp_path: Path) -> None:
    TieredLog(place.log.store, topic="other").add(0, json_rows(1))
    kept = tmp_path / "kept"
    shutil.move(place.store_path / CLUSTER / "flights", kept)
    code, line = place.call("run", "--on-lost", "skip")
    assert code == 2
    assert "does not have it, and no marker of a deletion" in line
    shutil.move(kept, place.store_path / CLUSTER / "flights")
    assert place.call("run", "--on-lost", "skip")[0] == 0
    assert place.ids() == [0, 1, 2]


def forget(output: ObjectStore, *members: str) -> None:
    """Make the newest commit one of an earlier release."""
    head = head_of(output)
    key = commit_key("default", head.number)
    document = json.loads(output.get(key))
    output.put(key, json.dumps({name: one for name, one in document.items() if name not in members}).encode())


@pytest.mark.parametrize("is_old", [False, True])
def test_a_topic_id_that_comes_back_goes_on_where_it_was(place: Place, is_old: bool) -> None:
    """Also after a job of an earlier release has dropped its position, because of a wrong store."""
    store = place.log.store
    before = {one.key: store.get(one.key) for one in store.list(f"{CLUSTER}/flights/")}
    TieredLog(store, topic="other").add(0, json_rows(1))
    remove_topic(store, CLUSTER, "flights", TOPIC_ID, 1, {0: (0, 5)})
    code, _ = place.call("run", "--on-lost", "skip")
    assert code == 5
    if is_old:
        forget(place.output, "ended", "knows_ended")
    for key, data in before.items():
        store.put(key, data)
    place.log.add(0, json_rows(2, first=3))
    code, line = place.call("run")
    assert (code, line) == (0, "")
    assert place.ids() == [0, 1, 2, 3, 4]
    assert place.call("status")[0] == 0
    assert place.call("verify")[0] == 0, "no record is lost after all"


@pytest.mark.parametrize("engine", ["run", "resume"])
def test_a_plan_with_committed_offsets_is_not_committed(place: Place, engine: str) -> None:
    """As an earlier release stored it, after a wrong store: whatever made it, it stops."""
    place.log.add(0, json_rows(2, first=3))
    with pytest.raises(Killed):
        run_job(place.log.store, KillingStore(place.output, 3, is_after=True))
    key = plan_key("default", 2)
    plan = decode(place.output.get(key), key, Plan)
    first = decode(place.output.get(plan_key("default", 1)), "", Plan)
    task = plan.tasks[0]
    [one] = first.tasks
    document = json.loads(encode(plan))
    document["tasks"] = json.loads(encode(first))["tasks"]
    assert one.topic == task.topic
    place.output.put(key, json.dumps(document).encode())
    code, line = place.call(engine, *(() if engine == "run" else ("--engine", "local")))
    assert code == 1
    assert "plan 2 of job default has offsets 0 to 2 of flights partition 0, which are committed" in line
    with pytest.raises(RepeatedRecords):
        run_job(place.log.store, place.output)
    abandon(place.output, "default", NOW_MS)
    assert place.call("run")[0] == 0
    assert place.ids() == [0, 1, 2, 3, 4]


def test_a_job_keeps_its_cluster(place: Place) -> None:
    TieredLog(place.log.store, cluster="d" * 32).add(0, json_rows(3))
    assert place.call("run")[0] == 0, "the job knows its cluster"
    code, line = place.call("run", "--cluster", "d" * 32)
    assert code == 2
    assert f"the commits of this job are of cluster {CLUSTER}" in line
    assert place.ids() == [0, 1, 2]
