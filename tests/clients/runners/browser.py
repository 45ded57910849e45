"""Plays the stories in Chromium: lines of stdin go into a page, its answers to stdout. PENSTOCK_URL names the node.

The page has an origin of its own, so each request is one across origins. A Python with Playwright runs this file, which
does not know the project.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from pathlib import Path
from typing import Any

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
# A page that is made here has no address of its own, and may not ask a node on this machine.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-features=LocalNetworkAccessChecks"]
ORIGIN = "http://localhost:1"  # nothing listens there; secure, so that a page has crypto.subtle
COMMANDS = Path(__file__).with_name("commands.mjs")
CLIENT = Path(os.environ["PENSTOCK_CLIENT"]).parent
PAGE = """<!doctype html><script type="module">
import * as library from "./client/index.js";
import { playing } from "./commands.mjs";
const options = { url: new URLSearchParams(location.search).get("url").split(",") };
window.play = playing(library, options, (answer) => say(JSON.stringify(answer)));
</script>"""


async def serve(route: Any) -> None:
    path = route.request.url.removeprefix(ORIGIN).split("?")[0]
    if path == "/":
        await route.fulfill(body=PAGE, content_type="text/html")
        return
    file = COMMANDS if path == "/commands.mjs" else CLIENT / Path(path).name
    await route.fulfill(body=file.read_text(), content_type="text/javascript")


async def main() -> None:
    lines = asyncio.StreamReader(limit=2**24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with importlib.import_module("playwright.async_api").async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = await browser.new_page()
        page.on("pageerror", lambda error: print(error, file=sys.stderr))
        await page.expose_function("say", lambda answer: print(answer, flush=True))
        await page.route(f"{ORIGIN}/**", serve)
        await page.goto(f"{ORIGIN}/?url={os.environ['PENSTOCK_URL']}")
        await page.wait_for_function("Boolean(window.play)")
        async for line in lines:
            await page.evaluate("line => { play(line) }", line.decode())


if __name__ == "__main__":
    asyncio.run(main())
