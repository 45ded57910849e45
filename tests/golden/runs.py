"""Plays exchange files against running nodes, in the order of their names, and compares or records the answers.

Every request goes to the same process: to the only one, to the first of two shards, or to the first of three nodes.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import itertools
import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.node_process import running_process
from tests.golden.clients import Answer, Http1Connections, Http2Connection
from tests.golden.exchange_files import Exchange, ExchangeFile, read_exchanges
from tests.golden.placeholders import replace_varying

EXCHANGES = Path(__file__).parent / "exchanges"
RIGHTS = {
    "all": 'read = [""]\nwrite = [""]\nadmin = [""]\ngroup = [""]\nmetrics = true',
    "reader": 'read = [""]\nwrite = []\nadmin = []',
    "writer": 'read = []\nwrite = [""]\nadmin = []',
    "admin": 'read = []\nwrite = []\nadmin = [""]',
    "member": 'read = [""]\nwrite = []\nadmin = []\ngroup = [""]',
    "narrow": 'read = ["a-"]\nwrite = ["a-"]\nadmin = ["a-"]\ngroup = ["a-"]',
}
TOKENS = {f"{name}_token": f"penstock_{at:08x}_{'golden' * 8}" for at, name in enumerate(RIGHTS)}
RUNS = ("http1", "http2")
SETTINGS: dict[str, dict[str, object]] = {
    "open": {"request_body_bytes_max": "256KiB", "cors_origins": "https://app.example.org"},
    "tokens": {},
}
COUNTERS = re.compile(
    r"penstock_(?:requests|produce|fetch|forwarded|idempotency|duplicate|fenced|sequence|source)\w*_total"
)
SETTLE_S = 60.0


@dataclass
class Target:
    """The process that gets the requests, and the log of its node."""

    port: int
    log: Callable[[], str]
    connect: type[Http1Connections | Http2Connection]


class Watch:
    """Reports the log lines and the counters of each exchange, without those of its own requests."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._numbers = itertools.count()
        self._read_chars = 0
        self._counters: dict[str, float] = {}
        self.moved()

    def moved(self) -> list[str]:
        """Wait until no request is in progress, and return what the log and the counters gained."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            own_id = f"golden-{next(self._numbers)}"
            samples = self._samples(own_id)
            lines = self._lines(own_id, deadline)
            if samples["penstock_requests_in_flight"] <= 1 or time.monotonic() > deadline:
                break
            self._read_chars -= sum(len(line) + 1 for line in lines)
            time.sleep(0.01)
        counters = {name: value for name, value in samples.items() if COUNTERS.match(name) and '"metrics"' not in name}
        grown = {name: value - self._counters.get(name, 0) for name, value in counters.items()}
        self._counters = counters
        logged = [line for line in lines if '"request_id":"golden-' not in line]
        return logged + [f"{name} +{grown[name]:.0f}" for name in sorted(grown) if grown[name]]

    def _samples(self, own_id: str) -> dict[str, float]:
        headers = {"X-Request-Id": own_id, "Authorization": f"Bearer {TOKENS['all_token']}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self._target.port}/metrics", headers=headers)
        samples: dict[str, float] = {}
        with urllib.request.urlopen(request, timeout=SETTLE_S) as answer:
            for line in answer.read().decode().splitlines():
                name, _, value = line.rpartition(" ")
                if not line.startswith("#"):
                    name = re.sub(r'shard="\d+",?', "", name).replace("{}", "")
                    samples[name] = samples.get(name, 0.0) + float(value)
        return samples

    def _lines(self, own_id: str, deadline: float) -> list[str]:
        """Return the log lines up to the one of this request: it was logged after those before it."""
        while True:
            lines = self._target.log()[self._read_chars :].split("\n")[:-1]
            if any(f'"{own_id}"' in line for line in lines):
                self._read_chars += sum(len(line) + 1 for line in lines)
                return lines
            assert time.monotonic() < deadline, "the node logs no requests"
            time.sleep(0.002)


def play(form: str, directory: Path, *, is_recording: bool = False) -> list[str]:
    """Returns the differences to the recorded exchanges of a form; records instead of comparing with `is_recording`."""
    differences = []
    files = [read_exchanges(path) for path in sorted(EXCHANGES.glob("*.http"))]
    for name in SETTINGS:
        of_node = [file for file in files if file.options.get("node", "open") == name]
        with targets(form, directory / name, name) as target:
            for file in of_node:
                found = play_file(file, form, target)
                if is_recording:
                    file.path.write_text(file.text())
                else:
                    differences += found
    return differences


def play_file(file: ExchangeFile, form: str, target: Target) -> list[str]:
    """Replaces the answers of a form by those of the node. Returns how they differ."""
    client, watch = target.connect(target.port), Watch(target)
    known: dict[str, str] = dict(TOKENS)
    differences = []
    for exchange in file.exchanges:
        recorded = exchange.answers.pop(form, "")
        if exchange.takes(form) and form in file.options.get("only", form).split():
            answers = client.exchange(exchange.request(known), exchange.options)
            known |= values_of(answers[-1])
            exchange.answers[form] = rendered(exchange, answers, watch.moved())
        differences += difference(file, exchange, form, recorded)
    client.close()
    return differences


def difference(file: ExchangeFile, exchange: Exchange, form: str, recorded: str) -> list[str]:
    found = exchange.answers.get(form, "")
    if found == recorded:
        return []
    name = f"{file.path.name}: {exchange.title} ({form})"
    lines = difflib.unified_diff(recorded.split("\n"), found.split("\n"), f"recorded {name}", f"found {name}", "", "")
    return ["\n".join(line.rstrip("\n") for line in lines)]


def rendered(exchange: Exchange, answers: list[Answer], moved: list[str]) -> str:
    now = time.time()
    texts = [_answer_text(answer, now, is_brief="brief" in exchange.options) for answer in answers]
    lengths = {key: value for _, changed in texts for key, value in changed.items()}
    for length, shown in lengths.items():
        moved = [line.replace(f'"bytes_out":{length}', f'"bytes_out":{shown}') for line in moved]
    return "\n".join([*(text for text, _ in texts), *(replace_varying(line, now) for line in moved)])


def _answer_text(answer: Answer, now: float, *, is_brief: bool) -> tuple[str, dict[int, str]]:
    """Returns the answer as it is recorded, and the lengths that it shows instead of others.

    A length is checked against the body, and shown as that of the body with placeholders.
    """
    body = _body_text(answer)
    shown_body = replace_varying(body, now)
    lengths = {}
    lines = [answer.first]
    for name, value in answer.headers:
        if name.lower() == "content-length" and answer.body:
            assert int(value) == len(answer.body), (value, answer.body)
            is_exact = not is_brief and answer.header("content-encoding") is None
            lengths[len(answer.body)] = value = str(len(shown_body.encode())) if is_exact else "{length}"
        lines.append(f"{name}: {value}")
    shown = replace_varying("\n".join(lines), now)
    return shown + ("\n\n" + shown_body if body and not is_brief else ""), lengths


def _body_text(answer: Answer) -> str:
    body = answer.body
    if answer.header("content-encoding") == "gzip":
        body = gzip.decompress(body)
    if "recordbatch" in (answer.header("content-type") or ""):
        return "\n".join(_batch_lines(body))
    return body.decode(errors="backslashreplace").replace("\r", "\\r")


def _batch_lines(body: bytes) -> Iterator[str]:
    """Shows stored batches in hex, without the checksum and the times that the node has set."""
    while len(body) >= 61:
        size = 12 + int.from_bytes(body[8:12], "big")
        yield f"{body[:17].hex()} {{crc}} {body[21:27].hex()} {{times}} {body[43:size].hex()}"
        body = body[size:]
    if body:
        yield body.hex()


def values_of(answer: Answer) -> dict[str, str]:
    """Returns the headers and JSON members of an answer that later requests may name; the last of a name counts."""
    values = {name.lower(): value for name, value in answer.headers}

    def visit(node: object) -> None:
        if isinstance(node, dict):
            for name, value in node.items():
                if isinstance(value, dict | list):
                    visit(value)
                elif value is not None:
                    values[name] = str(value)
        elif isinstance(node, list):
            for value in node:
                visit(value)

    if values.get("content-type", "").endswith(("/json", "+json")) and answer.body[:1] in (b"{", b"["):
        visit(json.loads(answer.body))
    return values


def targets(form: str, directory: Path, name: str) -> AbstractContextManager[Target]:
    directory.mkdir(parents=True)
    settings = {**SETTINGS[name], "request_log": True}
    if name == "tokens":
        settings["tokens_file"] = directory / "tokens.toml"
        (directory / "tokens.toml").write_text("\n".join(map(_token_entry, RIGHTS)))
    return _one_node(form, directory, settings)


def _token_entry(name: str) -> str:
    text = TOKENS[f"{name}_token"]
    digest = hashlib.sha256(text.encode()).hexdigest()
    entry = f'[[tokens]]\nid = "{text[9:17]}"\nname = "{name}"\nsha256 = "{digest}"\ncreated = 2026-11-21T00:00:00Z'
    return f"{entry}\n{RIGHTS[name]}\n"


@contextmanager
def _one_node(form: str, directory: Path, settings: dict[str, object]) -> Iterator[Target]:
    with running_process(directory, **settings) as node:
        connect = Http2Connection if form == "http2" else Http1Connections
        yield Target(node.port, lambda: node.errors, connect)
