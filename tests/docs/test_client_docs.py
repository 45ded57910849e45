"""docs/reference/client.md against the client: its examples run, its tables are complete.

`python -m tests.docs.test_client_docs` writes the table of options into the page.
"""

import re
from dataclasses import fields

import pytest

import penstock
from penstock.admin.admin import Admin
from penstock.errors import ClientError
from penstock.options import ClientOptions
from tests.docs.console import PAGES, blocks, environment_of, printed_by
from tests.docs.pages import with_part
from tests.e2e.node_process import running_process

PAGE = PAGES / "reference" / "client.md"
BEGIN, END = "<!-- options: made by python -m tests.docs.test_client_docs -->", "<!-- end of options -->"


def options_table() -> str:
    rows = ["| option | default | why |", "|---|---|---|"]
    for item in fields(ClientOptions):
        default = item.default if isinstance(item.default, bool | str) else f"{item.default:,}"
        rows.append(f"| `{item.name}` | {default} | {item.metadata['why']} |")
    return "\n".join(rows)


def page_with_options(text: str) -> str:
    return with_part(text, BEGIN, END, options_table())


def test_the_table_of_options_is_complete():
    text = PAGE.read_text()
    assert text == page_with_options(text), "regenerate it: python -m tests.docs.test_client_docs"


def test_every_error_is_on_the_page():
    errors = {name for name in penstock.__all__ if issubclass_of(getattr(penstock, name), ClientError)} - {
        "ClientError"
    }
    assert set(re.findall(r"^\| `(\w+)` \| (?:The|No|`d|With)", PAGE.read_text(), re.MULTILINE)) == errors


def test_every_topic_method_is_on_the_page():
    methods = {name for name in vars(Admin) if not name.startswith("_")}
    section = PAGE.read_text().partition("## Topics")[2].partition("## ")[0]
    assert set(re.findall(r"`(\w+)`", section)) == methods


def test_every_name_that_the_package_gives_can_be_had():
    assert set(penstock.__all__) == set(penstock._HOMES)
    for name in penstock.__all__:
        assert getattr(penstock, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = penstock.nothing


@pytest.mark.e2e
def test_the_examples_run(tmp_path):
    examples = blocks("reference/client.md", "python")
    assert len(examples) == 4
    with running_process(tmp_path / "node") as node:
        environment = environment_of("reference/client.md", node.url)
        printed = [printed_by(example, tmp_path, environment) for example in examples]
    assert re.fullmatch(r"flights \d \d+ \d{13}", printed[0][0])
    assert len(printed[1]) == 4
    assert "".join(printed[2]).count('"delay":') == 4


def issubclass_of(one: object, kind: type) -> bool:
    return isinstance(one, type) and issubclass(one, kind)


if __name__ == "__main__":
    PAGE.write_text(page_with_options(PAGE.read_text()))
