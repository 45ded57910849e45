"""Writes the request of an example as a curl command, as Python (requests) and as JavaScript (fetch).

Each can be pasted and run as it is, and sends the same request as the test that sends the example. Invariant: a JSON
body that fits on a line is written as it is sent by curl, since the node stores values byte by byte.
"""

import base64
import json
import textwrap
from typing import Any, NamedTuple

from openapi import Example

WIDTH = 58  # characters; the width of the column beside the text
_NOT_FROM_SCRIPTS = {"host"}  # headers that fetch() does not let a script set
_NEVER_ENDS = "text/event-stream"


class Style(NamedTuple):
    """The notation of values: the separators, and the words of the language for null, true and false."""

    colon: str = ": "
    comma: str = ", "
    null: str = "null"
    true: str = "true"
    false: str = "false"


READABLE = Style()
SENT = Style(":", ",")
PYTHON = Style(null="None", true="True", false="False")


def snippets(example: Example, base_url: str) -> dict[str, str]:
    """Return the request in each language that can send it, curl first."""
    written = {"curl": curl(example, base_url), "Python": python(example, base_url)}
    if not _NOT_FROM_SCRIPTS & {name.lower() for name in example.headers}:
        written["JavaScript"] = javascript(example, base_url)
    return written


def curl(example: Example, base_url: str) -> str:
    parts = [*_curl_method(example), _shell_quoted(base_url + example.path)]
    parts += [f"-H {_shell_quoted(f'{name}: {value}')}" for name, value in example.headers.items()]
    before = ""
    if example.body_json is not None:
        parts.append(f"-d {_shell_quoted(pretty(example.body_json, SENT))}")
    elif _is_binary(example):
        before = f"base64 -d <<'END' |\n{_wrapped_base64(example)}\nEND\n"
        parts.append("--data-binary @-")
    elif example.body is not None:
        parts.append(f"--data-binary {_shell_quoted(example.body.decode())}")
    return before + "curl " + " \\\n  ".join(parts)


def python(example: Example, base_url: str) -> str:
    streams = _NEVER_ENDS in example.headers.values()
    given = [_quoted(base_url + example.path)]
    given += [f"headers={_indented(example.headers, PYTHON, 'headers=')}"] if example.headers else []
    if example.body_json is not None:
        given.append(f"json={_indented(example.body_json, PYTHON, 'json=')}")
    elif _is_binary(example):
        given.append(f'data=base64.b64decode("""\n{_wrapped_base64(example)}\n    """)')
    elif example.body is not None:
        given.append(f"data={_quoted(example.body.decode())}.encode()")
    given += ["stream=True"] if streams else []
    imports = "import base64\n\nimport requests\n" if _is_binary(example) else "import requests\n"
    read = "for line in response.iter_lines():\n    print(line.decode())" if streams else "print(response.text)"
    call = _call(f"response = requests.{example.method.lower()}", given)
    return f"{imports}\n{call}\nprint(response.status_code)\n{read}"


def javascript(example: Example, base_url: str) -> str:
    options = [] if example.method == "GET" else [f"method: {_quoted(example.method)}"]
    if example.headers:
        options.append(f"headers: {_indented(example.headers, READABLE, 'headers: ')}")
    if example.body_json is not None:
        options.append(f"body: JSON.stringify({_indented(example.body_json, READABLE, 'body: JSON.stringify()')})")
    elif _is_binary(example):
        options.append(f"body: Uint8Array.from(atob(`\n{_wrapped_base64(example)}\n  `), (c) => c.charCodeAt(0))")
    elif example.body is not None:
        options.append(f"body: {_quoted(example.body.decode())}")
    url = _quoted(base_url + example.path)
    given = f"{url}, {{\n{''.join(f'  {one},{chr(10)}' for one in options)}}}" if options else url
    read = "console.log(await response.text());"
    if _NEVER_ENDS in example.headers.values():
        read = "for await (const piece of response.body)\n  console.log(new TextDecoder().decode(piece));"
    return f"const response = await fetch({given});\nconsole.log(response.status);\n{read}"


def pretty(value: Any, style: Style = READABLE, *, indent: str = "", before: str = "") -> str:
    """Return the value with line breaks only where a line would be too long.

    `before` is the text before the value on its first line; it counts for the width.
    """
    flat = _flat(value, style)
    if len(indent) + len(before) + len(flat) <= WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    deeper = indent + " " * len(style.colon)
    if isinstance(value, dict):
        names = [_flat(name, style) + style.colon for name in value]
        first, last, inner = "{", "}", list(value.values())
    else:
        names = [""] * len(value)
        first, last, inner = "[", "]", value
    members = zip(names, inner, strict=True)
    shown = [name + pretty(item, style, indent=deeper, before=name) for name, item in members]
    lines = ",\n".join(deeper + item for item in shown)
    return f"{first}\n{lines}\n{indent}{last}"


def _flat(value: Any, style: Style) -> str:
    if isinstance(value, dict):
        members = (f"{_flat(name, style)}{style.colon}{_flat(item, style)}" for name, item in value.items())
        return "{" + style.comma.join(members) + "}"
    if isinstance(value, list):
        return "[" + style.comma.join(_flat(item, style) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: style.null, True: style.true, False: style.false}[value]
    return json.dumps(value, ensure_ascii=False)


def _indented(value: Any, style: Style, before: str) -> str:
    return pretty(value, style, indent="  " if style is READABLE else "    ", before=before)


def _call(function: str, given: list[str]) -> str:
    flat = f"{function}({', '.join(given)})"
    if len(flat) <= WIDTH and "\n" not in flat:
        return flat
    return f"{function}(\n{''.join(f'    {one},{chr(10)}' for one in given)})"


def _curl_method(example: Example) -> list[str]:
    """Return the method, unless curl takes it by itself: GET, and POST when there is a body."""
    implied = "GET" if example.body is None else "POST"
    return [] if example.method == implied else [f"-X {example.method}"]


def _is_binary(example: Example) -> bool:
    return example.body_json is None and example.body is not None and b"\0" in example.body


def _wrapped_base64(example: Example) -> str:
    return "\n".join(textwrap.wrap(base64.b64encode(example.body or b"").decode(), WIDTH))


def _quoted(text: str) -> str:
    """Return a string literal that is valid in Python and in JavaScript: JSON's literal is valid in both."""
    return json.dumps(text, ensure_ascii=False)


def _shell_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
