"""Shows an example of the contract: the request in each language, one tab each, and its answer.

The tabs are radio buttons, so they work without a script; the style sheet shows the selected one.
"""

import re
from http import HTTPStatus

from gateway.docs.markup import Html, element, joined
from gateway.docs.snippets import pretty, snippets
from openapi import Example

_TOKEN = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*"(?=\s*:))|(?P<text>"(?:[^"\\]|\\.)*")|(?P<plain>\btrue\b|\bfalse\b|\bnull\b|-?\b\d+\b)'
)


def example_block(example: Example, base_url: str, *, is_open: bool) -> Html:
    return element(
        "details",
        element("summary", example.title),
        _request(example, base_url),
        element("pre", _answer(example), class_="answer-shown", tabindex="0"),
        class_="example",
        open=is_open,
    )


def _request(example: Example, base_url: str) -> Html:
    tabs, codes = [], []
    for language, code in snippets(example, base_url).items():
        kind, name = language.lower(), f"{example.name}-{language.lower()}"
        group = {"type": "radio", "name": example.name, "value": kind}
        tabs.append(element("input", **group, id=name, class_=f"tab {kind}", checked=language == "curl"))
        tabs.append(element("label", language, for_=name))
        codes.append(element("pre", element("code", code), class_=f"code {kind}", tabindex="0"))
    copy = element("button", "Copy", type="button", class_="copy", hidden=True)  # the script shows it
    return element("div", *tabs, copy, *codes, class_="request")


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
    """Return the JSON text with its keys, texts and other values marked."""
    parts: list[str] = []
    end = 0
    for match in _TOKEN.finditer(source):
        parts += [source[end : match.start()], element("span", match[0], class_=f"json-{match.lastgroup}")]
        end = match.end()
    return joined([*parts, source[end:]])
