"""`penstock doctor` finds each danger and names a remedy; reading the test machine's own state leaves no trace."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.commands import doctor
from penstock.cli.doctor.machine import Machine, Mount, read_machine
from penstock.cli.doctor.machine_checks import check_machine
from penstock_codec import report
from tests.penstock.cli.conftest import Run

FIT = Machine(
    data_dir="/var/lib/penstock",
    examined_dir="/var/lib/penstock",
    files_max=1 << 20,
    mount=Mount("/var", "ext4", frozenset({"rw", "relatime"})),
    has_volatile_cache=True,
    flush_s=0.002,
    flush_error=None,
    free_bytes=80 << 30,
    size_bytes=100 << 30,
    free_files=1_000_000,
    memory_bytes=16 << 30,
    processors=2,
    has_swap=False,
    swappiness=60,
    dirty_background_bytes=1 << 30,
    huge_pages="madvise",
    is_clock_synchronised=True,
    clock_jump_s=0.0,
    newest_file_ahead_s=0.0,
    python="3.11.7",
    libraries={"penstock": ("0.1.0", "0.1.0")},
    codec_lack="",
)


def mounted(kind: str, *options: str) -> Mount:
    return Mount("/var", kind, frozenset({"rw", *options}))


DANGERS = [
    ("flush to disk", "warn", {"flush_s": 0.00005}),
    ("flush to disk", "warn", {"flush_s": 0.05}),
    ("flush to disk", "fail", {"flush_s": None, "flush_error": "Permission denied"}),
    ("file system", "fail", {"mount": mounted("nfs4")}),
    ("file system", "fail", {"mount": mounted("fuse.sshfs")}),
    ("file system", "fail", {"mount": mounted("tmpfs")}),
    ("file system", "fail", {"mount": mounted("ext4", "nobarrier")}),
    ("file system", "fail", {"mount": mounted("xfs", "ro")}),
    ("file system", "warn", {"mount": mounted("btrfs")}),
    ("file system", "warn", {"mount": mounted("xfs", "strictatime")}),
    ("file system", "warn", {"mount": mounted("jfs")}),
    ("file system", "warn", {"mount": None}),
    ("free space", "fail", {"free_bytes": 1 << 20}),
    ("free space", "warn", {"free_bytes": 9 << 30}),
    ("free space", "warn", {"free_files": 10}),
    ("open files", "fail", {"files_max": 256}),
    ("open files", "warn", {"files_max": 4096}),
    ("clock", "warn", {"is_clock_synchronised": False}),
    ("clock", "warn", {"is_clock_synchronised": None}),
    ("clock steps", "warn", {"clock_jump_s": 0.5}),
    ("clock steps", "warn", {"newest_file_ahead_s": 60.0}),
    ("swap", "warn", {"has_swap": True}),
    ("dirty pages", "warn", {"dirty_background_bytes": 25 << 30}),
    ("huge pages", "warn", {"huge_pages": "always"}),
    ("Python", "fail", {"python": "3.10.2"}),
    ("penstock", "fail", {"libraries": {"penstock": ("0.1.0", "0.2.0")}}),
    ("penstock", "fail", {"libraries": {"penstock": ("0.1.0", None)}}),
    ("record codec", "warn", {"codec_lack": "it is not compiled here"}),
]


def test_a_fit_machine_has_nothing_to_do() -> None:
    assert {(finding.level, finding.remedy) for finding in check_machine(FIT)} == {("ok", "")}


@pytest.mark.parametrize(("name", "level", "change"), DANGERS)
def test_a_danger_is_found_and_says_what_to_do(name: str, level: str, change: dict[str, object]) -> None:
    (found,) = [finding for finding in check_machine(replace(FIT, **change)) if finding.level != "ok"]  # type: ignore[arg-type]
    assert (found.name, found.level) == (name, level)
    assert found.remedy


def test_a_fast_flush_is_honest_where_no_cache_can_lose_it() -> None:
    assert check_machine(replace(FIT, flush_s=0.00005, has_volatile_cache=False))[0].level == "ok"


def test_this_machine_is_read_and_nothing_stays(tmp_path: Path) -> None:
    machine = read_machine(str(tmp_path / "not" / "there"))
    assert machine.examined_dir == str(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert machine.flush_s is not None
    assert 0 < machine.flush_s < 60
    points = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    above = [str(path) for path in (tmp_path, *tmp_path.parents) if str(path) in points]
    assert (machine.mount and machine.mount.point) == (above[0] if above else None)  # none: in a chroot
    assert machine.libraries.keys() == {"penstock", "penstock-codec"}
    assert machine.codec_lack == report.lack()
    assert 0 < machine.free_bytes < machine.size_bytes


def test_the_command_reports_each_point_and_ends_with_1_if_one_failed(run: Run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(doctor, "read_machine", lambda _: replace(FIT, files_max=100, has_swap=True))
    ran = run("doctor", "--data-dir", tmp_path)
    assert ran.code == 1
    assert "fail  open files     up to 100\n" in ran.out
    assert ran.out.splitlines()[-1] == "9 ok, 1 warned, 1 failed"
    monkeypatch.setattr(doctor, "read_machine", lambda _: replace(FIT, has_swap=True))
    ran = run("doctor", "--json")
    assert ran.code == 0
    document = ran.json()
    assert document["level"] == "warn"  # type: ignore[index]
    assert {finding["level"] for finding in document["findings"]} == {"ok", "warn"}  # type: ignore[index]


@pytest.mark.e2e
def test_a_running_node_is_asked_too(run: Run, node_url: str, tmp_path: Path) -> None:
    ran = run("doctor", "--data-dir", tmp_path, "--url", node_url, "--json")
    findings = {finding["name"]: finding for finding in ran.json()["findings"]}  # type: ignore[index]
    for name in ("node", "version"):
        assert findings[name]["level"] == "ok", findings[name]
    assert run("doctor", "--url", "http://127.0.0.1:9", "--data-dir", tmp_path).code == 3
    assert run("doctor", "--url", "ftp://x").code == 2


def test_a_directory_that_cannot_be_written_to_is_a_failure(tmp_path: Path, monkeypatch) -> None:
    def refuse(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", refuse)
    machine = read_machine(str(tmp_path))
    assert (machine.flush_s, machine.flush_error) == (None, "No space left on device")


def test_ready_asks_the_node_that_is_named_and_says_why_it_is_not_ready(on_node: Run, monkeypatch) -> None:
    """The environment names a ready node; nothing listens at the address of this machine's node."""
    monkeypatch.setenv("PENSTOCK_PORT", "1")
    assert on_node("doctor", "--ready").code == 0
    ran = on_node("doctor", "--ready", "--url", "http://127.0.0.1:1")
    assert (ran.code, ran.err) == (1, "penstock: not ready: cannot reach http://127.0.0.1:1: connection refused\n")
    monkeypatch.delenv("PENSTOCK_URL")
    ran = on_node("doctor", "--ready")
    assert (ran.code, ran.err) == (1, "penstock: not ready: cannot reach 127.0.0.1:1: connection refused\n")
