"""`penstock tier restore`: builds the data directory of a node from a store, and the cluster that it is a node of."""

from __future__ import annotations

import os
import secrets
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from engine.runtime.disk import RealDisk
from engine.tiering.audit.inventory import topics_of
from engine.tiering.audit.restored_directory import (
    RestoredTopic,
    RestoreTarget,
    StoredTopic,
    check_unused,
    restore_directory,
    stored_topics,
)
from engine.tiering.store.store import open_store
from node.commands.tier.audit import Progress, StoreCommand, cluster_option, clusters, store_option
from node.commands.tier.restored_cluster import RestoredCluster, zookeeper_sessions
from node.processes.process_parts import BOOT_ID
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import Column, format_bytes, print_facts, print_json, print_note, print_table
from penstock.cli.records.progress import status_line

_ABSENT = {
    "unsealed_records": "records that were not sealed yet",
    "compacted_topics": "compacted topics",
    "group_positions": "positions of consumer groups",
    "subscriptions": "push subscriptions",
    "producer_state": "producer state whose records are deleted",
}


class Time(click.ParamType[int]):
    """A time with its zone, as milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a time such as 2026-01-31T05:00:00Z", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} has no time zone: add Z for UTC", param, ctx)
        return int(moment.timestamp() * 1000)


class Nodes(click.ParamType[tuple[int, ...]]):
    """Ids of nodes, with commas between them."""

    name = "nodes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        words = str(value).split(",")
        if not all(word.isdecimal() and int(word) for word in words) or len(set(words)) != len(words):
            self.fail(f"{value!r} are not ids of nodes, such as 1,2,3", param, ctx)
        return tuple(map(int, words))


@click.command(cls=StoreCommand)
@click.argument("topics", nargs=-1)
@store_option
@cluster_option
@click.option("--data-dir", required=True, metavar="DIR", help="The directory to build; it must be new or empty.")
@click.option("--until", "until_ms", type=Time(), metavar="TIME", help="Only records before this time.")
@click.option("--node-id", type=click.IntRange(min=1), default=1, show_default=True, help="The id of the node.")
@click.option("--coordination", metavar="URL", help="Create the cluster at this empty place of ZooKeeper, too.")
@click.option("--nodes", type=Nodes(), metavar="IDS", help="All nodes of that cluster: 1,2,3.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Only print what would be written.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people.")
def restore(
    topics: tuple[str, ...],
    store_url: str,
    cluster: str | None,
    data_dir: str,
    until_ms: int | None,
    node_id: int,
    coordination: str | None,
    nodes: tuple[int, ...] | None,
    is_dry: bool,
    as_json: bool,
) -> None:
    """Build the data directory of a node from the store: all topics, or the given ones.

    Topics keep their settings, ids and offsets. Stop the node that wrote to the store first. With --until the node gets
    a new cluster id, because the store has later records of the old one.

    With --coordination and --nodes it is the first node of a new cluster. Start all nodes afterwards, the others with
    empty directories: they copy their replicas. After an interruption repeat the command.

    \f
    Raises Failure.
    """
    nodes = _nodes(coordination, nodes, node_id)
    store = open_store(store_url)
    cluster_ids = clusters(store, cluster)
    if len(cluster_ids) > 1:
        raise Failure(
            f"{store.url} has several clusters: give --cluster one of {', '.join(cluster_ids)}", ExitCode.USAGE
        )
    having = topics_of(store, cluster_ids[0])
    unknown = sorted(set(topics) - set(having))
    if unknown:
        raise Failure(f"{store.url} has no objects of topic {unknown[0]}")
    disk, path = RealDisk(), os.path.abspath(data_dir)
    target = RestoreTarget(disk, path, node_id, Path(BOOT_ID).read_text().strip(), new_id)
    publication = None
    if coordination:
        publication = RestoredCluster(zookeeper_sessions(coordination, new_id), disk, node_id, nodes, new_id)
    check_unused(target)
    if is_dry or (coordination and not as_json):
        planned = list(stored_topics(store, cluster_ids[0], topics or having))
        facts = {"store": store.url, "cluster": cluster_ids[0], "data_dir": path, "coordination": coordination}
        _print_plan({**facts, "nodes": list(nodes)}, planned, as_json=as_json)
    if is_dry:
        return
    with status_line() as line:
        show = Progress(line, "restored")
        cluster_id, restored = restore_directory(
            store,
            target,
            cluster_ids[0],
            topics or having,
            until_ms=until_ms,
            on_restored=show.count_checked,
            publication=publication,
        )
    if as_json:
        rows = [_row_of(entry) for entry in restored]
        print_json({"data_dir": target.path, "cluster": cluster_id, "topics": rows, "not_in_store": _ABSENT})
        return
    print_facts([("data directory", target.path), ("cluster", cluster_id)])
    click.echo()
    _print(restored)
    for entry in restored:
        if not entry.has_description:
            print_note(f"The store has no settings of topic {entry.record.name}: it has the defaults.")
        if entry.replication_factor > len(nodes):
            alter = f"penstock topic alter {entry.record.name} --replication-factor {entry.replication_factor}"
            print_note(f"Topic {entry.record.name} had {entry.replication_factor} replicas. In a new cluster: {alter}")
    print_note(f"Not in the store: {', '.join(_ABSENT.values())}.")
    if len(nodes) > 1:
        others = ", ".join(str(node) for node in nodes if node != node_id)
        print_note(f"Start node {node_id} with this directory, and {others} with empty ones, in any order.")


def new_id() -> str:
    return secrets.token_hex(16)


def _nodes(coordination: str | None, nodes: tuple[int, ...] | None, node_id: int) -> tuple[int, ...]:
    """Returns the nodes of the restored cluster. Raises Failure."""
    if nodes is None:
        return (node_id,)
    if not coordination:
        raise Failure("--nodes needs --coordination: the place of the cluster in ZooKeeper", ExitCode.USAGE)
    if node_id not in nodes:
        raise Failure(f"--nodes lacks {node_id}, the node of --data-dir: give --node-id", ExitCode.USAGE)
    return nodes


def _print_plan(facts: dict[str, Any], planned: list[StoredTopic], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "topic": topic.record.name,
                "topic_id": topic.record.topic_id,
                "partitions": topic.record.partitions,
                "replication_factor": topic.record.replication_factor,
                "segments": topic.segments,
                "bytes": topic.size_bytes,
            }
            for topic in planned
        ]
        print_json({**facts, "topics": rows, "not_in_store": _ABSENT})
        return
    shown = {name.replace("_", " "): value for name, value in facts.items() if value}
    shown["nodes"] = ", ".join(map(str, facts["nodes"]))
    print_facts([(name.replace("data dir", "data directory"), value) for name, value in shown.items()])
    click.echo()
    columns = [Column("topic", is_text=True), Column("partitions"), Column("replicas"), Column("segments")]
    print_table(
        [*columns, Column("to restore")],
        [
            (
                topic.record.name,
                topic.record.partitions,
                topic.record.replication_factor,
                topic.segments,
                format_bytes(topic.size_bytes),
            )
            for topic in planned
        ],
    )
    click.echo()


def _row_of(restored: RestoredTopic) -> dict[str, Any]:
    return {
        "topic": restored.record.name,
        "topic_id": restored.record.topic_id,
        "has_settings": restored.has_description,
        "replication_factor": restored.replication_factor,
        "config": dict(restored.record.overrides),
        "partitions": [
            {
                "partition": log.partition.partition,
                "log_start": log.log_start,
                "end_offset": log.end_offset,
                "segments": log.segments,
                "bytes": log.size_bytes,
                "is_cut": log.is_cut,
            }
            for log in restored.partitions
        ],
    }


def _print(restored: list[RestoredTopic]) -> None:
    print_table(
        [
            Column("topic", is_text=True),
            Column("partitions"),
            Column("records"),
            Column("segments"),
            Column("restored"),
        ],
        [
            (
                topic.record.name,
                topic.record.partitions,
                sum(log.end_offset - log.log_start for log in topic.partitions),
                sum(log.segments for log in topic.partitions),
                format_bytes(sum(log.size_bytes for log in topic.partitions)),
            )
            for topic in restored
        ],
    )
