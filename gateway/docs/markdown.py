"""The pages of docs/ as HTML: the part of Markdown that they use, escaped by markup.py.

Headings, paragraphs, lists in lists, tables, fenced blocks, links, code and emphasis. Pictures are left out: a page
loads nothing. Invariant: a heading has the anchor that GitHub gives it, so that links between pages work in both.
"""

import re
import textwrap
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gateway.docs.markup import Html, element, joined

Link = Callable[[str], str | None]  # the target of a link in a page -> its address here; None: it is not served

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)  # indented: in an item of a list
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_INLINE = re.compile(
    r"(?P<ticks>``?)(?P<code>.+?)(?P=ticks)|!\[[^\]]*\]\([^)\s]+\)"
    r"|\[(?P<text>(?:`[^`]*`|[^\]`])*)\]\((?P<target>[^)\s]+)\)|<(?P<url>https?://[^>\s]+)>"
    r"|\*\*(?P<strong>(?:`[^`]*`|[^*])+)\*\*|(?<![\w*])\*(?P<em>[^*\s][^*]*)\*(?![\w*])",
    re.DOTALL,
)
_ITEM = re.compile(r"(?:[-*]|\d+\.) +")
_CELL = re.compile(r"(?<!\\)\|")


class Block(NamedTuple):
    """A block of a page: its lines without the blank ones around them. A fenced block has a language, or ""."""

    text: str
    language: str | None = None


def blocks(text: str) -> Iterator[Block]:
    end = 0
    for fence in _FENCE.finditer(text):
        yield from _plain(text[end : fence.start()])
        yield Block(textwrap.dedent(fence[3]), fence[2])
        end = fence.end()
    yield from _plain(text[end:])


def render(text: str, link: Link) -> Html:
    """Returns the page, without its first heading."""
    shown = (block for block in blocks(text) if (heading(block) or (0, ""))[0] != 1)
    return joined(_block(block, link) for block in shown)


def heading(block: Block) -> tuple[int, str] | None:
    """Returns the level and the title of a heading; None for another block."""
    found = re.fullmatch(r"(#{1,4}) (.+)", block.text) if block.language is None else None
    return None if found is None else (len(found[1]), found[2])


def anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def plain_text(text: str) -> str:
    """Returns what a reader sees of a block, in one line."""
    seen = _INLINE.sub(
        lambda found: next((one for one in found.group("code", "text", "url", "strong", "em") if one), ""), text
    )
    return " ".join(re.sub(r"^\|[-:| ]+$|[|`]|^#+ ", " ", seen, flags=re.MULTILINE).split())


def _plain(text: str) -> Iterator[Block]:
    for part in re.split(r"\n\s*\n", _COMMENT.sub("\n", text)):
        for piece in re.split(r"(?<=\n)(?=#)|(?<=^)(#{1,4} [^\n]*)\n", part.strip("\n"), flags=re.MULTILINE):
            if piece and piece.strip():
                yield Block(piece.strip("\n"))


def _block(block: Block, link: Link) -> Html:
    if block.language is not None:
        return element("pre", element("code", block.text.rstrip("\n")), tabindex="0")
    found = heading(block)
    if found is not None:
        level, title = found
        name = anchor(plain_text(title))
        return element(f"h{level}", element("a", _inline(title, link), href=f"#{name}"), id=name)
    if block.text.startswith("|"):
        return _table(block.text.splitlines(), link)
    if block.text.startswith("!["):  # a picture, with its caption
        return Html("")
    if _ITEM.match(block.text):
        return _list(block.text, link)
    paragraph = _inline(block.text, link)
    return element("p", paragraph) if paragraph else Html("")


def _list(text: str, link: Link) -> Html:
    items = re.split(rf"^(?={_ITEM.pattern})", text, flags=re.MULTILINE)
    number = re.match(r"\d+", text)
    start = None if number is None or number[0] == "1" else number[0]  # it goes on below a block
    return element(
        "ul" if number is None else "ol", *(_list_item(item.rstrip(), link) for item in items if item), start=start
    )


def _list_item(text: str, link: Link) -> Html:
    head, *inner = re.split(rf"\n(?= +{_ITEM.pattern})", _ITEM.sub("", text, count=1), maxsplit=1)
    return element("li", _inline(head, link), *(_list(textwrap.dedent(part), link) for part in inner))


def _table(lines: list[str], link: Link) -> Html:
    rows = [[cell.strip().replace("\\|", "|") for cell in _CELL.split(line.strip().strip("|"))] for line in lines]
    rows = [row for number, row in enumerate(rows) if number != 1]
    head, *body = (
        joined(element("td" if n else "th", _inline(cell, link)) for cell in row) for n, row in enumerate(rows)
    )
    table = element(
        "table", element("thead", element("tr", head)), element("tbody", *(element("tr", row) for row in body))
    )
    return element("div", table, class_="table", tabindex="0")


def _inline(text: str, link: Link) -> Html:
    parts: list[str] = []
    end = 0
    for match in _INLINE.finditer(text):
        parts += [text[end : match.start()], _element(match, link)]
        end = match.end()
    return joined([*parts, text[end:]])


def _element(match: re.Match[str], link: Link) -> Html:
    if match["code"] is not None:
        return element("code", match["code"].strip())
    if match["text"] is not None:
        address, text = link(match["target"]), _inline(match["text"], link)
        return text if address is None else element("a", text, href=address)
    if match["url"] is not None:
        return element("a", match["url"], href=match["url"], rel="noreferrer")
    if match["strong"] is not None:
        return element("strong", _inline(match["strong"], link))
    return element("em", match["em"]) if match["em"] is not None else Html("")
