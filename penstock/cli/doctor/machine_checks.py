"""Judges whether a machine is fit for a log: a finding per check, with a remedy where it fails. Values in, values out.

fail: data may be lost, or a node will not work; warn: slower or riskier than necessary; ok: nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.cli.doctor.machine import Machine
from penstock.cli.output import format_bytes

OK, WARN, FAIL = "ok", "warn", "fail"

FILES_WANTED = 65_536  # 16,384 connections, and the files that the log keeps open
FILES_LEAST = 1024
FLUSH_HONEST_S = 0.0001  # flash without a power-safe cache takes longer than this
FLUSH_SLOW_S = 0.020
FREE_LEAST_BYTES = 1 << 30
FREE_WANTED_SHARE = 0.1
FREE_FILES_WANTED = 100_000
DIRTY_WANTED_BYTES = 4 << 30
JUMP_S = 0.005
AHEAD_S = 2.0
LOG_FILE_SYSTEMS = ("ext4", "xfs", "ext3")
COPY_ON_WRITE = ("btrfs", "zfs", "overlay", "bcachefs", "f2fs")
IN_MEMORY = ("tmpfs", "ramfs")
WITHOUT_BARRIERS = ("nobarrier", "barrier=0")


class Finding(NamedTuple):
    name: str
    level: str
    found: str
    remedy: str = ""


def check_machine(machine: Machine) -> list[Finding]:
    """Returns the findings, the most important first."""
    return [
        *_flush(machine),
        _file_system(machine),
        _space(machine),
        _files(machine),
        *_clock(machine),
        *_memory(machine),
        *_software(machine),
    ]


def _flush(machine: Machine) -> Iterator[Finding]:
    name = "flush to disk"
    if machine.flush_s is None:
        todo = "give --data-dir a directory that the node may write to"
        yield Finding(name, FAIL, f"{machine.examined_dir}: {machine.flush_error}", todo)
        return
    text = f"{machine.flush_s * 1000:.2f} ms for an append of 4 KiB"
    if machine.flush_s < FLUSH_HONEST_S and machine.has_volatile_cache is not False:
        todo = "too fast for a flush: a power loss may lose acknowledged records without a battery-backed cache"
        yield Finding(name, WARN, text, todo)
    elif machine.flush_s > FLUSH_SLOW_S:
        yield Finding(
            name, WARN, text, "every acks=all waits for this: use a faster disk, or durability=os with replicas"
        )
    else:
        yield Finding(name, OK, text)


def _file_system(machine: Machine) -> Finding:
    name, mount = "file system", machine.mount
    if mount is None:
        return Finding(name, WARN, "not known", "use ext4 or xfs, with barriers")
    text = f"{mount.kind} at {mount.point}"
    if "ro" in mount.options:
        return Finding(name, FAIL, f"{text}, read-only", "mount it writable")
    if mount.kind in IN_MEMORY:
        return Finding(name, FAIL, text, "it is in memory: a restart of the machine deletes all records")
    if mount.kind.startswith(("nfs", "cifs", "smb", "9p", "fuse", "virtiofs")):
        return Finding(name, FAIL, text, "locks and flushes are unreliable on it: use a local disk")
    if not mount.options.isdisjoint(WITHOUT_BARRIERS):
        return Finding(
            name, FAIL, f"{text}, without barriers", "mount it without nobarrier: flushes do not reach the disk"
        )
    if mount.kind in COPY_ON_WRITE:
        todo = "copy-on-write makes flushes slow: use ext4 or xfs"
        return Finding(name, WARN, text, todo)
    if "strictatime" in mount.options:
        return Finding(
            name, WARN, f"{text}, strictatime", "mount it with relatime or noatime: strictatime writes on every read"
        )
    return Finding(
        name,
        OK if mount.kind in LOG_FILE_SYSTEMS else WARN,
        text,
        "" if mount.kind in LOG_FILE_SYSTEMS else "not tried with it",
    )


def _space(machine: Machine) -> Finding:
    share = machine.free_bytes / max(1, machine.size_bytes)
    text = f"{format_bytes(machine.free_bytes)} of {format_bytes(machine.size_bytes)}"
    todo = "make room, or shorten retention_ms or local_retention_ms: a full disk rejects produce requests"
    if machine.free_bytes < FREE_LEAST_BYTES:
        return Finding("free space", FAIL, text, todo)
    if 0 < machine.free_files < FREE_FILES_WANTED:
        return Finding("free space", WARN, f"{text}, but {machine.free_files:,} files", "a segment takes up to five")
    return Finding("free space", WARN, text, todo) if share < FREE_WANTED_SHARE else Finding("free space", OK, text)


def _files(machine: Machine) -> Finding:
    name = "open files"
    if machine.files_max < 0:
        return Finding(name, OK, "no limit")
    text = f"up to {machine.files_max:,}"
    if machine.files_max >= FILES_WANTED:
        return Finding(name, OK, text)
    level = FAIL if machine.files_max < FILES_LEAST else WARN
    return Finding(name, level, text, f"ulimit -Hn {FILES_WANTED}, or LimitNOFILE={FILES_WANTED} in the service")


def _clock(machine: Machine) -> Iterator[Finding]:
    match machine.is_clock_synchronised:
        case True:
            yield Finding("clock", OK, "synchronised")
        case False:
            yield Finding(
                "clock", WARN, "not synchronised", "run chrony or systemd-timesyncd: retention depends on the time"
            )
        case None:
            yield Finding("clock", WARN, "cannot be asked", "check on the host whether it is synchronised")
    if machine.clock_jump_s > JUMP_S:
        text = f"jumped by {machine.clock_jump_s * 1000:.0f} ms during the check"
        yield Finding("clock steps", WARN, text, "configure the time service to slew the clock instead of stepping it")
    if machine.newest_file_ahead_s > AHEAD_S:
        text = f"a file's time is {machine.newest_file_ahead_s:.0f} s in the future"
        yield Finding("clock steps", WARN, text, "the clock was set back: records keep their timestamps")


def _memory(machine: Machine) -> Iterator[Finding]:
    if machine.has_swap and (machine.swappiness or 0) > 10:
        todo = "sysctl vm.swappiness=1: swapping delays the node"
        yield Finding("swap", WARN, f"on, swappiness {machine.swappiness}", todo)
    else:
        yield Finding("swap", OK, f"on, swappiness {machine.swappiness}" if machine.has_swap else "off")
    if machine.dirty_background_bytes is not None:
        text = f"the kernel starts to write back at {format_bytes(machine.dirty_background_bytes)}"
        todo = f"sysctl vm.dirty_background_bytes={512 << 20}: large write-backs stall flushes"
        is_well = machine.dirty_background_bytes <= DIRTY_WANTED_BYTES
        yield Finding("dirty pages", OK, text) if is_well else Finding("dirty pages", WARN, text, todo)
    if machine.huge_pages == "always":
        todo = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: huge pages cause pauses and memory growth"
        yield Finding("huge pages", WARN, "always", todo)
    elif machine.huge_pages is not None:
        yield Finding("huge pages", OK, machine.huge_pages)


def _software(machine: Machine) -> Iterator[Finding]:
    is_known = tuple(map(int, machine.python.split(".")[:2])) >= (3, 11)
    yield Finding("Python", OK if is_known else FAIL, machine.python, "" if is_known else "take 3.11 or newer")
    wrong = {name: versions for name, versions in machine.libraries.items() if versions[0] != versions[1]}
    for name, (expected, actual) in wrong.items():
        yield Finding(name, FAIL, actual or "missing", f"{expected} is needed: install from requirements/serve.lock")
    if not wrong and machine.libraries:
        text = ", ".join(f"{name} {expected}" for name, (expected, _) in sorted(machine.libraries.items()))
        yield Finding("libraries", OK, text)
    if machine.codec_lack:
        todo = "apt-get install gcc python3-dev, then install again: records take about 25 times the processor time"
        yield Finding("record codec", WARN, f"plain Python: {machine.codec_lack}", todo)
    elif machine.codec_lack is not None:
        yield Finding("record codec", OK, "compiled")
