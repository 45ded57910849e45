"""`penstock coordination`: rebuilds a lost coordination store, secures the keys of one, raises the feature level.

The rebuild has two steps, since the directories are on several machines: `inventory` on each one writes what its
directories hold, and `rebuild` on any of them writes the store. Decides nothing: replication/rebuild/plan.py does.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from engine.format import paths
from engine.runtime.clock import SystemClock
from engine.runtime.disk import Disk, RealDisk
from engine.tiering.store.store import open_store
from node.commands.tier.audit import StoreCommand
from node.commands.tier.restore import new_id
from node.commands.tier.restored_cluster import (
    OpenSession,
    OpenZookeeper,
    zookeeper_security_of_environment,
    zookeeper_sessions,
)
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.groups import AliasGroup
from penstock.cli.output import Column, print_facts, print_json, print_note, print_table
from replication.cluster.feature_level import LEVELS, raise_level, read_level
from replication.cluster.keys import CLUSTER
from replication.cluster.values import ClusterIdentity, NodeInfo, identity_from_bytes, identity_to_bytes
from replication.coordination.interface import Put
from replication.rebuild.directories import node_of, read_inventory
from replication.rebuild.inventory import NodeInventory, decode_inventory, encode_inventory
from replication.rebuild.plan import Choices, Plan, PlannedTopic, plan_rebuild
from replication.rebuild.writing import check_empty, write_plan

PROGRESS_KEYS = 1000  # between two lines of progress


@click.group(cls=AliasGroup)
def coordination() -> None:
    """Rebuild a lost coordination store from data directories, and secure the keys of ZooKeeper."""


@coordination.command(cls=StoreCommand)
@click.option(
    "--data-dir", "data_dirs", multiple=True, required=True, metavar="DIR", help="A data directory; repeat it."
)
def inventory(data_dirs: tuple[str, ...]) -> None:
    """Print what the data directories of one stopped node hold, for `rebuild` on another machine.

    Give all --data-dir of the node. Reads the newest segment of each log, and changes nothing.
    """
    click.echo(encode_inventory(read_inventory(RealDisk(), data_dirs)).decode(), nl=False)


@coordination.command(cls=StoreCommand)
@click.option(
    "--inventory", "files", multiple=True, metavar="FILE", help="The output of `inventory` on a node; repeat it."
)
@click.option(
    "--data-dir", "data_dirs", multiple=True, metavar="DIR", help="A data directory on this machine; repeat it."
)
@click.option("--coordination", "address", required=True, metavar="URL", help="The empty place in ZooKeeper to write.")
@click.option(
    "--absent-node", type=int, multiple=True, metavar="N", help="A node that comes back with an empty directory."
)
@click.option("--leave-out", multiple=True, metavar="TOPIC", help="A topic that was deleted; its files stay.")
@click.option("--accept-loss", multiple=True, metavar="TOPIC", help="Take the topic although records may be missing.")
@click.option("--store", "store_url", metavar="URL", help="Read in this object store which topics were deleted.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Only print what would be written.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people.")
def rebuild(
    files: tuple[str, ...],
    data_dirs: tuple[str, ...],
    address: str,
    absent_node: tuple[int, ...],
    leave_out: tuple[str, ...],
    accept_loss: tuple[str, ...],
    store_url: str | None,
    is_dry: bool,
    as_json: bool,
) -> None:
    """Write the content of an empty coordination store, from the data directories of all nodes.

    Stop every node first. Refuses a store that is not empty, and topics whose acknowledged records may be in
    directories that were not given. After an interruption repeat the command.

    \f
    Raises Failure.
    """
    nodes = [*_read_files(files), *_read_directories(RealDisk(), data_dirs)]
    markers = _markers(store_url, nodes)
    now_ms = SystemClock().now_ms()
    plan = plan_rebuild(nodes, Choices(accept_loss, leave_out, markers, absent_node, now_ms))
    sessions = zookeeper_sessions(address, new_id)
    asyncio.run(_check(sessions, plan))
    is_written = not is_dry and not plan.questions
    if not as_json:
        _print_plan(plan)
    if is_written:
        asyncio.run(_write(sessions, plan, now_ms))
    if as_json:
        print_json(_plan_to_plain(plan, is_written=is_written))
    if plan.questions:
        raise Failure(f"nothing was written: {plan.questions[0].topic}: {plan.questions[0].reason}")
    if is_written and not as_json:
        print_note(f"Written to {address}. Start all nodes, in any order.")
        for node in absent_node:
            print_note(f"Start node {node} with an empty directory: it copies its replicas.")


@coordination.command(cls=StoreCommand)
@click.option("--coordination", "address", required=True, metavar="URL", help="The place of the cluster in ZooKeeper.")
@click.option("--open", "is_open", is_flag=True, help="The way back: give the keys an ACL for every client.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Only count the keys that would change.")
def secure(address: str, is_open: bool, is_dry: bool) -> None:
    """Give every key of a running cluster the ACL of PENSTOCK_ZOOKEEPER_LOGIN_FILE.

    All nodes must log in before, and run with zookeeper_acl. The variables PENSTOCK_ZOOKEEPER_TLS_CA, _TLS_CERT and
    _TLS_KEY count as for a node. After an interruption repeat the command.

    \f
    Raises Failure.
    """
    security = zookeeper_security_of_environment()
    if not security.login_file:
        raise Failure("PENSTOCK_ZOOKEEPER_LOGIN_FILE is not set: the file with the login of the nodes", ExitCode.USAGE)
    sessions = zookeeper_sessions(address, new_id, replace(security, has_acl=True))
    keys, changed = asyncio.run(_secure(sessions, is_open=is_open, is_dry=is_dry))
    done = "would change" if is_dry else "changed"
    print_facts([("keys", keys), (done, changed)])


async def _secure(sessions: OpenZookeeper, *, is_open: bool, is_dry: bool) -> tuple[int, int]:
    """Returns the number of keys, and of those whose ACL differed."""
    keys = changed = 0
    async with sessions() as session:
        async for _, is_changed in session.secure(is_open=is_open, is_dry=is_dry):
            keys, changed = keys + 1, changed + is_changed
            if keys % PROGRESS_KEYS == 0:
                print_note(f"{keys} keys, {changed} of them {'to change' if is_dry else 'changed'}")
    return keys, changed


@coordination.command(cls=StoreCommand)
@click.option("--coordination", "address", required=True, metavar="URL", help="The place of the cluster in ZooKeeper.")
@click.option(
    "--pause", "pause_s", type=float, default=30.0, metavar="SECONDS", help="Between two steps. [default: 30]"
)
def rotate_secret(address: str, pause_s: float) -> None:
    """Give a running cluster a new secret, in three steps: all nodes accept it, all send it, the old one is forgotten.

    A node learns of a step within a sixth of its session_timeout_ms; the pause has to be longer. All nodes need this
    version. The variables PENSTOCK_ZOOKEEPER_… count as for a node. After an interruption repeat the command.

    \f
    Raises Failure.
    """
    asyncio.run(_rotate(zookeeper_sessions(address, new_id), pause_s))
    print_note("The cluster has a new secret.")


async def _rotate(sessions: OpenZookeeper, pause_s: float) -> None:
    """Raises Failure, Conflict."""
    async with sessions() as session:
        while True:
            found = await session.get(CLUSTER)
            if found is None:
                raise Failure("there is no cluster in --coordination")
            rotated = identity_from_bytes(CLUSTER, found.value).rotated(new_id() + new_id())
            await session.commit(Put(CLUSTER, identity_to_bytes(rotated), found.version))
            if len(rotated.secrets) == 1:
                return
            print_note(f"Nodes {'accept' if rotated.next_secret else 'send'} the new secret from now on.")
            await asyncio.sleep(pause_s)


@coordination.command(cls=StoreCommand)
@click.option("--coordination", "address", required=True, metavar="URL", help="The place of the cluster in ZooKeeper.")
@click.option("--raise-to", type=int, metavar="LEVEL", help="Raise it to this level, permanently.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people.")
def feature_level(address: str, raise_to: int | None, as_json: bool) -> None:
    """Show the feature level of a cluster, or raise it.

    Nodes write what older versions cannot read only from a level on. Raise it after an upgrade of all nodes, when the
    older version is not needed any more: a level is never lowered. PENSTOCK_ZOOKEEPER_… count as for a node.

    \f
    Raises Failure.
    """
    identity, nodes = asyncio.run(_feature_level(zookeeper_sessions(address, new_id), raise_to))
    if as_json:
        plain = [{"node_id": node.node_id, "version": node.version, "feature_level_max": node.level} for node in nodes]
        print_json({"cluster_id": identity.cluster_id, "feature_level": identity.level, "nodes": plain})
        return
    print_facts([("cluster", identity.cluster_id), ("feature level", f"{identity.level}: {LEVELS[identity.level]}")])
    click.echo()
    columns = [Column("node"), Column("version", is_text=True), Column("serves levels to")]
    print_table(columns, [(node.node_id, node.version, node.level) for node in nodes])


async def _feature_level(sessions: OpenZookeeper, raise_to: int | None) -> tuple[ClusterIdentity, list[NodeInfo]]:
    async with sessions() as session:
        for node in await raise_level(session, raise_to) if raise_to is not None else []:
            print_note(f"Node {node.node_id} started at this moment with an older version: upgrade it now.")
        return await read_level(session)


def _read_files(files: Sequence[str]) -> list[NodeInventory]:
    """Raises Failure."""
    try:
        return [decode_inventory(Path(file).read_bytes(), file) for file in files]
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}") from error


def _read_directories(disk: Disk, data_dirs: Sequence[str]) -> list[NodeInventory]:
    """Reads an inventory of each node that has some of these directories."""
    by_node: dict[int, list[str]] = {}
    for path in data_dirs:
        by_node.setdefault(node_of(disk, path), []).append(path)
    return [read_inventory(disk, having) for having in by_node.values()]


def _markers(store_url: str | None, nodes: Sequence[NodeInventory]) -> set[str]:
    """The ids of topics with a marker of their deletion in the object store."""
    if store_url is None or not nodes:
        return set()
    cluster_id = nodes[0].cluster_id
    store, prefix = open_store(store_url), paths.store_deleted_prefix(cluster_id)
    if next(iter(store.list(f"{cluster_id}/")), None) is None:  # a store that is not mounted deletes no topic
        raise Failure(
            f"{store_url} has nothing of cluster {cluster_id}: mount it, or leave out --store if nothing was uploaded"
        )
    markers = (paths.deleted_topic_of(info.key.removeprefix(prefix)) for info in store.list(prefix))
    return {marker[1] for marker in markers if marker is not None}


async def _check(sessions: OpenSession, plan: Plan) -> None:
    async with sessions() as session:
        await check_empty(session, plan.cluster_id)


async def _write(sessions: OpenSession, plan: Plan, now_ms: int) -> None:
    async with sessions() as session:
        await write_plan(session, plan, new_id, now_ms)


def _print_plan(plan: Plan) -> None:
    print_facts([("cluster", plan.cluster_id), ("nodes", ", ".join(map(str, sorted(plan.starts))))])
    click.echo()
    columns = [
        Column("topic", is_text=True),
        Column("partitions"),
        Column("replicas"),
        Column("in sync"),
        Column("end"),
    ]
    print_table([*columns, Column("lost")], [_row(topic) for topic in plan.topics])
    for note in (*plan.notes, *(f"topic {name} was deleted: {topic_id}" for topic_id, name in plan.deleted.items())):
        print_note(note[0].upper() + note[1:] + ".")
    for name in plan.left_out:
        print_note(f"Topic {name} is left out. Its files stay on the nodes, which do not serve it.")
    for question in plan.questions:
        print_note(f"Topic {question.topic}: {question.reason}. {question.hint[0].upper()}{question.hint[1:]}.")
    sys.stderr.flush()


def _row(topic: PlannedTopic) -> tuple[object, ...]:
    partitions = topic.partitions
    least = min(len(partition.in_sync) for partition in partitions)
    replicas, lost = (
        max(len(partition.replicas) for partition in partitions),
        sum(partition.lost for partition in partitions),
    )
    return topic.entry.name, len(partitions), replicas, least, sum(partition.log_end for partition in partitions), lost


def _plan_to_plain(plan: Plan, *, is_written: bool) -> dict[str, Any]:
    return {
        "cluster_id": plan.cluster_id,
        "nodes": sorted(plan.starts),
        "is_written": is_written,
        "producer_ids_end": plan.producer_ids_end,
        "topics": [
            {
                "topic": topic.entry.name,
                "topic_id": topic.entry.topic_id,
                "config": dict(topic.entry.config),
                "partitions": [
                    {
                        "partition": partition.number,
                        "replicas": list(partition.replicas),
                        "in_sync": list(partition.in_sync),
                        "leader_epoch": partition.leader_epoch,
                        "log_end": partition.log_end,
                        "absent": partition.absent,
                        "lost": partition.lost,
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in plan.topics
        ],
        "deleted": dict(plan.deleted),
        "left_out": list(plan.left_out),
        "questions": [
            {"topic": question.topic, "reason": question.reason, "hint": question.hint} for question in plan.questions
        ],
        "notes": list(plan.notes),
    }
