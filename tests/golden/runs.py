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
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from multidict import CIMultiDict

from loadtests.cluster.nodes import ClusterNode
from tests.e2e.node_process import running_process
from tests.golden.clients import Answer, Http1Connections, Http2Connection
from tests.golden.exchange_files import Exchange, ExchangeFile, read_exchanges
from tests.golden.placeholders import replace_varying
from tests.replication.zookeeper_process import zookeeper_process
from tests.scenarios.conformity import assert_conforms

EXCHANGES = Path(__file__).parent / "exchanges"
RIGHTS = {
    "all": 'read = [""]\nwrite = [""]\nadmin = [""]\ngroup = [""]\nmetrics = true',
    "reader": 'read = [""]\nwrite = []\nadmin = []',
    "writer": 'read = []\nwrite = [""]\nadmin = []',
    "admin": 'read = []\nwrite = []\nadmin = [""]',
    "member": 'read = [""]\nwrite = []\nadmin = []\ngroup = [""]',
    "narrow": 'read = ["a-"]\nwrite = ["a-"]\nadmin = ["a-"]\ngroup = ["a-"]',
}
TOKENS = {f"{name}_token": f"penstock_{at:08x}_{'golden' * 7}g" for at, name in enumerate(RIGHTS)}
SETTINGS: dict[str, dict[str, object]] = {
    "open": {
        "request_body_bytes_max": "256KiB",
        "cors_origins": "https://app.example.org",
        "push_targets": "127.0.0.0/8",
        "push_http": True,
        "push_unconfirmed": True,
    },
    "tokens": {},
}
WRITES = ("writes.http", "writes-conditions.http", "writes-events.http")
COUNTERS = re.compile(r"penstock_(?:requests|produce|fetch|idempotency|duplicate|fenced|sequence|source)\w*_total")
COUNTED = re.compile(r"(?m)\n(penstock_\w+_total\S*) \+(\d+)$")
SETTLE_S = 60.0


@dataclass
class Target:
    """The process that gets the requests, and the log of its node."""

    port: int
    log: Path
    connect: type[Http1Connections | Http2Connection]


