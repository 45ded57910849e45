"""The page at /docs: the contract, made readable, as one document that needs no network.

Not a general renderer of OpenAPI: it shows what openapi/gateway.yaml uses. Its frame is frame.py's.
Invariants: every operation has the anchor `#<operation id>` and every problem code `#problem-<code>`.
"""

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from html import escape

from gateway.assets.files import asset_text
from gateway.assets.packed import Packed, pack_tagged
from gateway.docs.frame import content_security_policy, framed, group
from gateway.docs.guide import Contract, Guide, Part, guide_to, tag_anchor
from gateway.docs.markup import Html, element, prose
from gateway.docs.operation import method_label, operation_article
from gateway.docs.problems import problem_section
from gateway.docs.schema import parameter_rows
from openapi import Example, Operation, load_contract, load_examples

_ADDRESS = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+")
_ADDRESSES = 4  # a node has few; one that a client made up may not take memory


@lru_cache(maxsize=_ADDRESSES)
def docs_page(base_url: str, version: str) -> Packed:
    """Return the page with this address in its examples and this version of the product.

    An address that is not scheme, host and port is not shown: it came with a request.
    """
    page = _rendered(version)
    if _ADDRESS.fullmatch(base_url):
        given = str(load_contract()["servers"][0]["url"])
        page = page.replace(escape(given).encode(), escape(base_url).encode())
    headers = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": content_security_policy()}
    return pack_tagged(page, headers)


@cache
def _rendered(version: str) -> bytes:
    return render_docs(load_contract(), version=version).encode()


def render_docs(contract: Contract, examples: Sequence[Example] | None = None, *, version: str = "") -> str:
    """Return the whole page, to be sent as UTF-8 with `content_security_policy()`."""
    guide = guide_to(contract, load_examples() if examples is None else examples)
    main = element(
        "main",
        _introduction(guide, version),
        *[_group(guide, tag) for tag in guide.contract["tags"]],
        problem_section(guide),
    )
    return framed(f"{guide.contract['info']['title']}: API", main, _contents(guide), home="#top", root="docs/")


def _contents(guide: Guide) -> list[Html]:
    parts = [element("li", element("a", part.title, href=part.anchor)) for part in guide.parts()]
    tags = [tag["name"] for tag in guide.contract["tags"]]
    groups = [group(tag, *map(_item, guide.tagged(tag)), address=tag_anchor(tag)) for tag in tags]
    problems = element("p", element("a", "Errors", href="#problems"))
    return [*group("About", *parts), *(part for one in groups for part in one), problems]


def _item(operation: Operation) -> Html:
    summary = element("span", operation.spec["summary"])
    link = element("a", method_label(operation), summary, href=f"#{operation.operation_id}")
    return element("li", link)


def _introduction(guide: Guide, version: str) -> Html:
    info = guide.contract["info"]
    raw = element("a", "openapi.json", href="/openapi.json")
    product = f"{info['title']} {version}; API {info['version']}".replace("  ", " ").replace(" ,", ",")
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
    return element("section", *text, id=part.anchor.removeprefix("#"), class_="part")


def _group(guide: Guide, tag: Contract) -> Html:
    head = element("header", element("h2", tag["name"]), prose(tag["description"], guide.links), class_="group-head")
    articles = [operation_article(guide, operation) for operation in guide.tagged(tag["name"])]
    return element("section", head, *articles, id=tag_anchor(tag["name"]).removeprefix("#"), class_="group")
