"""The guides of docs/ as pages under /docs: their names, their addresses, and the links between them.

It makes no markup. Invariant: a page has the name of its file, and no two files have the same name.
"""

import posixpath
import re
from dataclasses import dataclass
from functools import cache

from gateway.assets.files import guide_texts
from gateway.docs.markdown import anchor, plain_text

INDEX = "docs/README.md"
NAMES = {
    INDEX: "guides",
    "README.md": "start",
    "SECURITY.md": "security-policy",
    "docs/reference/ingest.md": "ingest-reference",
}
_CONTRACT = "openapi/gateway.yaml"  # it is served as the page /docs itself
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Page:
    path: str
    text: str

    @property
    def name(self) -> str:
        return NAMES.get(self.path, posixpath.splitext(posixpath.basename(self.path))[0])

    @property
    def title(self) -> str:
        return plain_text(self.text.partition("\n")[0])

    def address(self, target: str) -> str | None:
        """Returns where a link leads, as seen from this page; None if nothing is served there."""
        file, _, part = target.partition("#")
        if "://" in target or not file:
            return target
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self.path), file))
        if path == _CONTRACT:
            return "../docs"
        there = pages_by_path().get(path)
        return None if there is None else there.name + (f"#{part}" if part else "")


@cache
def pages_by_path() -> dict[str, Page]:
    return {path: Page(path, text) for path, text in guide_texts().items()}


@cache
def pages() -> dict[str, Page]:
    return {page.name: page for page in pages_by_path().values()}


def contents() -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the groups of pages, each with names and titles, in the order of the index."""
    index = pages_by_path()[INDEX]
    groups: list[tuple[str, list[tuple[str, str]]]] = []
    for part in re.split(r"^## ", index.text, flags=re.MULTILINE)[1:]:
        links = [(index.address(target), title) for title, target in _LINK.findall(part)]
        served = [(name, title) for name, title in links if name in pages()]
        groups.append((part.partition("\n")[0], [(str(name), title) for name, title in served]))
    return groups


def section_address(page: Page, title: str) -> str:
    return f"{page.name}#{anchor(title)}" if title else page.name
