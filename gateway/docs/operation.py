"""Shows one operation of the contract: its purpose, parameters, answers and examples.

Schemas are shown by schema.py, examples by examples.py.
"""

from gateway.docs.examples import example_block
from gateway.docs.guide import Contract, Guide
from gateway.docs.markup import Html, element, inline, joined, prose
from gateway.docs.schema import header_rows, member_rows, members_of, parameter_rows
from openapi import Operation

_HEADERS_OF_EVERY_ANSWER = {"Penstock-Request-Id"}


def operation_article(guide: Guide, operation: Operation) -> Html:
    heading = element("h3", element("a", operation.spec["summary"], href=f"#{operation.operation_id}"))
    line = element("p", method_label(operation), element("code", _path(operation.path)), class_="path")
    about = prose(operation.spec["description"], guide.links)
    details = joined([_request(guide, operation), _answers(guide, operation)])
    text = element("div", about, details, class_="text")
    examples = element("div", *_examples(guide, operation), class_="examples")
    parts = [element("header", heading, line), element("div", text, examples, class_="columns")]
    return element("article", *parts, id=operation.operation_id, class_="operation")


def _examples(guide: Guide, operation: Operation) -> list[Html]:
    """Return the examples. The first is open, the others are folded."""
    examples = guide.examples_of(operation.operation_id)
    return [example_block(one, guide.base_url, is_open=one is examples[0]) for one in examples]


def method_label(operation: Operation) -> Html:
    return element("span", operation.method, class_=f"method {operation.method.lower()}")


def _path(path: str) -> Html:
    """Return the path, with a possible line break at each slash."""
    steps = path.split("/")[1:]
    return joined(
        joined(["/", element("span", step, class_="slot") if step.startswith("{") else step, element("wbr")])
        for step in steps
    )


def _request(guide: Guide, operation: Operation) -> Html:
    parameters = guide.own_parameters(operation)
    body = guide.resolve(operation.spec.get("requestBody", {}))
    parts = []
    if parameters:
        parts.append(_titled("Parameters", parameter_rows(guide, parameters)))
    if body:
        about = prose(body.get("description", ""), guide.links)
        optional = None if body.get("required") else element("p", "The body may be left out.")
        parts.append(_titled("Body", about, optional, *_media_types(guide, body, is_request=True)))
    return joined(parts)


def _answers(guide: Guide, operation: Operation) -> Html:
    responses = operation.spec["responses"].items()
    good = [_answer(guide, status, guide.resolve(answer)) for status, answer in responses if int(status) < 400]
    codes = sorted(operation.spec["x-penstock-codes"], key=lambda code: int(guide.problems[code]["status"]))
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(guide.problems[code]["status"], []).append(code)
    rows = [_codes_row(guide, status, codes) for status, codes in by_status.items()]
    return joined([_titled("Answers", *good), _titled("Problems", element("dl", *rows, class_="codes"))])


def _codes_row(guide: Guide, status: int, codes: list[str]) -> Html:
    links = [
        element("a", element("code", code), href=guide.links[code], title=guide.problems[code]["title"])
        for code in codes
    ]
    return element("div", element("dt", str(status)), element("dd", joined(links, " ")))


def _answer(guide: Guide, status: str, answer: Contract) -> Html:
    said = inline(" ".join(answer["description"].split()), guide.links)
    line = element("p", element("span", status, class_="status good"), element("span", said), class_="outcome")
    headers = {name: one for name, one in answer.get("headers", {}).items() if name not in _HEADERS_OF_EVERY_ANSWER}
    folded = _folded(_counted(len(headers), "header"), header_rows(guide, headers)) if headers else None
    return element("div", line, *_media_types(guide, answer, is_request=False), folded, class_="answer")


def _media_types(guide: Guide, holder: Contract, *, is_request: bool) -> list[Html]:
    content = holder.get("content", {}).items()
    return [_media_type(guide, name, media, is_request=is_request) for name, media in content]


def _media_type(guide: Guide, name: str, media: Contract, *, is_request: bool) -> Html:
    schema = guide.resolve(media["schema"])
    shown = element("span", "any other media type") if name == "*/*" else element("code", name)
    label = element("p", shown, class_="media-type")
    about = prose(schema["description"], guide.links) if "description" in schema else None
    count = sum(1 for _ in members_of(guide, schema))
    rows = member_rows(guide, schema, is_request=is_request)
    fields = _folded(_counted(count, "field"), rows, is_open=is_request) if count else None
    return element("div", label, about, fields, class_="media")


def _folded(title: str, content: Html, *, is_open: bool = False) -> Html:
    return element("details", element("summary", title), content, class_="folded", open=is_open)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _titled(title: str, *content: Html | None) -> Html:
    return element("section", element("h4", title), *content)
