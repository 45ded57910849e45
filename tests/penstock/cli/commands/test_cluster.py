"""Operations on a cluster from the command line: the output for a cluster and for a standalone node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli.commands.cluster import cluster, parse_target
from penstock.cli.commands.topic import topic
from tests.gateway.operated import Operated, operated_cluster
from tests.penstock.cli.conftest import Run


@pytest.fixture
async def operated(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Operated]:
    async with operated_cluster(tmp_path, request) as made:
        yield made


async def run_cluster(operated: Operated, *words: object, group: click.Group = cluster) -> str:
    arguments = [*map(str, words), "--url", operated.gateway.node.peers.url]
    ran = await asyncio.to_thread(CliRunner().invoke, group, arguments, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.output


async def test_moves_are_begun_shown_and_called_off(operated: Operated) -> None:
    (before,) = await operated.create("orders", 1, 1)
    other = next(n for n in (1, 2, 3) if n not in before)
    assert await run_cluster(operated, "reassignments") == "No partition is being moved.\n"
    shown = (await run_cluster(operated, "reassign", "orders", f"0={other}")).splitlines()
    assert shown[0].split() == [
        "topic",
        "partition",
        "to",
        "nodes",
        "copying",
        "leaving",
        "in",
        "sync",
        "left",
        "of",
    ]
    unknown = ["-", "-"]
    assert shown[1].split() == [
        "orders",
        "0",
        str(other),
        str(other),
        str(before[0]),
        str(before[0]),
        *unknown,
    ]
    assert (await run_cluster(operated, "reassignments")).splitlines() == shown
    assert await run_cluster(operated, "cancel", "orders", 0) == "orders/0 is not being moved.\n"
    assert await run_cluster(operated, "reassignments") == "No partition is being moved.\n"


async def test_status_lists_nodes_and_problems(operated: Operated) -> None:
    await operated.create("orders", 3, 3)
    await operated.cluster.end(3)
    view = operated.cluster.agents[1].view
    await operated.cluster.until(lambda: all(len(found.state.in_sync) == 2 for found in view.states.values()))
    assert "Node 2 is drained" in await run_cluster(operated, "drain", 2)
    shown = await run_cluster(operated, "status")
    assert "under-replicated  orders/0,1,2" in shown
    rows = {line.split()[0]: line.split()[1:5] for line in shown.splitlines()[-3:]}
    assert rows["1"][0] == "alive"
    assert rows["2"][0] == "drained"
    assert rows["3"] == ["gone", "0", "3", "3"]
    assert "may lead again" in await run_cluster(operated, "undrain", 2)
    await operated.cluster.until(lambda: not view.drained)


async def test_describe_shows_sets_and_lag(operated: Operated) -> None:
    (replicas,) = await operated.create("orders", 1, 3)
    shown = await run_cluster(operated, "describe", "orders", group=topic)
    row = next(line.split() for line in shown.splitlines() if line.strip().startswith("0 "))
    assert row[:4] == ["0", str(replicas[0]), ",".join(map(str, replicas)), "1,2,3"]


async def test_a_plan_is_shown_and_begun(operated: Operated) -> None:
    await operated.create("orders", 6, 1)
    await operated.fill("orders", 0, 3)
    planned = await run_cluster(operated, "balance")
    assert planned.splitlines()[0].split() == ["topic", "partition", "from", "to", "size"]
    assert planned.splitlines()[-1].startswith("1 move, 97.8 KiB to copy.")
    assert await run_cluster(operated, "reassignments") == "No partition is being moved.\n"
    assert "Started." in await run_cluster(operated, "balance", "--apply")
    assert "orders" in await run_cluster(operated, "reassignments")


async def test_a_node_is_emptied(operated: Operated) -> None:
    await operated.create("orders", 3, 2)
    shown = await run_cluster(operated, "decommission", 3, "--yes")
    assert shown == "Moving 2 partitions off node 3; see penstock cluster reassignments.\n"


async def test_replicas_are_added(operated: Operated) -> None:
    await operated.create("orders", 2, 1)
    shown = await run_cluster(operated, "alter", "orders", "--replication-factor", 3, group=topic)
    assert shown == "Topic orders gets 3 replicas; see penstock cluster reassignments.\n"
    assert len((await run_cluster(operated, "reassignments")).splitlines()) == 3


def test_a_node_that_is_alone_says_so(on_node: Run) -> None:
    on_node("topic", "create", "lone")
    for operation in [("drain", 1), ("undrain", 1), ("decommission", 1, "--yes")]:
        refused = on_node("cluster", *operation)
        assert refused.code == 4
        assert "alone" in refused.err
        assert "[no_other_node]" in refused.err
    assert on_node("cluster", "decommission", 1).code == 2, "it asks for confirmation, and there is no terminal"
    refused = on_node("cluster", "reassign", "lone", "0=1,2")
    assert refused.code == 4
    assert "alone" in refused.err
    assert on_node("cluster", "reassign", "lone", "0=1").code == 0
    assert on_node("topic", "alter", "lone", "--replication-factor", 2).code == 4
    assert on_node("cluster", "balance").out == "", "messages for people go to stderr"


@pytest.mark.parametrize("text", ["", "0", "0=", "x=1", "0=1,x", "=1"])
def test_a_target_is_a_partition_and_its_nodes(text: str) -> None:
    assert parse_target("3=1,2") == (3, [1, 2])
    with pytest.raises(click.BadParameter):
        parse_target(text)
