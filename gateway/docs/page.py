"""The page at /docs: the contract, made readable, as one document that needs no network.

Not a general renderer of OpenAPI: it shows what openapi/gateway.yaml uses. Markup comes from gateway/docs/markup.py,
which escapes; styles from assets/tokens.css and docs.css; search and copying, which need a script, from
assets/docs.js. Invariants: every operation has the anchor `#<operation id>` and every problem code
`#problem-<code>`; everything can be read without the script; the page contains nothing that its policy forbids.
"""

import re
from collections.abc import Sequence
from functools import cache
from html import escape

from gateway.assets.files import asset_text, hash_source
from gateway.docs.guide import Contract, Guide, Part, guide_to, tag_anchor
from gateway.docs.markup import Html, element, joined, prose
from gateway.docs.operation import method_label, operation_article
from gateway.docs.problems import problem_section
from gateway.docs.schema import parameter_rows
from openapi import Example, Operation, load_contract, load_examples

_ADDRESS = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+")


def docs_page(base_url: str, version: str) -> bytes:
    """Return the page with this address in its examples and this version of the product.

    An address that is not scheme, host and port is not shown: it came with a request.
    """
    page = _rendered(version)
    if not _ADDRESS.fullmatch(base_url):
        return page
    given = str(load_contract()["servers"][0]["url"])
    return page.replace(escape(given).encode(), escape(base_url).encode())


@cache
def _rendered(version: str) -> bytes:
    return render_docs(load_contract(), version=version).encode()


def render_docs(contract: Contract, examples: Sequence[Example] | None = None, *, version: str = "") -> str:
    """Return the whole page, to be sent as UTF-8 with `content_security_policy()`."""
    guide = guide_to(contract, load_examples() if examples is None else examples)
    page = element("html", _head(guide), _body(guide, version), lang="en")
    return f"<!doctype html>\n{page}\n"


@cache
def content_security_policy() -> str:
    """Return the page's permissions: its own style sheet and script, nothing else."""
    style, script = hash_source(_style()), hash_source(asset_text("docs.js"))
    rules = ["default-src 'none'", f"style-src {style}", f"script-src {script}"]
    return "; ".join([*rules, "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"])


def _style() -> str:
    return asset_text("tokens.css") + asset_text("docs.css")


def _head(guide: Guide) -> Html:
    info = guide.contract["info"]
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{info['title']}: HTTP contract"),
        element("link", rel="icon", href="data:,"),  # without it, the browser asks for /favicon.ico
        element("style", Html(_style())),
    )


def _body(guide: Guide, version: str) -> Html:
    main = element(
        "main",
        _introduction(guide, version),
        *[_group(guide, tag) for tag in guide.contract["tags"]],
        problem_section(guide),
    )
    skip = element("a", "Skip to the contents", href="#contents", class_="skip")
    # On a narrow screen the contents are at the end of the page, and the bar leads there; on a wide one at the side.
    contents = element("a", "Contents", href="#contents", class_="to-contents")
    bar = element("header", _brand(guide), _search(), contents, class_="bar")
    return element(
        "body", skip, bar, main, _navigation(guide), element("script", Html(asset_text("docs.js"))), id="top"
    )


def _search() -> Html:
    """Return the search box. It is hidden until the script, which it needs, shows it."""
    label = element("label", "Search", for_="search")
    box = element("input", type="search", id="search", placeholder="Search  /", autocomplete="off", spellcheck="false")
    found = [element("output", for_="search"), element("ul", hidden=True)]
    return element("div", label, box, *found, role="search", class_="search", hidden=True)


def _brand(guide: Guide) -> Html:
    name = element("span", guide.contract["info"]["title"])
    return element("a", Html(asset_text("mark.svg")), name, href="#top", class_="brand")


def _navigation(guide: Guide) -> Html:
    parts = [element("li", element("a", part.title, href=part.anchor)) for part in guide.parts()]
    about = joined([element("p", "Guide"), element("ul", *parts)])
    groups = [_navigation_group(guide, tag["name"]) for tag in guide.contract["tags"]]
    problems = element("p", element("a", "Problems", href="#problems"))
    return element("nav", _brand(guide), about, *groups, problems, id="contents", aria_label="Contents")


def _navigation_group(guide: Guide, tag: str) -> Html:
    items = [_navigation_item(operation) for operation in guide.tagged(tag)]
    return joined([element("p", element("a", tag, href=tag_anchor(tag))), element("ul", *items)])


def _navigation_item(operation: Operation) -> Html:
    summary = element("span", operation.spec["summary"])
    link = element("a", method_label(operation), summary, href=f"#{operation.operation_id}")
    return element("li", link)


def _introduction(guide: Guide, version: str) -> Html:
    info = guide.contract["info"]
    raw = element("a", "openapi.json", href="/openapi.json")
    product = f"{info['title']} {version}, HTTP contract {info['version']}".replace("  ", " ").replace(" ,", ",")
    return element(
        "header",
        element("p", product, class_="version"),
        element("h1", info["title"]),
        element("p", info["summary"], " The contract for programs is ", raw, ".", class_="summary"),
        element("figure", Html(asset_text("positions.svg")), Html(asset_text("positions-narrow.svg"))),
        element("div", prose(guide.lead(), guide.links), class_="about"),
        *[_part(guide, part) for part in guide.parts()],
        element("h4", "Headers of every request"),
        parameter_rows(guide, guide.shared_parameters()),
        class_="introduction",
    )


def _part(guide: Guide, part: Part) -> Html:
    text = [element("h4", part.title), prose(part.text, guide.links)]
    return element("section", *text, id=part.anchor.removeprefix("#"), class_="part", data_kind="Guide")


def _group(guide: Guide, tag: Contract) -> Html:
    head = element("header", element("h2", tag["name"]), prose(tag["description"], guide.links), class_="group-head")
    articles = [operation_article(guide, operation) for operation in guide.tagged(tag["name"])]
    return element("section", head, *articles, id=tag_anchor(tag["name"]).removeprefix("#"), class_="group")
