"""Measures the candidates: processor time, voluntary context switches and requests of each, in alternating rounds.

`python -m loadtests.http_servers --rounds 3 granian penstock`. h2load sends the requests, so other load on the machine
affects both sides of a ratio. Compare processor time; compare rates on a quiet machine only.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import click

from loadtests.host.proc import usage
from loadtests.http_servers.candidates import CANDIDATES

BODY = b'{"id":12345,"kind":"click","at":"2026-01-01T00:00:00Z","page":"/a/page/of/some/shop","user":"abcdef"}'[:100]
FULL = ("full", ["-n", "10000", "-c", "4", "-m", "16"])
FULL_HTTP1 = ("full", ["-n", "10000", "-c", "64"])
PACED_S = 3
PACED = ("1000/s", ["-D", str(PACED_S), "-c", "4", "-m", "16", "--rps", "250"])
HTTP2_ONLY, HTTP1_ONLY = ("h2",), ("aiohttp", "httptools")


class Cost(NamedTuple):
    """The cost of one request."""

    cpu_us: float
    switches: float


def measure(name: str, port: int, pid: int, options: list[str], is_http1: bool, body: Path) -> Cost:
    before_cpu, before_switches = usage(pid).cpu_s, switches(pid)
    command = ["h2load", *options, "-t", "1", "-d", str(body), *(["--h1"] if is_http1 else [])]
    command += ["-H", "content-type: application/json", f"http://127.0.0.1:{port}/v1/topics/t/records"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=40)
    found = re.search(
        r"^requests: .* (\d+) done,", done.stdout, re.MULTILINE
    )  # h2load cannot parse a status without a reason
    assert found is not None, done.stdout
    requests = int(found[1])
    assert requests > 100, f"{name}: {done.stdout}"
    return Cost((usage(pid).cpu_s - before_cpu) * 1e6 / requests, (switches(pid) - before_switches) / requests)


def switches(pid: int) -> int:
    """Returns the voluntary context switches of all threads."""
    texts = [thread.joinpath("status").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(found) for found in re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", "\n".join(texts), re.MULTILINE))


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.argument("names", nargs=-1, required=True, type=click.Choice(list(CANDIDATES)))
def main(rounds: int, names: tuple[str, ...]) -> None:
    """Compare servers."""
    costs: dict[tuple[str, str, str], list[Cost]] = {}
    servers = {}
    for name in names:
        command = [sys.executable, "-m", "loadtests.http_servers.candidates", name]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        servers[name] = (server, int(server.stdout.readline()))
    try:
        with tempfile.NamedTemporaryFile() as file:
            body = Path(file.name)
            body.write_bytes(BODY)
            for round_ in range(rounds + 1):
                for name, (server, port) in servers.items():
                    for version in ("HTTP/2", "HTTP/1.1"):
                        is_http1 = version == "HTTP/1.1"
                        if name in (HTTP2_ONLY if is_http1 else HTTP1_ONLY):
                            continue
                        for mode, options in (FULL_HTTP1 if is_http1 else FULL, PACED):
                            cost = measure(name, port, server.pid, options, is_http1, body)
                            if round_:  # the first one is a warm-up
                                costs.setdefault((version, mode, name), []).append(cost)
    finally:
        for server, _ in servers.values():
            server.kill()
    print("| protocol | load | server | CPU a request, µs (spread) | voluntary switches a request |")
    print("|---|---|---|---|---|")
    for (version, mode, name), seen in sorted(costs.items()):
        cpu = [cost.cpu_us for cost in seen]
        spread = f"{min(cpu):.0f} to {max(cpu):.0f}"
        switched = statistics.median(cost.switches for cost in seen)
        print(f"| {version} | {mode} | {name} | {statistics.median(cpu):.0f} ({spread}) | {switched:.2f} |")


if __name__ == "__main__":
    main()
