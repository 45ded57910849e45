"""A browser that fails a story on what must never happen: a violation of the policy, an error, another origin."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--font-render-hinting=none", "--hide-scrollbars",
)  # fmt: skip
WIDTHS = {"wide": (1400, 900), "narrow": (390, 844)}
EXPECTED = re.compile(r"Failed to load resource: the server responded with a status of 4\d\d")  # a story asks for it
WATCH = """
addEventListener("securitypolicyviolation",
  (event) => console.error("CSP " + event.violatedDirective + " " + event.blockedURI));
addEventListener("unhandledrejection", (event) => console.error("rejection " + event.reason));
"""


class Tab:
    """One tab, its page, what it asked of the node, and what went wrong in it."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.asked: list[tuple[str, str]] = []
        self.errors: list[str] = []
        page.on("console", lambda message: self._note(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self._note(str(error)))
        page.on("request", self._on_request)

    def _note(self, text: str) -> None:
        if not EXPECTED.match(text):
            self.errors.append(text)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.errors.append(f"another origin: {request.url}")
        path = request.url.removeprefix(self.url).split("?")[0]
        if path.startswith("/v1"):
            self.asked.append((request.method, path))

    def show(self, address: str, heading: str) -> None:
        """Goes to a page of the console and waits for what it shows."""
        self.page.goto(f"{self.url}/{address}")
        self.page.wait_for_selector(f"h1:text-is({heading!r})", timeout=15_000)
        self.settle()

    def settle(self) -> None:
        self.page.wait_for_selector(".loading", state="detached", timeout=15_000)
        self.page.wait_for_load_state("networkidle")

    def check(self) -> None:
        """Raises AssertionError if anything went wrong, or the page is wider than the window."""
        assert not self.errors, self.errors
        wide = "document.documentElement.scrollWidth - innerWidth"
        assert self.page.evaluate(wide) <= 0, "the page scrolls sideways"

    def violations(self, axe: Path) -> list[str]:
        """Returns what axe-core finds; it is put in behind the policy."""
        self.page.evaluate(axe.read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{rule['id']}: {rule['help']} ({node['target']}: {node['html'][:160]})"
            for rule in found["violations"]
            for node in rule["nodes"][:3]
        ]


@contextmanager
def open_tab(browser: Any, url: str, width: str, scheme: str, token: str = "") -> Iterator[Tab]:
    size = WIDTHS[width]
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce", locale="en-US"
    )
    context.set_default_timeout(15_000)
    context.add_init_script(WATCH)
    if token:
        context.add_init_script(f"sessionStorage.setItem('penstock-token', {token!r})")
    try:
        yield Tab(context.new_page(), url)
    finally:
        context.close()
