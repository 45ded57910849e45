import subprocess
import sys

from loadtests.host import proc


def test_fields_are_counted_behind_a_command_that_looks_like_fields():
    fields = ["S"] + ["0"] * 49
    fields[11], fields[12], fields[21] = str(3 * proc.TICKS_PER_S), str(2 * proc.TICKS_PER_S), "10"
    seen = proc.parse_stat(f"123 (a) b (c d)) {' '.join(fields)}\n")
    assert seen == proc.Usage(cpu_s=5.0, rss_bytes=10 * proc.PAGE_BYTES)


def test_waiting_and_stolen_time_is_not_busy():
    ticks = proc.TICKS_PER_S
    line = f"cpu  {4 * ticks} 0 {2 * ticks} {90 * ticks} {5 * ticks} {ticks} 0 {3 * ticks} 0 0"
    assert proc.parse_machine_time(line + "\ncpu0 1 2 3") == proc.MachineTime(busy_s=7.0, stolen_s=3.0)


def test_a_childs_cpu_counts_for_its_parent():
    spin = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True); input()"
    between = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {spin!r}])"
    parent = subprocess.Popen([sys.executable, "-c", between], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        parent.stdout.readline()
        _, child = proc.process_tree(parent.pid)
        assert proc.usage(parent.pid).cpu_s >= proc.usage(child).cpu_s >= 0.49
    finally:
        parent.communicate(b"\n")


def test_a_process_that_has_ended_has_used_nothing():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert proc.usage(child.pid) == proc.Usage(0.0, 0)
