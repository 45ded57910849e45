"""The page at /docs: the contract, made readable, as one document that needs no network and no script.

Not a general renderer of OpenAPI: it shows what openapi/gateway.yaml uses. Markup comes from gateway/docs/markup.py,
which escapes; looks come from assets/docs.css.
Invariants: every operation has the anchor `#<operation id>` and every problem code `#problem-<code>`; the page holds
nothing that its content security policy forbids.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources

from gateway.docs.guide import Contract, Guide, guide_to, tag_anchor
from gateway.docs.markup import Html, element, joined, prose
from gateway.docs.operation import method_label, operation_article
from gateway.docs.problems import problem_section
from gateway.docs.schema import parameter_rows
from openapi import Example, Operation, load_examples


def render_docs(contract: Contract, examples: Sequence[Example] | None = None) -> str:
    """The whole page, to be sent as UTF-8 with `content_security_policy()`."""
    guide = guide_to(contract, load_examples() if examples is None else examples)
    page = element("html", _head(guide), _body(guide), lang="en")
    return f"<!doctype html>\n{page}\n"


@cache
def content_security_policy() -> str:
    """What the page may do: show itself with its own style sheet, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_asset("docs.css").encode()).digest()).decode()
    rules = ["default-src 'none'", f"style-src 'sha256-{digest}'", "img-src data:"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"])


def _head(guide: Guide) -> Html:
    info = guide.contract["info"]
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{info['title']}: HTTP contract"),
        element("link", rel="icon", href="data:,"),  # else the browser asks for /favicon.ico
        element("style", Html(_asset("docs.css"))),
    )


def _body(guide: Guide) -> Html:
    main = element(
        "main",
        _introduction(guide),
        *[_group(guide, tag) for tag in guide.contract["tags"]],
        problem_section(guide),
    )
    skip = element("a", "Skip to the contents", href="#contents", class_="skip")
    # On a narrow screen, which shows the bar, the contents are at the end of the page; on a wide one at the side.
    bar = element("header", _brand(guide), element("a", "Contents", href="#contents"), class_="bar")
    return element("body", skip, bar, main, _navigation(guide), id="top")


def _brand(guide: Guide) -> Html:
    return element("a", Html(_asset("mark.svg")), guide.contract["info"]["title"], href="#top", class_="brand")


def _navigation(guide: Guide) -> Html:
    groups = [_navigation_group(guide, tag["name"]) for tag in guide.contract["tags"]]
    problems = element("p", element("a", "Problems", href="#problems"))
    return element("nav", _brand(guide), *groups, problems, id="contents", aria_label="Contents")


def _navigation_group(guide: Guide, tag: str) -> Html:
    items = [_navigation_item(operation) for operation in guide.tagged(tag)]
    return joined([element("p", element("a", tag, href=tag_anchor(tag))), element("ul", *items)])


def _navigation_item(operation: Operation) -> Html:
    summary = element("span", operation.spec["summary"])
    link = element("a", method_label(operation), summary, href=f"#{operation.operation_id}")
    return element("li", link, class_="planned" if operation.is_planned else None)


def _introduction(guide: Guide) -> Html:
    info = guide.contract["info"]
    raw = element("a", "openapi.json", href="/openapi.json")
    return element(
        "header",
        element("p", f"HTTP contract, version {info['version']}", class_="version"),
        element("h1", info["title"]),
        element("p", info["summary"], " The whole contract is also there as ", raw, ".", class_="summary"),
        element("figure", Html(_asset("positions.svg")), Html(_asset("positions-narrow.svg"))),
        element("div", prose(info["description"], guide.links), class_="about"),
        element("h4", "With every request"),
        parameter_rows(guide, guide.shared_parameters()),
        class_="introduction",
    )


def _group(guide: Guide, tag: Contract) -> Html:
    head = element("header", element("h2", tag["name"]), prose(tag["description"], guide.links), class_="group-head")
    articles = [operation_article(guide, operation) for operation in guide.tagged(tag["name"])]
    return element("section", head, *articles, id=tag_anchor(tag["name"]).removeprefix("#"), class_="group")


@cache
def _asset(name: str) -> str:
    return resources.files("gateway").joinpath("assets", name).read_text(encoding="utf-8")
