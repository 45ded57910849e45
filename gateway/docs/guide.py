"""The lookups of the documentation page: the contract, its examples, and the page's anchors.

It makes no markup. Invariant: every anchor named here exists in the page.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openapi import Example, Operation, operations, resolve

Contract = dict[str, Any]

# Headers that every request under /v1 may carry are described once, at the top of the page.
_EVERY_REQUEST = ("ClientId", "RequestId")


_PART = re.compile(r"\*\*(?P<title>[^*]+?)\.\*\*\s+(?P<text>.*)", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """A paragraph of the contract's description that begins with a title: `**Title.** text`."""

    title: str
    text: str

    @property
    def anchor(self) -> str:
        return "#guide-" + re.sub(r"[^a-z]+", "-", self.title.lower())


@dataclass(frozen=True)
class Guide:
    contract: Contract
    examples: Sequence[Example]
    links: dict[str, str]  # problem code -> its anchor

    @property
    def base_url(self) -> str:
        return str(self.contract["servers"][0]["url"])

    @property
    def problems(self) -> dict[str, Contract]:
        return dict(self.contract["x-penstock-problems"])

    def lead(self) -> str:
        """Return the paragraphs of the description that have no title."""
        return "\n\n".join(one for one in self._paragraphs() if not _PART.fullmatch(one))

    def parts(self) -> list[Part]:
        """Return the paragraphs of the description that have a title, in their order."""
        return [Part(*found.groups()) for found in map(_PART.fullmatch, self._paragraphs()) if found]

    def _paragraphs(self) -> list[str]:
        return re.split(r"\n\s*\n", self.contract["info"]["description"].strip())

    def resolve(self, value: Contract) -> Contract:
        return resolve(self.contract, value)

    def component(self, kind: str, name: str) -> Contract:
        return dict(self.contract["components"][kind][name])

    def tagged(self, tag: str) -> list[Operation]:
        return [one for one in operations(self.contract) if one.spec["tags"][0] == tag]

    def examples_of(self, operation_id: str) -> list[Example]:
        return [example for example in self.examples if example.operation == operation_id]

    def shared_parameters(self) -> list[Contract]:
        return [self.component("parameters", name) for name in _EVERY_REQUEST]

    def own_parameters(self, operation: Operation) -> list[Contract]:
        shared = {parameter["name"] for parameter in self.shared_parameters()}
        return [one for one in map(self.resolve, operation.spec["parameters"]) if one["name"] not in shared]


def guide_to(contract: Contract, examples: Sequence[Example]) -> Guide:
    return Guide(contract, examples, {code: problem_anchor(code) for code in contract["x-penstock-problems"]})


def problem_anchor(code: str) -> str:
    """Return the anchor of a problem code. It never changes: the `type` of problem documents points at it."""
    return f"#problem-{code}"


def tag_anchor(tag: str) -> str:
    """Return the anchor of a tag. It differs from operation ids: there is an operation `produce` and a tag Produce."""
    return "#tag-" + tag.lower().replace(" ", "-")
