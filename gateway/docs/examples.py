"""Shows an example of the contract as a curl command and the answer to it.

The command can be pasted into a shell and sends the same request as the test that sends the example.
Invariant: a value that fits on a line is written as it is sent, since the node stores values byte by byte.
"""

import base64
import re
import textwrap
from http import HTTPStatus
from typing import Any

import orjson

from gateway.docs.markup import Html, element, joined
from openapi import Example

_WIDTH = 58  # characters; what the column beside the text holds
_TOKEN = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*"(?=\s*:))|(?P<text>"(?:[^"\\]|\\.)*")|(?P<plain>\btrue\b|\bfalse\b|\bnull\b|-?\b\d+\b)'
)


def example_block(example: Example, base_url: str, *, is_open: bool) -> Html:
    return element(
        "details",
        element("summary", example.title),
        element("pre", element("code", curl(example, base_url)), class_="request", tabindex="0"),
        element("pre", _answer(example), class_="answer-shown", tabindex="0"),
        class_="example",
        open=is_open,
    )


def curl(example: Example, base_url: str) -> str:
    url = base_url + example.path
    parts = [*_method(example), _quoted(url) if re.search(r"[?&]", url) else url]
    parts += [f"-H {_quoted(f'{name}: {value}')}" for name, value in example.headers.items()]
    before = ""
    if example.body_json is not None:
        parts.append(f"-d {_quoted(pretty(example.body_json, colon=':', comma=','))}")
    elif example.body is not None and b"\0" in example.body:
        encoded = "\n".join(textwrap.wrap(base64.b64encode(example.body).decode(), _WIDTH))
        before = f"base64 -d <<'END' |\n{encoded}\nEND\n"
        parts.append("--data-binary @-")
    elif example.body is not None:
        parts.append(f"--data-binary {_quoted(example.body.decode())}")
    return before + "curl " + " \\\n  ".join(parts)


def _method(example: Example) -> list[str]:
    """curl takes GET by itself, and POST when there is a body."""
    implied = "GET" if example.body is None else "POST"
    return [] if example.method == implied else [f"-X {example.method}"]


def pretty(value: Any, *, colon: str = ": ", comma: str = ", ", indent: str = "", before: str = "") -> str:
    """JSON with line breaks only where a line would be too long. `before` is what stands on its first line."""
    flat = _flat(value, colon, comma)
    if len(indent) + len(before) + len(flat) <= _WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    deeper = indent + " " * len(colon)
    if isinstance(value, dict):
        names = [_flat(name, colon, comma) + colon for name in value]
        first, last, inner = "{", "}", list(value.values())
    else:
        names = [""] * len(value)
        first, last, inner = "[", "]", value
    members = zip(names, inner, strict=True)
    shown = [name + pretty(item, colon=colon, comma=comma, indent=deeper, before=name) for name, item in members]
    lines = ",\n".join(deeper + item for item in shown)
    return f"{first}\n{lines}\n{indent}{last}"


def _flat(value: Any, colon: str, comma: str) -> str:
    if isinstance(value, dict):
        return (
            "{" + comma.join(f"{_flat(k, colon, comma)}{colon}{_flat(v, colon, comma)}" for k, v in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + comma.join(_flat(item, colon, comma) for item in value) + "]"
    return orjson.dumps(value).decode()


def _answer(example: Example) -> Html:
    expect = example.expect
    kind = "good" if expect.status < 400 else "bad"
    status = element("span", f"{expect.status} {HTTPStatus(expect.status).phrase}", class_=f"status {kind}")
    headers = [element("span", f"\n{name}: {value}", class_="header") for name, value in expect.headers.items()]
    body: Html | str = ""
    if expect.json_subset is not None:
        body = highlighted(pretty(expect.json_subset))
    elif expect.text is not None:
        body = highlighted(expect.text.rstrip("\n"))
    return element("code", status, *headers, "\n\n" if body else None, body)


def highlighted(source: str) -> Html:
    parts: list[str] = []
    end = 0
    for match in _TOKEN.finditer(source):
        parts += [source[end : match.start()], element("span", match[0], class_=f"json-{match.lastgroup}")]
        end = match.end()
    return joined([*parts, source[end:]])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