class Watch:
    """Reports the log lines and the counters of each exchange, without those of its own requests."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._numbers = itertools.count()
        self._log = target.log.open()
        self._log.seek(0, 2)
        self._counters: Counter[str] = Counter()
        self._connection = HTTPConnection("127.0.0.1", target.port, SETTLE_S)
        self.moved()

    def close(self) -> None:
        self._connection.close()
        self._log.close()

    def lines(self) -> list[str]:
        """Return the log lines since the last call. The request that ends them is cheap, but waits for no other."""
        return self._lines_until(self._get("/healthz")[0])

    def moved(self) -> tuple[list[str], dict[str, int]]:
        """Wait until no request is in progress. Return what the log and the counters gained."""
        deadline = time.monotonic() + SETTLE_S
        lines: list[str] = []
        while True:
            own_id, text = self._get("/metrics")
            lines += self._lines_until(own_id)
            counters, in_flight = _counters_in(text)
            if in_flight <= 1:
                break
            assert time.monotonic() < deadline, "a request does not end"
            time.sleep(0.01)
        grown = counters - self._counters
        self._counters = counters
        return lines, dict(grown)

    def _get(self, path: str) -> tuple[str, str]:
        own_id = f"golden-{next(self._numbers)}"
        headers = {"X-Request-Id": own_id, "Authorization": f"Bearer {TOKENS['all_token']}"}
        self._connection.request("GET", path, headers=headers)
        with self._connection.getresponse() as answer:
            assert answer.status == 200, path
            return own_id, answer.read().decode()

    def _lines_until(self, own_id: str) -> list[str]:
        """Return the log lines before that of an own request, which are those of earlier requests."""
        deadline = time.monotonic() + SETTLE_S
        lines = []
        text = ""
        while True:
            text += self._log.readline()
            if not text.endswith("\n"):
                assert time.monotonic() < deadline, "the node logs no requests"
                time.sleep(0.001)
            elif f'"{own_id}"' in text:
                return lines
            else:
                if '"logger":"penstock.requests"' in text:
                    lines.append(text.rstrip("\n"))
                text = ""


def _counters_in(text: str) -> tuple[Counter[str], float]:
    """Returns the counters of requests, of all shards together, and the number of requests in progress."""
    counters: Counter[str] = Counter()
    in_flight = 0.0
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if line.startswith("penstock_requests_in_flight"):
            in_flight += float(value)
        elif COUNTERS.match(line) and 'operation="metrics"' not in line and 'operation="healthz"' not in line:
            counters[re.sub(r'shard="\d+",?', "", name).replace("{}", "")] += int(float(value))
    return counters, in_flight


def play(form: str, directory: Path, *, is_recording: bool = False, is_quick: bool = False) -> list[str]:
    """Returns the differences to the recorded exchanges of a form; records instead of comparing with `is_recording`.

    A quick comparison reads the counters once for each file, and compares them with the sum of those recorded. Over
    HTTP/2 it leaves out the writes, whose bodies are the same, and the contract, which the answers over HTTP/1.1 keep.
    """
    differences = []
    left_out = WRITES if is_quick and form == "http2" else ()
    files = [read_exchanges(path) for path in sorted(EXCHANGES.glob("*.http")) if path.name not in left_out]
    for name in SETTINGS:
        of_node = [file for file in files if file.options.get("node", "open") == name]
        with targets(form, directory / name, name) as target:
            for file in of_node:
                differences += play_file(file, form, target, is_quick=is_quick)
                if is_recording:
                    file.path.write_text(file.text())
    return [] if is_recording else differences


def play_file(file: ExchangeFile, form: str, target: Target, *, is_quick: bool = False) -> list[str]:
    """Replaces the answers of a form by those of the node. Returns how they differ."""
    client, watch = target.connect(target.port), Watch(target)
    known: dict[str, str] = TOKENS | {"port": str(target.port)}
    differences = []
    expected: Counter[str] = Counter()
    for exchange in file.exchanges:
        recorded = exchange.answers.pop(form, "")
        if is_quick:
            expected.update({name: int(count) for name, count in COUNTED.findall(recorded)})
            recorded = COUNTED.sub("", recorded)
        if exchange.takes(form) and form in file.options.get("only", form).split():
            try:
                answers = client.exchange(exchange.request(known), exchange.options)
            except (TimeoutError, KeyError) as error:
                raise AssertionError(f"{file.path.name}: {exchange.title}: {error!r}") from error
            if not is_quick or form == "http1":
                _assert_conforms(exchange, answers[-1])
            known |= values_of(answers[-1])
            is_counted = not is_quick or "until" in exchange.options  # a stream ends after the client has left
            lines, grown = watch.moved() if is_counted else (watch.lines(), {})
            expected.subtract(grown)
            counted = [] if is_quick else [f"{name} +{grown[name]}" for name in sorted(grown)]
            exchange.answers[form] = rendered(exchange, answers, [*lines, *counted])
        differences += difference(file, exchange, form, recorded)
    if is_quick:
        expected.subtract(watch.moved()[1])
        differences += [f"{file.path.name} ({form}): {name} moved {-n:+} more" for name, n in expected.items() if n]
    client.close()
    watch.close()
    return differences


def _assert_conforms(exchange: Exchange, answer: Answer) -> None:
    """Check an answer against the contract; only one that a route gave has a request id."""
    is_whole = answer.first.isdecimal() and not exchange.options.keys() & {"raw", "until"}
    if is_whole and answer.header("penstock-request-id") and answer.header("content-encoding") != "zstd":
        method, path = exchange.request_text.partition("\n")[0].split(" ", 1)
        body = gzip.decompress(answer.body) if answer.header("content-encoding") == "gzip" else answer.body
        assert_conforms(method, path, int(answer.first), CIMultiDict(answer.headers), body)


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
        if name == "penstock-leader":  # only a forwarded answer has it, and the leader varies
            continue
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
    return _three_nodes(directory, settings) if form == "nodes" else _one_node(form, directory, settings)


def _token_entry(name: str) -> str:
    text = TOKENS[f"{name}_token"]
    digest = hashlib.sha256(text.encode()).hexdigest()
    entry = f'[[tokens]]\nid = "{text[9:17]}"\nname = "{name}"\nsha256 = "{digest}"\ncreated = 2026-11-21T00:00:00Z'
    return f"{entry}\n{RIGHTS[name]}\n"


@contextmanager
def _one_node(form: str, directory: Path, settings: dict[str, object]) -> Iterator[Target]:
    if form == "shards":
        settings |= {"shards": 2, "requests_before_move": 0, "direct_port_base": _free_port()}
    with running_process(directory, **settings) as node:
        connect = Http2Connection if form == "http2" else Http1Connections
        port = settings.get("direct_port_base", node.port)
        assert isinstance(port, int)
        yield Target(port, next(directory.glob("*.err")), connect)
        node.stop()  # a shard of a killed node would outlive the directory


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _three_nodes(directory: Path, settings: dict[str, object]) -> Iterator[Target]:
    """Three nodes over ZooKeeper, as `make cluster` starts them."""
    (directory / "store").mkdir()
    settings |= {"port": 0, "store": (directory / "store").as_uri(), "default_replication_factor": 3}
    flags = {name.replace("_", "-"): value for name, value in settings.items()}
    with zookeeper_process(directory / "zookeeper") as zookeeper:
        coordination = f"zookeeper://127.0.0.1:{zookeeper.port}/penstock"
        nodes = [ClusterNode(number, directory, coordination, flags) for number in (1, 2, 3)]
        try:
            for node in nodes:  # one after the other, so that the first is the controller
                node.begin_start()
                node.wait_until_ready()
            yield Target(int(nodes[0].url.rpartition(":")[2]), directory / "node-1.err", Http1Connections)
        finally:
            for node in nodes:
                node.kill()
