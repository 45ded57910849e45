"""`make upgrade`: three nodes of an earlier commit under load, replaced one by one by nodes of this tree, and back.

Then the nodes are replaced once more, the feature level is raised, and a node of the earlier commit must not start.
Exits with 1 if there is any finding, and with 3 if there is no commit to upgrade from.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path

import click

from loadtests.cluster.nodes import ROOT, ClusterNode, NodeFailed
from loadtests.cluster.zookeeper import ZookeeperFailed, require_zookeeper
from replication.cluster.values import LEVEL_MAX
from tests.chaos.clients.final import Unreadable
from tests.chaos.machines.cluster import NotHealthy
from tests.upgrade.rolling import replace_in_turn, running_nodes

EXIT_FOUND, EXIT_CANNOT = 1, 3
# A commit without any of these files has only standalone nodes. The second path is where the first file was before.
WITH_A_CLUSTER = ("replication/cluster/agent.py", "replication/cluster_agent.py")
SHOWN = 20


class Cannot(Exception):
    """There is no commit to upgrade from. The message is one line."""


@click.command()
@click.option(
    "--from", "given", help="A tag or commit.  [default: the latest tag, or the commit of this version's changelog]"
)
@click.option("--calm-s", default=5.0, show_default=True, help="Seconds of load before, between and after.")
@click.option("--shards", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes of each node.")
def main(given: str | None, calm_s: float, shards: int) -> None:
    """Upgrade a cluster node by node under load, and judge the clients' histories."""
    try:
        require_zookeeper()
        commit = earlier_commit(given)
        with tempfile.TemporaryDirectory(prefix="penstock-upgrade-") as made, worktree(commit) as source:
            click.echo(f"from {given or 'tag'} {commit} to this tree")
            with running_nodes(Path(made), source, shards=shards) as nodes:
                found = asyncio.run(replace_in_turn(nodes, [ROOT, source, ROOT], commit, calm_s))
                refused = start_after_raise(nodes, source)
    except (Cannot, ZookeeperFailed) as reason:
        click.echo(f"upgrade: {reason}", err=True)
        sys.exit(EXIT_CANNOT)
    except (NodeFailed, NotHealthy, Unreadable) as failure:
        click.echo(f"upgrade: {failure}", err=True)
        sys.exit(EXIT_FOUND)
    click.echo(str(found))
    click.echo(f"after the feature level was raised, a node of {commit}: {refused}")
    for one in found.findings[:SHOWN]:
        click.echo(f"  {one}")
    sys.exit(EXIT_FOUND if found.findings else 0)


def earlier_commit(given: str | None, tree: Path = ROOT) -> str:
    """Return the short name of the earlier commit. Raises Cannot."""
    tag = given or _git("describe", "--tags", "--abbrev=0", tree=tree) or _changelog_commit(tree)
    if not tag:
        raise Cannot("there is no tag to upgrade from: name a commit, make upgrade FROM=<commit>")
    commit = _git("rev-parse", "--short", "--verify", f"{tag}^{{commit}}", tree=tree)
    if not commit:
        raise Cannot(f"{tag} is not a tag or commit of this repository")
    if not _git("ls-tree", "--name-only", commit, *WITH_A_CLUSTER, tree=tree):
        raise Cannot(f"{tag} has no cluster yet: name a later commit, make upgrade FROM=<commit>")
    if missing := missing_libraries(_git("show", f"{commit}:requirements/serve.lock", tree=tree)):
        raise Cannot(f"{tag} needs libraries that are not installed: {sys.executable} -m pip install {missing}")
    return commit


def _changelog_commit(tree: Path) -> str:
    """Return the commit that gave the changelog the heading of this version, or an empty text."""
    project = tree / "pyproject.toml"
    version = tomllib.loads(project.read_text())["project"]["version"] if project.exists() else ""
    return _git("log", "--format=%h", f"-S## {version}", "--", "CHANGELOG.md", tree=tree).rpartition("\n")[2]


def start_after_raise(nodes: dict[int, ClusterNode], source: Path) -> str:
    """Raise the feature level, start one node from older code, and return how it refuses. Raises NodeFailed."""
    node = nodes[min(nodes)]
    command = [sys.executable, "-m", "penstock.cli.main", "coordination", "feature-level"]
    place = ["--coordination", str(node.settings["coordination"]), "--raise-to", str(LEVEL_MAX)]
    raised = subprocess.run([*command, *place], cwd=ROOT, capture_output=True, text=True, check=False)
    if raised.returncode:
        raise NodeFailed(f"the feature level was not raised: {raised.stderr}")
    node.stop()
    node.source = source
    try:
        node.begin_start()
        node.wait_until_ready()
    except NodeFailed as refused:
        return str(refused).splitlines()[-1]
    raise NodeFailed(f"{node} of the earlier commit started after the feature level was raised")


def missing_libraries(lock: str) -> str:
    """Return what a lock file names and this environment lacks, as arguments of pip; other versions are accepted."""
    installed = {_normalized(one.name) for one in distributions()}
    locked = re.findall(r"^([A-Za-z0-9_.-]+)==([^ ]+)", lock, re.MULTILINE)
    return " ".join(f"{name}=={version}" for name, version in locked if _normalized(name) not in installed)


def _normalized(name: str) -> str:
    """Return the form of a distribution's name by which indexes compare (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """Check out that commit's tree in a separate directory."""
    with tempfile.TemporaryDirectory(prefix="penstock-tree-") as made:
        path = Path(made) / "tree"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "-q", "--detach", path, commit], check=True)
        try:
            yield path
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", path], check=True)


def _git(*words: str, tree: Path) -> str:
    ran = subprocess.run(["git", "-C", tree, *words], capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else ""


if __name__ == "__main__":
    main()
