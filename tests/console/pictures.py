"""The pictures of the documentation, with the same bytes each time: fixed records, clock, name and answers.

No node repeats the numbers of the overview, so it shows what recording.py has recorded; all else comes from the node.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.console.browser import Tab, open_tab
from tests.console.node import FIRST_MS

DOCS = Path(__file__).parents[2] / "docs" / "operate"
RECORDED = Path(__file__).with_name("recorded.json")
HOST = "http://penstock.localhost"
NOW_MS = FIRST_MS + 60_000
PICTURES = (
    ("console-overview", "light", "", "Overview", 740),
    ("console-records", "light", "#/topics/rides?partition=2", "rides", 640),
    ("console-record", "dark", "#/topics/rides?partition=2&open=2:97", "rides", 640),
)  # fmt: skip


def write_pictures(browser: Any) -> int:
    for name, scheme, address, heading, height in PICTURES:
        with open_tab(browser, HOST, "wide", scheme) as tab:
            now_ms = NOW_MS
            if name == "console-overview":
                recorded = json.loads(RECORDED.read_text())
                answer(tab, recorded)
                now_ms = recorded["history"]["end_ms"]
            tab.page.clock.set_fixed_time(now_ms / 1000)
            tab.page.set_viewport_size({"width": 1200, "height": height})
            tab.show(address, heading)
            tab.page.screenshot(path=str(DOCS / f"{name}.png"))
            tab.check()
    return 0


def answer(tab: Tab, recorded: dict[str, Any]) -> None:
    """Answers the calls of the overview."""
    for path, document in recorded.items():
        tab.page.route(f"**/v1/{path}*", partial(_fulfill, document))


def _fulfill(document: dict[str, Any], route: Any) -> None:
    names = parse_qs(urlsplit(route.request.url).query).get("names", [""])[0].split(",")
    if "series" in document:
        document = document | {"series": [series for series in document["series"] if series["name"] in names]}
    route.fulfill(body=json.dumps(document), content_type="application/json")
