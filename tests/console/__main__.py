"""Runs the stories and looks at every page: `python -m tests.console --python .venv/bin/python --axe axe.min.js`.

Its own environment has playwright; the node runs in that of the project. Screenshots go to `--shots`; with `--docs`
those of the documentation are written again.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.console.browser import ARGUMENTS, CHROMIUM, Tab, open_tab
from tests.console.cluster_stories import CLUSTER_STORIES, three_nodes
from tests.console.node import Node, add_job, fill, start_node
from tests.console.pictures import write_pictures
from tests.console.stories import PAGES, STORIES
from tests.gateway.registry.registries import AVRO, stub_registry

OPTIONS = (
    "--push-targets", "127.0.0.1,127.0.0.0/8", "--push-http", "--push-unconfirmed", "--audit", "on"
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.console")
    parser.add_argument("--python", required=True)
    parser.add_argument("--axe", type=Path, required=True)
    parser.add_argument("--shots", type=Path, default=Path(tempfile.gettempdir()) / "console-shots")
    parser.add_argument("--port", type=int, default=18080)
    parser.add_argument("--only", default="")
    parser.add_argument("--docs", action="store_true")
    options = parser.parse_args()
    options.shots.mkdir(parents=True, exist_ok=True)
    failures = 0
    playwright = importlib.import_module("playwright.sync_api").sync_playwright
    with tempfile.TemporaryDirectory() as directory, playwright() as driver:
        mapped = f"--host-resolver-rules=MAP penstock.localhost:80 127.0.0.1:{options.port}"
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS, mapped])
        folder = Path(directory)
        with (
            stub_registry() as registry,
            start_node(folder, options.port, options.python, *OPTIONS, "--schema-registry-url", registry.url) as node,
        ):
            registry.add("framed-value", json.dumps(AVRO))
            fill(node)
            add_job(folder, node)
            failures += write_pictures(browser) if options.docs else run_open(browser, node, options)
        if not options.docs and re.search(options.only, "tokens"):
            failures += run_with_tokens(browser, folder, options)
        if not options.docs and any(re.search(options.only, story.__name__) for story in CLUSTER_STORIES):
            failures += run_cluster(browser, options)
    print(f"{failures} failed; screenshots are in {options.shots}")
    return min(failures, 1)


def attempt(name: str, step: Callable[[], None]) -> int:
    """Runs one story and prints its outcome. Returns 1 if it failed."""
    try:
        step()
    except Exception as error:
        print(f"FAILED {name}: {str(error)[:1500]}")
        if not isinstance(error, AssertionError):
            traceback.print_exc(limit=3)
        return 1
    print(f"ok     {name}")
    return 0


def run_open(browser: Any, node: Node, options: argparse.Namespace) -> int:
    """Plays every story in a wide tab, and looks at every page in both widths and both schemes."""
    failures = 0
    for story in STORIES:
        if re.search(options.only, story.__name__):
            with open_tab(browser, node.url, "wide", "light") as tab:
                failures += attempt(story.__name__, partial(play, story, tab, node))
    for width in ("wide", "narrow"):
        for scheme in ("light", "dark"):
            for address, heading in PAGES:
                name = re.sub(r"[^a-z0-9]+", "-", f"{address or heading.lower()}-{width}-{scheme}").strip("-")
                if re.search(options.only, name):
                    with open_tab(browser, node.url, width, scheme) as tab:
                        step = partial(look, tab, address, heading, options.shots / f"{name}.png", options.axe)
                        failures += attempt(name, step)
    return failures


def play(story: Callable[[Tab, Node], None], tab: Tab, node: Node) -> None:
    story(tab, node)
    tab.check()


def look(tab: Tab, address: str, heading: str, picture: Path, axe: Path) -> None:
    tab.show(address, heading)
    tab.page.screenshot(path=str(picture))
    assert tab.violations(axe) == []
    tab.check()


def run_cluster(browser: Any, options: argparse.Namespace) -> int:
    """Plays the stories of three nodes in a tab of the first one."""
    failures = 0
    with three_nodes(options.python, options.port + 10) as three:
        for story in CLUSTER_STORIES:
            if re.search(options.only, story.__name__):
                with open_tab(browser, three.nodes[1].url, "wide", "light") as tab:
                    failures += attempt(story.__name__, partial(story, tab, three))
    return failures


def run_with_tokens(browser: Any, folder: Path, options: argparse.Namespace) -> int:
    """Shows what callers of four kinds see: none, one that reads, one prefix, and all rights."""
    penstock = Path(options.python).parent / "penstock"
    file = folder / "tokens.toml"
    rights = {
        "boss": ("--metrics",),
        "reader": ("--read", "", "--group", "analytics"),
        "shop": ("--write", "pay", "--read", "pay"),
    }
    tokens = {}
    for name, given in rights.items():
        command = [str(penstock), "token", "create", name, *given]
        environment = {"PENSTOCK_TOKENS_FILE": str(file), "PATH": "/usr/bin"}
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        tokens[name] = re.findall(r"penstock_\S+", printed.stdout)[0]
    secured = folder / "secured"
    secured.mkdir()
    settings = ("--tokens-file", str(file), "--superusers", "token:boss", *OPTIONS)
    failures = 0
    with start_node(secured, options.port + 1, options.python, *settings) as node:
        fill(node, tokens["boss"])

        def stranger() -> None:
            with open_tab(browser, node.url, "wide", "light") as tab:
                tab.page.goto(node.url)
                tab.page.wait_for_selector("dialog >> text=Token")
                assert tab.violations(options.axe) == []
                tab.page.locator("dialog input").fill(tokens["reader"])
                tab.page.locator("dialog button[type=submit]").click()
                tab.page.wait_for_selector("dialog", state="detached")
                tab.page.wait_for_selector("dt >> text=Topics")
                assert "penstock_" not in tab.page.url
                tab.check()

        def reader() -> None:
            with open_tab(browser, node.url, "wide", "light", tokens["reader"]) as tab:
                tab.show("#/topics/rides/settings", "rides")
                assert tab.page.get_by_role("button", name="Delete topic").count() == 0
                assert "which this token has not" in tab.page.locator("main").inner_text()
                tab.show("#/access", "Access")
                assert tab.page.get_by_role("button", name="Ask").count() == 0
                assert tab.violations(options.axe) == []
                tab.check()

        def shop() -> None:
            with open_tab(browser, node.url, "wide", "light", tokens["shop"]) as tab:
                tab.show("#/topics", "Topics")
                assert tab.page.locator("tbody tr").count() == 1
                tab.show("#/topics/payments", "payments")
                assert tab.page.get_by_role("button", name="Produce").count() == 1
                tab.page.goto(f"{node.url}/#/topics/rides")
                tab.page.wait_for_selector(".problem >> text=forbidden")
                tab.check()

        def boss() -> None:
            with open_tab(browser, node.url, "wide", "light", tokens["boss"]) as tab:
                tab.show("#/access", "Access")
                tab.page.get_by_label("Principal").fill("token:shop")
                tab.page.get_by_label("Name", exact=True).fill("payments")
                tab.page.get_by_role("button", name="Ask").click()
                tab.page.wait_for_selector("main .state >> text=allowed")
                tab.check()

        for story in (stranger, reader, shop, boss):
            failures += attempt(f"tokens: {story.__name__}", story)
    return failures


if __name__ == "__main__":
    sys.exit(main())
