"""The pictures of the documentation, with the same bytes each time: fixed records, clock, name and answers.

The overview has numbers that no node repeats, so it is shown with answers from here; all else comes from the node.
"""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.console.browser import Tab, open_tab
from tests.console.node import FIRST_MS

DOCS = Path(__file__).parents[2] / "docs" / "operate"
HOST = "http://penstock.localhost"
NOW_MS = FIRST_MS + 60_000
SAMPLES = 360
GIB = 1 << 30
PICTURES = (
    ("console-overview", "light", "", "Overview", 740),
    ("console-records", "light", "#/topics/rides?partition=2", "rides", 640),
    ("console-record", "dark", "#/topics/rides?partition=2&open=2:97", "rides", 640),
)  # fmt: skip


def write_pictures(browser: Any) -> int:
    for name, scheme, address, heading, height in PICTURES:
        with open_tab(browser, HOST, "wide", scheme) as tab:
            tab.page.clock.set_fixed_time(NOW_MS / 1000)
            tab.page.set_viewport_size({"width": 1200, "height": height})
            if name == "console-overview":
                answer(tab)
            tab.show(address, heading)
            tab.page.screenshot(path=str(DOCS / f"{name}.png"))
            tab.check()
    return 0


def answer(tab: Tab) -> None:
    """Answers the calls of the overview."""
    for path, document in (("overview", overview()), ("history", history())):
        tab.page.route(f"**/v1/{path}*", partial(_fulfill, json.dumps(document)))


def _fulfill(body: str, route: Any) -> None:
    route.fulfill(body=body, content_type="application/json")


def overview() -> dict[str, Any]:
    findings = [
        {"code": "group_falls_behind", "level": "warn", "subject": "billing", "group": "billing", "topic": None,
         "found": "it falls behind: by 48210 records, the oldest of them 6 min old",
         "remedy": "penstock group explain billing names the cause", "subscription": None, "age_s": 540},
        {"code": "disk_full_soon", "level": "warn", "subject": "/var/lib/penstock on node 2", "group": None,
         "found": "82.4 GiB are free, 9% of the disk", "topic": None, "subscription": None, "age_s": 86_000,
         "remedy": "make room, or shorten retention_ms or local_retention_ms: a full disk rejects produce requests"},
    ]  # fmt: skip
    totals = {"records_in_per_s": 12_840, "bytes_in_per_s": 9_650_000, "bytes_out_per_s": 27_100_000,
              "requests_per_s": 1904, "ack_p99_s": 0.0124,
              "group_lag_s": 360, "connections": 412, "log_bytes": 2140 * GIB}  # fmt: skip
    disks = [
        {"node_id": node_id, "path": "/var/lib/penstock", "free_bytes": free * GIB, "size_bytes": 916 * GIB}
        for node_id, free in ((1, 302), (2, 82.4), (3, 297))
    ]
    about = {"version": "0.1.0", "cluster_id": "e487b809bb1442e3af0231d11dcf002c", "node_id": 1, "nodes": 3}
    counts = {"level": "warn", "more_findings": 0, "topics": 128, "partitions": 1024, "nodes_missing": []}
    return {"findings": findings, "totals": totals, "disks": disks} | about | counts


def history() -> dict[str, Any]:
    random = Random(7)
    levels = {
        "records_in_per_s": 12_000,
        "bytes_in_per_s": 9e6,
        "bytes_out_per_s": 26e6,
        "requests_per_s": 1800,
        "ack_p99_s": 0.011,
    }

    def waves(level: float) -> list[float]:
        return [level * (1 + 0.2 * math.sin(at / 40) + random.uniform(-0.06, 0.06)) for at in range(SAMPLES)]

    series = [{"name": name, "values": waves(level)} for name, level in levels.items()]
    lag = [max(0.4, at - 300) * 6 * random.uniform(0.97, 1.03) for at in range(SAMPLES)]
    return {"step_ms": 10_000, "end_ms": NOW_MS, "series": [*series, {"name": "group_lag_s", "values": lag}]}
