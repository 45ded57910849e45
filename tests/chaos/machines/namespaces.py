"""A network with a namespace for each host of a cluster; a router joins them, and links can be cut one way.

Every host shares a link with the router only, so a cut is a rule of the router. It drops packets from one host to
another, and neither side gets an error; a blackhole route in the host's own table would give the sender an error at
once, unlike a broken cable. The router is a namespace too, so the machine's network is unchanged.
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
    """Return why namespaces cannot be used here; None if they can."""
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
    """`hosts` by name, each with an address. Cuts are pairs: packets from the first do not reach the second."""

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
        """Return the command that runs these arguments in the host's network, as the same process."""
        return ["nsenter", f"--net=/run/netns/{self.namespace(host)}", "--", *command]

    def enter(self, host: str) -> None:
        """Move this process to that host, for the sockets it opens and the processes it starts from now on."""
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
        """Cut both directions between each host of one group and each of the other."""
        for pair in some:
            for other in others:
                self.cut(pair, other)
                self.cut(other, pair)

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
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not check or ended.returncode == 0, f"{' '.join(command)}: {ended.stderr.strip()}"
    return ended
