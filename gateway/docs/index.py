"""The index of the search of /docs: operations, problems, and the sections of the guides, as one JSON document.

It knows no markup. An entry has its kind, its title, its address from a page below /docs, a few names that count more
than its text, and its text.
"""

from functools import cache

import orjson

from gateway.assets.packed import Packed, pack_tagged
from gateway.docs.guide import Contract, problem_anchor
from gateway.docs.manual import pages, section_address
from gateway.docs.markdown import plain_text, sections
from openapi import load_contract, operations, resolve

Entry = tuple[str, str, str, str, str]


@cache
def search_index() -> Packed:
    return pack_tagged(orjson.dumps(entries()), {"Content-Type": "application/json"})


def entries() -> list[Entry]:
    contract = load_contract()
    return [*_operations(contract), *_problems(contract), *_guides()]


def _operations(contract: Contract) -> list[Entry]:
    found: list[Entry] = []
    for one in operations(contract):
        names = " ".join(resolve(contract, parameter)["name"] for parameter in one.spec["parameters"])
        text = f"{one.method} {one.path} {plain_text(one.spec['description'])} {names}"
        near = f"{one.operation_id} {one.path}"
        found.append(("Operation", one.spec["summary"], f"../docs#{one.operation_id}", near, text))
    return found


def _problems(contract: Contract) -> list[Entry]:
    problems = contract["x-penstock-problems"].items()
    return [
        (
            "Error",
            code,
            f"../docs{problem_anchor(code)}",
            code,
            f"{problem['title']}. {plain_text(problem['what_to_do'])}",
        )
        for code, problem in problems
    ]


def _guides() -> list[Entry]:
    return [
        ("Guide", f"{page.title}: {title}" if title else page.title, section_address(page, title), page.name, text)
        for page in pages().values()
        for title, text in sections(page.text)
        if text
    ]
