"""`make minimal-debian`: runs `make run` and `make test` in a clone in a new Debian 12, which debootstrap makes.

Needs root and debootstrap. The root stays in DIRECTORY, so that a second run only clones and tests; packages of Debian
and Python come from where this machine gets them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tests.docs.pages import ROOT

PACKAGES = ("git", "make", "curl", "python3-venv", "ca-certificates")  # as the README names them
CLONE = "root/penstock"
COPIED = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
MOUNTED = ("/proc", "/dev", "/dev/pts", "/dev/shm", "/sys")
START_S = 900  # installs the server's libraries first


@click.command()
@click.option("--directory", type=click.Path(path_type=Path), default=Path("build/debian"), show_default=True)
@click.argument("pytest_arguments", nargs=-1)
def main(directory: Path, pytest_arguments: tuple[str, ...]) -> None:
    """Run the README's commands in a minimal Debian 12. Arguments go to pytest."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise click.ClickException("needs root and debootstrap: apt-get install debootstrap")
    root = directory.absolute()
    _make_root(root)
    _clone(root / CLONE)
    with _mounted(root):
        _check_run(root)
        arguments = " ".join(pytest_arguments)
        sys.exit(_in_root(root, f"make test ARGS='{arguments}'").wait())


def _make_root(root: Path) -> None:
    if (root / "usr/bin/git").exists():
        return
    root.mkdir(parents=True, exist_ok=True)
    include = f"--include={','.join(PACKAGES)}"
    subprocess.run(["debootstrap", "--variant=minbase", include, "bookworm", str(root), _mirror()], check=True)


def _mirror() -> str:
    """Return the address from which this machine gets the packages of Debian."""
    shown = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, check=True)
    return next(line for line in shown.stdout.decode().split() if re.search(r"/debian/?$", line))


def _clone(clone: Path) -> None:
    if clone.exists():
        shutil.rmtree(clone)
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(clone)], check=True)


@contextmanager
def _mounted(root: Path) -> Iterator[None]:
    for name in COPIED:
        if Path(name).exists():
            (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, root / name[1:])
    wheels = [Path(part) for part in os.environ.get("PIP_FIND_LINKS", "").split() if part.startswith("/")]
    mounts = [*map(Path, MOUNTED), *wheels]
    done: list[Path] = []
    try:
        for source in mounts:
            target = root / str(source)[1:]
            target.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "--bind", str(source), str(target)], check=True)
            done.append(target)
        yield
    finally:
        for target in reversed(done):
            subprocess.run(["umount", "-l", str(target)], check=True)


def _in_root(root: Path, command: str) -> subprocess.Popen[bytes]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "SSL_")) or "proxy" in name.lower()
    }
    environment = {**kept, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    script = f"cd /{CLONE} && {command}"
    return subprocess.Popen(["chroot", str(root), "sh", "-c", script], env=environment, start_new_session=True)


def _check_run(root: Path) -> None:
    """`make run` serves, and answers the README's first request."""
    node = _in_root(root, "exec make run ARGS='--port 8099 --data-dir /tmp/penstock-data'")
    asked = "curl -s --retry 900 --retry-delay 1 --retry-connrefused -X PUT http://127.0.0.1:8099/v1/topics/rides"
    try:
        if _in_root(root, f"{asked} | grep -q topic_id").wait(START_S):
            raise click.ClickException("make run does not answer")
        click.echo("make run serves")
    finally:
        os.killpg(node.pid, 15)
        node.wait(60)


if __name__ == "__main__":
    main()
