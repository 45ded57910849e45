"""A network of its own for each host of a cluster: namespaces that a router joins, with links that can be cut one way.

Every host is alone with the router on a link of its own, so a cut is a rule of the router: packets from one host
to another are swallowed there, and neither side is told (a blackhole in a host's own table would tell its senders at
once, which no broken cable does). Nothing of this is seen outside: the router is a namespace too.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from itertools import permutations
from pathlib import Path

from tests.chaos.machines.leftovers import Registry

CLONE_NEWNET = 0x4000_0000
PREFIX = "10.213"  # of addresses that exist within these namespaces only


@cache
def why_not() -> str | None:
    """Why there can be no namespaces here; None if there can."""
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        return "ip and nsenter are needed (Debian: iproute2, util-linux)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"penstock-{os.getpid()}-try"
    tried = _run("ip", "netns", "add", name, check=False)
    if tried.returncode:
        return f"network namespaces cannot be made here: {tried.stderr.strip()}"
    ruled = _run("ip", "-n", name, "rule", "add", "iif", "lo", "to", f"{PREFIX}.0.1", "blackhole", check=False)
    _run("ip", "netns", "del", name)
    return f"the kernel knows no routing rules: {ruled.stderr.strip()}" if ruled.returncode else None


class Network:
    """`hosts` by name, each with an address. Cuts are pairs: what the first sends does not reach the other."""

    def __init__(self, hosts: Iterable[str], registry: Registry) -> None:
        self._prefix = f"penstock-{os.getpid()}"
        self._router = f"{self._prefix}-router"
        self._numbers = {host: number for number, host in enumerate(hosts, 1)}
        self.cuts: set[tuple[str, str]] = set()
        registry.note("namespace", self._router)
        for host in self._numbers:
            registry.note("namespace", self.namespace(host))
        self._make()

    def namespace(self, host: str) -> str:
        return f"{self._prefix}-{host}"

    def address(self, host: str) -> str:
        return f"{PREFIX}.{self._numbers[host]}.2"

    def command(self, host: str, command: list[str]) -> list[str]:
        """To be run as this: the same process, in the host's network."""
        return ["nsenter", f"--net=/run/netns/{self.namespace(host)}", "--", *command]

    def enter(self, host: str) -> None:
        """From now on this process is on that host: sockets that it opens, and processes that it starts."""
        with Path(f"/run/netns/{self.namespace(host)}").open() as file:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter the network of {host}")

    def cut(self, source: str, target: str) -> None:
        if (source, target) not in self.cuts:
            self.cuts.add((source, target))
            self._rule("add", source, target)

    def heal(self, source: str, target: str) -> None:
        if (source, target) in self.cuts:
            self.cuts.remove((source, target))
            self._rule("del", source, target)

    def part(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Both ways between each of some and each of the others."""
        for one in some:
            for other in others:
                self.cut(one, other)
                self.cut(other, one)

    def isolate(self, host: str, *, but: Iterable[str] = ()) -> None:
        self.part([host], self._numbers.keys() - {host, *but})

    def heal_all(self) -> None:
        for source, target in list(self.cuts):
            self.heal(source, target)

    def _make(self) -> None:
        _run("ip", "netns", "add", self._router)
        _run("nsenter", f"--net=/run/netns/{self._router}", "--", "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for host, number in self._numbers.items():
            namespace, link, gate = self.namespace(host), f"host{number}", f"{PREFIX}.{number}.1"
            _run("ip", "netns", "add", namespace)
            for words in (
                [self._router, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace],
                [self._router, "addr", "add", f"{gate}/24", "dev", link],
                [self._router, "link", "set", link, "up"],
                [namespace, "addr", "add", f"{self.address(host)}/24", "dev", "eth0"],
                [namespace, "link", "set", "eth0", "up"],
                [namespace, "link", "set", "lo", "up"],
                [namespace, "route", "add", "default", "via", gate],
            ):
                _run("ip", "-n", *words)

    def _rule(self, action: str, source: str, target: str) -> None:
        link = f"host{self._numbers[source]}"
        _run("ip", "-n", self._router, "rule", action, "iif", link, "to", self.address(target), "blackhole")

    def __repr__(self) -> str:
        cuts = ", ".join(f"{a}>{b}" for a, b in sorted(self.cuts)) or "whole"
        return f"Network({'/'.join(self._numbers)}: {cuts})"


def every_pair(hosts: Iterable[str]) -> list[tuple[str, str]]:
    return list(permutations(hosts, 2))


def _run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert not check or ended.returncode == 0, f"{' '.join(command)}: {ended.stderr.strip()}"
    return ended
