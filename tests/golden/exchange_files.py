"""The text of exchange files: requests, and below each its recorded answers.

    # What the file is about.
    @node tokens

    ### a record as JSON
    POST /v1/topics/orders/records
    Content-Type: application/json

    {"records":[{"value":1}]}
    <<< http1 http2
    200
    content-type: application/json
    ...

`Host` and `Content-Length` are added to a request that names neither them nor `Transfer-Encoding`. Lines `@NAME VALUE`
before the request line are options of the exchange, or of the file if they are above all exchanges:

- `@node NAME`: the node of the file, a name of runs.SETTINGS
- `@only FORM ...`: only these forms have the exchange, for instance http1
- `@raw`: the request is exactly this text with CRLF line ends, on its own connection
- `@answers N`: so many answers are read (pipelining)
- `@until TEXT`: a stream is read until it has this text, then closed
- `@gzip`: the body is compressed; `@chunked N`: the body is sent in chunks of N bytes
- `@brief`: the recorded answer has no body

A recorded answer is the status, the headers in their order, the body, the node's log lines and the counters that moved.

In requests, `{{x*1000}}` is a text repeated, `{{hex:0aff}}` is bytes, and `{{name}}` is the newest value of a header or
of a JSON member of that name in an earlier answer of the file. Forms that get the same answer share a section.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FORMS = ("http1", "http2", "shards", "nodes")
_OPTION = re.compile(r"@(\w+) ?(.*)")
_TEMPLATE = re.compile(r"\{\{(?:hex:(?P<hex>[0-9a-f]*)|(?P<text>[^{}]*?)\*(?P<times>\d+)|(?P<name>[\w-]+))\}\}")


@dataclass(frozen=True)
class Request:
    """A request ready to send. `head` has no added headers; with `is_raw` it is everything that is sent."""

    start_line: str
    headers: list[tuple[str, str]]
    body: bytes
    is_raw: bytes | None = None


@dataclass
class Exchange:
    title: str
    options: dict[str, str]
    request_text: str
    answers: dict[str, str] = field(default_factory=dict)

    def takes(self, form: str) -> bool:
        only = "http1 shards nodes" if "raw" in self.options else "http1 http2 shards nodes"
        return form in self.options.get("only", only).split()

    def request(self, known: Mapping[str, str]) -> Request:
        text = self.request_text
        if "raw" in self.options:
            return Request("", [], b"", expand(text.replace("\n", "\r\n"), known))
        head, _, body_text = text.partition("\n\n")
        start_line, *lines = (expand(line, known).decode("latin-1") for line in head.split("\n"))
        headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
        body = expand(body_text, known)
        if "gzip" in self.options:
            body = gzip.compress(body, mtime=0)
        return Request(start_line, headers, body)


@dataclass
class ExchangeFile:
    path: Path
    preface: str
    options: dict[str, str]
    exchanges: list[Exchange]

    def text(self) -> str:
        return self.preface + "".join(_exchange_text(exchange) for exchange in self.exchanges)


def expand(text: str, known: Mapping[str, str]) -> bytes:
    """Replaces the templates of a request. Raises KeyError for a name that no answer had."""

    def value(match: re.Match[str]) -> str:
        if match["hex"] is not None:
            return bytes.fromhex(match["hex"]).decode("latin-1")
        if match["times"] is not None:
            return str(match["text"]) * int(match["times"])
        return known[match["name"]]

    pieces, at = [], 0
    for match in _TEMPLATE.finditer(text):
        pieces += [text[at : match.start()].encode(), value(match).encode("latin-1")]
        at = match.end()
    return b"".join([*pieces, text[at:].encode()])


def read_exchanges(path: Path) -> ExchangeFile:
    preface, *blocks = re.split(r"(?m)^(?=### )", path.read_text())
    options = dict(match.groups() for line in preface.split("\n") if (match := _OPTION.fullmatch(line)))
    return ExchangeFile(path, preface, options, [_read_exchange(block) for block in blocks])


def _read_exchange(block: str) -> Exchange:
    written, *sections = re.split(r"(?m)^<<< ", block)
    title, *lines = written.rstrip("\n").split("\n")
    options = {}
    while lines and (match := _OPTION.fullmatch(lines[0])):
        options[match[1]] = match[2]
        del lines[0]
    exchange = Exchange(title.removeprefix("### "), options, "\n".join(lines))
    for section in sections:
        forms, _, answer = section.partition("\n")
        exchange.answers |= dict.fromkeys(forms.split(), answer.rstrip("\n"))
    return exchange


def _exchange_text(exchange: Exchange) -> str:
    options = [f"@{name} {value}".rstrip() for name, value in exchange.options.items()]
    lines = [f"### {exchange.title}", *options, exchange.request_text]
    for answer in dict.fromkeys(exchange.answers.values()):
        forms = [form for form in FORMS if exchange.answers.get(form) == answer]
        lines += [f"<<< {' '.join(forms)}", answer]
    return "\n".join(lines) + "\n\n"
