"""A page of another origin in a real browser may do only what the node's settings allow."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.e2e.node_process import running_process

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]
DONE_S = 60
# The picture arrives when the page is done; the browser prints the page when everything has loaded.
PAGE = """<!doctype html><title>page</title><pre id=out>waiting</pre><img src=/held><script>
const node = NODE, topic = node + "/v1/topics/seen-from-afar", found = {};
async function tried(work) { try { return await work(); } catch (error) { return String(error); } }
async function run() {
  found.created = await tried(async () => (await fetch(topic, {method: "PUT",
    headers: {"Content-Type": "application/json"}, body: '{"partitions":2}'})).status);
  found.events = await tried(() => new Promise((done, fail) => {
    const source = new EventSource(topic + "/records"), seen = [];
    source.onerror = () => { fail("refused: " + source.readyState); source.close(); };
    source.onmessage = event => { seen.push([event.lastEventId, JSON.parse(event.data).value]);
      if (seen.length == 2) { source.close(); done(seen); } };
    source.onopen = async () => { for (const value of ["one", "two"]) found.produced = await tried(async () => (
      await (await fetch(topic + "/partitions/1/records", {method: "POST", headers: {"Idempotent": "no",
        "Content-Type": "application/json"}, body: JSON.stringify({records: [{value}]})})).json()).results[0].count); };
  }));
  found.next = await tried(async () => (await fetch(topic + "/partitions/1/records?offset=0"))
    .headers.get("Penstock-Next-Offset"));
  found.problem = await tried(async () => (await (await fetch(node + "/v1/topics/none")).json()).code);
  document.getElementById("out").textContent = JSON.stringify(found);
  await fetch("/done");
}
run();
</script>"""


class Page(BaseHTTPRequestHandler):
    """Serves the page on a port other than the node's."""

    def __init__(self, text: str, done: threading.Event, *arguments: object) -> None:
        self._text, self._done = text, done
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if self.path == "/done":
            self._done.set()
        if self.path == "/held":
            self._done.wait(DONE_S)
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self._text.encode())

    def log_message(self, *_: object) -> None:
        """No-op: keeps requests out of the tests' output."""


def seen_by_a_page(tmp_path, port, **settings):
    """Return what the page sees; the page is served on the port that the node's settings name."""
    with running_process(tmp_path, **settings) as node:
        page = partial(Page, PAGE.replace("NODE", json.dumps(node.url)), threading.Event())
        with ThreadingHTTPServer(("127.0.0.1", port), page) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            options = [
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                f"--timeout={DONE_S}000",
            ]
            address = f"http://127.0.0.1:{port}/"
            command = [CHROMIUM, *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", address]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=3 * DONE_S)
            server.shutdown()
        assert "Traceback" not in node.errors
    written = re.search(r"<pre id=\"out\">(.*?)</pre>", ended.stdout, re.DOTALL)
    assert written is not None, (ended.stdout[-2000:], ended.stderr[-2000:])
    assert written[1] != "waiting", ended.stderr[-2000:]
    found: dict = json.loads(html.unescape(written[1]))
    if isinstance(found.get("events"), list):  # without the identity of the topic
        found["events"] = [[event_id.partition(".")[2], value] for event_id, value in found["events"]]
    return found


@pytest.fixture
def port():
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as taken:
        return taken.server_port


def test_a_page_whose_origin_is_named_reads_writes_and_follows(tmp_path, port):
    assert seen_by_a_page(tmp_path, port, cors_origins=f"http://127.0.0.1:{port}") == {
        "created": 201,
        "events": [["0-1", "one"], ["0-2", "two"]],
        "produced": 1,
        "next": "2",
        "problem": "unknown_topic",
    }


def test_a_page_from_elsewhere_gets_nothing(tmp_path, port):
    found = seen_by_a_page(tmp_path, port)
    assert found["events"].startswith("refused: 2"), "closed permanently, without further tries"
    for name in ("created", "next", "problem"):
        assert found[name] == "TypeError: Failed to fetch"
