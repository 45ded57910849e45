"""The documents of the repository and their content: links, headings, names of files and of make targets.

Pure except for reading the pages. console.py and test_readme.py parse and run fenced blocks.
"""

import re
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
HOMES = (
    "docs",
    "engine",
    "replication",
    "gateway",
    "node",
    "openapi",
    "penstock",
    "spark_ingest",
    "loadtests",
    "tests",
)

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<title>.*)$", re.MULTILINE)
TARGET = re.compile(r"\bmake ([a-z][a-z-]*)(?![\w=])")
FILE = re.compile(rf"`((?:{'|'.join(HOMES)}|requirements|\.ci)/[\w./-]*\w)`")
LINE_NUMBER = re.compile(r"\b[\w/]+\.py(?::\d+|#L\d+)")


def documents() -> list[Path]:
    """Return every Markdown page that belongs to the repository."""
    pages = [*ROOT.glob("*.md"), *(page for home in HOMES for page in (ROOT / home).rglob("*.md"))]
    assert len(pages) > 5
    return sorted(page for page in pages if not page.is_symlink())  # the gateway's package has links to pages


def prose(text: str) -> str:
    """Return a page without its fenced blocks, which are run or shown, and claim nothing."""
    return FENCE.sub("", text)


def broken_links(page: Path, text: str) -> list[str]:
    """Return targets of links that do not exist. Links to other sites are not checked: tests need no network."""
    broken = []
    for match in LINK.finditer(prose(text)):
        target, _, anchor = match["target"].partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        there = page if not target else page.parent / unquote(target)
        is_whole = there.exists() and (not anchor or anchor in anchors(text if there == page else there.read_text()))
        broken += [] if is_whole else [match["target"]]
    return broken


def anchors(text: str) -> set[str]:
    """Return the names that headings can be linked by, as GitHub makes them."""
    titles = (match["title"].lower() for match in HEADING.finditer(prose(text)))
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in titles}


def make_targets(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):.*## ", makefile, re.MULTILINE))


def named_targets(text: str) -> set[str]:
    """Return the targets of `make x` in code blocks or inline code; "to make sure" is English."""
    code = [*FENCE.findall(text), *re.findall(r"`[^`\n]+`", prose(text))]
    return {target for part in code for target in TARGET.findall(part)}


def missing_files(text: str) -> list[str]:
    return [name for name in FILE.findall(prose(text)) if not (ROOT / name).exists()]


def with_part(page: str, begin: str, end: str, made: str) -> str:
    """The page with a generated part between its two marks."""
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{made}\n{end}{rest.partition(end)[2]}"
