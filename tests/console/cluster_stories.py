"""Stories of a cluster of three real nodes: plans before changes, and a node that is killed in the middle."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.console.browser import Tab
from tests.console.node import Node
from tests.console.stories import confirm, dialog_text, press

PROJECT = Path(__file__).parents[2]


class ThreeNodes:
    """Three nodes of tests/console/three_nodes.py."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        urls = json.loads(process.stdout.readline())
        self.nodes = {int(node_id): Node(url) for node_id, url in urls.items()}

    def kill(self, node_id: int) -> None:
        self._say(f"kill {node_id}")

    def start(self, node_id: int) -> None:
        self.nodes[node_id] = Node(self._say(f"start {node_id}"))

    def _say(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return str(json.loads(self._process.stdout.readline()))

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        """Return the partitions of a topic as node 1 knows them."""
        return list(self.nodes[1].ask("GET", f"/v1/topics/{topic}")["partitions"])

    def node(self, node_id: int) -> dict[str, Any]:
        rows = self.nodes[1].ask("GET", "/v1/cluster")["nodes"]
        [row] = [row for row in rows if row["node_id"] == node_id]
        return dict(row)


@contextmanager
def three_nodes(python: str, port: int) -> Iterator[ThreeNodes]:
    command = [python, "-m", "tests.console.three_nodes", str(port)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=PROJECT, stdin=pipe, stdout=pipe, text=True)
    try:
        yield ThreeNodes(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(120)


def until(condition: Callable[[], bool]) -> None:
    for _ in range(240):
        if condition():
            return
        time.sleep(0.25)
    raise AssertionError("it did not come to be within a minute")


def row_of(tab: Tab, node_id: int) -> Any:
    return tab.page.locator("tr", has=tab.page.locator("th", has_text=str(node_id))).first


def story_a_node_is_drained_and_leads_again(tab: Tab, three: ThreeNodes) -> None:
    tab.show("#/cluster", "Cluster")
    leading = three.node(2)["leading"]
    row_of(tab, 2).get_by_role("button", name="Drain").click()
    assert f"Moves {leading} leadership" in dialog_text(tab)
    confirm(tab, "Drain")
    row_of(tab, 2).locator(".state >> text=drained").wait_for()
    until(lambda: three.node(2)["leading"] == 0)
    row_of(tab, 2).get_by_role("button", name="End drain").click()
    confirm(tab, "End drain")
    row_of(tab, 2).locator(".state >> text=alive").wait_for()


def story_a_plan_comes_first_and_a_partition_moves(tab: Tab, three: ThreeNodes) -> None:
    three.nodes[1].ask("PUT", "/v1/topics/moved", {"partitions": 1, "replication_factor": 2})
    tab.show("#/cluster", "Cluster")
    press(tab, "Balance")
    tab.page.wait_for_selector("dialog .effect >> text=/Nothing is to be moved|Moves \\d+ replica/")
    press(tab, "Cancel", inside="dialog")
    press(tab, "Move partition")
    tab.page.locator("dialog").get_by_label("Topic").fill("moved")
    tab.page.locator("dialog").get_by_label("Nodes, the preferred leader first").fill("4")
    assert "Give a topic and nodes of this cluster." in dialog_text(tab)
    tab.page.locator("dialog").get_by_label("Nodes, the preferred leader first").fill("2, 3")
    confirm(tab, "Move partition")
    until(lambda: sorted(three.partitions("moved")[0]["replicas"]) == [2, 3])


def story_a_tail_goes_on_when_its_leader_is_killed(tab: Tab, three: ThreeNodes) -> None:
    led = [row for row in three.partitions("moves") if row["leader"] != 1]  # node 1 serves the page
    number, leader = led[0]["partition"], led[0]["leader"]
    path = f"/v1/topics/moves/partitions/{number}/records"
    tab.show("#/topics/moves", "moves")
    press(tab, "Live")
    tab.page.wait_for_selector(".live .good")
    tab.page.wait_for_timeout(500)
    three.nodes[1].ask("POST", path, {"records": [{"value": "before"}]})
    tab.page.wait_for_selector("td >> text=before")
    three.kill(leader)
    until(lambda: three.partitions("moves")[number]["leader"] not in (None, leader))
    three.nodes[1].ask("POST", path, {"records": [{"value": "after"}]})
    tab.page.wait_for_selector("td >> text=after", timeout=60_000)
    tab.page.goto(f"{tab.url}/#/cluster")  # a stream of the page before may still end
    row_of(tab, leader).locator(".state >> text=dead").wait_for()
    three.start(leader)
    row_of(tab, leader).locator(".state >> text=alive").wait_for(timeout=60_000)


def story_an_action_on_a_node_that_is_killed_says_so_and_can_be_tried_again(tab: Tab, three: ThreeNodes) -> None:
    tab.show("#/cluster", "Cluster")
    row_of(tab, 3).get_by_role("button", name="Drain").click()
    three.kill(1)
    tab.page.locator("dialog .buttons").get_by_role("button", name="Drain", exact=True).click()
    tab.page.wait_for_selector("dialog .problem >> text=The node does not answer")
    tab.page.wait_for_selector("main .problem >> text=The node does not answer", timeout=30_000)
    three.start(1)
    until(lambda: len([row for row in three.nodes[1].ask("GET", "/v1/cluster")["nodes"] if row["alive"]]) == 3)
    confirm(tab, "Drain")
    until(lambda: three.node(3)["drained"])
    tab.page.locator("main .problem").wait_for(state="detached", timeout=90_000)


CLUSTER_STORIES: tuple[Any, ...] = tuple(value for name, value in globals().items() if name.startswith("story_"))
