"""`penstock tier` on a store without a node: its outputs and exit codes."""

from pathlib import Path
from typing import Any

import pytest

from engine.tiering.store.store import StoreUnavailable, open_store
from node.commands.tier import audit
from node.commands.tier.command import tier
from penstock.cli.failures import Failure
from tests.engine.tiering.audit.stored import PREFIX, WIDTH, stored
from tests.penstock.cli.conftest import Ran

AUX = f"{PREFIX}{WIDTH:020d}-1-a.aux"


@pytest.fixture
def store(tmp_path) -> Path:
    """Return the directory of a store with one partition."""
    directory = tmp_path / "a store"
    opened = open_store(directory.as_uri())
    for key, data in stored(tmp_path).objects.items():
        opened.put(key, data)
    return directory


@pytest.fixture
def run(capfd, monkeypatch) -> Any:
    """Run a command of the group; its entry point is tested with the pages."""
    for name in ("PENSTOCK_URL", "PENSTOCK_STORE"):
        monkeypatch.delenv(name, raising=False)

    def run_here(*arguments: object) -> Ran:
        capfd.readouterr()
        try:
            code = tier.main([str(one) for one in arguments], standalone_mode=False) or 0
        except Failure as failure:
            return Ran(failure.code, capfd.readouterr().out, failure.message)
        return Ran(code, *capfd.readouterr())

    return run_here


def test_status_has_the_facts_of_each_partition(run, store):
    shown = run("status", "--store", store).out.splitlines()
    assert shown[-1].split()[:4] == ["topic", "1", "48", "4"]
    row = run("status", "topic", "--store", store, "--json").json()["partitions"][0]
    facts = ("log_start", "end_offset", "segments", "manifests", "orphans", "foreign", "damage", "newest_record_ms")
    assert [row[name] for name in facts] == [0, 48, 4, 5, 0, 0, 0, 452]


def test_verify_and_repair_end_with_1_while_there_is_damage(run, store):
    assert run("verify", "--store", store).code == 0
    (store / AUX).unlink()
    verified = run("verify", "--store", store)
    assert (verified.code, verified.out.split()[0]) == (1, "aux_missing")
    document = run("verify", "--store", store, "--json", "--deep").out
    assert f'"key": "{AUX}"' in document
    assert run("repair", "--store", store).code == 1
    assert not (store / AUX).exists()
    repaired = run("repair", "--store", store, "--apply")
    assert (repaired.code, repaired.out.splitlines()[-1]) == (0, "1 step done")
    assert run("verify", "--store", store, "--deep").code == 0
    assert run("repair", "--store", store).out == "There is nothing that can be repaired.\n"


def test_errors_are_one_line(run, store, monkeypatch):
    assert run("verify", "--store", store, "--cluster", "other").code == 2
    assert "no objects of topic nosuch" in run("verify", "nosuch", "--store", store).err
    assert "has no topics" in run("status", "--store", store / "nothing").err
    assert run("verify", "--store", "ftp://host").code == 2

    def unavailable(url: str) -> None:
        raise StoreUnavailable("the store does not answer")

    monkeypatch.setattr(audit, "open_store", unavailable)
    assert run("verify", "--store", store).code == 3


def test_restore_names_what_the_store_does_not_have(run, store, tmp_path):
    place = ("restore", "--store", store, "--data-dir", tmp_path / "restored")
    planned, restored = (run(*place, *more).json()["not_in_store"] for more in (["--json", "--dry-run"], ["--json"]))
    assert planned == restored
    assert restored["group_positions"] == "positions of consumer groups"
    shown = run("restore", "--store", store, "--data-dir", tmp_path / "again")
    assert all(words in shown.out + shown.err for words in restored.values())
