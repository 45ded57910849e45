from pathlib import Path

from loadtests.host.machine import file_system_of, inspect_machine

MOUNTS = """\
22 1 253:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /tmp rw shared:2 - tmpfs tmpfs rw
31 30 253:3 / /tmp/with\\040blank rw - xfs /dev/vdb rw
"""


def test_the_file_system_is_that_of_the_longest_mount_point():
    assert file_system_of(Path("/srv/data"), MOUNTS) == "ext4"
    assert file_system_of(Path("/tmp/data"), MOUNTS) == "tmpfs"
    assert file_system_of(Path("/tmp/with blank/data"), MOUNTS) == "xfs"
    assert file_system_of(Path("/tmpfoo"), MOUNTS) == "ext4"


def test_a_machine_with_a_suspiciously_fast_flush_is_marked(tmp_path):
    machine = inspect_machine(tmp_path)
    assert machine.cores >= 1
    assert machine.flush_min_ms <= machine.flush_p50_ms <= machine.flush_max_ms
    assert bool(machine.flush_caveat) == (machine.flush_min_ms < 0.3 or machine.file_system == "tmpfs")
    assert not list(tmp_path.iterdir())
