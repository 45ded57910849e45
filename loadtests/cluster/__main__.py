"""`make cluster`: starts ZooKeeper and three nodes, prints commands to try, and stops everything on Ctrl-C.

Data is in a temporary directory, removed at the end. `--directory` keeps it and continues with existing data.
"""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click

from loadtests.cluster.nodes import ClusterNode, NodeFailed, penstock, port_or_free
from loadtests.cluster.zookeeper import Zookeeper, ZookeeperFailed, require_zookeeper

EXIT_REFUSED = 1
FIRST_PORT = 8081
FIRST_KAFKA_PORT = 9092
TO_TRY = """
  {penstock} topic create orders --replication-factor {factor} --partitions 6 --url {first}
  curl {last}/v1/topics/orders/records -H 'Content-Type: application/json' -d '{{"records":[{{"value":{{"n":1}}}}]}}'
  {penstock} topic describe orders --url {last}
  kcat -C -e -b {kafka} -t orders        # by Kafka's protocol
  {penstock} cluster status --url {last}
  kill -9 {pid}        # node {victim}: the others lead on, nothing that was acknowledged is lost
  {again} &

Ctrl-C stops everything{end}."""


@click.command()
@click.option("--nodes", "count", type=click.IntRange(1, 9), default=3, show_default=True, help="Number of nodes.")
@click.option("--shards", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes of each node.")
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Directory for all data.  [default: a temporary one]"
)
@click.option(
    "--port",
    type=click.IntRange(1, 65_000),
    default=FIRST_PORT,
    show_default=True,
    help="Port of the first node; the others have the next ones. A port in use is replaced by a free one.",
)
def main(count: int, shards: int, directory: Path | None, port: int) -> None:
    """Run ZooKeeper and a cluster of nodes on this machine until Ctrl-C."""
    try:
        require_zookeeper()
        with _interruptible(), _directory(directory) as workdir:
            _run(workdir, count, shards, port, is_kept=directory is not None)
    except (ZookeeperFailed, NodeFailed) as failure:
        click.echo(f"cluster: {failure}", err=True)
        sys.exit(EXIT_REFUSED)


def _run(workdir: Path, count: int, shards: int, first_port: int, *, is_kept: bool) -> None:
    zookeeper = Zookeeper(workdir / "zookeeper")
    nodes: list[ClusterNode] = []
    try:
        click.echo("starting ZooKeeper")
        zookeeper.start()
        coordination = f"zookeeper://127.0.0.1:{zookeeper.port}/penstock"
        (workdir / "store").mkdir(exist_ok=True)
        for number in range(1, count + 1):
            settings: dict[str, object] = {"port": port_or_free(first_port + number - 1), "shards": shards}
            settings["kafka-listen"] = f"127.0.0.1:{port_or_free(FIRST_KAFKA_PORT + number - 1)}"
            settings |= {"store": (workdir / "store").as_uri(), "default-replication-factor": min(3, count)}
            nodes.append(ClusterNode(number, workdir, coordination, settings))
        for node in nodes:
            node.begin_start()
        for node in nodes:
            click.echo(f"node {node.node_id}, rack {node.rack}: {node.wait_until_ready()}")
        _print_commands(nodes, is_kept=is_kept)
        signal.pause()
    except KeyboardInterrupt:
        click.echo("\nstopping")
    finally:
        _stop(nodes)
        zookeeper.kill()


def _print_commands(nodes: list[ClusterNode], *, is_kept: bool) -> None:
    victim = nodes[0]
    end = "; the directory stays" if is_kept else " and removes what was stored"
    words = {"first": nodes[0].url, "last": nodes[-1].url, "pid": victim.pid, "victim": victim.node_id}
    words |= {"kafka": nodes[-1].settings["kafka-listen"]}
    words |= {"penstock": shlex.quote(penstock()), "factor": min(3, len(nodes))}
    click.echo(TO_TRY.format(again=victim.command, end=end, **words))


def _stop(nodes: list[ClusterNode]) -> None:
    """Stops nodes one after the other, so that each can hand over its leaderships."""
    for node in nodes:
        if node.is_running:
            with contextlib.suppress(Exception):
                node.stop()
        node.kill()


@contextlib.contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="penstock-cluster-") as made:
        yield Path(made)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Handles SIGTERM and a closed terminal like Ctrl-C."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    yield


if __name__ == "__main__":
    main()
